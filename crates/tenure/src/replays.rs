//! The verbs of `Tenure` on replays that are on record.

use tenure_core::Guarded;
use tenure_core::store::{NewReplay, ReplayOperation, StepReplay, Stepped, StoreError};

use crate::tenure::Tenure;

impl Tenure {
    /// Begins to put back all that matches a filter. The operation is on record: workers go on with
    /// it step by step, wherever they run, and so may you.
    ///
    /// ```
    /// use tenure::{Event, Filter, NewReplay, Rate, State, StepReplay, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let id = tenure.enqueue_now(Event::new("order.paid", &7)?).await?.id();
    /// tenure.bury(id, "sent by mistake").await?;
    ///
    /// let dead = Filter { state: Some(State::Dead), ..Filter::default() };
    /// let mut replay = NewReplay::new(dead)?;
    /// replay.rate = Some(Rate::parse("50/s")?);
    /// let started = tenure.start_replay(&replay).await?;
    ///
    /// let stepped = tenure.step_replay(&StepReplay::new(100).only(started.id)).await?;
    /// assert_eq!(stepped.operation.expect("it was due").replayed, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is away, or the filter names a queue that is not there.
    pub async fn start_replay(&self, replay: &NewReplay) -> Result<ReplayOperation, StoreError> {
        self.store().replay_operations().start_replay(replay).await
    }

    /// Takes the next step of a replay that is due; workers do so by themselves.
    ///
    /// # Errors
    /// The database is away; nothing of the step was done.
    pub async fn step_replay(&self, step: &StepReplay) -> Result<Stepped, StoreError> {
        self.store().replay_operations().step_replay(step).await
    }

    /// Up to `limit` replays on record, the newest first.
    ///
    /// # Errors
    /// The database is away.
    pub async fn replays(&self, limit: u32) -> Result<Vec<ReplayOperation>, StoreError> {
        self.store().replay_operations().replays(limit).await
    }

    /// One replay on record.
    ///
    /// # Errors
    /// The database is away.
    pub async fn replay_operation(&self, id: u64) -> Result<Option<ReplayOperation>, StoreError> {
        self.store().replay_operations().replay_operation(id).await
    }

    /// Ends a replay; what it put back stays so. Refused when there is none, or it has ended.
    ///
    /// # Errors
    /// The database is away.
    pub async fn cancel_replay(&self, id: u64) -> Result<Guarded<ReplayOperation>, StoreError> {
        self.store()
            .replay_operations()
            .cancel_replay(id, None)
            .await
    }
}
