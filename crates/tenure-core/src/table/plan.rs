//! Plan: the changes that an existing table needs to be leased, or the reasons why it cannot be.
//! The plan depends only on the given facts and the record of an earlier attempt.

use std::collections::BTreeSet;

use super::facts::{ColumnFacts, TableFacts};
use super::need::{adds_of, is_key, need_of};
use super::obstacle::{Obstacle, obstacle};
use super::{AdoptedTable, Identifier, LeaseTable, StatusWord, TableLocation, name};

/// Column that is added to a table without a 64-bit key.
const KEY: &str = "tenure_id";

/// Suffixes of the names of Tenure's sequence and trigger.
const SEQUENCE: &str = "tenure_id_seq";
const TRIGGER: &str = "adopted";

/// Changes to a table that make its rows leasable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The table, with the key that it will have after the changes.
    pub table: LeaseTable,
    /// Facts that have a column already.
    pub uses: Vec<(&'static str, Identifier)>,
    /// Tenure's columns: to be added, or added by an earlier attempt.
    pub adds: Vec<Addition>,
    /// Tenure's indexes.
    pub indexes: Vec<PlannedIndex>,
    /// Remarks for the user to read before the changes are made.
    pub remarks: Vec<String>,
    /// All changes have been made already.
    pub is_done: bool,
    /// Schema of the table, on PostgreSQL.
    pub schema: Option<String>,
}

/// A column that Tenure adds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Addition {
    /// Name of the column.
    pub column: Identifier,
    /// Purpose of the column.
    pub what: Adds,
    /// An earlier attempt has added it.
    pub is_there: bool,
}

/// Purpose of an added column. Every kind can be added without rewriting rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adds {
    /// A 64-bit key, numbered by the database; existing rows get their numbers afterwards.
    Key,
    /// A nullable timestamp.
    Moment,
    /// Time at which a row was written; for existing rows, when the column was added.
    WrittenAt,
    /// A nullable text.
    Text,
    /// A counter from zero.
    Counter,
    /// Number of the last claim, from zero.
    Fence,
    /// A number for the claim order, from zero.
    Order,
    /// Word of the state; existing rows get this word.
    Status(StatusWord),
}

/// An index that Tenure creates.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedIndex {
    /// Purpose of the index.
    pub what: Indexes,
    /// Name of the index.
    pub name: Identifier,
    /// Progress of its creation.
    pub stage: Stage,
}

/// Purpose of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    /// The added key.
    Key,
    /// Pending rows in claim order.
    Claimable,
    /// Pending rows that must be worked alone.
    Alone,
    /// Claimed rows by token.
    Claimed,
}

/// Progress of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The index does not exist.
    Missing,
    /// The creation of the index was interrupted: it must be dropped and created again.
    Broken,
    /// The index exists.
    There,
}

impl Indexes {
    /// Suffix that follows the table's name.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Key => "tenure_id",
            Self::Claimable => "claimable",
            Self::Alone => "alone",
            Self::Claimed => "claimed",
        }
    }
}

impl Plan {
    /// Returns true if a key is added.
    pub fn adds_key(&self) -> bool {
        self.adds.iter().any(|added| added.what == Adds::Key)
    }

    /// Columns that are still to be added.
    ///
    /// ```
    /// use tenure_core::{TableFacts, LeaseTable};
    ///
    /// let obstacles = LeaseTable::outbox().plan(&TableFacts::missing(), None).unwrap_err();
    /// assert_eq!(obstacles[0].what, "there is no table outbox");
    /// ```
    pub fn missing(&self) -> impl Iterator<Item = &Addition> {
        self.adds.iter().filter(|added| !added.is_there)
    }
}

impl LeaseTable {
    /// Name of one of Tenure's indexes on this table, truncated to PostgreSQL's limit.
    ///
    /// ```
    /// use tenure_core::{Indexes, LeaseTable};
    ///
    /// let name = LeaseTable::outbox().index_name(Indexes::Claimable.ending());
    /// assert_eq!(name.as_str(), "outbox_claimable");
    /// ```
    pub fn index_name(&self, ending: &str) -> Identifier {
        let most = Identifier::BYTES_MAX - ending.len() - 1;
        let front: String = self.name.as_str().chars().take(most).collect();
        name(&format!("{front}_{ending}"))
    }

