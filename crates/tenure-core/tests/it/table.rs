//! Lease tables: names and words that are safe in SQL, and the states that rows encode.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenure_core::{
    Identifier, LeaseTable, State, States, StatusColumn, StatusWord, SyncState, Timestamp,
};

fn presets() -> [LeaseTable; 5] {
    [
        LeaseTable::outbox(),
        LeaseTable::outbox_processing(),
        LeaseTable::webhook(),
        LeaseTable::sync_jobs(),
        LeaseTable::sync_checkpoints(),
    ]
}

/// Returns the presets with status words.
fn worded() -> impl Iterator<Item = LeaseTable> {
    let presets = presets().into_iter();
    presets.filter(|table| table.states.status().is_some())
}

/// Text that is a valid name, or nearly one.
fn name_like() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_][a-z0-9_]{0,62}",
        "[a-z0-9_]{60,66}",
        "[a-zA-Z0-9_\"'; \\\\.é\0-]{0,12}",
        "(pg_|sqlite_|pg|sqlite)[a-z_]{0,5}",
        any::<String>(),
    ]
}

/// An independent copy of the grammar: `[a-z_][a-z0-9_]{0,62}`, without the databases' own names.
fn is_identifier(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    (1..=63).contains(&chars.len())
        && !chars[0].is_ascii_digit()
        && chars
            .iter()
            .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
        && !["pg_", "sqlite_"].iter().any(|own| text.starts_with(own))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn exactly_the_safe_names_are_identifiers(text in name_like()) {
        match Identifier::new(&text) {
            Ok(name) => {
                prop_assert!(is_identifier(&text), "{:?} was accepted", text);
                prop_assert_eq!(name.as_str(), &text);
                prop_assert_eq!(name.quoted(), format!("\"{text}\""));
                prop_assert_eq!(name.to_string(), text);
            }
            Err(problem) => {
                prop_assert!(!is_identifier(&text), "{:?} was refused", text);
                prop_assert!(problem.to_string().contains("a-z, 0-9 and _"));
            }
        }
    }

    #[test]
    fn exactly_the_safe_words_are_status_words(text in name_like()) {
        let is_word = (1..=63).contains(&text.len())
            && text.chars().all(|c| matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '_'));
        match StatusWord::new(&text) {
            Ok(word) => {
                prop_assert!(is_word, "{:?} was accepted", text);
                prop_assert_eq!(word.as_str(), &text);
                prop_assert_eq!(word.quoted(), format!("'{text}'"));
            }
            Err(_) => prop_assert!(!is_word, "{:?} was refused", text),
        }
    }
}

