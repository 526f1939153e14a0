//! Migrations of both databases, and the rule by which a program uses tables of another version.

use tenure_core::store::{Finding, StoreError, StoreErrorKind};

use crate::open::{Migrated, SchemaFit, SchemaVersion};

/// The hint for tables that a migration creates or changes.
pub(crate) const HINT: &str =
    "run `tenure migrate` or `tenure serve --migrate`, or call `tenure::migrate`";

/// One version of the schema.
#[derive(Clone, Copy)]
pub(crate) struct Migration {
    /// Lowest schema version of a program that stays correct on the migrated tables. A migration
    /// that only adds repeats the number of the one before it; any other has its own version.
    pub(crate) readable_from: u32,
    /// SQL texts, applied in this order.
    pub(crate) texts: &'static [&'static str],
}

/// Returns the migrations that tables of this version lack, each with its own version.
pub(crate) fn missing(
    migrations: &[Migration],
    tables: u32,
) -> impl Iterator<Item = (u32, &Migration)> {
    (1..)
        .zip(migrations)
        .filter(move |(version, _)| *version > tables)
}

/// All migrations of a program that knows one more.
#[cfg(all(feature = "testing", feature = "postgres", feature = "sqlite"))]
pub(crate) fn followed_by(migrations: &[Migration], further: Migration) -> Vec<Migration> {
    migrations.iter().copied().chain([further]).collect()
}

/// The comment that precedes a migration in the printed SQL.
pub(crate) fn heading(version: u32, migration: &Migration) -> String {
    let from = migration.readable_from;
    format!("-- Version {version}: programs of schema version {from} and later can use it.")
}

impl SchemaVersion {
    /// The versions of tables and of a program with these migrations.
    pub(crate) fn compared(tables: u32, readable_from: u32, migrations: &[Migration]) -> Self {
        Self {
            tables,
            readable_from,
            program: u32::try_from(migrations.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the result of a migration of these tables, or refuses tables that are too new.
    pub(crate) fn migrated(
        self,
        verb: &'static str,
        migrations: &[Migration],
    ) -> Result<Migrated, StoreError> {
        let from = self.tables;
        let to = match self.fit() {
            SchemaFit::TooNew => return Err(self.refused(verb)),
            SchemaFit::Current | SchemaFit::Newer => self,
            SchemaFit::Older => Self {
                tables: self.program,
                readable_from: migrations
                    .iter()
                    .map(|migration| migration.readable_from)
                    .fold(self.readable_from, u32::max),
                ..self
            },
        };
        Ok(Migrated { from, to })
    }

    /// The error for tables that this program cannot use.
    pub(crate) fn refused(self, verb: &'static str) -> StoreError {
        let message = if self.tables == 0 {
            "Tenure's tables are not in this database".to_owned()
        } else {
            format!("the schema is at {self}")
        };
        StoreError::new(verb, StoreErrorKind::Invalid, message).with_hint(self.hint())
    }

    const fn hint(self) -> &'static str {
        match self.fit() {
            SchemaFit::Older => HINT,
            SchemaFit::Current | SchemaFit::Newer => "replace this program by the newer one",
            SchemaFit::TooNew => {
                "use a newer `tenure`, or a backup of the database from before the migration"
            }
        }
    }

    pub(crate) fn finding(self) -> Finding {
        let text = self.to_string();
        match self.fit() {
            SchemaFit::Current => Finding::good("schema", text),
            SchemaFit::Newer => Finding::warning("schema", text, self.hint()),
            SchemaFit::Older | SchemaFit::TooNew => Finding::bad("schema", text, self.hint()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn version(readable_from: u32) -> Migration {
        Migration {
            readable_from,
            texts: &[],
        }
    }

    /// Five versions: the third breaks with the first two, the others only add.
    const HISTORY: [Migration; 5] = [version(1), version(1), version(3), version(3), version(3)];

    /// Returns the tables after the first `tables` migrations, as a program sees them that knows
    /// the first `program` migrations.
    fn after(tables: usize, program: usize) -> SchemaVersion {
        let applied = HISTORY.iter().take(tables);
        let from = applied.map(|one| one.readable_from).max();
        let tables = u32::try_from(tables).unwrap();
        SchemaVersion::compared(tables, from.unwrap_or(0), &HISTORY[..program])
    }

    #[test]
    fn a_program_uses_newer_tables_unless_a_migration_between_breaks_with_it() {
        use SchemaFit::{Current, Newer, Older, TooNew};
        for (program, fits) in [
            (1, [Older, Current, Newer, TooNew, TooNew, TooNew]),
            (2, [Older, Older, Current, TooNew, TooNew, TooNew]),
            (3, [Older, Older, Older, Current, Newer, Newer]),
        ] {
            for (tables, fit) in fits.into_iter().enumerate() {
                assert_eq!(after(tables, program).fit(), fit, "{tables} for {program}");
            }
        }
    }

    #[test]
    fn unusable_tables_are_refused_with_the_versions_and_the_way_out() {
        let too_new = after(4, 2);
        for refused in [
            too_new.refused("open"),
            too_new.migrated("migrate", &HISTORY[..2]).unwrap_err(),
        ] {
            let text = refused.to_string();
            for part in [
                "version 4",
                "version 2 of this",
                "version 3 or later",
                "a newer `tenure`",
            ] {
                assert!(text.contains(part), "{text}");
            }
        }
        let text = after(1, 3).refused("open").to_string();
        for part in [
            "version 1",
            "older than version 3",
            "`tenure serve --migrate`",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_migration_reports_the_tables_as_they_are_afterwards() {
        let migrated = after(1, 4).migrated("migrate", &HISTORY[..4]).unwrap();
        assert_eq!((migrated.from, migrated.to), (1, after(4, 4)));
        let steps: Vec<_> = missing(&HISTORY, 3).map(|(version, _)| version).collect();
        assert_eq!(steps, [4, 5]);
        let kept = after(2, 1).migrated("migrate", &HISTORY[..1]).unwrap();
        assert_eq!((kept.from, kept.to), (2, after(2, 1)), "nothing to do");
    }
}
