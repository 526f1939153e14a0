//! Renders statements: fills the names of a lease table into their text.
//!
//! A text has placeholders such as `{until}`. Only checked names and quoted words replace them; an
//! unknown placeholder is an error, so none reaches a database. A line whose placeholder names
//! something that the table lacks (such as `{status}`, if timestamps give the state) is left out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{Condition, Direction, Identifier, LeaseTable, State, States};

use crate::rows::changed_hint;

/// Line that starts a named statement in a file with several.
pub(crate) const MARKER: &str = "-- statement: ";

/// Values for the placeholders of a lease table's statements.
#[derive(Debug)]
pub(crate) struct Names {
    filled: BTreeMap<&'static str, String>,
    /// Placeholders for columns that this table lacks.
    absent: Vec<&'static str>,
}

/// Placeholders that a table without a status column lacks.
const STATUS_HOLES: [&str; 6] = ["status", "words", "pending", "claimed", "done", "dead"];

impl Names {
    /// The names of this table. `schema` holds Tenure's own tables.
    ///
    /// # Errors
    /// Two facts share a column, or two states have the same conditions.
    pub(crate) fn of(table: &LeaseTable, schema: Option<&Identifier>) -> Result<Self, StoreError> {
        table.check().map_err(|problem| {
            StoreError::invalid("open", &problem).with_hint("describe the table anew")
        })?;
        let facts = table.facts();
        let mut names = Self {
            filled: BTreeMap::new(),
            absent: Vec::new(),
        };
        for (hole, column) in &facts {
            names.name(hole, column);
        }
        names.states(table);
        if table.kind.is_none() {
            names.absent.push("kind");
        }
        names.filled.insert("table", qualified(&table.name, schema));
        names.filled.insert("next_fence", next_fence(schema));
        names.bare("token_name", &table.columns.token);
        names.bare("settled_token_name", &table.columns.settled_token);
        names.filled.insert("order", order(table, "t."));
        names.filled.insert("order_index", order(table, ""));
        names
            .filled
            .insert("order_columns", order_columns(table, &facts));
        for (hole, ending) in [
            ("claimable_index", "claimable"),
            ("alone_index", "alone"),
            ("claimed_index", "claimed"),
        ] {
            let name = table.index_name(ending).quoted();
            names.filled.insert(hole, name);
        }
        Ok(names)
    }

    /// Adds a placeholder whose text consists of checked names and quoted literals.
    pub(crate) fn with(mut self, hole: &'static str, text: String) -> Self {
        self.filled.insert(hole, text);
        self
    }

    fn name(&mut self, hole: &'static str, name: &Identifier) {
        self.filled.insert(hole, name.quoted());
    }

    /// Adds a name without quotes, because the text of the statement already quotes it.
    fn bare(&mut self, hole: &'static str, name: &Identifier) {
        self.filled.insert(hole, name.as_str().to_owned());
    }

    /// Adds the conditions of the states (`is_…` and `state` refer to a row `t`, `bare_…` to
    /// columns without a prefix) and the words of the status column.
    fn states(&mut self, table: &LeaseTable) {
        let [pending, claimed, done, dead] = State::ALL.map(|state| conditions(table, state, "t."));
        self.filled.insert("is_pending", pending);
        self.filled.insert("is_claimed", claimed);
        self.filled.insert("is_done", done);
        self.filled.insert("is_dead", dead);
        self.filled.insert("state", state(table, "t."));
        let [pending, claimed, done, dead] = State::ALL.map(|state| conditions(table, state, ""));
        self.filled
            .insert("claim_checks", claim_checks(table, &claimed));
        self.filled
            .insert("end_checks", end_checks(table, &done, &dead));
        self.filled.insert("bare_pending", pending);
        self.filled.insert("bare_claimed", claimed);
        self.filled.insert("bare_done", done);
        self.filled.insert("bare_dead", dead);
        self.filled.insert("bare_state", state(table, ""));
        let Some(status) = table.states.status() else {
            self.absent.extend(STATUS_HOLES);
            return;
        };
        let [pending, claimed, done, dead] = State::ALL.map(|of| status.words.word(of).quoted());
        let mut words = vec![pending.clone(), claimed.clone(), done.clone(), dead.clone()];
        words.dedup();
        self.filled.insert("words", words.join(", "));
        self.filled.insert("pending", pending);
        self.filled.insert("claimed", claimed);
        self.filled.insert("done", done);
        self.filled.insert("dead", dead);
    }

    /// The text with every placeholder filled, without comments and empty lines.
    ///
    /// # Errors
    /// A placeholder is unknown.
    pub(crate) fn render(&self, file: &str, text: &str) -> Result<String, StoreError> {
        let mut out = String::with_capacity(text.len() * 2);
        for line in text.lines() {
            let is_comment = line.trim_start().starts_with("--") && !line.starts_with(MARKER);
            if is_comment || self.names_what_is_absent(line) {
                continue;
            }
            let line = self.fill(file, line)?;
            // A placeholder with an empty value leaves no line behind.
            if !line.trim().is_empty() {
                out.push_str(line.trim_end());
                out.push('\n');
            }
        }
        Ok(out)
    }

    fn names_what_is_absent(&self, line: &str) -> bool {
        let mut absent = self.absent.iter();
        absent.any(|hole| line.contains(&format!("{{{hole}}}")))
    }

