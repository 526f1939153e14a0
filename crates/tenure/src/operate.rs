//! Operations: inspect, explain, replay and bury items; keys, queues, settings and pruning.

pub use tenure_core::store::{
    Bury, Counts, DelayPosition, DelayedIn, DelayedPage, DeliveryCounts, Filter, Finding,
    KeyFilter, KeyRecord, KeyState, Kind, ListDelayed, NewReplay, OnStep, Page, Pause, Presence,
    Prune, Pruned, Queue, QueueCounts, QueueRules, Replay, ReplayOperation, ReplayRate,
    ReplayState, Replayed, RetryAnswer, RetryNow, SeparateTopic, Skip, StepReplay, Stepped,
    Verdict, WorkerRecord, WorkerReport,
};
pub use tenure_core::{Facts, OnDead, Why, reason, why};
pub use tenure_engine::{Check, Duties, Duty, Health, OutcomeCounts, metrics};

pub use crate::worker::Watch;

use tenure_core::store::{ChangeSettings, ClusterSettings, StoreError};
use tenure_core::{
    Guarded, ItemId, NewEvent, PastHold, QueueName, Record, Settings, Timestamp, TopicSet,
};
use tenure_store::explain_item;

use crate::tenure::Tenure;

/// Maximum number of workers to consider, those that reported most recently.
const WORKERS_MAX: u32 = 1_000;