#[test]
fn a_preset_names_no_column_twice() {
    for table in presets() {
        let columns = &table.columns;
        let all = [
            &table.key,
            &table.created_at,
            &columns.until,
            &columns.holder,
            &columns.token,
            &columns.fence,
            &columns.claimed_at,
            &columns.available_at,
            &columns.attempts,
            &columns.failures,
            &columns.crashes,
            &columns.last_error,
            &columns.done_at,
            &columns.dead_at,
            &columns.generation,
            &columns.settled_token,
        ];
        let status = table.states.status().map(|status| &status.column);
        let all: Vec<_> = all.into_iter().chain(status).collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}

/// State of a row with this word, held or not.
fn read(table: &LeaseTable, word: &str, holder: Option<&str>) -> Option<State> {
    let status = &table.states.status().unwrap().column;
    table.state(|column| match column {
        column if column == status => Some(word),
        column if *column == table.columns.holder => holder,
        _ => None,
    })
}

/// A row written for a state is read as that state, and no two states have the same row.
#[test]
fn every_state_of_a_preset_is_read_as_it_was_written() {
    assert_eq!(worded().count(), 3);
    for table in worded() {
        let mut known = BTreeSet::new();
        for state in State::ALL {
            let word = table.states.word(state).unwrap();
            let holder = (state == State::Claimed).then_some("w");
            assert_eq!(read(&table, word, holder), Some(state), "{}", table.name);
            assert!(
                known.insert((word, holder)),
                "{}: {state} looks like another state",
                table.name
            );
        }
    }
}

/// The status word of pending and claimed rows is `pending`; the owner of the lease distinguishes
/// them.
///
/// Proves: S2-002
#[test]
fn the_webhook_table_distinguishes_pending_and_claimed_by_the_lease_owner() {
    let table = LeaseTable::webhook();
    let words = State::ALL.map(|state| table.states.word(state).unwrap());
    assert_eq!(words, ["pending", "pending", "delivered", "failed"]);
    for (word, holder, state) in [
        ("pending", None, Some(State::Pending)),
        ("pending", Some("w"), Some(State::Claimed)),
        ("delivered", None, Some(State::Done)),
        ("failed", None, Some(State::Dead)),
        // Other programs may leave their name on settled rows.
        ("delivered", Some("w"), Some(State::Done)),
        ("failed", Some("w"), Some(State::Dead)),
        ("claimed", Some("w"), None),
        ("PENDING", None, None),
    ] {
        assert_eq!(read(&table, word, holder), state, "{word} of {holder:?}");
        let Some(state) = state else { continue };
        assert_eq!(table.states.word(state), Some(word), "the word of {state}");
    }
}

#[test]
fn a_word_of_another_preset_matches_no_state() {
    let (outbox, processing) = (LeaseTable::outbox(), LeaseTable::outbox_processing());
    assert_eq!(read(&processing, "PROCESSING", None), Some(State::Claimed));
    assert_eq!(read(&outbox, "PROCESSING", None), None);
    assert_eq!(read(&outbox, "pending", None), None);
}

/// Pending and claimed may share a word if the holder distinguishes them; no other two states may.
#[test]
fn indistinguishable_states_are_refused() {
    for table in presets() {
        assert_eq!(table.check(), Ok(()), "{}", table.name);
    }
    let shared = |states: fn(StatusColumn) -> States, of: State| {
        let mut table = LeaseTable::outbox();
        let mut status = table.states.status().unwrap().clone();
        if of == State::Claimed {
            status.words.claimed = status.words.pending.clone();
        } else {
            status.words.dead = status.words.done.clone();
        }
        table.states = states(status);
        table.check()
    };
    assert_eq!(shared(States::Held, State::Claimed), Ok(()));
    let problem = shared(States::Worded, State::Claimed).unwrap_err();
    assert!(
        problem.to_string().contains("pending and claimed"),
        "{problem}"
    );
    for states in [States::Worded, States::Held] {
        let problem = shared(states, State::Dead).unwrap_err();
        assert!(problem.to_string().contains("done and dead"), "{problem}");
    }
}

#[test]
fn a_renamed_description_keeps_its_columns() {
    let name = Identifier::new("my_outbox").unwrap();
    let table = LeaseTable::outbox().named(name.clone());
    assert_eq!(table.name, name);
    assert_eq!(table.columns, LeaseTable::outbox().columns);
}

/// The definitions of the specification, with final states first. Every combination of columns is
/// one of the five states, and the description of the table agrees.
///
/// Proves: S5-005, S5-011, S5-012, S5-013, S5-014, S5-015, S5-016, S5-047
#[test]
fn the_five_states_of_sync_rows_are_read_from_three_timestamps() {
    let now = Timestamp::from_micros(1_000);
    let moments = [None, Some(999), Some(1_000), Some(1_001)];
    let moments = moments.map(|at| at.map(Timestamp::from_micros));
    let mut known = BTreeSet::new();
    for until in moments {
        for done_at in moments {
            for dead_at in moments {
                let is_unsettled = done_at.is_none() && dead_at.is_none();
                let expected = if dead_at.is_some() {
                    SyncState::Failed
                } else if done_at.is_some() {
                    SyncState::Completed
                } else if until.is_some_and(|until| until > now) {
                    SyncState::Running
                } else if until.is_some_and(|until| until <= now) && is_unsettled {
                    SyncState::Lapsed
                } else {
                    SyncState::Available
                };
                let state = SyncState::of(until, done_at, dead_at, now);
                let row = (until, done_at, dead_at);
                assert_eq!(state, expected, "{row:?}");
                known.insert(state);
                for table in [LeaseTable::sync_jobs(), LeaseTable::sync_checkpoints()] {
                    let moment = |column: &Identifier| match column.as_str() {
                        "locked_until" => until.map(|_| "then"),
                        "completed_at" => done_at.map(|_| "then"),
                        "failed_at" => dead_at.map(|_| "then"),
                        _ => None,
                    };
                    assert_eq!(table.state(moment), Some(state.state()), "{row:?}");
                }
            }
        }
    }
    assert_eq!(known, BTreeSet::from(SyncState::ALL));
}

/// Proves: S5-009, S5-010, S5-011
#[test]
fn sync_tables_have_the_columns_of_the_specification_and_no_status() {
    for table in [LeaseTable::sync_jobs(), LeaseTable::sync_checkpoints()] {
        assert_eq!(table.states.status(), None);
        let columns = &table.columns;
        let named = [
            &columns.until,
            &columns.holder,
            &columns.done_at,
            &columns.dead_at,
            &columns.last_error,
        ];
        let expected = [
            "locked_until",
            "locked_by",
            "completed_at",
            "failed_at",
            "error_message",
        ];
        assert_eq!(named.map(Identifier::as_str), expected, "{}", table.name);
    }
}