    /// Plans the changes from the facts about the table and the record of an earlier attempt.
    ///
    /// # Errors
    /// The table cannot be leased: all reasons at once.
    pub fn plan(
        &self,
        facts: &TableFacts,
        recorded: Option<&AdoptedTable>,
    ) -> Result<Plan, Vec<Obstacle>> {
        let elsewhere = recorded.and_then(AdoptedTable::elsewhere);
        if let Some(obstacle) = elsewhere.or_else(|| self.kind_obstacle(facts.kind)) {
            return Err(vec![obstacle]);
        }
        // A record whose table is gone does not apply to a new table of that name.
        let recorded = recorded.filter(|adopted| adopted.location == TableLocation::Here);
        let mut planning = Planning {
            facts,
            recorded,
            obstacles: Vec::new(),
            plan: Plan {
                table: self.clone(),
                uses: Vec::new(),
                adds: Vec::new(),
                indexes: Vec::new(),
                remarks: Vec::new(),
                is_done: false,
                schema: facts.schema.clone(),
            },
        };
        planning.key();
        planning.facts();
        planning.order();
        planning.indexes();
        planning.remarks();
        planning.description();
        if !planning.obstacles.is_empty() {
            return Err(planning.obstacles);
        }
        let mut plan = planning.plan;
        let is_whole = plan.missing().next().is_none()
            && plan.indexes.iter().all(|index| index.stage == Stage::There);
        let is_numbered = !(plan.adds_key() && facts.has_unnumbered);
        let is_finished = recorded.is_some_and(|adopted| adopted.is_finished);
        plan.is_done = is_whole && is_numbered && is_finished;
        Ok(plan)
    }
}

/// A plan in the making.
struct Planning<'a> {
    facts: &'a TableFacts,
    recorded: Option<&'a AdoptedTable>,
    obstacles: Vec<Obstacle>,
    plan: Plan,
}

