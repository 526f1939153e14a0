//! Traces: `TraceParent` (W3C Trace Context), `Sampling`, and the port `Tracer` for the spans of
//! handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::item::ItemId;
use crate::lease::WorkerId;
use crate::outcome::Outcome;
use crate::token::Fence;

/// Header with the position of an event in its trace.
pub const TRACEPARENT: &str = "traceparent";
/// Header with data of tracing systems, which goes with [`TRACEPARENT`].
pub const TRACESTATE: &str = "tracestate";

/// Flag: the caller records its span.
const SAMPLED: u8 = 1;
/// Flag: the trace id is random. The other bits have no meaning yet and are not passed on.
const RANDOM: u8 = 2;
/// Bits of a trace id that a ratio compares: those that W3C wants to be random.
const RANDOM_BITS: u32 = 56;
/// Length of version 00.
const LENGTH: usize = 55;

/// Position in a trace: the value of the header `traceparent`.
///
/// ```
/// use tenure_core::TraceParent;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let parent = TraceParent::parse(text).ok_or("malformed")?;
/// assert!(parent.is_sampled());
/// assert_eq!(parent.to_string(), text);
/// assert_eq!(TraceParent::parse("00-4bf9-00f0-01"), None);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

impl TraceParent {
    /// The first span of a trace; `None` if an id is zero. The trace id should be random.
    pub fn root(trace_id: u128, span_id: u64, is_sampled: bool) -> Option<Self> {
        let flags = RANDOM | u8::from(is_sampled);
        (trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            flags,
        })
    }

    /// A recorded span below this one; `None` if the id is zero.
    #[must_use]
    pub fn child(self, span_id: u64) -> Option<Self> {
        let flags = self.flags | SAMPLED;
        (span_id != 0).then_some(Self {
            span_id,
            flags,
            ..self
        })
    }

    /// Parses the text of a header; `None` if it is malformed. Versions above 00 are read as far as
    /// version 00 goes, as the standard demands.
    pub fn parse(text: &str) -> Option<Self> {
        let (front, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = front.split('-');
        let version = hex(parts.next()?, 2)?;
        let trace_id = hex(parts.next()?, 32)?;
        let span_id = u64::try_from(hex(parts.next()?, 16)?).ok()?;
        let flags = u8::try_from(hex(parts.next()?, 2)?).ok()?;
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let is_valid = is_whole && parts.next().is_none() && trace_id != 0 && span_id != 0;
        is_valid.then_some(Self {
            trace_id,
            span_id,
            flags: flags & (SAMPLED | RANDOM),
        })
    }

    /// The `traceparent` of these headers; `None` if it is missing or malformed.
    pub fn of(headers: &BTreeMap<String, String>) -> Option<Self> {
        Self::parse(header(headers, TRACEPARENT)?)
    }

    /// Id of the trace.
    pub const fn trace_id(self) -> u128 {
        self.trace_id
    }

    /// Id of the span.
    pub const fn span_id(self) -> u64 {
        self.span_id
    }

    /// The flags, as a number.
    pub const fn flags(self) -> u8 {
        self.flags
    }

    /// True if the span is recorded.
    pub const fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The headers to pass on: `traceparent` and, if there is one, the `tracestate` of the event.
    /// Nothing if its `traceparent` is missing or malformed.
    pub fn passed_on(
        headers: &BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'static str, &str)> {
        let is_valid = Self::of(headers).is_some();
        let names = [TRACEPARENT, TRACESTATE].into_iter();
        let both = names.filter_map(|name| Some((name, header(headers, name)?)));
        both.filter(move |(_, text)| is_valid && !text.is_empty())
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            span_id,
            flags,
        } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

/// A header by its lower-case name. A program that writes SQL may have spelt it otherwise.
pub(crate) fn header<'a>(headers: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let mut all = headers.iter();
    let found = all.find(|(header, _)| header.eq_ignore_ascii_case(name));
    found.map(|(_, text)| text.as_str())
}

/// A number of exactly this many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

/// Decides, before anything is recorded, whether an attempt gets a span.
///
/// ```
/// use tenure_core::{Sampling, TraceParent};
///
/// let parent = |flags| TraceParent::parse(&format!("00-{:032x}-{:016x}-{flags}", 7, 7));
/// let sampling = Sampling::by_parent(0.01);
/// assert!(sampling.takes(parent("01"), || 1.0), "its caller records it");
/// assert!(!sampling.takes(parent("00"), || 0.0), "its caller does not");
/// assert!(sampling.takes(None, || 0.005), "one in a hundred of the others");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    ratio: f64,
    asks_parent: bool,
}

impl Sampling {
    /// No spans.
    pub const NEVER: Self = Self::by_ratio(0.0);

    /// Follows the flag of the event's `traceparent`; of other items this share, from 0 to 1.
    pub const fn by_parent(ratio: f64) -> Self {
        Self {
            ratio,
            asks_parent: true,
        }
    }

    /// This share of all items, from 0 to 1, whatever their `traceparent` says. All spans of a
    /// trace get the same answer.
    pub const fn by_ratio(ratio: f64) -> Self {
        Self {
            ratio,
            asks_parent: false,
        }
    }

    /// True if no item gets a span.
    pub fn is_never(self) -> bool {
        !self.asks_parent && self.ratio <= 0.0
    }

