//! What is ours on an adopted table: the mark that added columns bear, and the names that we need.
//!
//! A name in a record is no proof: the table may have been dropped and made anew, or its name may
//! lead to another one. So what is taken away is what bears the mark on this very table.

use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{AdoptedTable, Indexes, LeaseTable, Whereabouts};

use crate::adopt::VERB;
use crate::render::Names;

/// What a database says of a recorded table now.
pub(crate) struct Seen {
    /// The schema that its name leads to; none: there is no such table.
    pub(crate) leads_to: Option<String>,
    /// It is in the schema that was noted.
    pub(crate) is_kept: bool,
    /// Its columns that bear our mark.
    pub(crate) marked: Vec<String>,
    /// Its other columns.
    pub(crate) unmarked: Vec<String>,
    /// Its indexes.
    pub(crate) indexes: Vec<String>,
}

/// What was recorded, cut down to what is there and ours.
pub(crate) fn as_seen(mut adopted: AdoptedTable, seen: Seen) -> AdoptedTable {
    let is_same = adopted.schema.is_none() || adopted.schema == seen.leads_to;
    adopted.whereabouts = match seen.leads_to {
        Some(_) if is_same || !seen.is_kept => Whereabouts::Here,
        None if !seen.is_kept => Whereabouts::Gone,
        _ => Whereabouts::Elsewhere,
    };
    if adopted.whereabouts == Whereabouts::Elsewhere {
        return adopted;
    }
    let noted = std::mem::take(&mut adopted.columns);
    let among = |all: &[String], name: &String| all.contains(name);
    adopted.left = noted
        .iter()
        .filter(|name| among(&seen.unmarked, name))
        .cloned()
        .collect();
    adopted.columns = noted
        .iter()
        .filter(|name| among(&seen.marked, name))
        .cloned()
        .collect();
    // An index bears no mark: it is ours if the table is the one that was adopted.
    let is_the_one = noted.is_empty() || !adopted.columns.is_empty();
    adopted
        .indexes
        .retain(|name| is_the_one && among(&seen.indexes, name));
    adopted.schema = seen.leads_to;
    adopted
}

/// The names that our indexes on a table have, and whatever else ends like this.
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

/// What keeps an adoption with an added key from being called done.
///
/// # Errors
/// The description is no table's.
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

/// Refuses to give back a table that its name does not lead to.
///
/// # Errors
/// It is in another schema.
pub(crate) fn check_here(adopted: &AdoptedTable) -> Result<(), StoreError> {
    match adopted.elsewhere() {
        Some(told) => {
            Err(StoreError::new(VERB, StoreErrorKind::Invalid, told.what).hint(told.hint))
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
            whereabouts: Whereabouts::Here,
        }
    }

    fn seen(leads_to: Option<&str>, is_kept: bool, marked: &[&str], unmarked: &[&str]) -> Seen {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Seen {
            leads_to: leads_to.map(str::to_owned),
            is_kept,
            marked: list(marked),
            unmarked: list(unmarked),
            indexes: list(&["outbox_claimable", "outbox_pkey"]),
        }
    }

    #[test]
    fn only_what_bears_the_mark_is_ours() {
        let seen = seen(
            Some("public"),
            true,
            &["crashes", "other"],
            &["id", "fence"],
        );
        let adopted = as_seen(noted(Some("public")), seen);
        assert_eq!(adopted.columns, ["crashes"]);
        assert_eq!(adopted.left, ["fence"]);
        assert_eq!(adopted.indexes, ["outbox_claimable"]);
    }

    #[test]
    fn a_table_that_was_made_anew_has_nothing_of_ours() {
        let adopted = as_seen(
            noted(None),
            seen(Some("main"), false, &[], &["id", "fence"]),
        );
        assert_eq!(adopted.whereabouts, Whereabouts::Here);
        assert!(adopted.columns.is_empty() && adopted.indexes.is_empty());
        assert_eq!(adopted.left, ["fence"]);
    }

    #[test]
    fn a_name_may_lead_nowhere_or_elsewhere() {
        for (leads_to, is_kept, expected) in [
            (Some("public"), true, Whereabouts::Here),
            (None, false, Whereabouts::Gone),
            (None, true, Whereabouts::Elsewhere),
            (Some("app"), true, Whereabouts::Elsewhere),
            // It was moved: its marks went with it.
            (Some("app"), false, Whereabouts::Here),
        ] {
            let adopted = as_seen(noted(Some("public")), seen(leads_to, is_kept, &[], &[]));
            assert_eq!(adopted.whereabouts, expected, "{leads_to:?} {is_kept}");
            let is_elsewhere = expected == Whereabouts::Elsewhere;
            assert_eq!(check_here(&adopted).is_err(), is_elsewhere);
        }
    }
}
