//! An event as one line of JSON, for the publishers that write lines.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_core::{Encoding, Publication, PublishError};

/// The fields of a line, in order.
#[derive(Serialize)]
struct Fields<'a> {
    id: i64,
    event_id: Option<String>,
    topic: &'a str,
    queue: &'a str,
    key: Option<&'a str>,
    attempt: u32,
    fence: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_left_ms: Option<u128>,
    headers: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    payload: &'a RawValue,
}

/// The line, with its line break; `time_left` is for a receiver that answers.
pub(crate) fn event_line(
    publication: &Publication<'_>,
    time_left: Option<Duration>,
) -> Result<Vec<u8>, PublishError> {
    let event = publication.event;
    // JSON has line breaks only between values, never within a string, so the meaning does not
    // change.
    let payload = event.payload().replace(['\n', '\r'], " ");
    let payload: &RawValue = serde_json::from_str(&payload).map_err(|cause| {
        let place = cause.column();
        PublishError::reject(format!("the payload is not JSON, at its byte {place}"))
    })?;
    let fields = Fields {
        id: publication.id.number(),
        event_id: event.event_id().map(|id| id.to_string()),
        topic: event.topic(),
        queue: event.queue().as_str(),
        key: event.key(),
        attempt: publication.attempt,
        fence: publication.fence.number(),
        time_left_ms: time_left.map(|time| time.as_millis()),
        headers: event.headers(),
        encoding: event.encoding().map(Encoding::as_str),
        payload,
    };
    let mut text = serde_json::to_vec(&fields)
        .map_err(|cause| PublishError::reject(format!("not writable as JSON ({cause})")))?;
    text.push(b'\n');
    Ok(text)
}
