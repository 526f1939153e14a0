//! One line of the input: read no further than it may be long, and turned into an event.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tenure::{Event, Invalid, Priority};
use uuid::Uuid;

use super::Enqueue;
use crate::time;

/// No line is longer: a payload may have 1 MiB, and there is what stands around it.
pub(super) const BYTES_MAX: usize = 2 << 20;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole line, without its end.
    Line,
    /// The start of a line that is longer than any may be; the rest is not read yet.
    TooLong,
    /// There is nothing more.
    End,
}

/// Reads a line into `line`, or as much of it as is kept; answers how many bytes were taken, too.
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

/// The first line without the mark that some programs put at the start of a text (U+FEFF): it says
/// how the text is encoded and is no part of it.
pub(super) fn unmarked(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Takes the rest of a line, and keeps nothing of it.
pub(super) fn pass_over(input: &mut impl BufRead) -> io::Result<u64> {
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

/// What is to be read next; a signal is no end.
fn fill(input: &mut impl BufRead) -> io::Result<&[u8]> {
    while let Err(error) = input.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    input.fill_buf()
}

/// An event as a line says it. What is in the fields is read one by one, so that an error shows
/// which, and nothing of what is in them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
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

/// The event that a line is; `None`: the line is blank.
pub(super) fn event(line: &[u8], args: &Enqueue) -> Result<Option<Event>, Invalid> {
    let text = str::from_utf8(line).map_err(|cause| {
        let found = format!("not UTF-8 (byte {})", cause.valid_up_to());
        Invalid::new("the line", found, "JSON text")
    })?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    match &args.topic {
        Some(topic) => {
            let event = args.dress(Event::from_json(topic, text)?)?;
            args.ordered(event, None, None).map(Some)
        }
        None => of_fields(text, args).map(Some),
    }
}

fn of_fields(text: &str, args: &Enqueue) -> Result<Event, Invalid> {
    if !text.starts_with('{') {
        let expected = "one with topic and payload; to send lines as they are, give a TOPIC";
        return Err(Invalid::new("the line", "no JSON object", expected));
    }
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|cause| {
        let cause = cause.to_string();
        // It is always line 1 of one line.
        let cause = cause.split(" at line ").next().unwrap_or(&cause);
        let expected = r#"one such as {"topic": "order.paid", "payload": {"order": 7}}"#;
        Invalid::new("the line", format!("no event ({cause})"), expected)
    })?;
    let topic: String = value("topic", fields.topic, "text")?;
    let mut event = args.dress(Event::from_json(&topic, fields.payload.get())?)?;
    if let Some(raw) = fields.queue {
        event = event.queue(&value::<String>("queue", raw, "text")?)?;
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
        event = event.priority(Priority::new(value(
            "priority",
            raw,
            "0 to 7, high first",
        )?)?);
    }
    if let Some(raw) = fields.delay {
        let text: String = value("delay", raw, "text such as \"30s\"")?;
        event = event.delay(time::duration(&text)?)?;
    }
    if let Some(raw) = fields.dedupe {
        event = event.dedupe(&value::<String>("dedupe", raw, "text")?)?;
    }
    if let Some(raw) = fields.headers {
        let expected = "an object of texts";
        for (name, text) in value::<BTreeMap<String, String>>("headers", raw, expected)? {
            event = event.header(&name, &text)?;
        }
    }
    if let Some(raw) = fields.event_id {
        let text: String = value("event_id", raw, "text")?;
        let id = text
            .parse::<Uuid>()
            .map_err(|cause| Invalid::new("event_id", format!("no UUID ({cause})"), "a UUID"))?;
        event = event.id(id);
    }
    Ok(event)
}

/// The value of a field, read as what it is to be.
fn value<T: DeserializeOwned>(
    field: &'static str,
    raw: &RawValue,
    expected: &str,
) -> Result<T, Invalid> {
    let read = serde_json::from_str(raw.get());
    // The error would show the value.
    read.map_err(|_hidden| Invalid::new(field, "of another kind", expected))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_read_whole_and_counted_in_bytes() {
        // A buffer of three bytes: lines stretch over several.
        let mut input = BufReader::with_capacity(3, &b"one\n\ntwo three\nlast"[..]);
        let mut line = Vec::new();
        for (text, bytes) in [("one", 4), ("", 1), ("two three", 10), ("last", 4)] {
            assert_eq!(read(&mut input, &mut line).unwrap(), (Piece::Line, bytes));
            assert_eq!(line, text.as_bytes());
        }
        assert_eq!(read(&mut input, &mut line).unwrap(), (Piece::End, 0));
    }

    #[test]
    fn a_line_without_end_is_not_kept_and_not_read_to_its_end() {
        let mut input = BufReader::new(io::repeat(b'x'));
        let mut line = Vec::new();
        let (piece, _) = read(&mut input, &mut line).unwrap();
        assert_eq!(piece, Piece::TooLong);
        assert!(line.len() <= BYTES_MAX);
    }

    #[test]
    fn the_longest_line_is_taken_and_what_follows_a_longer_one_is_found() {
        let longest = "x".repeat(BYTES_MAX);
        let text = format!("{longest}\n{longest}x\nnext\n");
        let mut input = BufReader::new(text.as_bytes());
        let mut line = Vec::new();
        assert_eq!(read(&mut input, &mut line).unwrap().0, Piece::Line);
        assert_eq!(line.len(), BYTES_MAX);
        assert_eq!(read(&mut input, &mut line).unwrap().0, Piece::TooLong);
        pass_over(&mut input).unwrap();
        assert_eq!(read(&mut input, &mut line).unwrap().0, Piece::Line);
        assert_eq!(line, b"next");
    }
}
