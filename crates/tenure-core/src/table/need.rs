//! Requirements of each fact on an existing column, and the type of a column that is added for it.

use super::describe::field_of;
use super::facts::{ColumnFacts, Holds};
use super::obstacle::{Obstacle, obstacle};
use super::plan::Adds;
use super::{LeaseTable, States};

/// Minimum length, in characters, of a text column for a holder or a token.
const TEXT_MIN: u32 = 128;

/// Requirements of a fact on an existing column.
pub(super) struct Need {
    /// Returns true if columns of this class fit.
    fits: fn(Holds) -> bool,
    expected: &'static str,
    null: Null,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Null {
    Needed,
    Never,
    Either,
}

impl Need {
    /// Reason why an existing column cannot hold this fact, if there is one.
    pub(super) fn obstacle(
        &self,
        of: &LeaseTable,
        fact: &str,
        existing: &ColumnFacts,
    ) -> Option<Obstacle> {
        let (column, table) = (&existing.name, &of.name);
        let field = field_of(fact);
        let elsewhere = format!("name another column as `{field}` in a map; a new one is added");
        if existing.is_generated && fact != "created_at" {
            let what =
                format!("column {column}, mapped to `{fact}`, is generated: it cannot be written");
            return Some(obstacle(what, elsewhere));
        }
        if !(self.fits)(existing.holds) {
            let what = format!(
                "column {column}, mapped to `{fact}`, is {}; expected {}",
                existing.declared, self.expected
            );
            let hint = format!("change its type, or {elsewhere}");
            return Some(obstacle(what, hint));
        }
        let longest = match fact {
            "status" => longest_word(&of.states),
            "holder" | "token" | "settled_token" => TEXT_MIN,
            _ => 0,
        };
        if matches!(existing.holds, Holds::Text(Some(most)) if most < longest) {
            let what = format!(
                "column {column}, mapped to `{fact}`, is {}; expected room for {longest}",
                existing.declared
            );
            let hint = format!("alter table {table} alter column {column} type text");
            return Some(obstacle(what, hint));
        }
        match (self.null, existing.is_nullable) {
            (Null::Needed, false) => Some(obstacle(
                format!("column {column}, mapped to `{fact}`, is not null: it cannot be cleared"),
                format!("alter table {table} alter column {column} drop not null, or {elsewhere}"),
            )),
            (Null::Never, true) => Some(obstacle(
                format!("column {column}, mapped to `{fact}`, may be null"),
                format!("fill it and make it not null with a default, or {elsewhere}"),
            )),
            _ => None,
        }
    }
}

pub(super) const fn is_key(holds: Holds) -> bool {
    matches!(holds, Holds::BigInteger | Holds::Number)
}

const fn is_moment(holds: Holds) -> bool {
    matches!(holds, Holds::Moment | Holds::Number)
}

const fn is_text(holds: Holds) -> bool {
    matches!(holds, Holds::Text(_))
}

const fn is_counter(holds: Holds) -> bool {
    matches!(holds, Holds::Integer | Holds::Number)
}

/// Requirements of a fact.
pub(super) fn need_of(fact: &str) -> Need {
    let moment = "a timestamp with time zone (in SQLite an integer, microseconds since 1970)";
    let (fits, expected, null): (fn(Holds) -> bool, _, _) = match fact {
        "created_at" => (is_moment, moment, Null::Never),
        "available_at" => (is_moment, moment, Null::Either),
        "until" | "claimed_at" | "done_at" | "dead_at" => (is_moment, moment, Null::Needed),
        "fence" => (is_key, "a bigint", Null::Never),
        "attempts" | "failures" | "crashes" | "generation" => {
            (is_counter, "an integer", Null::Never)
        }
        "status" => (is_text, "text", Null::Either),
        _ => (is_text, "text", Null::Needed),
    };
    Need {
        fits,
        expected,
        null,
    }
}

/// Type of the column that is added for a fact.
pub(super) fn adds_of(fact: &str, states: &States) -> Adds {
    match fact {
        "created_at" => Adds::WrittenAt,
        "available_at" | "until" | "claimed_at" | "done_at" | "dead_at" => Adds::Moment,
        "fence" => Adds::Fence,
        "attempts" | "failures" | "crashes" | "generation" => Adds::Counter,
        "status" => states.status().map_or(Adds::Text, |status| {
            Adds::Status(status.words.pending.clone())
        }),
        _ => Adds::Text,
    }
}

fn longest_word(states: &States) -> u32 {
    let words = states.status().into_iter().flat_map(|of| of.words.all());
    let longest = words.map(str::len).max().unwrap_or(0);
    u32::try_from(longest).unwrap_or(u32::MAX)
}
