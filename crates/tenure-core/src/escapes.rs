//! Escapes in JSON text that are valid JSON but stand for no text: U+0000, and half of a surrogate
//! pair. PostgreSQL's `jsonb` refuses both, and so do many parsers.

use crate::invalid::Invalid;

/// Refuses a payload with such an escape, on every store. The text must be valid JSON.
pub(crate) fn check_escapes(payload: &str) -> Result<(), Invalid> {
    let mut rest = payload;
    // A search for `\u` would also find the end of `\\u`, so walk from backslash to backslash.
    while let Some(at) = rest.find('\\') {
        let Some(unit) = unit_at(rest, at) else {
            rest = rest.get(at + 2..).unwrap_or_default();
            continue;
        };
        let low = unit_at(rest, at + ESCAPE_BYTES);
        let length = match (unit, low) {
            (0, _) => {
                let expected = "text without it: PostgreSQL's text and jsonb cannot hold it";
                return Err(Invalid::new(
                    "payload",
                    "text with the escape \\u0000",
                    expected,
                ));
            }
            (0xD800..=0xDBFF, Some(0xDC00..=0xDFFF)) => 2 * ESCAPE_BYTES,
            (0xD800..=0xDFFF, _) => {
                let found = format!("text with the escape \\u{unit:04x}, half of a surrogate pair");
                return Err(Invalid::new("payload", found, "both halves, or neither"));
            }
            _ => ESCAPE_BYTES,
        };
        rest = rest.get(at + length..).unwrap_or_default();
    }
    Ok(())
}

/// Length of `\u00e9`.
const ESCAPE_BYTES: usize = 6;

/// The number in the escape `\uXXXX` at this position; `None` if there is another escape or none.
fn unit_at(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + ESCAPE_BYTES)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_without_a_character_are_refused() {
        for payload in [
            r#""\u0000""#,
            r#"{"a\u0000": 1}"#,
            r#""\\\u0000""#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00\ud800""#,
            r#""é\uD83D""#,
        ] {
            assert!(check_escapes(payload).is_err(), "{payload}");
        }
        for payload in [
            r#""\\u0000""#,
            r#""\u0001\u00e9""#,
            r#""\ud83d\ude00""#,
            r#""\\ud800 \n\u0041""#,
            r#""é😀\\""#,
            "7",
        ] {
            assert!(check_escapes(payload).is_ok(), "{payload}");
        }
        let error = check_escapes(r#""\u0000""#).unwrap_err().to_string();
        assert_eq!(
            error,
            "payload is text with the escape \\u0000; expected text without it: PostgreSQL's text \
             and jsonb cannot hold it"
        );
    }
}