    fn fill(&self, file: &str, line: &str) -> Result<String, StoreError> {
        let mut out = String::new();
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('{') {
            let (hole, after) = after
                .split_once('}')
                .ok_or_else(|| broken(file, "a brace is not closed"))?;
            let name = self
                .filled
                .get(hole)
                .ok_or_else(|| broken(file, &format!("unknown placeholder {hole:?}")))?;
            out.push_str(before);
            out.push_str(name);
            rest = after;
        }
        if rest.contains('}') {
            return Err(broken(file, "a brace is not opened"));
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// Change applied to the text of a file before rendering; the identity except in tests.
pub(crate) type Edit<'a> = &'a (dyn Fn(&'static str, &'static str) -> Cow<'static, str> + Sync);

pub(crate) fn as_written(_file: &'static str, text: &'static str) -> Cow<'static, str> {
    Cow::Borrowed(text)
}

/// Checks that a table has every column that its description names.
///
/// # Errors
/// The table does not exist, or it lacks columns; the error names all of them.
pub(crate) fn check_columns(
    table: &LeaseTable,
    columns: &BTreeSet<String>,
) -> Result<(), StoreError> {
    let invalid = |message: String| StoreError::new("open", StoreErrorKind::Invalid, message);
    if columns.is_empty() {
        return Err(invalid(format!("there is no table {}", table.name))
            .with_hint("create it first, or check its name and the search path"));
    }
    let named = table.facts().into_iter().map(|(_, column)| column);
    let ordering = table.order.iter().map(|(column, _)| column);
    let missing: BTreeSet<&str> = named
        .chain(ordering)
        .map(Identifier::as_str)
        .filter(|column| !columns.contains(*column))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let columns = if missing.len() == 1 {
        "column"
    } else {
        "columns"
    };
    let missing: Vec<&str> = missing.into_iter().collect();
    let hint = changed_hint(table)
        .unwrap_or_else(|| "its migration is not done: run `tenure migrate`".to_owned());
    Err(invalid(format!(
        "the table {} lacks the {columns} {}",
        table.name,
        missing.join(", ")
    ))
    .with_hint(hint))
}

/// The quoted name of a table; the schema is added for Tenure's own tables only.
fn qualified(name: &Identifier, schema: Option<&Identifier>) -> String {
    match schema {
        Some(schema) if name.as_str().starts_with("tenure_") => {
            format!("{}.{}", schema.quoted(), name.quoted())
        }
        _ => name.quoted(),
    }
}

/// The name of the function that draws a fence on PostgreSQL.
fn next_fence(schema: Option<&Identifier>) -> String {
    let front = schema.map(|schema| format!("{}.", schema.quoted()));
    format!("{}tenure_next_fence", front.unwrap_or_default())
}

/// The order of claims; the primary key comes last and makes it total.
fn order(table: &LeaseTable, qualifier: &str) -> String {
    let key = (&table.key, &Direction::Ascending);
    let columns = table
        .order
        .iter()
        .map(|(column, direction)| (column, direction))
        .chain([key]);
    let part = |(column, direction): (&Identifier, &Direction)| {
        let way = match direction {
            Direction::Ascending => "",
            Direction::Descending => " desc",
        };
        format!("{qualifier}{}{way}", column.quoted())
    };
    columns.map(part).collect::<Vec<_>>().join(", ")
}

/// Conditions of a row in this state.
fn conditions(table: &LeaseTable, state: State, qualifier: &str) -> String {
    let part = |condition: &Condition<'_>| match condition {
        Condition::Is(column, word) => {
            format!("{qualifier}{} = {}", column.quoted(), word.quoted())
        }
        Condition::Null(column) => format!("{qualifier}{} is null", column.quoted()),
        Condition::NotNull(column) => format!("{qualifier}{} is not null", column.quoted()),
    };
    let parts: Vec<String> = table.conditions(state).iter().map(part).collect();
    parts.join(" and ")
}

/// Expression for the state of a row; null if its columns match none.
fn state(table: &LeaseTable, qualifier: &str) -> String {
    let when = |state: State| {
        let conditions = conditions(table, state, qualifier);
        format!("when {conditions} then '{state}'")
    };
    format!("case {} end", State::ALL.map(when).join(" "))
}

/// Check constraints on a claim, in addition to holder and end of term, for a table that Tenure
/// creates. A table in which other programs claim has none: their statements set only those two
/// columns.
fn claim_checks(table: &LeaseTable, claimed: &str) -> String {
    let columns = match &table.states {
        States::Worded(_) => vec![&table.columns.token, &table.columns.claimed_at],
        States::Held(_) | States::Derived => Vec::new(),
    };
    let check = |column: &Identifier| {
        let column = column.quoted();
        format!("check (({claimed}) = ({column} is not null)),")
    };
    let checks: Vec<String> = columns.into_iter().map(check).collect();
    checks.join("\n    ")
}

/// Check constraints on the end timestamps of a table that Tenure creates: they agree with the
/// status, or give the state themselves and are never both set.
fn end_checks(table: &LeaseTable, done: &str, dead: &str) -> String {
    let columns = &table.columns;
    let (done_at, dead_at) = (columns.done_at.quoted(), columns.dead_at.quoted());
    if table.states == States::Derived {
        return format!("check ({done_at} is null or {dead_at} is null)");
    }
    let check = |state: &str, moment: &str| format!("check (({state}) = ({moment} is not null))");
    [check(done, &done_at), check(dead, &dead_at)].join(",\n    ")
}

/// Columns that only the order needs, for a table that Tenure creates. Both databases accept the
/// type.
fn order_columns(table: &LeaseTable, facts: &[(&'static str, &Identifier)]) -> String {
    table
        .order
        .iter()
        .filter(|(column, _)| facts.iter().all(|(_, fact)| *fact != column))
        .map(|(column, _)| format!("{} smallint not null default 0,", column.quoted()))
        .collect::<Vec<_>>()
        .join("\n    ")
}

fn broken(file: &str, problem: &str) -> StoreError {
    StoreError::new(
        "open",
        StoreErrorKind::Corrupt,
        format!("the statement {file} is broken: {problem}"),
    )
}
