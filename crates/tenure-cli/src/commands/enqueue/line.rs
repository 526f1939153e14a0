//! Reads one line of the input, up to its maximum size, and parses it as an event.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tenure::{Event, Invalid, NewEvent, Problems};
use uuid::Uuid;

use super::Enqueue;
use crate::time;

/// Maximum size of a line: a payload of 1 MiB and the other fields.
pub(super) const BYTES_MAX: usize = 2 << 20;

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole line, without its end.
    Line,
    /// The start of a line that is too long; the rest is not read yet.
    TooLong,
    /// The end of the input.
    End,
}

/// Reads a line into `line`, and returns the number of bytes consumed.
pub(super) fn read(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<(Piece, u64)> {
    line.clear();
    let mut taken = 0_u64;
    loop {
        let (end, size) = {
            let chunk = fill(input)?;
            if chunk.is_empty() {
                let piece = if taken == 0 { Piece::End } else { Piece::Line };
                return Ok((piece, taken));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let text = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or(chunk);
            if line.len() + text.len() > BYTES_MAX {
                return Ok((Piece::TooLong, taken));
            }
            line.extend_from_slice(text);
            (end, end.map_or(chunk.len(), |end| end + 1))
        };
        input.consume(size);
        taken += u64::try_from(size).unwrap_or(u64::MAX);
        if end.is_some() {
            return Ok((Piece::Line, taken));
        }
    }
}

/// The first line without the byte order mark that some programs write.
pub(super) fn without_bom(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Consumes the rest of a line without storing it.
pub(super) fn skip_rest(input: &mut impl BufRead) -> io::Result<u64> {
    let mut taken = 0_u64;
    loop {
        let chunk = fill(input)?;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let size = end.map_or(chunk.len(), |end| end + 1);
        input.consume(size);
        taken += u64::try_from(size).unwrap_or(u64::MAX);
        if end.is_some() || size == 0 {
            return Ok(taken);
        }
    }
}

/// The next buffered bytes; retries when a signal interrupts.
fn fill(input: &mut impl BufRead) -> io::Result<&[u8]> {
    while let Err(error) = input.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    input.fill_buf()
}

/// The fields of an event in a line. Each value is parsed by itself, so that an error names the
/// field and does not quote the value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventFields<'a> {
    #[serde(borrow)]
    topic: &'a RawValue,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow)]
    queue: Option<&'a RawValue>,
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    strict: Option<&'a RawValue>,
    #[serde(borrow)]
    priority: Option<&'a RawValue>,
    #[serde(borrow)]
    delay: Option<&'a RawValue>,
    #[serde(borrow)]
    dedupe: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    event_id: Option<&'a RawValue>,
}

/// Parses a line as an event; `None` for a blank line.
pub(super) fn event(line: &[u8], args: &Enqueue) -> Result<Option<Event>, Problems> {
    let text = str::from_utf8(line).map_err(|cause| {
        let actual = format!("not UTF-8 (byte {})", cause.valid_up_to());
        Invalid::new("the line", actual, "JSON text")
    })?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    match &args.topic {
        Some(topic) => {
            let event = args.apply_options(NewEvent::from_json(topic, text));
            args.ordered(event, None, None)?.build().map(Some)
        }
        None => of_fields(text, args).map(Some),
    }
}

fn of_fields(text: &str, args: &Enqueue) -> Result<Event, Problems> {
    if !text.starts_with('{') {
        let expected = "one with topic and payload; to use lines as payloads, give a TOPIC";
        return Err(Invalid::new("the line", "not a JSON object", expected).into());
    }
    let fields: EventFields<'_> = serde_json::from_str(text).map_err(|cause| {
        let cause = cause.to_string();
        // Drop the line number, which is always 1.
        let cause = cause.split(" at line ").next().unwrap_or(&cause);
        let expected = r#"one such as {"topic": "order.paid", "payload": {"order": 7}}"#;
        Invalid::new("the line", format!("not an event ({cause})"), expected)
    })?;
    let topic: String = value("topic", fields.topic, "text")?;
    let mut event = args.apply_options(NewEvent::from_json(&topic, fields.payload.get()));
    if let Some(raw) = fields.queue {
        event = event.queue(&value::<String>("queue", raw, "text")?);
    }
    let key: Option<String> = match fields.key {
        Some(raw) => Some(value("key", raw, "text")?),
        None => None,
    };
    let strict = match fields.strict {
        Some(raw) => Some(value("strict", raw, "true or false")?),
        None => None,
    };
    event = args.ordered(event, key.as_deref(), strict)?;
    if let Some(raw) = fields.priority {
        event = event.priority(value("priority", raw, "0 to 7, highest first")?);
    }
    if let Some(raw) = fields.delay {
        let text: String = value("delay", raw, "text such as \"30s\"")?;
        event = event.delay(time::duration(&text)?);
    }
    if let Some(raw) = fields.dedupe {
        event = event.dedupe(&value::<String>("dedupe", raw, "text")?);
    }
    if let Some(raw) = fields.headers {
        let expected = "an object of texts";
        for (name, text) in value::<BTreeMap<String, String>>("headers", raw, expected)? {
            event = event.header(&name, &text);
        }
    }
    if let Some(raw) = fields.event_id {
        let text: String = value("event_id", raw, "text")?;
        let id = text
            .parse::<Uuid>()
            .map_err(|cause| Invalid::new("event_id", format!("not a UUID ({cause})"), "a UUID"))?;
        event = event.event_id(id);
    }
    event.build()
}

/// Parses the value of a field.
fn value<T: DeserializeOwned>(
    field: &'static str,
    raw: &RawValue,
    expected: &str,
) -> Result<T, Invalid> {
    let read = serde_json::from_str(raw.get());
    // The parser's error would quote the value.
    read.map_err(|_hidden| Invalid::new(field, "of another type", expected))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_read_whole_and_counted_in_bytes() {
        // With a buffer of three bytes, lines span several reads.
        let mut input = BufReader::with_capacity(3, &b"one\n\ntwo three\nlast"[..]);
        let mut line = Vec::new();
        for (text, bytes) in [("one", 4), ("", 1), ("two three", 10), ("last", 4)] {
            assert_eq!(read(&mut input, &mut line).unwrap(), (Piece::Line, bytes));
            assert_eq!(line, text.as_bytes());
        }
        assert_eq!(read(&mut input, &mut line).unwrap(), (Piece::End, 0));
    }

    #[test]
    fn an_endless_line_is_neither_stored_nor_read_to_its_end() {
        let mut input = BufReader::new(io::repeat(b'x'));
        let mut line = Vec::new();
        let (piece, _) = read(&mut input, &mut line).unwrap();
        assert_eq!(piece, Piece::TooLong);
        assert!(line.len() <= BYTES_MAX);
    }

    #[test]
    fn the_longest_line_is_read_and_reading_continues_after_a_longer_one() {
        let longest = "x".repeat(BYTES_MAX);
        let text = format!("{longest}\n{longest}x\nnext\n");
        let mut input = BufReader::new(text.as_bytes());
        let mut line = Vec::new();
        assert_eq!(read(&mut input, &mut line).unwrap().0, Piece::Line);
        assert_eq!(line.len(), BYTES_MAX);
        assert_eq!(read(&mut input, &mut line).unwrap().0, Piece::TooLong);
        skip_rest(&mut input).unwrap();
        assert_eq!(read(&mut input, &mut line).unwrap().0, Piece::Line);
        assert_eq!(line, b"next");
    }
}
