//! Plan: what a table that is there needs to be leased, or why it cannot be. Pure: it is given what
//! was found and asks nobody.

use std::collections::BTreeSet;

use super::found::{FoundColumn, FoundTable};
use super::need::{adds_of, is_key, need_of};
use super::obstacle::{Obstacle, obstacle};
use super::{AdoptedTable, Identifier, LeaseTable, StatusWord, Whereabouts, name};

/// The column that a table is given when it has no 64-bit key of its own.
const KEY: &str = "tenure_id";

/// What the names of a sequence and of a trigger of ours end with.
const SEQUENCE: &str = "tenure_id_seq";
const TRIGGER: &str = "adopted";

/// What is to be done to a table so that its rows can be leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The table, with the key that it will have.
    pub table: LeaseTable,
    /// The facts that have a column already.
    pub uses: Vec<(&'static str, Identifier)>,
    /// The columns that are ours: to be added, or added by an earlier try.
    pub adds: Vec<Addition>,
    /// The indexes that are ours.
    pub indexes: Vec<PlannedIndex>,
    /// What somebody should know before it is done.
    pub remarks: Vec<String>,
    /// Everything was done before.
    pub is_done: bool,
    /// The schema that the table is in, where there are several.
    pub schema: Option<String>,
}

/// A column that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Its name.
    pub column: Identifier,
    /// What it is for.
    pub what: Adds,
    /// An earlier try has added it.
    pub is_there: bool,
}

/// What an added column is for. All can be added without writing a single row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adds {
    /// A key of 64 bits, numbered by the database; rows that are there get theirs afterwards.
    Key,
    /// A moment that may be missing.
    Moment,
    /// When a row was written; for rows that are there, when the column was added.
    WrittenAt,
    /// A text that may be missing.
    Text,
    /// A counter from zero.
    Counter,
    /// The number of the last claim, from zero.
    Fence,
    /// A number that rows are ordered by, from zero.
    Order,
    /// The word for the state; rows that are there are given this one.
    Status(StatusWord),
}

/// An index that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedIndex {
    /// What it is for.
    pub what: Indexes,
    /// Its name.
    pub name: Identifier,
    /// How far it is.
    pub stage: Stage,
}

/// What an index is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    /// The added key.
    Key,
    /// Pending rows in their order.
    Claimable,
    /// Those of them that must be worked alone.
    Alone,
    /// Claimed rows by their tokens.
    Claimed,
}

/// How far an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not there.
    Missing,
    /// Its making was broken off: it is to be dropped and made anew.
    Broken,
    /// It is there.
    There,
}

impl Indexes {
    /// The end of its name; the table's name stands before it.
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
    /// Whether the table is given a key.
    pub fn adds_key(&self) -> bool {
        self.adds.iter().any(|added| added.what == Adds::Key)
    }

    /// The columns that are still to be added.
    ///
    /// ```
    /// use tenure_core::{FoundTable, LeaseTable};
    ///
    /// let obstacles = LeaseTable::outbox().plan(&FoundTable::missing(), None).unwrap_err();
    /// assert_eq!(obstacles[0].what, "there is no table outbox");
    /// ```
    pub fn missing(&self) -> impl Iterator<Item = &Addition> {
        self.adds.iter().filter(|added| !added.is_there)
    }
}

impl LeaseTable {
    /// The name of one of our indexes on this table, cut to what PostgreSQL keeps.
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

