//! Conversion between a [`LeaseTable`] and a map: the content of a map file, and the record of an
//! adopted table. All faults are reported at once, field by field.

use std::collections::{BTreeMap, BTreeSet};

use super::states::{StatusWord, StatusWords, status};
use super::{Columns, Direction, Identifier, LeaseTable, States, StatusColumn, name};
use crate::state::State;

/// A map: the values of each field. Only `order` may have several.
pub type TableMap = BTreeMap<String, Vec<String>>;

/// An invalid field of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct MapFault {
    /// Name of the field, such as `columns.until`.
    pub field: String,
    /// Description of the problem.
    pub problem: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

type Make = fn() -> LeaseTable;

/// Presets by name.
const PRESETS: [(&str, Make); 5] = [
    ("outbox_processing", LeaseTable::outbox_processing),
    ("outbox", LeaseTable::outbox),
    ("webhook", LeaseTable::webhook),
    ("sync_jobs", LeaseTable::sync_jobs),
    ("sync_checkpoints", LeaseTable::sync_checkpoints),
];

impl LeaseTable {
    /// Names of the presets.
    ///
    /// ```
    /// assert!(tenure_core::LeaseTable::preset_names().any(|name| name == "sync_jobs"));
    /// ```
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// The preset of this name; `None` if there is none.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// assert_eq!(LeaseTable::preset("webhook"), Some(LeaseTable::webhook()));
    /// assert_eq!(LeaseTable::preset("mailbox"), None);
    /// ```
    pub fn preset(name: &str) -> Option<Self> {
        let preset = PRESETS.iter().find(|(known, _)| *known == name);
        preset.map(|(_, make)| make())
    }

    /// Fields that a map may have; `columns.until` is the field `until` of the section `columns`.
    pub fn map_fields() -> Vec<String> {
        let whole = ["preset", "order"].map(str::to_owned).into_iter();
        let outbox = Self::outbox();
        let columns = outbox.facts().into_iter().map(|(fact, _)| field_of(fact));
        let words = State::ALL.iter().map(|state| format!("status.{state}"));
        whole.chain(columns).chain(words).collect()
    }

    /// Builds the description of a table from a map. Missing fields come from the preset that it
    /// names. Without a preset they have Tenure's own names, and timestamps encode the state unless
    /// a status field is given.
    ///
    /// ```
    /// use tenure_core::{Identifier, LeaseTable, States};
    ///
    /// let field = |field: &str, value: &str| (field.to_owned(), vec![value.to_owned()]);
    /// let map = [field("key", "mail_id"), field("columns.until", "busy_until")].into();
    /// let table = LeaseTable::described(Identifier::new("mails")?, &map).unwrap();
    /// assert_eq!((table.key.as_str(), table.columns.until.as_str()), ("mail_id", "busy_until"));
    /// assert_eq!(table.states, States::Derived);
    ///
    /// let map = [field("columns.until", "id"), field("columns.holder", "no name")].into();
    /// let faults = LeaseTable::described(Identifier::new("mails")?, &map).unwrap_err();
    /// assert_eq!(faults.len(), 2);
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// All faults of the map.
    pub fn described(table: Identifier, map: &TableMap) -> Result<Self, Vec<MapFault>> {
        let mut reader = MapReader {
            map,
            faults: Vec::new(),
        };
        let mut described = reader.base().named(table);
        reader.whole(&mut described);
        reader.columns(&mut described.columns);
        reader.states(&mut described);
        reader.unknown();
        reader.check(&described);
        reader.faults.sort();
        reader.faults.dedup();
        if reader.faults.is_empty() {
            return Ok(described);
        }
        Err(reader.faults)
    }

    /// The complete map of this table, as recorded when it is adopted.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// let table = LeaseTable::webhook();
    /// let again = LeaseTable::described(table.name.clone(), &table.map());
    /// assert_eq!(again, Ok(table));
    /// ```
    pub fn map(&self) -> TableMap {
        let mut map = TableMap::new();
        for (fact, column) in self.facts() {
            map.insert(field_of(fact), vec![column.to_string()]);
        }
        let order = self
            .order
            .iter()
            .map(|(column, direction)| match direction {
                Direction::Ascending => column.to_string(),
                Direction::Descending => format!("{column} desc"),
            });
        map.insert("order".to_owned(), order.collect());
        if let Some(status) = self.states.status() {
            for (state, word) in State::ALL.iter().zip(status.words.all()) {
                map.insert(format!("status.{state}"), vec![word.to_owned()]);
            }
        }
        map
    }
}

