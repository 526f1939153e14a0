//! Preset for a table of webhooks to send, in the words of its specification.

use super::states::status;
use super::{Columns, Direction, LeaseTable, States, name};

impl LeaseTable {
    /// A table `webhook_outbox` with the status words pending, delivered, failed; oldest first. A
    /// claimed row is still `pending`, and has a `lease_owner`.
    ///
    /// Its `attempts` are the reported failures, as its own workers count them: a lapse does not
    /// change them. [`Counters::attempts`](crate::Counters::attempts) is in `lease_attempts`.
    ///
    /// ```
    /// use tenure_core::{LeaseTable, State};
    ///
    /// let table = LeaseTable::webhook();
    /// assert_eq!(table.states.word(State::Claimed), Some("pending"));
    /// assert_eq!(table.columns.until.as_str(), "lease_until");
    /// ```
    pub fn webhook() -> Self {
        let outbox = Self::outbox();
        Self {
            name: name("webhook_outbox"),
            order: vec![(name("created_at"), Direction::Ascending)],
            columns: Columns {
                until: name("lease_until"),
                holder: name("lease_owner"),
                token: name("lease_token"),
                claimed_at: name("leased_at"),
                available_at: name("next_attempt_at"),
                attempts: name("lease_attempts"),
                failures: name("attempts"),
                done_at: name("delivered_at"),
                dead_at: name("failed_at"),
                ..outbox.columns
            },
            states: States::Held(status(
                "delivery_status",
                ["pending", "pending", "delivered", "failed"],
            )),
            ..outbox
        }
    }
}
