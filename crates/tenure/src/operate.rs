//! The operator's verbs of `Tenure`: look, replay, bury, queues, settings.

use tenure_core::store::{
    Bury, ChangeSettings, ClusterSettings, Counts, Filter, Page, Pause, Queue, Replay, Replayed,
    StoreError,
};
use tenure_core::{EndedHold, Guarded, ItemId, QueueName, Record, Term};

use crate::tenure::Tenure;

impl Tenure {
    /// Everything that is known of these items; unknown ids are left out.
    ///
    /// # Errors
    /// The database is away.
    pub async fn find(&self, ids: &[ItemId]) -> Result<Vec<Record>, StoreError> {
        self.store().find(ids).await
    }

    /// The ended holds of an item, oldest first.
    ///
    /// # Errors
    /// The database is away.
    pub async fn timeline(&self, id: ItemId) -> Result<Vec<EndedHold>, StoreError> {
        self.store().timeline(id).await
    }

    /// Up to `limit` (at most 1000) items, newest first.
    ///
    /// # Errors
    /// The database is away.
    pub async fn list(&self, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        self.store().list(filter, limit).await
    }

    /// How many items stand where, in one snapshot.
    ///
    /// # Errors
    /// The database is away.
    pub async fn count(&self) -> Result<Counts, StoreError> {
        self.store().count(None).await
    }

    /// Puts settled items back, to be worked again; refused for what is not settled.
    ///
    /// ```
    /// use tenure::{Event, Refusal, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let id = tenure.enqueue_now(Event::new("order.paid", &7)?).await?.id();
    /// let answers = tenure.replay(&[id]).await?;
    /// assert_eq!(answers[0].1.refusal(), Some(Refusal::NotSettled));
    ///
    /// assert!(tenure.bury(id, "sent by mistake").await?.is_kept());
    /// let answers = tenure.replay(&[id]).await?;
    /// assert!(answers[0].1.is_kept());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is away.
    pub async fn replay(&self, ids: &[ItemId]) -> Result<Replayed, StoreError> {
        self.store().replay(&Replay::new(ids.to_vec())).await
    }

    /// Settles an item dead, now, whoever holds it; `reason` is for people. Refused for what is
    /// settled already.
    ///
    /// # Errors
    /// The database is away.
    pub async fn bury(&self, id: ItemId, reason: &str) -> Result<Guarded, StoreError> {
        let bury = Bury::new(id, self.token(), reason);
        self.store().bury(&bury).await
    }

    /// All queues, by name.
    ///
    /// # Errors
    /// The database is away.
    pub async fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.store().queues().await
    }

    /// Declares a queue, or gives one that is there another term.
    ///
    /// The term is kept for the worker loop that is to come; a claim names its own.
    ///
    /// # Errors
    /// The database is away.
    pub async fn add_queue(&self, name: &QueueName, term: Option<Term>) -> Result<(), StoreError> {
        self.store().add_queue(name, term).await
    }

    /// Lets claims pass this queue by; refused when there is no such queue.
    ///
    /// # Errors
    /// The database is away.
    pub async fn pause_queue(&self, name: &QueueName) -> Result<Guarded, StoreError> {
        self.store().pause_queue(name, Pause::Begin).await
    }

    /// Lets claims take from this queue again; refused when there is no such queue.
    ///
    /// # Errors
    /// The database is away.
    pub async fn resume_queue(&self, name: &QueueName) -> Result<Guarded, StoreError> {
        self.store().pause_queue(name, Pause::End).await
    }

    /// What is set for all processes; it stands over each one's own configuration.
    ///
    /// # Errors
    /// The database is away.
    pub async fn settings(&self) -> Result<ClusterSettings, StoreError> {
        self.store().settings().await
    }

    /// Changes all of the named values or none; answers the new version, or `None` when someone
    /// else changed something since the version that the caller has seen.
    ///
    /// The values are not judged here: check them with
    /// [`Settings::overlaid`](crate::Settings::overlaid) first. Workers take them over within
    /// seconds.
    ///
    /// # Errors
    /// The database is away.
    pub async fn change_settings(
        &self,
        change: &ChangeSettings,
    ) -> Result<Option<u64>, StoreError> {
        self.store().change_settings(change).await
    }
}
