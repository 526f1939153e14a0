//! Conversion of a row to an event, so that handlers and publishers need not know tables.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{Identifier, LeaseTable};
use crate::event::Event;
use crate::invalid::Invalid;

impl LeaseTable {
    /// Converts a row to an event: the table's name is the topic, the row as JSON is the payload.
    /// The columns with tokens are left out, because a token is a secret.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// let row = r#"{"id": 7, "lock_token": "w.1.x", "total": 9.90}"#;
    /// let event = LeaseTable::outbox().event(row)?;
    /// assert_eq!((event.topic(), event.payload()), ("outbox", r#"{"id":7,"total":9.90}"#));
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    ///
    /// A row may be larger and nest deeper than the payload of an enqueued event: the row is
    /// already stored, in the user's own table.
    ///
    /// # Errors
    /// The row is not a JSON object.
    pub fn event(&self, row: &str) -> Result<Event, Invalid> {
        let secrets = [&self.columns.token, &self.columns.settled_token];
        let is_present = |secret: &&Identifier| row.contains(secret.as_str());
        // A claim leaves the lease columns out, so most rows need no change.
        if row.starts_with('{') && !secrets.iter().any(is_present) {
            return Event::of_row(self.name.as_str(), row.to_owned());
        }
        let unreadable = |_cause| Invalid::new("the row", "not a JSON object", "one");
        let mut parts: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(row).map_err(unreadable)?;
        for secret in secrets {
            parts.remove(secret.as_str());
        }
        let payload = serde_json::to_string(&parts).map_err(unreadable)?;
        Event::of_row(self.name.as_str(), payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};

    #[test]
    fn a_row_may_exceed_the_limits_of_a_payload() {
        let long = "x".repeat(2 * PAYLOAD_BYTES_MAX);
        let deep = 100 * PAYLOAD_DEPTH_MAX;
        let deep = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        for part in [format!("\"{long}\""), deep] {
            for token in ["", ",\"lock_token\":\"w.1.x\""] {
                let row = format!("{{\"part\":{part}{token}}}");
                assert!(Event::from_json("outbox", row.as_str()).is_err());
                let event = LeaseTable::outbox().event(&row).unwrap();
                assert_eq!(event.payload(), format!("{{\"part\":{part}}}"));
            }
        }
    }

    #[test]
    fn a_row_must_be_a_json_object() {
        for row in ["7", "{\"a\":", "{\"a\":\"lock_token\"", ""] {
            assert!(LeaseTable::outbox().event(row).is_err(), "{row}");
        }
    }
}
