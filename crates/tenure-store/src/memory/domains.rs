//! The ordering keys of the outbox.

use tenure_core::store::{
    Answer, DomainFilter, DomainRecord, Domains, Pause, Skip, StoreError, StoreErrorKind,
};
use tenure_core::{Guarded, ItemId};

use super::MemoryStore;

impl Domains for MemoryStore {
    fn domains(&self, _filter: DomainFilter, _limit: u32) -> Answer<'_, Vec<DomainRecord>> {
        Box::pin(async move { Err(not_yet()) })
    }

    fn domain<'a>(&'a self, _key: &'a str) -> Answer<'a, Option<DomainRecord>> {
        Box::pin(async move { Err(not_yet()) })
    }

    fn pause_domain<'a>(&'a self, _key: &'a str, _pause: Pause) -> Answer<'a, ()> {
        Box::pin(async move { Err(not_yet()) })
    }

    fn skip<'a>(&'a self, _skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        Box::pin(async move { Err(not_yet()) })
    }
}

fn not_yet() -> StoreError {
    StoreError::new("domains", StoreErrorKind::Conflict, "not available yet")
}