impl Planning<'_> {
    fn obstacle(&mut self, what: String, hint: impl Into<String>) {
        self.obstacles.push(obstacle(what, hint));
    }

    /// Returns true if an earlier attempt has added this column.
    fn is_ours(&self, column: &Identifier) -> bool {
        self.recorded
            .is_some_and(|adopted| adopted.columns.iter().any(|own| own == column.as_str()))
    }

    fn add(&mut self, column: Identifier, what: Adds) {
        let is_there = self.facts.column(column.as_str()).is_some();
        self.plan.adds.push(Addition {
            column,
            what,
            is_there,
        });
    }

    /// Uses the described key if it is a 64-bit integer and never null; otherwise plans to add one.
    fn key(&mut self) {
        let key = self.plan.table.key.clone();
        let own = name(KEY);
        let facts = self.facts.column(key.as_str());
        if facts.is_none() && key != own && !is_usual(&key) {
            return self.absent("key", &key, &format!("`key = \"{KEY}\"` has one added"));
        }
        let fits = |column: &&ColumnFacts| is_key(column.holds) && !column.is_nullable;
        if let Some(column) = facts.filter(fits).filter(|_| !self.is_ours(&key)) {
            if !column.is_unique {
                self.obstacle(
                    format!("the key {key} is not unique"),
                    format!(
                        "make it the primary key, or name another as `key` in a map: if that one \
                         does not exist, {KEY} is added"
                    ),
                );
            }
            self.plan.uses.push(("key", key));
            return;
        }
        if self.facts.column(KEY).is_some() && !self.is_ours(&own) {
            self.obstacle(
                format!("a column {KEY} exists that Tenure did not add"),
                "rename it, or make it a unique not-null bigint and name it as `key` in a map",
            );
            return;
        }
        self.plan.table.key = own.clone();
        self.add(own, Adds::Key);
    }

    fn facts(&mut self) {
        let table = self.plan.table.clone();
        for (fact, column) in table.facts().into_iter().filter(|(fact, _)| *fact != "key") {
            let adds = adds_of(fact, &table.states);
            match self.facts.column(column.as_str()) {
                Some(facts) if !self.is_ours(column) => {
                    self.obstacles
                        .extend(need_of(fact).obstacle(&table, fact, facts));
                    self.plan.uses.push((fact, column.clone()));
                }
                None if fact == "status" && self.facts.has_rows && !self.is_ours(column) => {
                    let hint = "its rows would all be pending; in an empty table it is added";
                    self.absent("status.column", column, hint);
                }
                None if fact == "created_at" && !is_usual(column) && !self.is_ours(column) => {
                    self.absent("created_at", column, "without it, created_at is added");
                }
                _ => self.add(column.clone(), adds),
            }
        }
    }

    /// Reports a described column that does not exist.
    fn absent(&mut self, field: &str, column: &Identifier, more: &str) {
        self.obstacle(
            format!("there is no column {column}, which `{field}` names"),
            format!("name the right one as `{field}` in a map; {more}"),
        );
    }

    /// Plans the columns that only the claim order needs.
    fn order(&mut self) {
        let mut known: BTreeSet<Identifier> = {
            let uses = self.plan.uses.iter().map(|(_, column)| column.clone());
            let adds = self.plan.adds.iter().map(|added| added.column.clone());
            uses.chain(adds).collect()
        };
        let order = self.plan.table.order.clone();
        for (column, _) in order {
            if !known.insert(column.clone()) {
                continue;
            }
            let is_there = self.facts.column(column.as_str()).is_some();
            if !is_there && !is_usual(&column) && !self.is_ours(&column) {
                self.absent("order", &column, "it is never added");
            } else if !is_there || self.is_ours(&column) {
                self.add(column, Adds::Order);
            } else {
                self.plan.uses.push(("order", column));
            }
        }
    }

    fn indexes(&mut self) {
        let mut all = vec![Indexes::Claimable, Indexes::Alone, Indexes::Claimed];
        if self.plan.adds_key() {
            all.insert(0, Indexes::Key);
        }
        for what in all {
            let name = self.plan.table.index_name(what.ending());
            let is_ours = self
                .recorded
                .is_some_and(|adopted| adopted.indexes.iter().any(|own| own == name.as_str()));
            let stage = match self.facts.index(name.as_str()) {
                None => Stage::Missing,
                Some(facts) if facts.is_valid => Stage::There,
                Some(_) => Stage::Broken,
            };
            if stage != Stage::Missing && !is_ours {
                self.obstacle(
                    format!("an index {name} exists that Tenure did not create"),
                    "rename it or drop it",
                );
            }
            self.free(&name, "an index of Tenure's");
            self.plan.indexes.push(PlannedIndex { what, name, stage });
        }
        if self
            .plan
            .adds
            .iter()
            .any(|added| matches!(added.what, Adds::Key | Adds::WrittenAt))
        {
            for ending in [SEQUENCE, TRIGGER] {
                let name = self.plan.table.index_name(ending);
                self.free(&name, "the sequence or trigger of an added column");
            }
        }
    }

    /// Reports a name that Tenure needs but another object has.
    fn free(&mut self, name: &Identifier, what: &str) {
        if self.facts.taken.iter().any(|taken| taken == name.as_str()) {
            self.obstacle(
                format!("the name {name} is in use, and {what} needs it"),
                "rename the object that has it, or the table",
            );
        }
    }

    fn remarks(&mut self) {
        let Plan { table, adds, .. } = &self.plan;
        let is_added = |column: &Identifier| adds.iter().any(|added| added.column == *column);
        let until = &table.columns.until;
        let mut remarks = Vec::new();
        if is_added(until) && table.states.status().is_some() {
            remarks.push(format!(
                "claims of your own workers have no {until}, so Tenure cannot end them: keep your \
                 own recovery running for as long as those workers run"
            ));
        }
        if let Some(status) = table.states.status() {
            let words = status.words.all();
            if !self.facts.checks.is_empty() {
                remarks.push(format!(
                    "check constraints must allow every word of the status ({}): {}",
                    words.join(", "),
                    self.facts.checks.join(", ")
                ));
            }
            remarks.extend(self.facts.words.iter().filter_map(|(word, count)| {
                let status = match word {
                    Some(word) if words.contains(&word.as_str()) => return None,
                    Some(word) => format!("the status {word:?}, which the map does not know"),
                    None => "no status".to_owned(),
                };
                let (rows, they) = match count {
                    1 => ("row has", "it"),
                    _ => ("rows have", "they"),
                };
                Some(format!(
                    "{count} {rows} {status}: {they} will never be claimed"
                ))
            }));
        }
        self.plan.remarks = remarks;
        for (check, word) in &self.facts.refused {
            self.obstacles.push(obstacle(
                format!("the check constraint {check} refuses the word {word:?} of the status"),
                "change the constraint, or name a word that it allows in a map, under [status]",
            ));
        }
    }

    /// Reports a description that differs from the one at adoption.
    fn description(&mut self) {
        let Some(recorded) = self.recorded else {
            return;
        };
        if recorded.table != self.plan.table {
            let name = self.plan.table.name.clone();
            self.obstacle(
                format!("{name} was adopted with another preset or map"),
                format!("use the same one, or run `tenure adopt {name} --undo` first"),
            );
        }
    }
}

