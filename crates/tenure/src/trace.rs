//! Traces: the position of an event in its trace, and the spans of handlers.
//!
//! An event keeps the headers `traceparent` and `tracestate` of its producer:
//! [`NewEvent::traceparent`](crate::NewEvent::traceparent). Handlers, commands and receivers of
//! webhooks get them. With a [`Tracer`], such as `Otlp` (feature `otlp`), each sampled attempt is a
//! span below its producer's, and what is passed on is that span.

pub use tenure_core::{HandleSpan, Sampling, TraceParent, Tracer};
#[cfg(feature = "otlp")]
pub use tenure_publish::{Otlp, OtlpConfig};