    /// Decides about an item; `chance` draws a number in [0, 1).
    pub fn takes(self, parent: Option<TraceParent>, chance: impl FnOnce() -> f64) -> bool {
        match parent {
            Some(parent) if self.asks_parent => parent.is_sampled(),
            // The largest share rounds to one.
            Some(parent) => self.ratio >= 1.0 || share(parent.trace_id) < self.ratio,
            None => self.ratio >= 1.0 || (self.ratio > 0.0 && chance() < self.ratio),
        }
    }
}

impl Default for Sampling {
    /// Follows the event's `traceparent`; takes all other items.
    fn default() -> Self {
        Self::by_parent(1.0)
    }
}

/// A number in [0, 1), from the random bits of a trace id.
#[expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "sampling needs no 56 bits of precision"
)]
fn share(trace_id: u128) -> f64 {
    let random = trace_id & ((1 << RANDOM_BITS) - 1);
    random as f64 / (1_u64 << RANDOM_BITS) as f64
}

/// A handler's span, ended: one attempt at an item.
#[derive(Clone, Debug)]
pub struct HandleSpan {
    /// Position of the span in its trace; handlers and receivers get it as `traceparent`.
    pub context: TraceParent,
    /// Span above it; `None` if the item had none.
    pub parent: Option<TraceParent>,
    /// The `tracestate` of the event.
    pub state: Option<String>,
    /// Worker that ran the handler.
    pub worker: WorkerId,
    /// Item that was worked on.
    pub item: ItemId,
    /// Id of the event, or of the event of a delivery.
    pub event_id: Option<Uuid>,
    /// Topic of the event; for jobs and rows, the route of the handler, if it has one.
    pub topic: String,
    /// Queue of the event; `None` for jobs and rows.
    pub queue: Option<String>,
    /// Ordering key of the event.
    pub key: Option<String>,
    /// Endpoint number of a delivery.
    pub endpoint: Option<u32>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Number of the claim.
    pub fence: Fence,
    /// Run time of the handler.
    pub took: Duration,
    /// `None`: the lease was over before the handler answered.
    pub outcome: Option<Outcome>,
}

/// Takes the spans of handlers that [`Sampling`] has chosen.
pub trait Tracer: Send + Sync + fmt::Debug {
    /// Takes a span that has just ended. Called by the executor, so it must not block.
    fn record(&self, span: HandleSpan);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_malformed_traceparent_is_none() {
        let zeros = "0".repeat(32);
        let cases = [
            String::new(),
            TEXT.to_uppercase(),
            TEXT.replace("00-4b", "ff-4b"),
            TEXT.replace('-', "_"),
            TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            TEXT.replace("00f067aa0ba902b7", "0000000000000000"),
            TEXT.replace("-01", "-0"),
            format!("{TEXT}-more"),
            format!(" {TEXT}"),
            TEXT.replace("4bf9", "+bf9"),
            TEXT.replace("4bf92f", "4bf-2f"),
            "ä".repeat(28),
        ];
        for text in cases {
            assert_eq!(TraceParent::parse(&text), None, "{text:?}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let first = TraceParent::parse(TEXT);
        assert_eq!(TraceParent::parse(&TEXT.replace("00-4b", "cc-4b")), first);
        let longer = format!("{}-more", TEXT.replace("00-4b", "cc-4b"));
        assert_eq!(TraceParent::parse(&longer), first);
        assert_eq!(TraceParent::parse(&longer.replace("-more", ".more")), None);
        let flags = TraceParent::parse(&TEXT.replace("-01", "-ff")).expect("it is valid");
        assert_eq!(flags.flags(), 3, "unknown flags are not passed on");
    }

    #[test]
    fn a_child_keeps_the_trace_and_is_recorded() {
        let parent = TraceParent::parse(&TEXT.replace("-01", "-02")).expect("it is valid");
        let child = parent.child(7).expect("the id is not zero");
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_eq!(
            child.to_string(),
            TEXT.replace("00f067aa0ba902b7-01", "0000000000000007-03")
        );
        assert_eq!(parent.child(0), None);
        assert_eq!(TraceParent::root(0, 7, true), None);
    }

    #[test]
    fn headers_are_passed_on_only_with_a_valid_traceparent() {
        let passed = |parent: &str, state: &str| {
            let headers = [("Traceparent", parent), ("tracestate", state), ("a", "b")];
            let headers = headers.map(|(name, text)| (name.to_owned(), text.to_owned()));
            let headers = BTreeMap::from(headers);
            let passed = TraceParent::passed_on(&headers);
            passed.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(passed(TEXT, "v=1"), [TRACEPARENT, TRACESTATE]);
        assert_eq!(
            passed(TEXT, ""),
            [TRACEPARENT],
            "an empty state is left out"
        );
        assert!(passed("00-bad", "v=1").is_empty());
    }

    #[test]
    fn a_ratio_gives_all_spans_of_a_trace_the_same_answer() {
        let sampling = Sampling::by_ratio(0.25);
        let at = |trace_id| TraceParent::root(trace_id, 7, false);
        assert!(sampling.takes(at(1 << 53), || 1.0));
        assert!(!sampling.takes(at(1 << 54), || 0.0));
        assert!(
            sampling.takes(at(1 << 60), || 1.0),
            "its 56 random bits are zero"
        );
        assert!(Sampling::by_ratio(1.0).takes(at(u128::MAX), || 1.0));
        assert!(Sampling::NEVER.is_never() && !Sampling::by_parent(0.0).is_never());
        assert!(!Sampling::by_parent(0.0).takes(None, || 0.0));
    }
}
