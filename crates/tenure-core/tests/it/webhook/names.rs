//! Ids of items, names of endpoints, and the words of outcomes and reasons.

use proptest::prelude::*;
use tenure_core::ItemId;
use tenure_core::webhook::{AttemptOutcome, Disabled, EndpointId};

#[test]
fn an_id_reveals_its_kind() {
    for (text, number) in [
        ("0", 0),
        ("17", 17),
        ("d1", ItemId::FIRST_DELIVERY + 1),
        ("d17", ItemId::FIRST_DELIVERY + 17),
    ] {
        let id: ItemId = text.parse().expect("an id");
        assert_eq!((id.number(), id.to_string().as_str()), (number, text));
        assert_eq!(id.is_delivery(), text.starts_with('d'));
    }
    assert!(!ItemId::new(ItemId::FIRST_DELIVERY).is_delivery());
    assert_eq!(
        format!("{:>5}|{:<5}|", ItemId::new(ItemId::FIRST_DELIVERY + 7), 1),
        "   d7|1    |"
    );
}

#[test]
fn an_invalid_id_is_refused() {
    for text in [
        "",
        "d",
        "d0",
        "+7",
        "d+7",
        "-1",
        "d-1",
        "D7",
        "d 7",
        " 7",
        "7 ",
        "dd7",
        "1.5",
        "0x7",
        "d9223372036854775807",
        "9223372036854775808",
    ] {
        let problem = text.parse::<ItemId>().expect_err(text).to_string();
        assert!(problem.contains("d17"), "{problem}");
    }
}

#[test]
fn exactly_the_documented_endpoint_names_are_accepted() {
    let longest = "a".repeat(64);
    for good in ["a", "0", "billing", "a-b_c9", "9-", longest.as_str()] {
        let id = EndpointId::new(good).expect(good);
        assert_eq!((id.as_str(), id.to_string().as_str()), (good, good));
    }
    let too_long = "a".repeat(65);
    for bad in [
        "",
        "A",
        "-a",
        "_a",
        "a b",
        "a/b",
        "a.b",
        "ä",
        "a\0",
        "a\n",
        too_long.as_str(),
    ] {
        let problem = EndpointId::new(bad).expect_err(bad);
        assert_eq!(problem.field(), "endpoint id");
    }
}

#[test]
fn outcomes_and_reasons_can_be_parsed_from_their_words() {
    for outcome in AttemptOutcome::ALL {
        assert_eq!(AttemptOutcome::parse(outcome.as_str()), Some(outcome));
    }
    assert_eq!(AttemptOutcome::parse("OPEN"), None);
    for why in [
        Disabled::ByHand("it's moved".into()),
        Disabled::Gone,
        Disabled::Requested,
        Disabled::Failing,
    ] {
        assert_eq!(Disabled::parse(why.as_str(), "it's moved"), Some(why));
    }
    assert_eq!(Disabled::parse("", "gone"), None);
}

proptest! {
    #[test]
    fn ids_can_be_parsed_from_their_text(number in 0_i64..=i64::MAX) {
        let id = ItemId::new(number);
        prop_assert_eq!(id.to_string().parse::<ItemId>().ok(), Some(id));
    }

    #[test]
    fn any_text_is_an_id_or_refused(text in ".*") {
        if let Ok(id) = text.parse::<ItemId>() {
            prop_assert!(id.number() >= 0);
        }
        if let Ok(id) = EndpointId::new(&text) {
            prop_assert_eq!(id.as_str(), text);
        }
    }
}
