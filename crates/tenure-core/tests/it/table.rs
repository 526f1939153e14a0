//! Names that are written into SQL: exactly the grammar is accepted, and quoting adds nothing but
//! the quotes.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenure_core::{Identifier, LeaseTable, State, StatusWord};

/// Text near the grammar of names: many just inside, many just outside.
fn name_like() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_][a-z0-9_]{0,62}",
        "[a-z0-9_]{60,66}",
        "[a-zA-Z0-9_\"'; \\\\.é\0-]{0,12}",
        "(pg_|sqlite_|pg|sqlite)[a-z_]{0,5}",
        any::<String>(),
    ]
}

/// The grammar, written a second time: `[a-z_][a-z0-9_]{0,62}`, and not the databases' own.
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
    for table in [LeaseTable::outbox(), LeaseTable::outbox_processing()] {
        let columns = &table.columns;
        let all = [
            &table.key,
            &table.created_at,
            &columns.status,
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
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}

#[test]
fn a_word_of_another_vocabulary_is_no_state() {
    let (outbox, processing) = (LeaseTable::outbox(), LeaseTable::outbox_processing());
    assert_eq!(processing.words.state("PROCESSING"), Some(State::Claimed));
    assert_eq!(outbox.words.state("PROCESSING"), None);
    assert_eq!(outbox.words.state("pending"), None);
}

#[test]
fn a_table_of_another_name_is_described_alike() {
    let name = Identifier::new("my_outbox").unwrap();
    let table = LeaseTable::outbox().named(name.clone());
    assert_eq!(table.name, name);
    assert_eq!(table.columns, LeaseTable::outbox().columns);
}
