//! Webhooks: endpoints, deliveries and their attempts.
//!
//! [`Tenure::add_endpoint`] registers an address. A worker with [`WorkerBuilder::fan_out`] creates
//! a delivery for each subscribed endpoint of an event, and a [`Tenure::sender`] sends the
//! deliveries.
//!
//! [`WorkerBuilder::fan_out`]: crate::WorkerBuilder::fan_out

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::store::{Filter, Kind, Page, StoreError};
use tenure_core::{Guarded, ItemId, Refusal};

pub use tenure_core::store::ChangeEndpoint;
pub use tenure_core::webhook::{
    Attempt, AttemptOutcome, Call, CallDetail, CallError, CallErrorKind, CallRecord, CallVerdict,
    Caller, Calling, Delivery, Directive, Disabled, Endpoint, EndpointHealth, EndpointId,
    EndpointSettings, EndpointState, NewEndpoint, OnGone, RateLimit, RecentCalls, Reply, Request,
    Schedule, Timings, Warning, attempts, judge,
};
#[cfg(feature = "webhook")]
pub use tenure_publish::webhook::{
    AddressPolicy, CallerConfig, Dialled, Dialler, Dialling, Keyring, Resolver, Resolving, Scheme,
    Secrets, Signing, SigningKey, Stream, SystemResolver, Target, TcpDialler, WebhookCaller, names,
    verify,
};

use crate::tenure::Tenure;

/// Maximum number of attempts at a change that conflicts with other changes.
const CHANGES_MAX: u32 = 5;

