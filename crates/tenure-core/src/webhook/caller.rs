//! Caller: the port through which webhook requests are sent.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use uuid::Uuid;

use super::Endpoint;
use crate::event::Event;
use crate::item::ItemId;
use crate::token::Fence;

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Receiver of the request.
    pub endpoint: &'a Endpoint,
    /// Id of the delivery.
    pub delivery: ItemId,
    /// Idempotency key for the receiver: the event's id, the same for every attempt.
    pub message: Uuid,
    /// Event to send.
    pub event: &'a Event,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// Number of the claim.
    pub fence: Fence,
    /// Number that rises along the ordering key at this endpoint; `None` without a key.
    pub sequence: Option<i64>,
    /// Time limit of the whole exchange.
    pub time_limit: Duration,
}

/// Result of a call: a response or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code of the response, or the reason why there is none.
    pub status: Result<u16, CallError>,
    /// Value of the response header `retry-after`.
    pub retry_after: Option<Duration>,
    /// Value of the response header `webhook-delivery`.
    pub directive: Option<Directive>,
    /// Response headers, truncated and with secrets masked.
    pub headers: Vec<(String, String)>,
    /// First bytes of the response body.
    pub body: Vec<u8>,
    /// The body was longer than the stored part.
    pub is_cut: bool,
    /// Address that was called.
    pub peer: Option<IpAddr>,
    /// Times of the parts of the call.
    pub timings: Timings,
}

impl Reply {
    /// Maximum size of the stored response body, in bytes.
    pub const BODY_BYTES_MAX: usize = 16 * 1024;

    /// A response with this status and nothing else.
    pub fn status(status: u16) -> Self {
        Self::of(Ok(status))
    }

    /// An error instead of a response.
    pub fn error(kind: CallErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::of(Err(CallError { kind, text }))
    }

    fn of(status: Result<u16, CallError>) -> Self {
        Self {
            status,
            retry_after: None,
            directive: None,
            headers: Vec::new(),
            body: Vec::new(),
            is_cut: false,
            peer: None,
            timings: Timings::default(),
        }
    }
}

/// Request of the receiver in a response, besides its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Directive {
    /// Never send this message again.
    AbortMessage,
    /// Stop sending to this endpoint.
    Disable,
}

/// Time from the start of a call to the end of each part; `None` for a part that was not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Until the name was resolved.
    pub dns: Option<Duration>,
    /// Until the connection was open.
    pub connect: Option<Duration>,
    /// Until the TLS handshake was complete.
    pub tls: Option<Duration>,
    /// Until the head of the response arrived.
    pub first_byte: Option<Duration>,
    /// Duration of the whole call.
    pub total: Duration,
}

/// Reason for a missing response. The text is for people and contains no secret and no address that
/// the policy hides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    /// Kind of error.
    pub kind: CallErrorKind,
    /// Text for people.
    pub text: String,
}

words! {
    /// Kind of error of a call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum CallErrorKind: as_str {
        /// The policy forbids the address.
        Forbidden = "forbidden",
        /// The host name could not be resolved.
        Dns = "dns",
        /// The connection failed.
        Connect = "connect",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The time limit was exceeded.
        Timeout = "timeout",
        /// The connection broke, or the response was not HTTP.
        Broken = "broken",
        /// The request cannot be built: a secret cannot be decrypted, or the payload is invalid.
        /// The receiver is not at fault.
        Unsendable = "unsendable",
    }
}

/// Future of [`Caller::call`].
pub type Calling<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// Calls endpoints. Dropping a returned future closes its connection.
pub trait Caller: Send + Sync + fmt::Debug {
    /// Makes one call. Never fails: errors are part of the reply.
    fn call<'a>(&'a self, request: &'a Request<'a>) -> Calling<'a>;

    /// Returns the reason why this process cannot call an endpoint at all, such as a key that
    /// cannot decrypt its secrets; `None` if it can call it. With a reason, the process claims
    /// nothing for the endpoint and leaves its deliveries to other processes.
    fn refuses(&self, _endpoint: &Endpoint) -> Option<String> {
        None
    }
}
