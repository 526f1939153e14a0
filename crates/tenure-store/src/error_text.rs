//! What `last_error` keeps of an error.

/// Errors are cut here: they are for people, and a response body may hold more than it should.
pub(crate) const CHARACTERS_MAX: u16 = 1000;

/// An error as every store keeps it: at most 1000 characters and none that PostgreSQL's text cannot
/// hold.
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
