//! Text of an error as stored in `last_error`.

/// Maximum length of a stored error in characters. Operators need no more, and a response body may
/// contain secrets.
pub(crate) const CHARACTERS_MAX: u16 = 1000;

/// Shortens an error to 1000 characters and replaces NUL, which PostgreSQL cannot store in text.
pub(crate) fn error_text(error: &str) -> String {
    error
        .chars()
        .take(usize::from(CHARACTERS_MAX))
        .map(|c| {
            if c == '\0' {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_cut_between_characters_and_holds_no_nul() {
        let text = error_text(&format!("a\0{}", "é".repeat(2000)));
        assert_eq!(text.chars().count(), usize::from(CHARACTERS_MAX));
        assert!(text.starts_with("a\u{fffd}é"));
    }
}
