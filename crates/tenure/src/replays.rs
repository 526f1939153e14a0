//! Bulk replays: stored operations that replay all items that match a filter.

use tenure_core::Guarded;
use tenure_core::store::{NewReplay, ReplayOperation, StepReplay, Stepped, StoreError};

use crate::tenure::Tenure;

impl Tenure {
    /// Starts a bulk replay of all items that match a filter. The operation is stored: workers
    /// carry it out step by step, in any process, and you can step it yourself.
    ///
    /// ```
    /// use tenure::operate::{Filter, NewReplay, ReplayRate, StepReplay};
    /// use tenure::{Event, State, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let id = tenure.enqueue_now(Event::new("order.paid", &7)?).await?.id();
    /// tenure.bury(id, "sent by mistake").await?;
    ///
    /// let dead = Filter { state: Some(State::Dead), ..Filter::default() };
    /// let mut replay = NewReplay::new(dead)?;
    /// replay.rate = Some(ReplayRate::parse("50/s")?);
    /// let started = tenure.start_replay(&replay).await?;
    ///
    /// let stepped = tenure.step_replay(&StepReplay::new(100).only(started.id)).await?;
    /// assert_eq!(stepped.operation.expect("it was due").replayed, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable, or the filter names a queue that does not exist.
    pub async fn start_replay(&self, replay: &NewReplay) -> Result<ReplayOperation, StoreError> {
        self.store().replay_operations().start_replay(replay).await
    }

    /// Does the next step of a bulk replay that is due; workers do this, too.
    ///
    /// # Errors
    /// The database is unavailable; the step had no effect.
    pub async fn step_replay(&self, step: &StepReplay) -> Result<Stepped, StoreError> {
        self.store().replay_operations().step_replay(step).await
    }

    /// Lists up to `limit` bulk replays, newest first.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn replays(&self, limit: u32) -> Result<Vec<ReplayOperation>, StoreError> {
        self.store().replay_operations().replays(limit).await
    }

    /// Reads one bulk replay.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn replay_operation(&self, id: u64) -> Result<Option<ReplayOperation>, StoreError> {
        self.store().replay_operations().replay_operation(id).await
    }

    /// Ends a bulk replay; items that it replayed stay replayed. Refused if it does not exist or
    /// has ended.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn cancel_replay(&self, id: u64) -> Result<Guarded<ReplayOperation>, StoreError> {
        self.store()
            .replay_operations()
            .cancel_replay(id, None)
            .await
    }
}
