//! The statements of the row layout, rendered for one table; a file holds those of one transaction.

use std::collections::BTreeMap;

use tenure_core::LeaseTable;
use tenure_core::store::{StoreError, StoreErrorKind};

use crate::render::{Edit, MARKER, Names};

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        [$((
            stringify!($name),
            include_str!(concat!("../../../sql/sqlite/rows/", stringify!($name), ".sql")),
        ),)*]
    };
}

/// Name and text of each file.
const FILES: [(&str, &str); 13] = files!(
    create,
    columns,
    claim,
    renew,
    settle,
    settle_done,
    look,
    reap,
    replay,
    bury,
    find,
    page,
    count
);

/// The statements of one lease table, by file and name.
#[derive(Debug)]
pub(super) struct RowStatements(BTreeMap<&'static str, Vec<(String, String)>>);

impl RowStatements {
    pub(super) fn new(table: &LeaseTable, edit: Edit<'_>) -> Result<Self, StoreError> {
        let names = Names::of(table, None)?;
        let mut files = BTreeMap::new();
        for (file, text) in FILES {
            files.insert(file, split(&names.render(file, &edit(file, text))?));
        }
        Ok(Self(files))
    }

    /// Replaces the statement of a file that has only one, which is named after the file.
    pub(super) fn replace(&mut self, file: &'static str, text: &str) {
        self.0
            .insert(file, vec![(file.to_owned(), text.to_owned())]);
    }

    /// Returns the statements of a file, in order.
    pub(super) fn of(&self, file: &'static str) -> &[(String, String)] {
        self.0.get(file).map_or(&[], Vec::as_slice)
    }

    /// Returns one statement.
    ///
    /// # Errors
    /// The statement does not exist: a name is misspelt here or in the file.
    pub(super) fn get(&self, file: &'static str, name: &str) -> Result<&str, StoreError> {
        let found = self.of(file).iter().find(|(of, _)| of == name);
        found.map(|(_, text)| text.as_str()).ok_or_else(|| {
            let problem = format!("the file {file}.sql has no statement {name}");
            StoreError::new("open", StoreErrorKind::Corrupt, problem)
        })
    }

    /// Returns all statements, for the tests that show, prepare and explain each.
    #[cfg(feature = "testing")]
    pub(super) fn all(&self) -> Vec<(&'static str, &str, &str)> {
        let files = self.0.iter();
        files
            .flat_map(|(file, all)| {
                all.iter()
                    .map(|(name, text)| (*file, name.as_str(), text.as_str()))
            })
            .collect()
    }
}

/// Splits a file into its named statements, in order.
fn split(text: &str) -> Vec<(String, String)> {
    let mut statements: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix(MARKER) {
            statements.push((name.to_owned(), String::new()));
        } else if let Some((_, statement)) = statements.last_mut() {
            statement.push_str(line);
            statement.push('\n');
        }
    }
    statements
}
