//! From names and words to a [`LeaseTable`], and back: what a map file says, and what is recorded
//! of a table that was adopted. Everything that is wrong is told at once, field by field.

use std::collections::{BTreeMap, BTreeSet};

use super::states::{StatusWord, Words, status};
use super::{Columns, Direction, Identifier, LeaseTable, States, StatusColumn, name};

/// What a map says: by field, one value, or several for `order`.
pub type Said = BTreeMap<String, Vec<String>>;

/// A field of a map with something wrong in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapFault {
    /// Which field, such as `columns.until`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Makes a preset.
type Make = fn() -> LeaseTable;

/// The presets by name.
const PRESETS: [(&str, Make); 5] = [
    ("outbox_processing", LeaseTable::outbox_processing),
    ("outbox", LeaseTable::outbox),
    ("webhook", LeaseTable::webhook),
    ("sync_jobs", LeaseTable::sync_jobs),
    ("sync_checkpoints", LeaseTable::sync_checkpoints),
];

/// The facts that have a column each, as a map names them.
const COLUMNS: [&str; 14] = [
    "until",
    "holder",
    "token",
    "fence",
    "claimed_at",
    "available_at",
    "attempts",
    "failures",
    "crashes",
    "last_error",
    "done_at",
    "dead_at",
    "generation",
    "settled_token",
];

const WORDS: [&str; 4] = ["pending", "claimed", "done", "dead"];

impl LeaseTable {
    /// The names of the presets.
    ///
    /// ```
    /// assert!(tenure_core::LeaseTable::preset_names().any(|name| name == "sync_jobs"));
    /// ```
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// The preset of this name.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// assert_eq!(LeaseTable::preset("webhook"), Some(LeaseTable::webhook()));
    /// assert_eq!(LeaseTable::preset("mailbox"), None);
    /// ```
    pub fn preset(name: &str) -> Option<Self> {
        let found = PRESETS.iter().find(|(known, _)| *known == name);
        found.map(|(_, make)| make())
    }

    /// The fields that a map may have, `columns.until` for the field `until` of the part `columns`.
    pub fn map_fields() -> Vec<String> {
        let whole = ["preset", "key", "order", "created_at"];
        let columns = COLUMNS.iter().map(|fact| format!("columns.{fact}"));
        let words = WORDS.iter().map(|word| format!("status.{word}"));
        let whole = whole.iter().map(ToString::to_string);
        let status = ["status.column".to_owned()];
        whole.chain(columns).chain(status).chain(words).collect()
    }

    /// A table of this name as a map describes it. What is not said is as in the preset that it
    /// names, or else has our own name; without a word of a status, moments tell the state.
    ///
    /// ```
    /// use tenure_core::{Identifier, LeaseTable, States};
    ///
    /// let said = |field: &str, value: &str| (field.to_owned(), vec![value.to_owned()]);
    /// let map = [said("key", "mail_id"), said("columns.until", "busy_until")].into();
    /// let table = LeaseTable::described(Identifier::new("mails")?, &map).unwrap();
    /// assert_eq!((table.key.as_str(), table.columns.until.as_str()), ("mail_id", "busy_until"));
    /// assert_eq!(table.states, States::Derived);
    ///
    /// let map = [said("columns.until", "id"), said("columns.holder", "no name")].into();
    /// let faults = LeaseTable::described(Identifier::new("mails")?, &map).unwrap_err();
    /// assert_eq!(faults.len(), 2);
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// All that is wrong with the map.
    pub fn described(table: Identifier, said: &Said) -> Result<Self, Vec<MapFault>> {
        let mut reading = Reading {
            said,
            faults: Vec::new(),
        };
        let mut described = reading.base().named(table);
        reading.whole(&mut described);
        reading.columns(&mut described.columns);
        reading.states(&mut described);
        reading.unknown();
        reading.check(&described);
        reading.faults.sort();
        reading.faults.dedup();
        if reading.faults.is_empty() {
            return Ok(described);
        }
        Err(reading.faults)
    }

