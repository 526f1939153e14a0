//! What each fact needs of a column that is there, and what its column is when it is added.

use super::States;
use super::found::Holds;
use super::plan::Adds;

/// What a fact needs of a column that is there.
pub(super) struct Need {
    /// Whether it holds the right thing.
    pub(super) fits: fn(Holds) -> bool,
    pub(super) expected: &'static str,
    /// Whether it has to take null, must never be null, or may be either.
    pub(super) null: Null,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Null {
    Needed,
    Never,
    Either,
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
pub(super) fn need_of(fact: &str) -> Need {
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

pub(super) fn longest_word(states: &States) -> u32 {
    let words = states.status().map(|status| &status.words);
    let words = words.into_iter().flat_map(|words| {
        [&words.pending, &words.claimed, &words.done, &words.dead].map(|word| word.as_str().len())
    });
    u32::try_from(words.max().unwrap_or(0)).unwrap_or(u32::MAX)
}
