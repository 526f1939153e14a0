//! Parses the check constraints of a table out of its `create table` text: SQLite does not list
//! them.
//!
//! An unquoted `check` is always the keyword, so splitting the text into words is enough; nothing
//! else is parsed.

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    /// The name of the constraint, or its expression if it has none.
    pub(super) name: String,
    /// The expression.
    pub(super) asks: String,
    /// The words and quoted names in the expression.
    words: Vec<String>,
}

impl Check {
    /// Returns true if the expression may refer to this column.
    pub(super) fn mentions(&self, column: &str) -> bool {
        let mut words = self.words.iter();
        words.any(|word| word.eq_ignore_ascii_case(column))
    }
}

/// Finds the check constraints in the `create table` text.
pub(super) fn checks(made: &str) -> Vec<Check> {
    let parts = parts(made);
    let is = |at: Option<usize>, word: &str| {
        let part = at.and_then(|at| parts.get(at));
        part.is_some_and(|part| part.kind == Kind::Bare && part.text.eq_ignore_ascii_case(word))
    };
    let mut found = Vec::new();
    for at in (0..parts.len()).filter(|at| is(Some(*at), "check")) {
        let Some((first, last)) = inner(&parts, at + 1) else {
            continue;
        };
        let asks = made.get(first..last).unwrap_or_default();
        let named = is(at.checked_sub(2), "constraint");
        let name = named.then(|| parts.get(at - 1)).flatten();
        let within = parts
            .iter()
            .filter(|part| part.from >= first && part.to <= last);
        let words = within.filter(|part| matches!(part.kind, Kind::Bare | Kind::Name));
        found.push(Check {
            name: name.map_or_else(|| on_one_line(asks), |part| part.text.clone()),
            asks: asks.to_owned(),
            words: words.map(|part| part.text.clone()).collect(),
        });
    }
    found
}

/// Returns true if the text names a collation: Tenure then cannot tell whether two words are equal.
pub(super) fn names_collation(made: &str) -> bool {
    let parts = parts(made);
    let mut words = parts.iter().filter(|part| part.kind == Kind::Bare);
    words.any(|part| part.text.eq_ignore_ascii_case("collate"))
}

/// Returns the start and end of the text between the bracket at this position and its counterpart.
fn inner(parts: &[Part], at: usize) -> Option<(usize, usize)> {
    let first = parts.get(at).filter(|part| part.kind == Kind::Open)?;
    let mut depth = 0_usize;
    for part in parts.iter().skip(at) {
        match part.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth -= 1,
            Kind::Bare | Kind::Name | Kind::Other => {}
        }
        if depth == 0 {
            return Some((first.to, part.from));
        }
    }
    None
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A name or a keyword without quotes.
    Bare,
    /// A quoted token that is or may be a name.
    Name,
    Open,
    Close,
    /// Strings, numbers and operators.
    Other,
}

/// A token of a statement and its position.
struct Part {
    kind: Kind,
    text: String,
    from: usize,
    to: usize,
}

/// Splits a statement into tokens, without comments and white space.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut from = 0;
    while let Some(first) = text.get(from..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(from..).unwrap_or_default();
        let (kind, length) = match first {
            _ if rest.starts_with("--") => (None, rest.find('\n').unwrap_or(rest.len())),
            _ if rest.starts_with("/*") => {
                let end = rest.find("*/").map(|at| at + 2);
                (None, end.unwrap_or(rest.len()))
            }
            '\'' => (Some(Kind::Other), quoted(rest, '\'')),
            '"' | '`' => (Some(Kind::Name), quoted(rest, first)),
            '[' => {
                let end = rest.find(']').map(|at| at + 1);
                (Some(Kind::Name), end.unwrap_or(rest.len()))
            }
            '(' => (Some(Kind::Open), 1),
            ')' => (Some(Kind::Close), 1),
            _ if first.is_whitespace() => (None, first.len_utf8()),
            _ if first.is_ascii_digit() => (Some(Kind::Other), word(rest)),
            _ if is_of_word(first) => (Some(Kind::Bare), word(rest)),
            _ => (Some(Kind::Other), first.len_utf8()),
        };
        let to = from + length;
        if let Some(kind) = kind {
            let written = text.get(from..to).unwrap_or_default();
            let text = match kind {
                Kind::Name => bare(written),
                Kind::Bare | Kind::Open | Kind::Close | Kind::Other => written.to_owned(),
            };
            parts.push(Part {
                kind,
                text,
                from,
                to,
            });
        }
        from = to;
    }
    parts
}

/// Returns the length of a quoted text; a doubled quote inside stands for one.
fn quoted(rest: &str, quote: char) -> usize {
    let mut ends = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = ends.next() {
        if c == quote && ends.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    rest.len()
}

/// Returns the length of a word or number.
fn word(rest: &str) -> usize {
    rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// Removes the quotes of a name.
fn bare(written: &str) -> String {
    let mut inner = written.chars();
    let first = inner.next().unwrap_or_default();
    inner.next_back();
    // Brackets have no escape.
    if first == '[' {
        return inner.as_str().to_owned();
    }
    let doubled = format!("{first}{first}");
    inner.as_str().replace(&doubled, &first.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts_of(made: &str) -> Vec<(String, String)> {
        let all = checks(made).into_iter();
        all.map(|check| (check.name, check.asks)).collect()
    }

    #[test]
    fn every_check_is_found_with_its_name_and_expression() {
        let made = "create table \"check (1)\" (
            id integer primary key, -- check (2)
            note text default 'check (3)' /* check (4) */ check(note <> ')'),
            [check] text CONSTRAINT \"a \"\"b\"\"\" Check (  \"check\" in ('x', 'it''s') ),
            constraint pair check ((id > 0)
                and note <> `it`), foreign key (id) references o (id)
        )";
        let pair = "(id > 0)\n                and note <> `it`";
        let expected = [
            ("note <> ')'", "note <> ')'"),
            ("a \"b\"", "  \"check\" in ('x', 'it''s') "),
            ("pair", pair),
        ];
        let expected = expected.map(|(name, asks)| (name.to_owned(), asks.to_owned()));
        assert_eq!(parts_of(made), expected);
        assert!(!names_collation(made));
        assert!(names_collation("create table t (a text Collate nocase)"));
        // A truncated constraint is not a check, and the parser stops.
        assert_eq!(parts_of("create table t (a text check (a <> 'b'"), []);
    }

    #[test]
    fn a_check_mentions_columns_but_not_string_literals() {
        let [check] = checks("create table t (a text, check (a <> 'b' or [C d] = 1e5))")
            .try_into()
            .unwrap();
        for (column, is_mentioned) in [("A", true), ("c d", true), ("b", false), ("e5", false)] {
            assert_eq!(check.mentions(column), is_mentioned, "{column}");
        }
        let names = [
            ("\"a\"\"b\"", "a\"b"),
            ("`a``b`", "a`b"),
            ("[a[[b]", "a[[b"),
        ];
        for (written, name) in names {
            assert_eq!(bare(written), name);
        }
    }
}
