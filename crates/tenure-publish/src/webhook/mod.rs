//! Webhooks: signed calls to permitted addresses.
//!
//! [`WebhookCaller`] makes one call and returns the reply; the engine decides on retries. Each call
//! has a signature as specified by Standard Webhooks, so that the libraries of that project can
//! verify it in other languages. A second signature covers the attempt and the fence, for receivers
//! that refuse late calls: [`verify`].

mod answer;
mod blocks;
mod caller;
pub(crate) mod connection;
mod dial;
mod keyring;
pub mod names;
mod policy;
mod pool;
mod prepared;
mod secrets;
mod signing;
pub(crate) mod tls;
pub mod verify;

pub use caller::{CallerConfig, WebhookCaller};
pub use dial::{
    Dialled, Dialler, Dialling, Resolver, Resolving, Stream, SystemResolver, TcpDialler,
};
pub use keyring::Keyring;
pub use policy::{AddressPolicy, Target};
pub use secrets::{Secrets, Signing};
pub use signing::{Scheme, SigningKey};

use tenure_core::webhook::{CallError, CallErrorKind};

fn call_error(kind: CallErrorKind, text: impl Into<String>) -> CallError {
    let text = text.into();
    CallError { kind, text }
}