    /// What this table needs, given what was found of it and what is recorded of an earlier try.
    ///
    /// # Errors
    /// It cannot be leased: all reasons at once.
    pub fn plan(
        &self,
        found: &FoundTable,
        recorded: Option<&AdoptedTable>,
    ) -> Result<Plan, Vec<Obstacle>> {
        let elsewhere = recorded.and_then(AdoptedTable::elsewhere);
        if let Some(obstacle) = elsewhere.or_else(|| self.kind_obstacle(found.kind)) {
            return Err(vec![obstacle]);
        }
        // What is recorded of a table that is gone says nothing of this one.
        let recorded = recorded.filter(|adopted| adopted.whereabouts == Whereabouts::Here);
        let mut planning = Planning {
            found,
            recorded,
            obstacles: Vec::new(),
            plan: Plan {
                table: self.clone(),
                uses: Vec::new(),
                adds: Vec::new(),
                indexes: Vec::new(),
                remarks: Vec::new(),
                is_done: false,
                schema: found.schema.clone(),
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
        let is_numbered = !(plan.adds_key() && found.has_unnumbered);
        let is_finished = recorded.is_some_and(|adopted| adopted.is_finished);
        plan.is_done = is_whole && is_numbered && is_finished;
        Ok(plan)
    }
}

/// On the way to a plan.
struct Planning<'a> {
    found: &'a FoundTable,
    recorded: Option<&'a AdoptedTable>,
    obstacles: Vec<Obstacle>,
    plan: Plan,
}

impl Planning<'_> {
    fn obstacle(&mut self, what: String, hint: impl Into<String>) {
        self.obstacles.push(obstacle(what, hint));
    }

    /// Whether an earlier try has added this column.
    fn is_ours(&self, column: &Identifier) -> bool {
        self.recorded
            .is_some_and(|adopted| adopted.columns.iter().any(|own| own == column.as_str()))
    }

    fn add(&mut self, column: Identifier, what: Adds) {
        let is_there = self.found.column(column.as_str()).is_some();
        self.plan.adds.push(Addition {
            column,
            what,
            is_there,
        });
    }

