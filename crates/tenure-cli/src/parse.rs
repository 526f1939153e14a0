//! Parsers of arguments that several commands share.

use tenure::{Invalid, ItemId, NewEvent, Problems};

/// Refuses an invalid key. The check is not left to clap, whose message would quote a long key in
/// full.
pub(crate) fn check_key(key: &str) -> Result<(), Problems> {
    let event = NewEvent::from_json("any", "null").key(key).build();
    event.map(drop)
}

/// Parses an operator's reason, which must not be blank.
pub(crate) fn reason(text: &str) -> Result<String, Invalid> {
    if text.trim().is_empty() {
        let expected = "a few words for people, such as 'the order was a test'";
        return Err(Invalid::new("the reason", "blank", expected));
    }
    Ok(text.to_owned())
}

pub(crate) fn item_id(text: &str) -> Result<ItemId, Invalid> {
    text.parse()
}

pub(crate) fn delivery_id(text: &str) -> Result<ItemId, Invalid> {
    let id = item_id(text)?;
    if id.is_delivery() {
        return Ok(id);
    }
    let expected = format!("the id of a delivery, such as d{text}");
    Err(Invalid::new("the id", format!("{text:?}"), expected))
}

pub(crate) fn event_id(text: &str) -> Result<ItemId, Invalid> {
    let id = item_id(text)?;
    if id.is_delivery() {
        let expected = "the id of an event, such as 17";
        return Err(Invalid::new("the id", format!("{text:?}"), expected));
    }
    Ok(id)
}
