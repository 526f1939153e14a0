//! Output of the program: tables for people, JSON lines for programs, problems and hints.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, presets,
};
use serde::Serialize;
use tenure::State;
use tenure::store::Timestamp;

use crate::problem::{Problem, Stop};
use crate::time;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();
const QUIET: Style = Style::new().dimmed();

/// Minimum width of a terminal, in columns, for wrapping tables.
const WIDTH_MIN: u16 = 60;

/// Minimum width of the last column, in characters, for wrapping it.
const LAST_WIDTH_MIN: u16 = 20;

/// Spaces between two columns.
const GAP: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Text, tables and colours.
    Person,
    /// One JSON object per line.
    Program,
}

/// The output of a command. Colours are dropped when it is not a terminal or `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    reader: Reader,
    /// The reference time of all ages, the same for all lines.
    pub(crate) now: Timestamp,
}

impl Output {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            now: time::now(),
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.reader == Reader::Program
    }

    /// Writes `object` as a line of JSON with `--json`, otherwise `text`.
    pub(crate) fn either(
        &self,
        object: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Stop> {
        match self.reader {
            Reader::Program => self.json(object),
            Reader::Person => self.line(text()),
        }
    }

    #[expect(clippy::unused_self, reason = "all output goes through this type")]
    pub(crate) fn line(&self, text: impl Display) -> Result<(), Stop> {
        Ok(writeln!(anstream::stdout(), "{text}")?)
    }

    /// Writes a line of foreign data: unchanged, except that a terminal gets no control characters.
    #[expect(clippy::unused_self, reason = "all output goes through this type")]
    pub(crate) fn data(&self, text: &str) -> Result<(), Stop> {
        let mut output = io::stdout().lock();
        if output.is_terminal() {
            return Ok(writeln!(output, "{}", plain(text))?);
        }
        Ok(writeln!(output, "{text}")?)
    }

    pub(crate) fn json(&self, object: &impl Serialize) -> Result<(), Stop> {
        let line = serde_json::to_string(object).map_err(io::Error::other)?;
        self.line(inert(&line))
    }

    /// Writes a table; a heading with a leading space marks a column of numbers.
    pub(crate) fn table(&self, heading: &[&str], rows: Vec<Vec<Cell>>) -> Result<(), Stop> {
        let mut table = Table::new();
        // Always styled; `anstream` drops styles where they are not wanted.
        table.enforce_styling();
        // Trailing spaces are then outside of any style and can be trimmed.
        table.style_text_only();
        table
            .load_style(presets::NOTHING)
            .set_header(heading.iter().map(title))
            .add_rows(rows);
        arrange(&mut table, heading);
        self.line(table.trim_fmt())
    }

    /// Writes a remark for a person to standard error.
    pub(crate) fn note(&self, text: impl Display) {
        if self.reader == Reader::Person {
            aside(format_args!("{QUIET}{text}{QUIET:#}"));
        }
    }

    /// Writes a hint for a person to standard error.
    pub(crate) fn hint(&self, text: impl Display) {
        if self.reader == Reader::Person {
            aside(format_args!("{HINT}hint:{HINT:#} {text}"));
        }
    }
}

fn title(name: &&str) -> Cell {
    match name.trim_start() {
        // A style around an empty cell would keep the spaces before it.
        "" => Cell::new(""),
        name => Cell::new(name).add_attribute(Attribute::Bold),
    }
}

