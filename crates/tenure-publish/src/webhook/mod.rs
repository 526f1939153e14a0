//! Webhooks: signed calls to addresses that may be called.
//!
//! [`WebhookCaller`] makes one call and says what came back; whether it is tried again is not
//! decided here. Each call is signed as the Standard Webhooks text says, so that its libraries for
//! other languages verify it, and has a second signature over the attempt and the fence, for
//! receivers that refuse what comes too late: [`verify`].

mod answer;
mod blocks;
mod caller;
mod connection;
mod dial;
mod keyring;
pub mod names;
mod policy;
mod pool;
mod prepared;
mod secrets;
mod signing;
mod tls;
pub mod verify;

pub use caller::{CallerConfig, WebhookCaller};
pub use dial::{
    Dialled, Dialler, Dialling, Resolver, Resolving, Stream, SystemResolver, TcpDialler,
};
pub use keyring::Keyring;
pub use policy::{AddressPolicy, Target};
pub use secrets::{Secrets, Signing};
pub use signing::{Scheme, SigningKey};