/// Field of a map that names the column of a fact.
pub(super) fn field_of(fact: &str) -> String {
    match fact {
        "key" | "created_at" => fact.to_owned(),
        "status" => "status.column".to_owned(),
        fact => format!("columns.{fact}"),
    }
}

/// Reader of a map that collects its faults.
struct MapReader<'a> {
    map: &'a TableMap,
    faults: Vec<MapFault>,
}

impl MapReader<'_> {
    fn fault(&mut self, field: &str, problem: impl Into<String>, hint: Option<&str>) {
        self.faults.push(MapFault {
            field: field.to_owned(),
            problem: problem.into(),
            hint: hint.map(str::to_owned),
        });
    }

    /// The single value of a field, if it is given.
    fn one(&mut self, field: &str) -> Option<String> {
        match self.map.get(field)?.as_slice() {
            [value] => Some(value.clone()),
            values => {
                let problem = format!("{field} has {} values; expected one", values.len());
                self.fault(field, problem, None);
                None
            }
        }
    }

    /// Returns the preset that the map names, or a description with Tenure's own names.
    fn base(&mut self) -> LeaseTable {
        let own = || LeaseTable {
            order: vec![(name("created_at"), Direction::Ascending)],
            states: States::Derived,
            ..LeaseTable::outbox()
        };
        let Some(named) = self.one("preset") else {
            return own();
        };
        LeaseTable::preset(&named).unwrap_or_else(|| {
            let known: Vec<&str> = LeaseTable::preset_names().collect();
            let problem = format!("preset is {named:?}; expected one of {}", known.join(", "));
            self.fault("preset", problem, None);
            own()
        })
    }

    /// Replaces `target` by the name in a field, if it is given.
    fn name_into(&mut self, field: &str, target: &mut Identifier) {
        let Some(text) = self.one(field) else {
            return;
        };
        match Identifier::new(&text) {
            Ok(name) => *target = name,
            Err(problem) => {
                let hint = "rename the column, or name another one; a missing one is added";
                self.fault(field, format!("{field}: {problem}"), Some(hint));
            }
        }
    }

    fn whole(&mut self, table: &mut LeaseTable) {
        self.name_into("key", &mut table.key);
        self.name_into("created_at", &mut table.created_at);
        let Some(order) = self.map.get("order") else {
            return;
        };
        table.order.clear();
        for text in order {
            if let Some(part) = direction(text) {
                table.order.push(part);
            } else {
                let problem =
                    format!("order has {text:?}; expected a column, optionally with desc");
                let hint = "order = [\"priority desc\", \"created_at\"]";
                self.fault("order", problem, Some(hint));
            }
        }
    }

    fn columns(&mut self, columns: &mut Columns) {
        for (fact, column) in columns.by_fact() {
            self.name_into(&field_of(fact), column);
        }
    }

    /// A status field selects states encoded by words; if the words for pending and claimed are
    /// equal, the holder distinguishes these two.
    fn states(&mut self, table: &mut LeaseTable) {
        if !self.map.keys().any(|field| field.starts_with("status.")) {
            return;
        }
        let usual = || status("status", ["PENDING", "CLAIMED", "PUBLISHED", "DEAD"]);
        let mut column = table.states.status().cloned().unwrap_or_else(usual);
        self.name_into("status.column", &mut column.column);
        let StatusWords {
            pending,
            claimed,
            done,
            dead,
        } = &mut column.words;
        for (state, target) in State::ALL.iter().zip([pending, claimed, done, dead]) {
            self.word_into(&format!("status.{state}"), target);
        }
        table.states = states_of(column);
    }

    fn word_into(&mut self, field: &str, target: &mut StatusWord) {
        let Some(text) = self.one(field) else {
            return;
        };
        match StatusWord::new(&text) {
            Ok(word) => *target = word,
            Err(problem) => self.fault(field, format!("{field}: {problem}"), None),
        }
    }

    fn unknown(&mut self) {
        let known: BTreeSet<String> = LeaseTable::map_fields().into_iter().collect();
        for field in self.map.keys().filter(|field| !known.contains(*field)) {
            let fields: Vec<&str> = known.iter().map(String::as_str).collect();
            let problem = format!("{field} is unknown; expected one of {}", fields.join(", "));
            self.fault(field, problem, None);
        }
    }

    /// Reports faults that involve several fields, at one of the given fields.
    fn check(&mut self, table: &LeaseTable) {
        let mut columns: BTreeMap<&Identifier, Vec<String>> = BTreeMap::new();
        for (fact, column) in table.facts() {
            columns.entry(column).or_default().push(field_of(fact));
        }
        for (column, fields) in columns.into_iter().filter(|(_, fields)| fields.len() > 1) {
            let is_given = |field: &&String| self.map.contains_key(*field);
            let Some(field) = fields.iter().rfind(is_given).or(fields.last()).cloned() else {
                continue;
            };
            let problem = format!("{} share the column {column}", fields.join(" and "));
            let hint = "give each fact its own column; a missing one is added";
            self.fault(&field, problem, Some(hint));
        }
        let Err(problem) = table.check_states() else {
            return;
        };
        let mut words = self.map.keys().filter(|field| field.starts_with("status."));
        let field = words.next_back().cloned().unwrap_or_default();
        self.fault(&field, problem.to_string(), None);
    }
}

