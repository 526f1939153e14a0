//! The operator's verbs of `Tenure`: look, explain, replay, bury, queues, prune, settings.

use tenure_core::store::{
    Bury, ChangeSettings, ClusterSettings, Counts, DomainFilter, DomainRecord, Filter, Finding,
    Page, Pause, Presence, Prune, Pruned, Queue, QueueCounts, Replay, Replayed, Skip, StoreError,
    StoreErrorKind, WorkerRecord,
};
use tenure_core::webhook::Delivery;
use tenure_core::{
    Clock as _, EndedHold, Event, Facts, Guarded, Invalid, ItemId, QueueName, Record, Settings,
    Term, Timestamp, Why, why,
};
use tenure_store::memory::SystemClock;

use crate::tenure::Tenure;

/// As many workers are looked at to explain one item; those seen last come first.
pub(crate) const WORKERS: u32 = 1_000;

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

    /// Why an item is not being worked on, in one sentence; `None` when there is no such item. The
    /// settings are those that workers run by: they say how often it may fail.
    ///
    /// ```
    /// use tenure::{Event, Settings, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let id = tenure.enqueue_now(Event::new("order.paid", &7)?).await?.id();
    /// let why = tenure.why(id, &Settings::default()).await?.expect("it was written");
    /// assert_eq!(why.sentence, "it is due, but no worker is here");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is away.
    pub async fn why(&self, id: ItemId, settings: &Settings) -> Result<Option<Why>, StoreError> {
        // The workers first: they bring the moment, and what is looked at later is never older.
        let (moment, workers) = self.workers(WORKERS).await?;
        let Some(record) = self.find(&[id]).await?.pop() else {
            return Ok(None);
        };
        let endpoint = match record.content.delivery() {
            Some(delivery) => self.endpoints_by_number().await?.remove(&delivery.endpoint),
            None => None,
        };
        let key = record.content.event().and_then(Event::ordering_key);
        // Deliveries keep the order of a key for each endpoint by itself.
        let key = key.map(|key| match &endpoint {
            Some(endpoint) => Delivery::key(&endpoint.id, key),
            None => key.to_owned(),
        });
        let domain = match key {
            Some(key) => self.store().domain(&key).await?,
            None => None,
        };
        // Whose turn it is decides: an event behind another one of its key waits for that one.
        let first = domain.as_ref().and_then(|domain| domain.head.as_ref());
        let queue = queue_of(first.unwrap_or(&record));
        let paused = |other: &Queue| other.name == queue && other.paused;
        let counts = self.count().await?;
        let facts = Facts {
            is_paused: self.queues().await?.iter().any(paused),
            counts: match &endpoint {
                Some(endpoint) => counts_of(counts.deliveries.endpoints, &endpoint.number),
                None => counts_of(counts.queues, &queue),
            },
            workers: present(workers, moment),
            settings: settings.clone(),
            domain,
            endpoint,
        };
        Ok(Some(why(
            &record,
            &facts,
            credible(moment, record.created_at),
        )))
    }

    /// Up to `limit` workers, those seen last first; beside them the present moment of the store,
    /// by which [`WorkerRecord::presence`] is judged.
    ///
    /// # Errors
    /// The database is away.
    pub async fn workers(&self, limit: u32) -> Result<(Timestamp, Vec<WorkerRecord>), StoreError> {
        self.store().workers(limit).await
    }

    /// Up to `limit` ordering keys, those first that have had their head for longest; of those that
    /// stand still, first all that are blocked.
    ///
    /// ```
    /// use tenure::{DomainFilter, DomainState, Event, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// for order in [7, 8] {
    ///     tenure.enqueue_now(Event::new("order.paid", &order)?.key("customer-7")?).await?;
    /// }
    /// let domains = tenure.domains(DomainFilter::Open, 10).await?;
    /// assert_eq!((domains[0].key.as_str(), domains[0].state), ("customer-7", DomainState::Due));
    /// // The second one stands behind the first, and only the first can be claimed.
    /// assert_eq!(domains[0].waiting, 1);
    /// let held = tenure.claim(10).await?.expect("the head is due");
    /// assert_eq!(held.items.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is away.
    pub async fn domains(
        &self,
        filter: DomainFilter,
        limit: u32,
    ) -> Result<Vec<DomainRecord>, StoreError> {
        self.store().domains(filter, limit).await
    }

    /// Everything that is known of one ordering key; `None` when that is nothing.
    ///
    /// # Errors
    /// The key is empty, too long or has control characters; or the database is away.
    pub async fn domain(&self, key: &str) -> Result<Option<DomainRecord>, StoreError> {
        check_key("domain", key)?;
        self.store().domain(key).await
    }

    /// Begins or ends the pause of an ordering key: while it is paused none of its events is
    /// claimed.
    ///
    /// ```
    /// use tenure::{Pause, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// tenure.pause_domain("customer-7", Pause::Begin).await?;
    /// // What no event can have as its key is not remembered.
    /// assert!(tenure.pause_domain("", Pause::Begin).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The key is empty, too long or has control characters; or the database is away.
    pub async fn pause_domain(&self, key: &str, pause: Pause) -> Result<(), StoreError> {
        check_key("pause domain", key)?;
        self.store().pause_domain(key, pause).await
    }

    /// Goes on without the head of an ordering key: one that is dead and blocks is left behind, any
    /// other one is buried; if `only` is given, only that one. `reason` is for people, and is then
    /// in the event's last error. Answers with the event; refused when there is none, or another
    /// one.
    ///
    /// ```
    /// use tenure::{Event, Guarded, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// assert!(!tenure.skip("customer-7", None, "a test").await?.is_kept());
    ///
    /// let event = Event::new("order.paid", &7)?.key("customer-7")?;
    /// let id = tenure.enqueue_now(event).await?.id();
    /// assert_eq!(tenure.skip("customer-7", Some(id), "a test").await?, Guarded::Kept(id));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The key is empty, too long or has control characters; or the database is away.
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

    /// What the database says of its own health; it changes nothing.
    ///
    /// # Errors
    /// The database is away.
    pub async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.store().examine().await
    }

    /// Deletes settled items past their retention, one round; [`Pruned::more`] says whether another
    /// one may find more.
    ///
    /// # Errors
    /// The database is away.
    pub async fn prune(&self, prune: &Prune) -> Result<Pruned, StoreError> {
        self.store().prune(prune).await
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
    /// Workers take the term of a queue where it has one; a claim by hand names its own.
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

/// What waits in one line.
fn counts_of<T: PartialEq>(lines: Vec<(T, QueueCounts)>, line: &T) -> QueueCounts {
    let found = lines.into_iter().find(|(name, _)| name == line);
    found.map(|(_, counts)| counts).unwrap_or_default()
}

/// Refuses what no event can have as its key: asked for it, a store would find nothing and say so.
fn check_key(verb: &'static str, key: &str) -> Result<(), StoreError> {
    let invalid = |problem: Invalid| {
        StoreError::new(verb, StoreErrorKind::Invalid, problem.to_string())
            .hint("name the key as it was given to the events")
    };
    let event = Event::from_json("any", "null").and_then(|event| event.key(key));
    event.map(drop).map_err(invalid)
}

fn queue_of(record: &Record) -> QueueName {
    let event = record.content.event().map(Event::queue_name);
    event.cloned().unwrap_or_default()
}

/// The workers, and where each one stands at this moment of the store.
pub(crate) fn present(
    workers: Vec<WorkerRecord>,
    moment: Timestamp,
) -> Vec<(WorkerRecord, Presence)> {
    let stands = |worker: WorkerRecord| {
        let presence = worker.presence(moment);
        (worker, presence)
    };
    workers.into_iter().map(stands).collect()
}

/// The store's moment, unless that is before the item was written: a clock that says so is no judge
/// of it, and this machine's is taken.
pub(crate) fn credible(moment: Timestamp, created_at: Timestamp) -> Timestamp {
    if moment < created_at {
        return SystemClock.now();
    }
    moment
}