/// Returns true for names that presets use for the key, the order and the time of writing: such a
/// column may be added. Any other name comes from a map, and must exist.
fn is_usual(column: &Identifier) -> bool {
    ["id", "priority", "created_at"].contains(&column.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::facts::Holds;
    use super::super::facts::{IndexFacts, TableKind};
    use super::*;
    use crate::time::Timestamp;

    fn column(name: &str, holds: Holds) -> ColumnFacts {
        ColumnFacts {
            name: name.to_owned(),
            declared: format!("{holds:?}").to_lowercase(),
            holds,
            is_nullable: true,
            is_unique: false,
            is_generated: false,
        }
    }

    fn facts(columns: Vec<ColumnFacts>) -> TableFacts {
        TableFacts {
            kind: TableKind::Table,
            columns,
            ..TableFacts::missing()
        }
    }

    /// Minimal table of sync jobs.
    fn jobs() -> TableFacts {
        let id = ColumnFacts {
            is_nullable: false,
            is_unique: true,
            ..column("id", Holds::BigInteger)
        };
        let created_at = ColumnFacts {
            is_nullable: false,
            ..column("created_at", Holds::Moment)
        };
        facts(vec![id, created_at, column("locked_by", Holds::Text(None))])
    }

    fn problems(obstacles: &[Obstacle]) -> Vec<&str> {
        assert!(obstacles.iter().all(|facts| !facts.hint.is_empty()));
        obstacles.iter().map(|facts| facts.what.as_str()).collect()
    }

    fn recorded(plan: &Plan, is_finished: bool) -> AdoptedTable {
        let columns = plan.adds.iter().map(|added| added.column.to_string());
        let indexes = plan.indexes.iter().map(|index| index.name.to_string());
        AdoptedTable {
            table: plan.table.clone(),
            columns: columns.collect(),
            indexes: indexes.collect(),
            left: Vec::new(),
            is_finished,
            adopted_at: Timestamp::from_micros(0),
            schema: None,
            location: TableLocation::Here,
        }
    }

    /// Returns the table after all changes of a plan.
    fn done(mut facts: TableFacts, plan: &Plan) -> TableFacts {
        let added = plan.adds.iter().map(|added| added.column.as_str());
        facts
            .columns
            .extend(added.map(|name| column(name, Holds::Other)));
        let made = plan.indexes.iter().map(|index| IndexFacts {
            name: index.name.to_string(),
            is_valid: true,
        });
        facts.indexes.extend(made);
        facts
    }

    #[test]
    fn existing_columns_are_used_and_the_rest_is_added() {
        let plan = LeaseTable::sync_jobs().plan(&jobs(), None).unwrap();
        let uses: Vec<&str> = plan.uses.iter().map(|(fact, _)| *fact).collect();
        assert_eq!(uses, ["key", "created_at", "holder"]);
        assert_eq!(plan.adds.len(), 16 + 1 - 3, "all other facts, and priority");
        let priority = plan.adds.last().unwrap();
        assert_eq!(
            (priority.column.as_str(), &priority.what),
            ("priority", &Adds::Order)
        );
        assert!(!plan.is_done && !plan.adds_key());
        assert_eq!(plan.indexes.len(), 3);
    }

    #[test]
    fn a_table_without_a_bigint_key_gets_one() {
        for holds in [Holds::Text(None), Holds::Integer, Holds::Other] {
            let mut facts = jobs();
            facts.columns[0].holds = holds;
            let plan = LeaseTable::sync_jobs().plan(&facts, None).unwrap();
            assert_eq!(plan.table.key.as_str(), "tenure_id");
            assert!(plan.adds_key());
            assert_eq!(plan.indexes[0].what, Indexes::Key);
        }
        let mut facts = jobs();
        drop(facts.columns.remove(0));
        let plan = LeaseTable::sync_jobs().plan(&facts, None).unwrap();
        assert!(plan.adds_key());
    }

    #[test]
    fn a_key_that_is_not_unique_is_an_obstacle() {
        let mut facts = jobs();
        facts.columns[0].is_unique = false;
        let obstacles = LeaseTable::sync_jobs().plan(&facts, None).unwrap_err();
        assert_eq!(problems(&obstacles), ["the key id is not unique"]);
        facts.columns[0].is_nullable = true;
        let plan = LeaseTable::sync_jobs().plan(&facts, None).unwrap();
        assert!(plan.adds_key(), "a nullable column is not a key");
    }

    #[test]
    fn an_object_other_than_a_table_is_an_obstacle() {
        let table = LeaseTable::outbox();
        for (kind, expected) in [
            (TableKind::Missing, "there is no table outbox"),
            (TableKind::View, "outbox is a view"),
            (TableKind::Partitioned, "outbox is partitioned"),
            (TableKind::Rowless, "outbox was created without rowid"),
            (TableKind::Other, "outbox is not a table"),
        ] {
            let facts = TableFacts {
                kind,
                ..TableFacts::missing()
            };
            let obstacles = table.plan(&facts, None).unwrap_err();
            assert!(
                problems(&obstacles)[0].starts_with(expected),
                "{obstacles:?}"
            );
        }
        let own = table.named(name("tenure_jobs"));
        assert!(
            own.plan(&jobs(), None).is_err(),
            "Tenure's own tables are not adopted"
        );
    }

    #[test]
    fn every_wrong_column_is_reported_at_once() {
        let mut table = jobs();
        table.columns[1].is_nullable = true;
        table.columns[2].holds = Holds::Text(Some(36));
        let not_null = ColumnFacts {
            is_nullable: false,
            ..column("locked_until", Holds::Moment)
        };
        table.columns.extend([
            not_null,
            column("attempts", Holds::Integer),
            column("failed_at", Holds::Other),
            column("fence", Holds::Text(None)),
        ]);
        let obstacles = LeaseTable::sync_jobs().plan(&table, None).unwrap_err();
        let status = problems(&obstacles);
        assert_eq!(status.len(), 6, "{status:#?}");
        for (expected, at) in [
            ("column created_at, mapped to `created_at`, may be null", 0),
            ("column locked_until, mapped to `until`, is not null", 1),
            ("expected room for 128", 2),
            ("expected a bigint", 3),
            ("column attempts, mapped to `attempts`, may be null", 4),
            (
                "column failed_at, mapped to `dead_at`, is other; expected a",
                5,
            ),
        ] {
            assert!(status[at].contains(expected), "{expected}: {status:#?}");
        }
    }

    #[test]
    fn a_status_must_have_room_for_its_words() {
        let mut facts = jobs();
        facts.columns.push(column("status", Holds::Text(Some(8))));
        let obstacles = LeaseTable::outbox().plan(&facts, None).unwrap_err();
        assert!(problems(&obstacles)[0].contains("expected room for 9"));
    }

    #[test]
    fn an_interrupted_adoption_continues() {
        let table = LeaseTable::sync_jobs();
        let plan = table.plan(&jobs(), None).unwrap();
        let whole = done(jobs(), &plan);
        let again = table.plan(&whole, Some(&recorded(&plan, false))).unwrap();
        assert_eq!(again.missing().count(), 0);
        assert!(!again.is_done, "rows may lack their keys");
        let again = table.plan(&whole, Some(&recorded(&plan, true))).unwrap();
        assert!(again.is_done);
        let mut broken = whole.clone();
        broken.indexes[0].is_valid = false;
        let again = table.plan(&broken, Some(&recorded(&plan, true))).unwrap();
        assert!(!again.is_done);
        assert_eq!(again.indexes[0].stage, Stage::Broken);
        let unrecorded = table.plan(&whole, None).unwrap_err();
        assert!(!unrecorded.is_empty(), "existing columns are not Tenure's");
    }

    #[test]
    fn a_description_other_than_the_recorded_one_is_an_obstacle() {
        let plan = LeaseTable::sync_jobs().plan(&jobs(), None).unwrap();
        let recorded = recorded(&plan, true);
        let other = LeaseTable::sync_checkpoints().named(name("sync_jobs"));
        let facts = done(jobs(), &plan);
        let obstacles = other.plan(&facts, Some(&recorded)).unwrap_err();
        assert!(
            problems(&obstacles)[0].contains("another preset"),
            "{obstacles:?}"
        );
    }
}
