//! Headers as both databases store them: a JSON object of strings, or null if there are none.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_core::Event;

/// The headers of an event as they are stored.
pub(crate) fn stored_headers(event: &Event) -> Option<String> {
    let headers = Some(event.headers()).filter(|headers| !headers.is_empty())?;
    Some(serde_json::to_string(headers).expect("names and texts can always be written as JSON"))
}

/// Reads stored headers. A value that is not a string (inserted by another program) becomes its
/// JSON text: an error would block its event, and everything claimed with it, for ever.
pub(crate) fn read_headers(stored: Option<&str>) -> BTreeMap<String, String> {
    let Some(Ok(object)) = stored.map(serde_json::from_str::<BTreeMap<String, Value>>) else {
        return BTreeMap::new();
    };
    let text = |value: Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    object
        .into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_another_program_are_read_as_text() {
        let read = read_headers(Some(r#"{"a": "x", "b": 7, "c": null}"#));
        let texts: Vec<&str> = read.values().map(String::as_str).collect();
        assert_eq!(texts, ["x", "7", "null"]);
        assert!(read_headers(Some("[]")).is_empty());
        assert!(read_headers(None).is_empty());
    }
}
