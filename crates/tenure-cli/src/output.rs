//! What the program prints: tables for people, JSON lines for programs, problems and hints.

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use serde::Serialize;
use tenure::{State, Timestamp};

use crate::problem::{Problem, Stop};
use crate::time;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();
const QUIET: Style = Style::new().dimmed();

/// For whom the output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Words, tables and colours.
    Person,
    /// One JSON object per line.
    Program,
}

/// Where a command writes. Colours are dropped when the output is no terminal or `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    reader: Reader,
    /// The moment that ages are counted from: one for all lines.
    pub(crate) now: Timestamp,
}

impl Output {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            now: time::now(),
        }
    }

    /// Whether JSON is asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.reader == Reader::Program
    }

    /// Writes `object` as one line of JSON, or for a person what `words` says.
    pub(crate) fn either(
        &self,
        object: &impl Serialize,
        words: impl FnOnce() -> String,
    ) -> Result<(), Stop> {
        match self.reader {
            Reader::Program => self.json(object),
            Reader::Person => self.line(words()),
        }
    }

    /// Writes a line.
    #[expect(
        clippy::unused_self,
        reason = "output goes through the one that was given"
    )]
    pub(crate) fn line(&self, text: impl Display) -> Result<(), Stop> {
        Ok(writeln!(anstream::stdout(), "{text}")?)
    }

    /// Writes one line of JSON.
    pub(crate) fn json(&self, object: &impl Serialize) -> Result<(), Stop> {
        let line = serde_json::to_string(object).map_err(io::Error::other)?;
        self.line(line)
    }

    /// Writes a table; a column of numbers is one whose heading begins with a blank.
    pub(crate) fn table(&self, heading: &[&str], rows: Vec<Vec<Cell>>) -> Result<(), Stop> {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            // Always styled here; `anstream` drops the styles where they are not wanted.
            .enforce_styling()
            .set_header(
                heading
                    .iter()
                    .map(|name| Cell::new(name.trim_start()).add_attribute(Attribute::Bold)),
            )
            .add_rows(rows);
        // Blanks at the end of a line are then no part of a style, and can be cut off.
        table.style_text_only();
        for (column, name) in table.column_iter_mut().zip(heading) {
            column.set_padding((0, 2));
            if name.starts_with(' ') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self.line(table.trim_fmt())
    }

    /// Tells a person something beside the output proper.
    pub(crate) fn note(&self, text: impl Display) {
        if self.reader == Reader::Person {
            aside(format_args!("{QUIET}{text}{QUIET:#}"));
        }
    }
}

/// Reports a problem: message, causes, hint, each with secrets hidden.
pub(crate) fn report(problem: &Problem, hide: impl Fn(&str) -> String) {
    let shown = |text: &str| plain(&hide(text));
    aside(format_args!(
        "{ERROR}error:{ERROR:#} {}",
        shown(&problem.message)
    ));
    for cause in &problem.causes {
        aside(format_args!("  because: {}", shown(cause)));
    }
    if let Some(hint) = &problem.hint {
        aside(format_args!("{HINT}hint:{HINT:#} {}", shown(hint)));
    }
}

/// Writes a line to the error stream; when nobody reads that, there is nobody to tell.
fn aside(text: impl Display) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// A state in its colour.
pub(crate) fn state(state: State) -> Cell {
    Cell::new(state).fg(match state {
        State::Pending => Color::Yellow,
        State::Claimed => Color::Cyan,
        State::Done => Color::Green,
        State::Dead => Color::Red,
    })
}

/// A stranger's text on one line, without characters that would steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}