/// Wraps only the last column, and not at all without enough room: a long line reads better than
/// broken words. Without a terminal there is no width.
fn arrange(table: &mut Table, heading: &[&str]) {
    let has_room = table.width().is_some_and(|width| {
        let mut widths = table.column_max_content_widths();
        let last = widths.pop().unwrap_or_default();
        let before = widths
            .iter()
            .fold(0, |sum: u16, width| sum.saturating_add(*width + GAP));
        width >= WIDTH_MIN && width.saturating_sub(before) >= last.min(LAST_WIDTH_MIN)
    });
    table.set_content_arrangement(if has_room {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    });
    for (column, name) in table.column_iter_mut().zip(heading) {
        column.set_padding((0, GAP));
        if name.starts_with(' ') {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if heading.last() != Some(name) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Reports a problem: message, causes, hint, each with secrets hidden.
pub(crate) fn report(problem: &Problem, hide: impl Fn(&str) -> String) {
    let clean = |text: &str| plain(&hide(text));
    aside(format_args!(
        "{ERROR}error:{ERROR:#} {}",
        clean(&problem.message)
    ));
    for cause in &problem.causes {
        aside(format_args!("  because: {}", clean(cause)));
    }
    if let Some(hint) = &problem.hint {
        aside(format_args!("{HINT}hint:{HINT:#} {}", clean(hint)));
    }
}

/// Writes a line to standard error; a closed stream cannot be reported.
fn aside(text: impl Display) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

pub(crate) fn state(state: State) -> Cell {
    Cell::new(state).fg(match state {
        State::Pending => Color::Yellow,
        State::Claimed => Color::Cyan,
        State::Done => Color::Green,
        State::Dead => Color::Red,
    })
}

/// Escapes control characters in JSON. serde leaves some of them, only in strings, where an escape
/// has the same meaning.
fn inert(json: &str) -> Cow<'_, str> {
    let is_control = |c: char| ('\u{7f}'..='\u{9f}').contains(&c);
    if !json.contains(is_control) {
        return Cow::Borrowed(json);
    }
    let written = |c: char| {
        if is_control(c) {
            format!("\\u{:04x}", u32::from(c))
        } else {
            c.to_string()
        }
    };
    let clean = json.chars().map(written).collect();
    Cow::Owned(clean)
}

/// Foreign text on one line, without control characters and invisible ones.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if c.is_control() || is_invisible(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

/// A character without width, or one that changes the direction of its neighbours: it can make two
/// different texts look the same.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

/// `1 event`, `2 events`.
pub(crate) fn events(number: usize) -> String {
    match number {
        1 => "1 event".to_owned(),
        number => format!("{number} events"),
    }
}

/// `1 delivery`, `2 deliveries`.
pub(crate) fn deliveries(number: usize) -> String {
    match number {
        1 => "1 delivery".to_owned(),
        number => format!("{number} deliveries"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a one-row table on a terminal of this width.
    fn lines(width: u16) -> Vec<String> {
        lines_of(width, "pending")
    }

    /// `lines` with a given text in the second to last column.
    fn lines_of(width: u16, state: &str) -> Vec<String> {
        let heading = ["ID", "STATE", "NOTE"];
        let mut table = Table::new();
        let note = "a long story ".repeat(8);
        table
            .load_style(presets::NOTHING)
            .set_width(width)
            .set_header(heading.iter().map(title))
            .add_row(vec!["12345678", state, note.as_str()]);
        arrange(&mut table, &heading);
        table.trim_fmt().lines().map(str::to_owned).collect()
    }

    #[test]
    fn json_has_no_control_characters_and_means_the_same() {
        let text = "\u{1b}[2J \u{9b}31m \u{7f} ü";
        let json = serde_json::to_string(text).unwrap();
        let clean = inert(&json);
        assert_eq!(clean, r#""\u001b[2J \u009b31m \u007f ü""#);
        assert_eq!(serde_json::from_str::<String>(&clean).unwrap(), text);
        assert!(matches!(inert(r#"{"a":1}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn only_the_last_column_is_wrapped() {
        let lines = lines(80);
        assert!(lines[1].starts_with("12345678  pending  a long story"));
        assert!(lines.len() > 2, "{lines:?}");
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    }

    #[test]
    fn a_terminal_without_room_wraps_nothing() {
        for width in [0, 10, 59] {
            assert_eq!(lines(width).len(), 2, "at {width} columns");
        }
    }

    #[test]
    fn a_last_column_without_room_is_not_broken_into_letters() {
        let state = "x".repeat(60);
        assert_eq!(lines_of(80, &state).len(), 2);
        assert!(lines_of(100, &state).len() > 2);
    }

    #[test]
    fn foreign_text_stays_on_its_line() {
        assert_eq!(plain("a\nb\u{1b}[31m\u{9b}c"), "a b\u{fffd}[31m\u{fffd}c");
        // Neither direction marks nor invisible characters pass.
        let hidden = "a\u{202e}b\u{200b}c\u{2066}d\u{feff}";
        assert_eq!(plain(hidden), "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}");
        assert_eq!(plain("straße 東京"), "straße 東京");
    }
}