    /// The map that describes this table whole: what is recorded of one that was adopted.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// let table = LeaseTable::webhook();
    /// let again = LeaseTable::described(table.name.clone(), &table.map());
    /// assert_eq!(again, Ok(table));
    /// ```
    pub fn map(&self) -> Said {
        let mut said = Said::new();
        for (fact, column) in self.facts() {
            said.insert(field_of(fact), vec![column.to_string()]);
        }
        let order = self
            .order
            .iter()
            .map(|(column, direction)| match direction {
                Direction::Ascending => column.to_string(),
                Direction::Descending => format!("{column} desc"),
            });
        said.insert("order".to_owned(), order.collect());
        if let Some(status) = self.states.status() {
            let Words {
                pending,
                claimed,
                done,
                dead,
            } = &status.words;
            for (field, word) in WORDS.iter().zip([pending, claimed, done, dead]) {
                said.insert(format!("status.{field}"), vec![word.as_str().to_owned()]);
            }
        }
        said
    }
}

/// The field of a map that names the column of a fact.
pub(super) fn field_of(fact: &str) -> String {
    match fact {
        "key" | "created_at" => fact.to_owned(),
        "status" => "status.column".to_owned(),
        fact => format!("columns.{fact}"),
    }
}

/// On the way through a map.
struct Reading<'a> {
    said: &'a Said,
    faults: Vec<MapFault>,
}

impl Reading<'_> {
    fn fault(&mut self, field: &str, problem: impl Into<String>, hint: Option<&str>) {
        self.faults.push(MapFault {
            field: field.to_owned(),
            problem: problem.into(),
            hint: hint.map(str::to_owned),
        });
    }

    /// The one value of a field, if it is said.
    fn one(&mut self, field: &str) -> Option<String> {
        match self.said.get(field)?.as_slice() {
            [value] => Some(value.clone()),
            values => {
                let problem = format!("{field} has {} values; expected one", values.len());
                self.fault(field, problem, None);
                None
            }
        }
    }

    /// What the map starts from: the preset that it names, or our own names.
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

    /// The name in a field, put into its place.
    fn name_into(&mut self, field: &str, place: &mut Identifier) {
        let Some(text) = self.one(field) else {
            return;
        };
        match Identifier::new(&text) {
            Ok(name) => *place = name,
            Err(problem) => {
                let hint = "a column with another name can be renamed, or stand behind a new one";
                self.fault(field, format!("{field}: {problem}"), Some(hint));
            }
        }
    }

    fn whole(&mut self, table: &mut LeaseTable) {
        self.name_into("key", &mut table.key);
        self.name_into("created_at", &mut table.created_at);
        let Some(order) = self.said.get("order") else {
            return;
        };
        table.order.clear();
        for text in order {
            if let Some(part) = direction(text) {
                table.order.push(part);
            } else {
                let problem = format!("order has {text:?}; expected a column, or one and desc");
                let hint = "order = [\"priority desc\", \"created_at\"]";
                self.fault("order", problem, Some(hint));
            }
        }
    }

    fn columns(&mut self, columns: &mut Columns) {
        let places = [
            &mut columns.until,
            &mut columns.holder,
            &mut columns.token,
            &mut columns.fence,
            &mut columns.claimed_at,
            &mut columns.available_at,
            &mut columns.attempts,
            &mut columns.failures,
            &mut columns.crashes,
            &mut columns.last_error,
            &mut columns.done_at,
            &mut columns.dead_at,
            &mut columns.generation,
            &mut columns.settled_token,
        ];
        for (fact, place) in COLUMNS.iter().zip(places) {
            self.name_into(&format!("columns.{fact}"), place);
        }
    }

    /// A word of a status makes it one that is told by words; where the words for pending and
    /// claimed are the same, the holder tells those two apart.
    fn states(&mut self, table: &mut LeaseTable) {
        if !self.said.keys().any(|field| field.starts_with("status.")) {
            return;
        }
        let usual = || status("status", ["PENDING", "CLAIMED", "PUBLISHED", "DEAD"]);
        let mut column = table.states.status().cloned().unwrap_or_else(usual);
        self.name_into("status.column", &mut column.column);
        let Words {
            pending,
            claimed,
            done,
            dead,
        } = &mut column.words;
        for (field, place) in WORDS.iter().zip([pending, claimed, done, dead]) {
            self.word_into(&format!("status.{field}"), place);
        }
        table.states = states_of(column);
    }

    fn word_into(&mut self, field: &str, place: &mut StatusWord) {
        let Some(text) = self.one(field) else {
            return;
        };
        match StatusWord::new(&text) {
            Ok(word) => *place = word,
            Err(problem) => self.fault(field, format!("{field}: {problem}"), None),
        }
    }

    fn unknown(&mut self) {
        let known: BTreeSet<String> = LeaseTable::map_fields().into_iter().collect();
        for field in self.said.keys().filter(|field| !known.contains(*field)) {
            let fields: Vec<&str> = known.iter().map(String::as_str).collect();
            let problem = format!("{field} is unknown; expected one of {}", fields.join(", "));
            self.faults.push(MapFault {
                field: field.clone(),
                problem,
                hint: None,
            });
        }
    }

    /// What no single field is to blame for: told at those that are said.
    fn check(&mut self, table: &LeaseTable) {
        let mut columns: BTreeMap<&Identifier, Vec<String>> = BTreeMap::new();
        for (fact, column) in table.facts() {
            columns.entry(column).or_default().push(field_of(fact));
        }
        for (column, fields) in columns.into_iter().filter(|(_, fields)| fields.len() > 1) {
            let is_said = |field: &&String| self.said.contains_key(*field);
            let Some(field) = fields.iter().rfind(is_said).or(fields.last()).cloned() else {
                continue;
            };
            let problem = format!("{} share the column {column}", fields.join(" and "));
            let hint = "give each fact a column of its own; one that is not there is added";
            self.fault(&field, problem, Some(hint));
        }
        let Err(problem) = table.check_states() else {
            return;
        };
        let mut words = self
            .said
            .keys()
            .filter(|field| field.starts_with("status."));
        let field = words.next_back().cloned().unwrap_or_default();
        self.fault(&field, problem.to_string(), None);
    }
}

