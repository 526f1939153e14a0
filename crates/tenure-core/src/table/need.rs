//! What each fact needs of a column that is there, and what its column is when it is added.

use super::States;
use super::found::{FoundColumn, Holds};
use super::plan::Adds;

/// Characters that a column must have room for to hold a holder or a token.
const TEXT_MIN: u32 = 128;

/// What a fact needs of a column that is there.
struct Need {
    /// Whether it holds the right thing.
    fits: fn(Holds) -> bool,
    expected: &'static str,
    /// Whether it has to take null, must never be null, or may be either.
    null: Null,
}

enum Null {
    Needed,
    Never,
    Either,
}

/// Why a column that is there cannot hold a fact.
#[derive(Clone, Copy)]
pub(super) enum Wrong {
    /// It holds something else.
    Type { expected: &'static str },
    /// Its texts are cut off too early.
    Room { least: u32 },
    /// It is never null, and has to be.
    NotNull,
    /// It may be null, and must not be.
    Nullable,
}

/// Why this column cannot hold this fact, if it cannot.
pub(super) fn wrong_with(found: &FoundColumn, fact: &str, states: &States) -> Option<Wrong> {
    let need = need_of(fact);
    let least = match fact {
        "status" => longest_word(states),
        "holder" | "token" | "settled_token" => TEXT_MIN,
        _ => 0,
    };
    if !(need.fits)(found.holds) {
        let expected = need.expected;
        return Some(Wrong::Type { expected });
    }
    if matches!(found.holds, Holds::Text(Some(most)) if most < least) {
        return Some(Wrong::Room { least });
    }
    match (need.null, found.is_nullable) {
        (Null::Needed, false) => Some(Wrong::NotNull),
        (Null::Never, true) => Some(Wrong::Nullable),
        _ => None,
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

/// What a fact needs of a column that is there.
fn need_of(fact: &str) -> Need {
    let moment = "a timestamp with time zone (in SQLite an integer, microseconds since 1970)";
    match fact {
        "created_at" => Need {
            fits: is_moment,
            expected: moment,
            null: Null::Never,
        },
        "available_at" => Need {
            fits: is_moment,
            expected: moment,
            null: Null::Either,
        },
        "until" | "claimed_at" | "done_at" | "dead_at" => Need {
            fits: is_moment,
            expected: moment,
            null: Null::Needed,
        },
        "fence" => Need {
            fits: is_key,
            expected: "a bigint",
            null: Null::Never,
        },
        "attempts" | "failures" | "crashes" | "generation" => Need {
            fits: is_counter,
            expected: "an integer",
            null: Null::Never,
        },
        "status" => Need {
            fits: is_text,
            expected: "text",
            null: Null::Either,
        },
        _ => Need {
            fits: is_text,
            expected: "text",
            null: Null::Needed,
        },
    }
}

/// What the column of a fact is when it is added.
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
    let words = states.status().map(|status| &status.words);
    let words = words.into_iter().flat_map(|words| {
        [&words.pending, &words.claimed, &words.done, &words.dead].map(|word| word.as_str().len())
    });
    u32::try_from(words.max().unwrap_or(0)).unwrap_or(u32::MAX)
}
