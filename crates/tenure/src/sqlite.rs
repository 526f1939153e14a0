//! Enqueueing in the caller's own transaction on SQLite.

use rusqlite::Connection;
use tenure_core::Event;
use tenure_core::store::{Enqueued, StoreError};
use tenure_store::Opened;
use tenure_store::sqlite::SqliteStore;

use crate::tenure::{Tenure, one, wrong_connection};

impl Tenure {
    /// Writes an event on the caller's connection: inside its transaction the event exists if and
    /// only if that transaction commits. The connection is one to the file that is open here.
    ///
    /// A transaction of rusqlite derefs to its connection, so `&tx` fits. Begin it as immediate
    /// when it reads before it writes, else SQLite may refuse the write as too late.
    ///
    /// # Errors
    /// The open store is not SQLite, there is no such queue, or the file is busy. The caller's
    /// transaction is then to be rolled back.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "as in its sisters, an event is handed over"
    )]
    pub fn enqueue_on(&self, conn: &Connection, event: Event) -> Result<Enqueued, StoreError> {
        one(self.enqueue_many_on(conn, std::slice::from_ref(&event))?)
    }

    /// Writes many events on the caller's connection; answers in their order.
    ///
    /// # Errors
    /// As [`Tenure::enqueue_on`].
    pub fn enqueue_many_on(
        &self,
        conn: &Connection,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, StoreError> {
        let Opened::Sqlite(_) = self.opened() else {
            return Err(wrong_connection("one of SQLite"));
        };
        SqliteStore::enqueue_on(conn, events)
    }
}