impl Tenure {
    /// Adds an endpoint and returns it as stored; `None` if the name is in use, perhaps by a
    /// removed endpoint.
    ///
    /// ```
    /// use tenure::publish::TopicPattern;
    /// use tenure::webhook::{EndpointId, EndpointSettings, NewEndpoint};
    /// use tenure::Tenure;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let orders = vec![TopicPattern::new("order.*")?];
    /// let endpoint = NewEndpoint {
    ///     id: EndpointId::new("billing")?,
    ///     settings: EndpointSettings::new("https://example.com/hooks", orders),
    ///     sealed: String::new(), // `Secrets::seal` makes it
    /// };
    /// let added = tenure.add_endpoint(&endpoint).await?.expect("the name was free");
    /// assert!(added.receives("order.paid"));
    /// assert!(tenure.add_endpoint(&endpoint).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn add_endpoint(
        &self,
        endpoint: &NewEndpoint,
    ) -> Result<Option<Endpoint>, StoreError> {
        self.store().webhooks().add_endpoint(endpoint, None).await
    }

    /// Lists endpoints by name, including removed ones, starting after `after`, at most `limit`.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn endpoints(
        &self,
        after: Option<&EndpointId>,
        limit: u32,
    ) -> Result<Vec<Endpoint>, StoreError> {
        self.store().webhooks().endpoints(after, limit).await
    }

    /// Reads all endpoints, including removed ones, by the number that deliveries refer to.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn endpoints_by_number(&self) -> Result<BTreeMap<u32, Endpoint>, StoreError> {
        let all = self.store().webhooks().all_endpoints().await?.into_iter();
        Ok(all.map(|endpoint| (endpoint.number, endpoint)).collect())
    }

    /// Lists the [numbers](Endpoint::number) of the endpoints that have a due delivery.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn due_endpoints(&self) -> Result<BTreeSet<u32>, StoreError> {
        let due = self.store().webhooks().due_deliveries(None).await?;
        Ok(due.lanes.iter().map(|lane| lane.endpoint).collect())
    }

    /// Reads one endpoint, which may be a removed one.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn endpoint(&self, id: &EndpointId) -> Result<Option<Endpoint>, StoreError> {
        self.store().webhooks().endpoint(id).await
    }

    /// Replaces all values of an endpoint if its version is still the one that was read. Refused if
    /// it does not exist or was changed. Enabling a disabled endpoint clears its health; a removed
    /// endpoint stays removed.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn change_endpoint(
        &self,
        change: &ChangeEndpoint,
    ) -> Result<Guarded<Endpoint>, StoreError> {
        self.store().webhooks().change_endpoint(change).await
    }

    /// Changes an endpoint by `edit`, starting from its current values; repeats that when another
    /// caller changes it at the same time. Refused as [`Refusal::NotFound`] if it does not exist,
    /// and as [`Refusal::Changed`] after five conflicts.
    ///
    /// ```
    /// # use tenure::publish::TopicPattern;
    /// # use tenure::webhook::{EndpointId, EndpointSettings, NewEndpoint};
    /// # use tenure::Tenure;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = Tenure::open("memory:").await?;
    /// # let id = EndpointId::new("billing")?;
    /// # let settings = EndpointSettings::new("https://example.com", vec![TopicPattern::any()]);
    /// # let sealed = String::new();
    /// # tenure.add_endpoint(&NewEndpoint { id: id.clone(), settings, sealed }).await?;
    /// let minute = Duration::from_secs(60);
    /// let changed = tenure.edit_endpoint(&id, |it| it.settings.timeout = minute).await?;
    /// assert!(changed.is_accepted());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn edit_endpoint(
        &self,
        id: &EndpointId,
        edit: impl Fn(&mut ChangeEndpoint),
    ) -> Result<Guarded<Endpoint>, StoreError> {
        let mut answer = Guarded::Refused(Refusal::NotFound);
        for _ in 0..CHANGES_MAX {
            let Some(seen) = self.endpoint(id).await? else {
                return Ok(Guarded::Refused(Refusal::NotFound));
            };
            let mut change = ChangeEndpoint {
                id: seen.id,
                version: seen.version,
                settings: seen.settings,
                sealed: seen.sealed,
                state: seen.state,
                now: None,
            };
            edit(&mut change);
            answer = self.change_endpoint(&change).await?;
            if answer.refusal() != Some(Refusal::Changed) {
                break;
            }
        }
        Ok(answer)
    }

    /// Clears the health of an endpoint: every process calls a paused endpoint again within
    /// seconds. A disabled endpoint stays disabled.
    ///
    /// ```
    /// # use tenure::publish::TopicPattern;
    /// # use tenure::webhook::{EndpointId, EndpointSettings, EndpointHealth, NewEndpoint};
    /// # use tenure::Tenure;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = Tenure::open("memory:").await?;
    /// # let id = EndpointId::new("billing")?;
    /// # let settings = EndpointSettings::new("https://example.com", vec![TopicPattern::any()]);
    /// # let sealed = String::new();
    /// # tenure.add_endpoint(&NewEndpoint { id: id.clone(), settings, sealed }).await?;
    /// tenure.forget_health(&id).await?;
    /// let endpoint = tenure.endpoint(&id).await?;
    /// assert_eq!(endpoint.map(|it| it.health), Some(EndpointHealth::default()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn forget_health(&self, id: &EndpointId) -> Result<(), StoreError> {
        let clean = EndpointHealth::default();
        self.store().webhooks().keep_health(id, &clean).await
    }

    /// Lists up to `limit` (at most 1000) deliveries, newest first; the kind in the filter is
    /// ignored.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn deliveries(&self, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        let filter = Filter {
            kind: Kind::Deliveries,
            ..filter.clone()
        };
        self.list(&filter, limit).await
    }

    /// Lists the attempts of a delivery, ordered by claim; empty if the delivery does not exist.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn attempts(&self, delivery: ItemId) -> Result<Vec<Attempt>, StoreError> {
        let Some(record) = self.find(&[delivery]).await?.pop() else {
            return Ok(Vec::new());
        };
        let timeline = self.timeline(delivery).await?;
        let calls = self.store().webhooks().calls(delivery).await?;
        Ok(attempts(&timeline, record.hold.as_ref(), &calls))
    }
}
