//! A row as an event, for handlers and publishers that know nothing of tables.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{Identifier, LeaseTable};
use crate::event::Event;
use crate::invalid::Invalid;

impl LeaseTable {
    /// The row as an event: the table's name is the topic, and the row as JSON the payload, without
    /// the columns that hold tokens, which are secrets between a holder and the database.
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
    /// # Errors
    /// The row is no JSON object, or larger than a payload may be.
    pub fn event(&self, row: &str) -> Result<Event, Invalid> {
        let secrets = [&self.columns.token, &self.columns.settled_token];
        let is_told = |secret: &&Identifier| row.contains(secret.as_str());
        // A claim leaves the lease out: most rows can be taken as they are.
        if row.starts_with('{') && !secrets.iter().any(is_told) {
            return Event::from_json(self.name.as_str(), row);
        }
        let unreadable = |_cause| Invalid::new("the row", "no JSON object", "one");
        let mut parts: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(row).map_err(unreadable)?;
        for secret in secrets {
            parts.remove(secret.as_str());
        }
        let payload = serde_json::to_string(&parts).map_err(unreadable)?;
        Event::from_json(self.name.as_str(), &payload)
    }
}