/// A status whose words for pending and claimed are the same is one where the holder tells.
fn states_of(column: StatusColumn) -> States {
    if column.words.pending == column.words.claimed {
        States::Held(column)
    } else {
        States::Worded(column)
    }
}

/// `priority desc`, `created_at asc`, `created_at`.
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

    fn said(fields: &[(&str, &str)]) -> Said {
        let one = |(field, value): &(&str, &str)| ((*field).to_owned(), vec![(*value).to_owned()]);
        fields.iter().map(one).collect()
    }

    fn described(fields: &[(&str, &str)]) -> Result<LeaseTable, Vec<MapFault>> {
        LeaseTable::described(name("mails"), &said(fields))
    }

    #[test]
    fn every_preset_is_the_same_after_it_was_recorded() {
        for preset in LeaseTable::preset_names() {
            let table = LeaseTable::preset(preset).unwrap();
            let again = LeaseTable::described(table.name.clone(), &table.map());
            assert_eq!(again, Ok(table), "{preset}");
        }
    }

    #[test]
    fn a_map_stands_over_the_preset_that_it_names() {
        let table = described(&[("preset", "webhook"), ("columns.until", "busy")]).unwrap();
        let mut expected = LeaseTable::webhook().named(name("mails"));
        expected.columns.until = name("busy");
        assert_eq!(table, expected);
    }

    #[test]
    fn equal_words_for_pending_and_claimed_leave_it_to_the_holder() {
        let words = [("status.pending", "NEW"), ("status.claimed", "NEW")];
        let table = described(&words).unwrap();
        assert!(matches!(table.states, States::Held(_)), "{table:?}");
        let table = described(&words[..1]).unwrap();
        assert!(matches!(table.states, States::Worded(_)), "{table:?}");
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_at_its_field() {
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
    fn the_order_is_columns_with_a_direction() {
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
