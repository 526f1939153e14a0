//! Caller: the port between who decides about a delivery and what sends it.

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

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// To whom.
    pub endpoint: &'a Endpoint,
    /// The delivery's handle.
    pub delivery: ItemId,
    /// The receiver's idempotency key: the event's id, the same for every attempt.
    pub message: Uuid,
    /// What.
    pub event: &'a Event,
    /// 1 at the first try.
    pub attempt: u32,
    /// The number of the claim.
    pub fence: Fence,
    /// For an event with an ordering key: rises along the key at this endpoint.
    pub sequence: Option<i64>,
    /// How long the whole exchange may take.
    pub time_limit: Duration,
}

/// What came back, or what went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status of the answer, or why there is none.
    pub status: Result<u16, CallError>,
    /// What the answer said in `retry-after`.
    pub retry_after: Option<Duration>,
    /// What the answer said in `webhook-delivery`.
    pub directive: Option<Directive>,
    /// Headers of the answer, cut and with secrets masked.
    pub headers: Vec<(String, String)>,
    /// The first bytes of the answer.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub is_cut: bool,
    /// Who was called.
    pub peer: Option<IpAddr>,
    /// How long it took.
    pub timings: Timings,
}

impl Reply {
    /// At most this much of an answer's body is kept.
    pub const BODY_BYTES_MAX: usize = 16 * 1024;

    /// An answer of this status and nothing else.
    pub fn status(status: u16) -> Self {
        Self::of(Ok(status))
    }

    /// No answer.
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

/// What an answer asks for, beside its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// Never send this message again.
    AbortMessage,
    /// Send nothing any more.
    Disable,
}

/// How long the parts of a call took; a part that was not reached is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The name was resolved.
    pub dns: Option<Duration>,
    /// The connection stood.
    pub connect: Option<Duration>,
    /// It was encrypted.
    pub tls: Option<Duration>,
    /// The head of the answer was there.
    pub first_byte: Option<Duration>,
    /// All of it.
    pub total: Duration,
}

/// Why there is no answer. The text is for people, has no secret in it and no address that the
/// policy hides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    /// What kind of trouble.
    pub kind: CallErrorKind,
    /// In words.
    pub text: String,
}

/// What kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The address is not one that may be called.
    Forbidden,
    /// The name has no address.
    Dns,
    /// Nobody took the connection.
    Connect,
    /// It could not be encrypted.
    Tls,
    /// It took too long.
    Timeout,
    /// The exchange broke off, or was no HTTP.
    Broken,
    /// The request cannot be made: a secret that does not open, a payload that is no payload. It
    /// is not the receiver's fault.
    Unsendable,
}

impl CallErrorKind {
    /// One word, for metrics, records and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Unsendable => "unsendable",
        }
    }
}

/// The reply, on its way.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// Calls endpoints. The future that it returns may be dropped at any time; then the connection is
/// closed.
pub trait Caller: Send + Sync + fmt::Debug {
    /// Makes one call. Never fails: what goes wrong is a reply.
    fn call<'a>(&'a self, request: &'a Request<'a>) -> Calling<'a>;

    /// Why this process cannot call an endpoint at all, whatever it is sent: its secrets do not
    /// open, say. Nothing is claimed for it then, so that its deliveries wait for a process that
    /// can. `None`: it can.
    fn refuses(&self, _endpoint: &Endpoint) -> Option<String> {
        None
    }
}
