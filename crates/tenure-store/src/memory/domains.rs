//! The ordering keys of the outbox.

use tenure_core::store::{
    Answer, Bury, DomainFacts, DomainFilter, DomainRecord, Domains, Pause, Skip,
};
use tenure_core::{Guarded, ItemId, Refusal, Timestamp};

use super::rules::Rules;
use super::turns::Domain;
use super::{MemoryStore, Place, Shelf};
use crate::error_text::error_text;

impl Domains for MemoryStore {
    fn domains(&self, filter: DomainFilter, limit: u32) -> Answer<'_, Vec<DomainRecord>> {
        Box::pin(async move {
            let now = self.moment(None);
            Ok(self.shelf().domains(filter, limit, now))
        })
    }

    fn domain<'a>(&'a self, key: &'a str) -> Answer<'a, Option<DomainRecord>> {
        Box::pin(async move {
            let now = self.moment(None);
            let shelf = self.shelf();
            let domain = shelf.domains.get(key);
            Ok(domain.map(|domain| shelf.domain_record(key, domain, now)))
        })
    }

    fn pause_domain<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        Box::pin(async move {
            let now = self.moment(None);
            let mut shelf = self.shelf();
            match pause {
                Pause::Begin => shelf.pause_domain(key, now),
                Pause::End => shelf.resume_domain(key, &self.rules, now),
            }
            Ok(())
        })
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        Box::pin(async move {
            let now = self.moment(skip.now);
            Ok(self.shelf().skip(skip, &self.rules, now))
        })
    }
}

impl Shelf {
    fn domains(&self, filter: DomainFilter, limit: u32, now: Timestamp) -> Vec<DomainRecord> {
        let mut found: Vec<(&String, &Domain)> = self
            .domains
            .iter()
            .filter(|(_, domain)| filter == DomainFilter::Open || self.is_stuck(domain, now))
            .collect();
        let is_last = |domain: &Domain| filter == DomainFilter::Stuck && !domain.is_blocked;
        found.sort_by_key(|(key, domain)| (is_last(domain), domain.since, *key));
        found
            .into_iter()
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .map(|(key, domain)| self.domain_record(key, domain, now))
            .collect()
    }

    fn is_stuck(&self, domain: &Domain, now: Timestamp) -> bool {
        let head = domain.head.and_then(|id| self.items.get(&id));
        let is_long = head.is_some() && domain.since < now.before(DomainFilter::LONG);
        domain.is_blocked
            || head.is_some_and(|kept| kept.counters.failures + kept.counters.crashes > 0)
            || ((domain.is_paused || is_long) && !domain.backlog.is_empty())
    }

    fn domain_record(&self, key: &str, domain: &Domain, now: Timestamp) -> DomainRecord {
        let facts = DomainFacts {
            key: key.to_owned(),
            since: Some(domain.since),
            head: domain.head.and_then(|id| self.record(id)),
            is_blocked: domain.is_blocked,
            is_paused: domain.is_paused,
            waiting: u64::try_from(domain.backlog.len()).unwrap_or(u64::MAX),
        };
        facts.record(now)
    }

    fn pause_domain(&mut self, key: &str, now: Timestamp) {
        let entry = self.domains.entry(key.to_owned());
        let domain = entry.or_insert_with(|| Domain::new(now));
        if domain.is_paused {
            return;
        }
        domain.is_paused = true;
        domain.since = now;
        let Some(head) = domain.head else {
            return;
        };
        let place = self.items.get(&head).map(|kept| &kept.place);
        if matches!(place, Some(Place::Ready(_))) {
            domain.head = None;
            self.take_out(head);
            self.put_behind(head);
        }
    }

    fn resume_domain(&mut self, key: &str, rules: &Rules, now: Timestamp) {
        let Some(domain) = self.domains.get_mut(key).filter(|domain| domain.is_paused) else {
            return;
        };
        domain.is_paused = false;
        if domain.head.is_none() {
            domain.since = now;
            self.promote(key, rules, now);
        }
    }

    /// Writes down who goes on without a dead head, before its last error.
    fn note_skip(&mut self, skip: &Skip, id: ItemId, now: Timestamp) {
        let Some(kept) = self.items.get_mut(&id) else {
            return;
        };
        let before = match &kept.last_error {
            Some(error) => format!("{}{error}", Skip::BEFORE),
            None => String::new(),
        };
        let note = format!("{}{before}", error_text(&skip.note(now)));
        kept.last_error = Some(error_text(&note));
    }

    fn skip(&mut self, skip: &Skip, rules: &Rules, now: Timestamp) -> Guarded<ItemId> {
        let head = self.domains.get(&skip.key).and_then(|domain| domain.head);
        let Some(id) = head else {
            return Guarded::Refused(Refusal::NotFound);
        };
        if !skip.is_meant(id) {
            return Guarded::Refused(Refusal::Lost);
        }
        if self.unblock(&skip.key, id) {
            self.note_skip(skip, id, now);
            self.promote(&skip.key, rules, now);
            return Guarded::Kept(id);
        }
        let bury = Bury {
            id,
            token: skip.token.clone(),
            reason: skip.reason.clone(),
            now: skip.now,
        };
        match self.bury(&bury, rules, now) {
            Guarded::Kept(()) => Guarded::Kept(id),
            Guarded::Refused(why) => Guarded::Refused(why),
        }
    }
}