    /// A key of 64 bits that is never null is used, and of any other kind none: the table is given
    /// one.
    fn key(&mut self) {
        let key = self.plan.table.key.clone();
        let own = name(KEY);
        let found = self.found.column(key.as_str());
        if found.is_none() && key != own && !is_usual(&key) {
            return self.absent("key", &key, &format!("`key = \"{KEY}\"` has one added"));
        }
        let fits = |column: &&FoundColumn| is_key(column.holds) && !column.is_nullable;
        if let Some(column) = found.filter(fits).filter(|_| !self.is_ours(&key)) {
            if !column.is_unique {
                self.obstacle(
                    format!("the key {key} is not unique"),
                    format!(
                        "make it the primary key, or name another as `key` in a map: for one that \
                         is not there, {KEY} is added"
                    ),
                );
            }
            self.plan.uses.push(("key", key));
            return;
        }
        if self.found.column(KEY).is_some() && !self.is_ours(&own) {
            self.obstacle(
                format!("a column {KEY} is there, and was not added by Tenure"),
                "rename it, or make it a unique bigint that is never null and the key of a map",
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
            match self.found.column(column.as_str()) {
                Some(found) if !self.is_ours(column) => {
                    self.obstacles
                        .extend(need_of(fact).obstacle(&table, fact, found));
                    self.plan.uses.push((fact, column.clone()));
                }
                None if fact == "status" && self.found.has_rows && !self.is_ours(column) => {
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

    /// A column that the description names and that must be there is not.
    fn absent(&mut self, field: &str, column: &Identifier, more: &str) {
        self.obstacle(
            format!("there is no column {column}, which `{field}` names"),
            format!("name the right one as `{field}` in a map; {more}"),
        );
    }

    /// What only the order needs.
    fn order(&mut self) {
        let known: BTreeSet<Identifier> = {
            let uses = self.plan.uses.iter().map(|(_, column)| column.clone());
            let adds = self.plan.adds.iter().map(|added| added.column.clone());
            uses.chain(adds).collect()
        };
        let order = self.plan.table.order.clone();
        let mut seen = known;
        for (column, _) in order {
            if !seen.insert(column.clone()) {
                continue;
            }
            let is_there = self.found.column(column.as_str()).is_some();
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
            let stage = match self.found.index(name.as_str()) {
                None => Stage::Missing,
                Some(found) if found.is_valid => Stage::There,
                Some(_) => Stage::Broken,
            };
            if stage != Stage::Missing && !is_ours {
                self.obstacle(
                    format!("an index {name} is there, and was not made by Tenure"),
                    "rename it or drop it",
                );
            }
            self.free(&name, "an index of ours");
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
                self.free(&name, "what fills a column that is added");
            }
        }
    }

    /// What is to be made needs its name for itself.
    fn free(&mut self, name: &Identifier, what: &str) {
        if self.found.taken.iter().any(|taken| taken == name.as_str()) {
            self.obstacle(
                format!("the name {name} is taken, and {what} needs it"),
                "rename what has it, or the table",
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
                "what your own workers claim has no {until}, so nobody but they can end such a \
                 claim: let your own recovery run for as long as they do"
            ));
        }
        if let Some(status) = table.states.status() {
            let words = status.words.all();
            if !self.found.checks.is_empty() {
                remarks.push(format!(
                    "check constraints must allow every word of the status ({}): {}",
                    words.join(", "),
                    self.found.checks.join(", ")
                ));
            }
            remarks.extend(self.found.words.iter().filter_map(|(word, count)| {
                let told = match word {
                    Some(word) if words.contains(&word.as_str()) => return None,
                    Some(word) => format!("the status {word:?}, which the map does not know"),
                    None => "no status".to_owned(),
                };
                Some(format!(
                    "{count} rows have {told}: nobody will ever claim them"
                ))
            }));
        }
        self.plan.remarks = remarks;
        for (check, word) in &self.found.refused {
            self.obstacles.push(obstacle(
                format!("the check constraint {check} refuses the word {word:?} of the status"),
                "let it allow the word, or name one that it allows in a map, under [status]",
            ));
        }
    }

    /// A table is adopted with one description; what it was adopted with stays.
    fn description(&mut self) {
        let Some(recorded) = self.recorded else {
            return;
        };
        if recorded.table != self.plan.table {
            let name = self.plan.table.name.clone();
            self.obstacle(
                format!("{name} was adopted with another preset or map"),
                format!("give the same again, or run `tenure adopt {name} --undo` first"),
            );
        }
    }
}

/// Whether a preset has this name for the key, the order or the moment of writing: such a column
/// may be added. Any other was named by a map, and must be there.
fn is_usual(column: &Identifier) -> bool {
    ["id", "priority", "created_at"].contains(&column.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::found::Holds;
    use super::super::found::{FoundIndex, FoundKind};
    use super::*;
    use crate::time::Timestamp;

    fn column(name: &str, holds: Holds) -> FoundColumn {
        FoundColumn {
            name: name.to_owned(),
            declared: format!("{holds:?}").to_lowercase(),
            holds,
            is_nullable: true,
            is_unique: false,
            is_generated: false,
        }
    }

    fn found(columns: Vec<FoundColumn>) -> FoundTable {
        FoundTable {
            kind: FoundKind::Table,
            columns,
            ..FoundTable::missing()
        }
    }

    /// The least that a table of sync jobs has.
    fn jobs() -> FoundTable {
        let id = FoundColumn {
            is_nullable: false,
            is_unique: true,
            ..column("id", Holds::BigInteger)
        };
        let created_at = FoundColumn {
            is_nullable: false,
            ..column("created_at", Holds::Moment)
        };
        found(vec![id, created_at, column("locked_by", Holds::Text(None))])
    }

    fn whats(obstacles: &[Obstacle]) -> Vec<&str> {
        assert!(obstacles.iter().all(|found| !found.hint.is_empty()));
        obstacles.iter().map(|found| found.what.as_str()).collect()
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
            whereabouts: Whereabouts::Here,
        }
    }

    /// The table as it is when everything of a plan was done.
    fn done(mut found: FoundTable, plan: &Plan) -> FoundTable {
        let added = plan.adds.iter().map(|added| added.column.as_str());
        found
            .columns
            .extend(added.map(|name| column(name, Holds::Other)));
        let made = plan.indexes.iter().map(|index| FoundIndex {
            name: index.name.to_string(),
            is_valid: true,
        });
        found.indexes.extend(made);
        found
    }

    #[test]
    fn what_is_there_is_used_and_the_rest_is_added() {
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
    fn a_key_that_is_no_bigint_gets_one_beside_it() {
        for holds in [Holds::Text(None), Holds::Integer, Holds::Other] {
            let mut found = jobs();
            found.columns[0].holds = holds;
            let plan = LeaseTable::sync_jobs().plan(&found, None).unwrap();
            assert_eq!(plan.table.key.as_str(), "tenure_id");
            assert!(plan.adds_key());
            assert_eq!(plan.indexes[0].what, Indexes::Key);
        }
        let mut found = jobs();
        drop(found.columns.remove(0));
        let plan = LeaseTable::sync_jobs().plan(&found, None).unwrap();
        assert!(plan.adds_key());
    }

    #[test]
    fn a_key_that_cannot_tell_rows_apart_is_an_obstacle() {
        let mut found = jobs();
        found.columns[0].is_unique = false;
        let obstacles = LeaseTable::sync_jobs().plan(&found, None).unwrap_err();
        assert_eq!(whats(&obstacles), ["the key id is not unique"]);
        found.columns[0].is_nullable = true;
        let plan = LeaseTable::sync_jobs().plan(&found, None).unwrap();
        assert!(plan.adds_key(), "one that may be null is none");
    }

    #[test]
    fn what_is_no_table_is_an_obstacle() {
        let table = LeaseTable::outbox();
        for (kind, said) in [
            (FoundKind::Missing, "there is no table outbox"),
            (FoundKind::View, "outbox is a view"),
            (FoundKind::Partitioned, "outbox is partitioned"),
            (FoundKind::Rowless, "outbox was made without rowid"),
            (FoundKind::Other, "outbox is no table"),
        ] {
            let found = FoundTable {
                kind,
                ..FoundTable::missing()
            };
            let obstacles = table.plan(&found, None).unwrap_err();
            assert!(whats(&obstacles)[0].starts_with(said), "{obstacles:?}");
        }
        let own = table.named(name("tenure_jobs"));
        assert!(own.plan(&jobs(), None).is_err(), "ours is not adopted");
    }

    #[test]
    fn every_wrong_column_is_told_at_once() {
        let mut table = jobs();
        table.columns[1].is_nullable = true;
        table.columns[2].holds = Holds::Text(Some(36));
        let not_null = FoundColumn {
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
        let told = whats(&obstacles);
        assert_eq!(told.len(), 6, "{told:#?}");
        for (said, at) in [
            ("created_at, which is to hold created_at, may be null", 0),
            ("locked_until, which is to hold until, is not null", 1),
            ("expected room for 128", 2),
            ("expected a bigint", 3),
            ("attempts, which is to hold attempts, may be null", 4),
            (
                "failed_at, which is to hold dead_at, is other; expected a",
                5,
            ),
        ] {
            assert!(told[at].contains(said), "{said}: {told:#?}");
        }
    }

    #[test]
    fn a_status_must_have_room_for_its_words() {
        let mut found = jobs();
        found.columns.push(column("status", Holds::Text(Some(8))));
        let obstacles = LeaseTable::outbox().plan(&found, None).unwrap_err();
        assert!(whats(&obstacles)[0].contains("expected room for 9"));
    }

    #[test]
    fn a_plan_that_was_begun_goes_on_where_it_stopped() {
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
        assert!(!unrecorded.is_empty(), "what is there is not ours");
    }

    #[test]
    fn another_description_is_refused() {
        let plan = LeaseTable::sync_jobs().plan(&jobs(), None).unwrap();
        let recorded = recorded(&plan, true);
        let other = LeaseTable::sync_checkpoints().named(name("sync_jobs"));
        let found = done(jobs(), &plan);
        let obstacles = other.plan(&found, Some(&recorded)).unwrap_err();
        assert!(
            whats(&obstacles)[0].contains("another preset"),
            "{obstacles:?}"
        );
    }
}
