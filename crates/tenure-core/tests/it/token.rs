//! Tokens and worker ids: they are parsed from their text, their parts stay separate, and the
//! secret is never printed.

use proptest::prelude::*;
use tenure_core::{Token, WorkerId};

const NAME: &str = "[A-Za-z0-9._-]{1,64}";

proptest! {
    /// Proves: S1-044
    #[test]
    fn a_token_can_be_parsed_from_its_text_and_names_its_worker(
        name in NAME,
        nonce: u64,
        claim: u64,
        random: u128,
    ) {
        let worker = WorkerId::new(&name, nonce).unwrap();
        let token = Token::new(&worker, claim, random);
        prop_assert_eq!(Token::parse(token.expose()), Some(token.clone()));
        prop_assert_eq!(token.holder(), worker.as_str());
        prop_assert_eq!(WorkerId::parse(token.holder()), Some(worker));
    }

    /// Debug output shows only the public part.
    #[test]
    fn the_secret_of_a_token_is_never_printed(
        name in NAME,
        nonce: u64,
        claim: u64,
        random: u128,
    ) {
        let worker = WorkerId::new(&name, nonce).unwrap();
        let token = Token::new(&worker, claim, random);
        let secret = format!("{random:032x}");
        prop_assert!(token.expose().ends_with(&secret));
        let open = format!("{worker}.{claim}.…");
        prop_assert_eq!(&token.to_string(), &open);
        for printed in [format!("{token:?}"), format!("{token:#?}")] {
            prop_assert_eq!(printed, format!("Token({open})"));
        }
    }

    #[test]
    fn a_parsed_token_has_the_text_it_was_parsed_from(text in token_like()) {
        if let Some(token) = Token::parse(&text) {
            prop_assert_eq!(token.expose(), &text);
            prop_assert!(WorkerId::parse(token.holder()).is_some());
            prop_assert!(text.starts_with(token.holder()));
        }
    }

    #[test]
    fn any_text_is_parsed_as_a_token_or_refused(text: String) {
        prop_assert_eq!(Token::parse(&text).is_some(), is_token(&text));
    }

    #[test]
    fn exactly_the_documented_names_are_workers(
        name in prop_oneof![any::<String>(), "[A-Za-z0-9._ -]{0,70}"],
    ) {
        let is_name = (1..=64).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c));
        match WorkerId::new(&name, 1) {
            Ok(id) => {
                prop_assert!(is_name);
                prop_assert_eq!(id.to_string(), format!("{name}-0000000000000001"));
            }
            Err(problem) => {
                prop_assert!(!is_name);
                prop_assert_eq!(problem.field(), "worker name");
            }
        }
    }

    /// A restarted worker of the same name has another id.
    ///
    /// Proves: S1-043
    #[test]
    fn two_boots_of_a_worker_have_two_ids(name in NAME, one: u64, other: u64) {
        let (first, second) = (WorkerId::new(&name, one), WorkerId::new(&name, other));
        prop_assert_eq!(first == second, one == other);
    }
}

/// Text that is a token or similar to one.
fn token_like() -> impl Strategy<Value = String> {
    "[a-z.-]{0,4}-?[0-9a-fA-F]{15,17}\\.[0-9x]{0,3}\\.[0-9a-fA-Fx]{31,33}"
}

/// An independent copy of the grammar.
fn is_token(text: &str) -> bool {
    let parts: Vec<&str> = text.rsplitn(3, '.').collect();
    let [random, claim, holder] = parts.as_slice() else {
        return false;
    };
    let is_hex = |text: &str, digits| {
        text.len() == digits && text.chars().all(|digit| digit.is_ascii_hexdigit())
    };
    is_hex(random, 32)
        && !claim.is_empty()
        && claim.chars().all(|digit| digit.is_ascii_digit())
        && holder
            .rsplit_once('-')
            .is_some_and(|(name, nonce)| is_hex(nonce, 16) && WorkerId::new(name, 0).is_ok())
}
