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
        Self {
            name: name("webhook_outbox"),
            key: name("id"),
            order: vec![(name("created_at"), Direction::Ascending)],
            created_at: name("created_at"),
            kind: None,
            columns: Columns {
                until: name("lease_until"),
                holder: name("lease_owner"),
                token: name("lease_token"),
                fence: name("fence"),
                claimed_at: name("leased_at"),
                available_at: name("next_attempt_at"),
                attempts: name("lease_attempts"),
                failures: name("attempts"),
                crashes: name("crashes"),
                last_error: name("last_error"),
                done_at: name("delivered_at"),
                dead_at: name("failed_at"),
                generation: name("generation"),
                settled_token: name("settled_token"),
            },
            states: States::Held(status(
                "delivery_status",
                ["pending", "pending", "delivered", "failed"],
            )),
        }
    }
}