/// Equal words for pending and claimed mean that the holder distinguishes the two.
fn states_of(column: StatusColumn) -> States {
    if column.words.pending == column.words.claimed {
        States::Held(column)
    } else {
        States::Worded(column)
    }
}

/// Parses `priority desc`, `created_at asc`, `created_at`.
fn direction(text: &str) -> Option<(Identifier, Direction)> {
    let mut parts = text.split_whitespace();
    let column = Identifier::new(parts.next()?).ok()?;
    let direction = match parts.next() {
        None => Direction::Ascending,
        Some(way) if way.eq_ignore_ascii_case("asc") => Direction::Ascending,
        Some(way) if way.eq_ignore_ascii_case("desc") => Direction::Descending,
        Some(_) => return None,
    };
    parts.next().is_none().then_some((column, direction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_of(fields: &[(&str, &str)]) -> TableMap {
        let one = |(field, value): &(&str, &str)| ((*field).to_owned(), vec![(*value).to_owned()]);
        fields.iter().map(one).collect()
    }

    fn described(fields: &[(&str, &str)]) -> Result<LeaseTable, Vec<MapFault>> {
        LeaseTable::described(name("mails"), &map_of(fields))
    }

    #[test]
    fn every_preset_is_unchanged_after_a_round_trip_through_its_map() {
        for preset in LeaseTable::preset_names() {
            let table = LeaseTable::preset(preset).unwrap();
            let again = LeaseTable::described(table.name.clone(), &table.map());
            assert_eq!(again, Ok(table), "{preset}");
        }
    }

    #[test]
    fn a_map_overrides_the_preset_that_it_names() {
        let table = described(&[("preset", "webhook"), ("columns.until", "busy")]).unwrap();
        let mut expected = LeaseTable::webhook().named(name("mails"));
        expected.columns.until = name("busy");
        assert_eq!(table, expected);
    }

    #[test]
    fn with_equal_words_for_pending_and_claimed_the_holder_distinguishes_them() {
        let words = [("status.pending", "NEW"), ("status.claimed", "NEW")];
        let table = described(&words).unwrap();
        assert!(matches!(table.states, States::Held(_)), "{table:?}");
        let table = described(&words[..1]).unwrap();
        assert!(matches!(table.states, States::Worded(_)), "{table:?}");
    }

    #[test]
    fn every_fault_is_reported_at_its_field() {
        let faults = described(&[
            ("columns.until", "id"),
            ("columns.holder", "a name"),
            ("columns.untill", "x"),
            ("order", "priority down"),
            ("preset", "mailbox"),
            ("status.dead", "DONE"),
            ("status.done", "DONE"),
            ("status.pending", "it's"),
        ])
        .unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "columns.holder",
                "columns.until",
                "columns.untill",
                "order",
                "preset",
                "status.pending",
                "status.pending",
            ],
            "{faults:#?}"
        );
    }

    #[test]
    fn an_entry_of_the_order_is_a_column_with_an_optional_direction() {
        let parts = ["priority DESC", "created_at asc", "id"].map(|text| direction(text).unwrap());
        let ways = parts.map(|(_, direction)| direction);
        assert_eq!(
            ways,
            [
                Direction::Descending,
                Direction::Ascending,
                Direction::Ascending
            ]
        );
        for wrong in ["", "a b", "a desc b", "A", "a;b"] {
            assert_eq!(direction(wrong), None, "{wrong:?}");
        }
    }
}
