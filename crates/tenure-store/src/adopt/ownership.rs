//! Ownership of columns and indexes on an adopted table: the mark on columns that Tenure added, and
//! the names that Tenure needs.
//!
//! A name in the record proves nothing: the table may have been dropped and created again, or the
//! name may lead to another table. So Tenure removes only marked columns, and indexes only from the
//! adopted table.

use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{AdoptedTable, Indexes, LeaseTable, TableLocation};

use crate::adopt::VERB;
use crate::render::Names;

/// The present state of a recorded table.
pub(crate) struct TableOwnership {
    /// Schema in which the search path finds the name; `None` if it finds no table.
    pub(crate) leads_to: Option<String>,
    /// The recorded schema has a table of this name.
    pub(crate) is_kept: bool,
    /// Columns with Tenure's mark.
    pub(crate) marked: Vec<String>,
    /// Columns without the mark.
    pub(crate) unmarked: Vec<String>,
    pub(crate) indexes: Vec<String>,
}

/// The record, reduced to the columns and indexes that exist and belong to Tenure.
pub(crate) fn as_seen(mut adopted: AdoptedTable, ownership: TableOwnership) -> AdoptedTable {
    let is_same = adopted.schema.is_none() || adopted.schema == ownership.leads_to;
    adopted.location = match ownership.leads_to {
        Some(_) if is_same || !ownership.is_kept => TableLocation::Here,
        None if !ownership.is_kept => TableLocation::Gone,
        _ => TableLocation::Elsewhere,
    };
    if adopted.location == TableLocation::Elsewhere {
        return adopted;
    }
    let noted = std::mem::take(&mut adopted.columns);
    let among = |all: &[String], name: &String| all.contains(name);
    adopted.left = noted
        .iter()
        .filter(|name| among(&ownership.unmarked, name))
        .cloned()
        .collect();
    adopted.columns = noted
        .iter()
        .filter(|name| among(&ownership.marked, name))
        .cloned()
        .collect();
    // An index has no mark: it belongs to Tenure if this is the adopted table.
    let is_the_one = noted.is_empty() || !adopted.columns.is_empty();
    adopted
        .indexes
        .retain(|name| is_the_one && among(&ownership.indexes, name));
    adopted.schema = ownership.leads_to;
    adopted
}

/// Names of Tenure's indexes on a table, and the index name with the ending `more`.
pub(crate) fn needed(table: &LeaseTable, more: &str) -> Vec<String> {
    let indexes = [
        Indexes::Key,
        Indexes::Claimable,
        Indexes::Alone,
        Indexes::Claimed,
    ];
    let endings = indexes.map(Indexes::ending).into_iter().chain([more]);
    endings
        .map(|ending| table.index_name(ending).to_string())
        .collect()
}

/// Adds the condition under which an adoption is complete: with an added key, every row has a
/// number.
///
/// # Errors
/// The description of the table is not valid.
pub(crate) fn unless(names: Names, adds_key: bool) -> Result<Names, StoreError> {
    let text = if adds_key {
        "and not exists (select 1 from {table} t where t.{key} is null)"
    } else {
        ""
    };
    let text = match names.render("finish", text)?.trim_end() {
        "" => String::new(),
        text => format!("\n  {text}"),
    };
    Ok(names.with("unless", text))
}

/// Refuses to undo an adoption if the name leads to another table.
///
/// # Errors
/// The table is in another schema.
pub(crate) fn check_here(adopted: &AdoptedTable) -> Result<(), StoreError> {
    match adopted.elsewhere() {
        Some(told) => {
            Err(StoreError::new(VERB, StoreErrorKind::Invalid, told.what).with_hint(told.hint))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Timestamp;

    fn noted(schema: Option<&str>) -> AdoptedTable {
        AdoptedTable {
            table: LeaseTable::outbox(),
            columns: vec!["fence".to_owned(), "crashes".to_owned()],
            indexes: vec!["outbox_claimable".to_owned()],
            left: Vec::new(),
            is_finished: true,
            adopted_at: Timestamp::from_micros(0),
            schema: schema.map(str::to_owned),
            location: TableLocation::Here,
        }
    }

    fn ownership(
        leads_to: Option<&str>,
        is_kept: bool,
        marked: &[&str],
        unmarked: &[&str],
    ) -> TableOwnership {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        TableOwnership {
            leads_to: leads_to.map(str::to_owned),
            is_kept,
            marked: list(marked),
            unmarked: list(unmarked),
            indexes: list(&["outbox_claimable", "outbox_pkey"]),
        }
    }

    #[test]
    fn only_marked_columns_belong_to_tenure() {
        let ownership = ownership(
            Some("public"),
            true,
            &["crashes", "other"],
            &["id", "fence"],
        );
        let adopted = as_seen(noted(Some("public")), ownership);
        assert_eq!(adopted.columns, ["crashes"]);
        assert_eq!(adopted.left, ["fence"]);
        assert_eq!(adopted.indexes, ["outbox_claimable"]);
    }

    #[test]
    fn a_table_that_was_created_again_has_no_columns_of_tenure() {
        let adopted = as_seen(
            noted(None),
            ownership(Some("main"), false, &[], &["id", "fence"]),
        );
        assert_eq!(adopted.location, TableLocation::Here);
        assert!(adopted.columns.is_empty() && adopted.indexes.is_empty());
        assert_eq!(adopted.left, ["fence"]);
    }

    #[test]
    fn the_location_follows_from_the_tables_of_this_name() {
        for (leads_to, is_kept, expected) in [
            (Some("public"), true, TableLocation::Here),
            (None, false, TableLocation::Gone),
            (None, true, TableLocation::Elsewhere),
            (Some("app"), true, TableLocation::Elsewhere),
            // The table was moved with its marks.
            (Some("app"), false, TableLocation::Here),
        ] {
            let adopted = as_seen(
                noted(Some("public")),
                ownership(leads_to, is_kept, &[], &[]),
            );
            assert_eq!(adopted.location, expected, "{leads_to:?} {is_kept}");
            let is_elsewhere = expected == TableLocation::Elsewhere;
            assert_eq!(check_here(&adopted).is_err(), is_elsewhere);
        }
    }
}