impl Tenure {
    /// Reads these items; unknown ids are left out.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn find(&self, ids: &[ItemId]) -> Result<Vec<Record>, StoreError> {
        self.store().find(ids).await
    }

    /// Past holds of an item, oldest first.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn timeline(&self, id: ItemId) -> Result<Vec<PastHold>, StoreError> {
        self.store().timeline(id).await
    }

    /// Lists up to `limit` (at most 1000) items, newest first.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn list(&self, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        self.store().list(filter, limit).await
    }

    /// Counts items by state and queue in one snapshot.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn count(&self) -> Result<Counts, StoreError> {
        self.store().count(None).await
    }

    /// Returns true if an event is due that a worker on these queues (none: all) with these topics
    /// would claim. Paused queues do not count.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn has_due(
        &self,
        queues: &[QueueName],
        topics: &TopicSet,
    ) -> Result<bool, StoreError> {
        let due = self.store().due_topics(None).await?;
        Ok(due.iter().any(|(queue, topic)| {
            let is_taken = topic.as_ref().is_none_or(|topic| topics.takes(topic));
            is_taken && (queues.is_empty() || queues.contains(queue))
        }))
    }

    /// Lists the topics with due events that no active worker takes, although a worker has come
    /// across them. Such events stay pending and use up no retry.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn untaken_topics(&self) -> Result<Vec<SeparateTopic>, StoreError> {
        let (now, workers) = self.workers(WORKERS_MAX).await?;
        let active = |worker: &&WorkerRecord| worker.presence(now) == Presence::Active;
        let active: Vec<_> = workers.iter().filter(active).collect();
        let is_untaken = |of: &SeparateTopic| {
            let mut reports = active.iter().map(|worker| &worker.report);
            of.due > 0 && !reports.any(|report| report.takes_event(&of.queue, &of.topic))
        };
        let all = self.store().separate_topics(None).await?.into_iter();
        Ok(all.filter(is_untaken).collect())
    }

    /// Explains in one sentence why an item is not being worked on; `None` if it does not exist.
    /// Pass the settings of the workers, which limit retries and crashes.
    ///
    /// ```
    /// use tenure::{Event, Settings, Tenure, NewEvent};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let id = tenure.enqueue_now(Event::new("order.paid", &7)?).await?.id();
    /// let why = tenure.why(id, &Settings::default()).await?.expect("it was written");
    /// assert_eq!(why.sentence, "it is due, but no worker is running");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn why(&self, id: ItemId, settings: &Settings) -> Result<Option<Why>, StoreError> {
        explain_item(self.store(), id, settings).await
    }

    /// Lists up to `limit` workers, most recent report first, and returns the current time of the
    /// store, for [`WorkerRecord::presence`].
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn workers(&self, limit: u32) -> Result<(Timestamp, Vec<WorkerRecord>), StoreError> {
        self.store().workers(limit).await
    }

    /// Lists up to `limit` ordering keys, those that have had the same head for the longest time
    /// first; with [`KeyFilter::Stuck`], blocked keys come first.
    ///
    /// ```
    /// use tenure::operate::{KeyFilter, KeyState};
    /// use tenure::{Event, NewEvent, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// for order in [7, 8] {
    ///     let paid = NewEvent::new("order.paid", &order).key("customer-7");
    ///     tenure.enqueue_now(paid).await?;
    /// }
    /// let keys = tenure.keys(KeyFilter::Open, 10).await?;
    /// assert_eq!((keys[0].name.as_str(), keys[0].state), ("customer-7", KeyState::Due));
    /// // The second event waits behind the first; only the first can be claimed.
    /// assert_eq!(keys[0].waiting, 1);
    /// let held = tenure.claim(10).await?.expect("the head is due");
    /// assert_eq!(held.items.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn keys(&self, filter: KeyFilter, limit: u32) -> Result<Vec<KeyRecord>, StoreError> {
        self.store().keys(filter, limit).await
    }

    /// Reads one ordering key; `None` if it is unknown.
    ///
    /// # Errors
    /// The key is empty, too long or has control characters; or the database is unavailable.
    pub async fn key(&self, key: &str) -> Result<Option<KeyRecord>, StoreError> {
        check_key("key", key)?;
        self.store().key(key).await
    }

    /// Pauses or resumes an ordering key. None of its events is claimed while it is paused.
    ///
    /// ```
    /// use tenure::operate::Pause;
    /// use tenure::Tenure;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// tenure.pause_key("customer-7", Pause::Begin).await?;
    /// // An empty key is not valid.
    /// assert!(tenure.pause_key("", Pause::Begin).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The key is empty, too long or has control characters; or the database is unavailable.
    pub async fn pause_key(&self, key: &str, pause: Pause) -> Result<(), StoreError> {
        check_key("pause key", key)?;
        self.store().pause_key(key, pause).await
    }

    /// Continues an ordering key without its head: a dead head that blocks the key is skipped, any
    /// other head is buried. If `only` is given, the head must be that event. `reason` is stored in
    /// the last error of the event. Returns the event; refused if the key has no head, or if its
    /// head is another event.
    ///
    /// ```
    /// use tenure::lease::Guarded;
    /// use tenure::{Event, NewEvent, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// assert!(!tenure.skip("customer-7", None, "a test").await?.is_accepted());
    ///
    /// let event = NewEvent::new("order.paid", &7).key("customer-7").build()?;
    /// let id = tenure.enqueue_now(event).await?.id();
    /// assert_eq!(tenure.skip("customer-7", Some(id), "a test").await?, Guarded::Accepted(id));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The key is empty, too long or has control characters; or the database is unavailable.
    pub async fn skip(
        &self,
        key: &str,
        only: Option<ItemId>,
        reason: &str,
    ) -> Result<Guarded<ItemId>, StoreError> {
        check_key("skip", key)?;
        let mut skip = Skip::new(key, self.token(), reason);
        skip.only = only;
        self.store().skip(&skip).await
    }

    /// Lists up to `limit` (at most 1000) ordering keys that a dead head blocks, each with this
    /// head; `after` continues behind the last key of the previous page.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn blocked_keys(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<(String, ItemId)>, StoreError> {
        self.store().blocked_keys(after, limit).await
    }

    /// Checks the health of the database; changes nothing.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.store().examine().await
    }

    /// Deletes one batch of settled items that are past their retention; [`Pruned::more`] is true
    /// if another batch may find more.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        self.store().prune(prune).await
    }

    /// Makes settled items pending again; refused for items that are not settled.
    ///
    /// ```
    /// use tenure::lease::Refusal;
    /// use tenure::{Event, NewEvent, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let id = tenure.enqueue_now(Event::new("order.paid", &7)?).await?.id();
    /// let answers = tenure.replay(&[id]).await?;
    /// assert_eq!(answers[0].1.refusal(), Some(Refusal::NotSettled));
    ///
    /// assert!(tenure.bury(id, "sent by mistake").await?.is_accepted());
    /// let answers = tenure.replay(&[id]).await?;
    /// assert!(answers[0].1.is_accepted());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn replay(&self, ids: &[ItemId]) -> Result<Replayed, StoreError> {
        self.store().replay(&Replay::new(ids.to_vec())).await
    }

    /// Makes pending items due now, such as those that wait for their next attempt after a failure.
    /// Counters stay as they are. Each answer says why an item was not changed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::operate::RetryAnswer;
    /// use tenure::{NewEvent, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let later = NewEvent::new("order.paid", &7).delay(Duration::from_secs(3600));
    /// let id = tenure.enqueue_now(later).await?.id();
    /// assert_eq!(tenure.retry_now(&[id]).await?, [(id, RetryAnswer::DueNow)]);
    /// assert_eq!(tenure.retry_now(&[id]).await?, [(id, RetryAnswer::AlreadyDue)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable, or another operator kept an item locked.
    pub async fn retry_now(
        &self,
        ids: &[ItemId],
    ) -> Result<Vec<(ItemId, RetryAnswer)>, StoreError> {
        let retry = RetryNow::new(ids.to_vec(), self.token());
        self.store().retry_now(&retry).await
    }

    /// Lists items that wait for another attempt, a step at a time, for [`Tenure::retry_now`].
    ///
    /// # Errors
    /// The queue does not exist, or the database is unavailable.
    pub async fn delayed(&self, list: &ListDelayed) -> Result<DelayedPage, StoreError> {
        self.store().delayed(list).await
    }

    /// Settles an item as dead now, even if a worker holds it; `reason` is stored for operators.
    /// Refused for an item that is already settled.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn bury(&self, id: ItemId, reason: &str) -> Result<Guarded, StoreError> {
        let bury = Bury::new(id, self.token(), reason);
        self.store().bury(&bury).await
    }

    /// Lists all queues by name.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.store().queues().await
    }

    /// Adds a queue, or changes the rules of an existing one.
    ///
    /// Workers use the rules that a queue has; a manual claim names its own term. The options of a
    /// handler override the retry rules of its queue, and these override the settings.
    ///
    /// # Errors
    /// A rule is out of range, or the database is unavailable.
    pub async fn add_queue(&self, name: &QueueName, rules: QueueRules) -> Result<(), StoreError> {
        self.store().add_queue(name, rules).await
    }

    /// Pauses a queue: claims skip it. Refused if it does not exist.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn pause_queue(&self, name: &QueueName) -> Result<Guarded, StoreError> {
        self.store().pause_queue(name, Pause::Begin).await
    }

    /// Resumes a queue. Refused if it does not exist.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn resume_queue(&self, name: &QueueName) -> Result<Guarded, StoreError> {
        self.store().pause_queue(name, Pause::End).await
    }

    /// Reads the settings of the cluster, which override the configuration of each process.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn settings(&self) -> Result<ClusterSettings, StoreError> {
        self.store().settings().await
    }

    /// Changes all of these values or none; returns the new version, or `None` if another caller
    /// changed the settings since the version that this caller has read.
    ///
    /// The values are not checked here: check them with
    /// [`Settings::overlaid`](crate::Settings::overlaid) first. Workers apply them within seconds.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn change_settings(
        &self,
        change: &ChangeSettings,
    ) -> Result<Option<u64>, StoreError> {
        self.store().change_settings(change).await
    }
}

/// Refuses an invalid key; a store would only report that it does not exist.
fn check_key(verb: &'static str, key: &str) -> Result<(), StoreError> {
    let check = |key: &str| NewEvent::from_json("any", "null").key(key).build();
    // The key of deliveries is longer: the endpoint, a slash and the key of their events.
    let own = key.split_once('/').map_or(key, |(_, own)| own);
    let event = check(key).or_else(|problems| check(own).map_err(|_own| problems));
    event.map(drop).map_err(|problems| {
        StoreError::invalid(verb, &problems).with_hint("name the key as it was given to the events")
    })
}
