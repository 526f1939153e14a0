//! Header names of a call.

/// Message id: the same for every attempt.
pub const ID: &str = "webhook-id";
/// Time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// Signatures over id, timestamp and body, one for each live key.
pub const SIGNATURE: &str = "webhook-signature";
/// Attempt number; 1 at the first attempt.
pub const ATTEMPT: &str = "webhook-attempt";
/// Number of the claim.
pub const FENCE: &str = "webhook-fence";
/// Number that rises within the ordering key; absent without a key.
pub const SEQUENCE: &str = "webhook-sequence";
/// Topic of the event.
pub const TOPIC: &str = "webhook-topic";
/// Signatures, one for each live key, over the lines `tenure`, id, timestamp, fence, attempt,
/// sequence and topic, followed by the body.
pub const OWN_SIGNATURE: &str = "webhook-tenure-signature";
/// In a reply: a request of the receiver, `abort-message` or `disable`.
pub const DIRECTIVE: &str = "webhook-delivery";

/// The headers above that a call can have.
pub const ALL: [&str; 8] = [
    ID,
    TIMESTAMP,
    SIGNATURE,
    ATTEMPT,
    FENCE,
    SEQUENCE,
    TOPIC,
    OWN_SIGNATURE,
];

/// Text before the body in Tenure's own signature. It contains line breaks, which a header cannot,
/// so it is never mistaken for a Standard Webhooks message.
pub(super) fn own_front(parts: [&str; 6]) -> String {
    format!("tenure\n{}\n", parts.join("\n"))
}
