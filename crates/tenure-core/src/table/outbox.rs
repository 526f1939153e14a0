//! The two presets for outbox tables, each in the words of its specification.

use super::states::status;
use super::{Columns, Direction, LeaseTable, States, name};

impl LeaseTable {
    /// A table `outbox` with the status words PENDING, CLAIMED, PUBLISHED, DEAD.
    ///
    /// ```
    /// use tenure_core::{LeaseTable, State};
    ///
    /// let table = LeaseTable::outbox();
    /// assert_eq!(table.states.word(State::Done), Some("PUBLISHED"));
    /// assert_eq!(table.columns.holder.as_str(), "claimed_by");
    /// ```
    pub fn outbox() -> Self {
        Self {
            name: name("outbox"),
            key: name("id"),
            order: vec![
                (name("priority"), Direction::Descending),
                (name("created_at"), Direction::Ascending),
            ],
            created_at: name("created_at"),
            kind: None,
            columns: Columns {
                until: name("locked_until"),
                holder: name("claimed_by"),
                token: name("lock_token"),
                fence: name("fence"),
                claimed_at: name("claimed_at"),
                available_at: name("available_at"),
                attempts: name("attempts"),
                failures: name("failures"),
                crashes: name("crashes"),
                last_error: name("last_error"),
                done_at: name("published_at"),
                dead_at: name("dead_at"),
                generation: name("generation"),
                settled_token: name("settled_token"),
            },
            states: States::Worded(status(
                "status",
                ["PENDING", "CLAIMED", "PUBLISHED", "DEAD"],
            )),
        }
    }

    /// A table `outbox` with the status words PENDING, PROCESSING, COMPLETED, DEAD; oldest first.
    ///
    /// ```
    /// use tenure_core::{LeaseTable, State};
    ///
    /// let table = LeaseTable::outbox_processing();
    /// assert_eq!(table.states.word(State::Claimed), Some("PROCESSING"));
    /// assert_eq!(table.columns.token.as_str(), "lock_token");
    /// ```
    pub fn outbox_processing() -> Self {
        let mut table = Self::outbox();
        table.order = vec![(name("created_at"), Direction::Ascending)];
        let words = ["PENDING", "PROCESSING", "COMPLETED", "DEAD"];
        table.states = States::Worded(status("status", words));
        table.columns.holder = name("locked_by");
        table.columns.claimed_at = name("locked_at");
        table.columns.done_at = name("completed_at");
        table.columns.dead_at = name("failed_at");
        table.columns.attempts = name("retry_count");
        table
    }
}
