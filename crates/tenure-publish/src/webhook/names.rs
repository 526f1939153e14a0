//! The names of the headers that a call has.

/// The message: the same for every attempt.
pub const ID: &str = "webhook-id";
/// When the attempt was made, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// Over id, timestamp and body, by every live key.
pub const SIGNATURE: &str = "webhook-signature";
/// 1 at the first try.
pub const ATTEMPT: &str = "webhook-attempt";
/// The number of the claim.
pub const FENCE: &str = "webhook-fence";
/// With an ordering key: rises along the key.
pub const SEQUENCE: &str = "webhook-sequence";
/// What the event is about.
pub const TOPIC: &str = "webhook-topic";
/// Over a line each of `tenure`, id, timestamp, fence, attempt, sequence and topic, and the body,
/// by every live key.
pub const OWN_SIGNATURE: &str = "webhook-tenure-signature";
/// In an answer: what the receiver wants beside its status.
pub const DIRECTIVE: &str = "webhook-delivery";

/// All of a call.
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

/// What is in front of the body in Tenure's own signature. No header can hold the end of a line, so
/// nothing that is signed here passes for a message of Standard Webhooks.
pub(super) fn own_front(parts: [&str; 6]) -> String {
    format!("tenure\n{}\n", parts.join("\n"))
}
