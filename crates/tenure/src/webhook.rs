//! Webhooks through the front door: endpoints, what is owed to them, and what came of it.
//!
//! [`Tenure::add_endpoint`] registers an address; [`WorkerBuilder::fan_out`] makes a worker owe it
//! the events that it is subscribed to, and [`Tenure::sender`] sends them.
//!
//! [`WorkerBuilder::fan_out`]: crate::WorkerBuilder::fan_out

use std::collections::BTreeMap;

use tenure_core::store::{ChangeEndpoint, Filter, Kind, Page, StoreError};
use tenure_core::{Guarded, ItemId, Refusal};

pub use tenure_core::webhook::*;
#[cfg(feature = "webhook")]
pub use tenure_publish::webhook::*;

use crate::tenure::Tenure;

/// How often a change is tried that others get in the way of.
const CHANGES_MAX: u32 = 5;

impl Tenure {
    /// Adds an endpoint and answers with it as it is kept; `None`: the name is taken, perhaps by
    /// one that was removed.
    ///
    /// ```
    /// use tenure::webhook::{EndpointId, EndpointSettings, NewEndpoint};
    /// use tenure::{Tenure, TopicPattern};
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
    /// assert!(added.is_owed("order.paid"));
    /// assert!(tenure.add_endpoint(&endpoint).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is away.
    pub async fn add_endpoint(
        &self,
        endpoint: &NewEndpoint,
    ) -> Result<Option<Endpoint>, StoreError> {
        self.store().webhooks().add_endpoint(endpoint, None).await
    }

    /// Endpoints in the order of their names, those behind `after`, at most `limit`; also removed
    /// ones.
    ///
    /// # Errors
    /// The database is away.
    pub async fn endpoints(
        &self,
        after: Option<&EndpointId>,
        limit: u32,
    ) -> Result<Vec<Endpoint>, StoreError> {
        self.store().webhooks().endpoints(after, limit).await
    }

    /// Every endpoint by its number, by which deliveries name it; also removed ones.
    ///
    /// # Errors
    /// The database is away.
    pub async fn endpoints_by_number(&self) -> Result<BTreeMap<u32, Endpoint>, StoreError> {
        let all = self.store().webhooks().all_endpoints().await?.into_iter();
        Ok(all.map(|endpoint| (endpoint.number, endpoint)).collect())
    }

    /// One endpoint, also a removed one.
    ///
    /// # Errors
    /// The database is away.
    pub async fn endpoint(&self, id: &EndpointId) -> Result<Option<Endpoint>, StoreError> {
        self.store().webhooks().endpoint(id).await
    }

    /// Changes an endpoint whole, if it is still as it was seen; refused as unknown or as changed.
    /// Enabling one clears its health. A removed one stays removed.
    ///
    /// # Errors
    /// The database is away.
    pub async fn change_endpoint(
        &self,
        change: &ChangeEndpoint,
    ) -> Result<Guarded<Endpoint>, StoreError> {
        self.store().webhooks().change_endpoint(change).await
    }

    /// Changes an endpoint as `edit` says, from what it is like now; when somebody else changes it
    /// at the same moment, again from what it is like then. Refused as unknown, or as changed when
    /// others kept getting in the way.
    ///
    /// ```
    /// # use tenure::webhook::{EndpointId, EndpointSettings, NewEndpoint};
    /// # use tenure::{Tenure, TopicPattern};
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
    /// assert!(changed.is_kept());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is away.
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

    /// Forgets how an endpoint fared: one that is left alone is called again, by every process
    /// within seconds. Whether it is enabled stays as it is.
    ///
    /// ```
    /// # use tenure::webhook::{EndpointId, EndpointSettings, Health, NewEndpoint};
    /// # use tenure::{Tenure, TopicPattern};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = Tenure::open("memory:").await?;
    /// # let id = EndpointId::new("billing")?;
    /// # let settings = EndpointSettings::new("https://example.com", vec![TopicPattern::any()]);
    /// # let sealed = String::new();
    /// # tenure.add_endpoint(&NewEndpoint { id: id.clone(), settings, sealed }).await?;
    /// tenure.forget_health(&id).await?;
    /// let endpoint = tenure.endpoint(&id).await?;
    /// assert_eq!(endpoint.map(|it| it.health), Some(Health::default()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database is away.
    pub async fn forget_health(&self, id: &EndpointId) -> Result<(), StoreError> {
        let clean = Health::default();
        self.store().webhooks().keep_health(id, &clean).await
    }

    /// Up to `limit` (at most 1000) deliveries, newest first; whatever the filter says of kind.
    ///
    /// # Errors
    /// The database is away.
    pub async fn deliveries(&self, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        let filter = Filter {
            kind: Kind::Deliveries,
            ..filter.clone()
        };
        self.list(&filter, limit).await
    }

    /// The attempts to make a delivery, in the order of their claims; none when there is no such
    /// delivery.
    ///
    /// # Errors
    /// The database is away.
    pub async fn attempts(&self, delivery: ItemId) -> Result<Vec<Attempt>, StoreError> {
        let Some(record) = self.find(&[delivery]).await?.pop() else {
            return Ok(Vec::new());
        };
        let timeline = self.timeline(delivery).await?;
        let calls = self.store().webhooks().calls(delivery).await?;
        Ok(attempts(&timeline, record.hold.as_ref(), &calls))
    }
}
