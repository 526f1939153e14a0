//! Limits on the concurrent items of one handler, and the release of surplus claims.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Item, Outcome};
use tokio::time::Instant;

use super::HeldState;
use crate::attachment::Attachment;
use crate::handler::{Handler, Rules};
use crate::held_lease::{Answered, LeaseNo};
use crate::options::Limit;

/// Maximum waiting items of a handler with a limit, as a multiple of that limit.
const AHEAD: u32 = 2;
/// Delay of an item that is released because its handler could not start it soon.
const SURPLUS: Duration = Duration::from_secs(1);

/// Running items of each limit.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    handler: Arc<dyn Handler>,
    running: BTreeMap<u64, u32>,
    /// Set once an item with a limit was claimed.
    pub(super) is_limited: bool,
}

impl Limits {
    pub(super) fn new(handler: Arc<dyn Handler>) -> Self {
        Self {
            handler,
            running: BTreeMap::new(),
            is_limited: false,
        }
    }

    pub(super) fn rules(&self, item: &Item) -> Rules {
        self.handler.rules(item)
    }

    pub(super) fn is_full(&self, limit: Limit) -> bool {
        let running = self.running.get(&limit.group).copied().unwrap_or(0);
        running >= limit.at_once
    }

    pub(super) fn enter(&mut self, limit: Option<Limit>) {
        if let Some(limit) = limit {
            *self.running.entry(limit.group).or_default() += 1;
        }
    }

    pub(super) fn leave(&mut self, limit: Option<Limit>) {
        if let Some(running) = limit.and_then(|limit| self.running.get_mut(&limit.group)) {
            *running = running.saturating_sub(1);
        }
    }
}

impl HeldState {
    /// Releases the items of this claim whose handlers have enough waiting items, because another
    /// worker may have capacity for them.
    pub(super) fn give_back_surplus(&mut self, no: LeaseNo, now: Instant) {
        let mut waiting: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut surplus, mut remaining) = (Vec::new(), VecDeque::new());
        for (lease, item) in std::mem::take(&mut self.waiting) {
            if let Some(limit) = self.limits.rules(&item).limit {
                let count = waiting.entry(limit.group).or_default();
                *count += 1;
                let ahead = limit.at_once.saturating_mul(AHEAD);
                if *count > ahead && lease == no {
                    surplus.push(item.id);
                    continue;
                }
            }
            remaining.push_back((lease, item));
        }
        self.waiting = remaining;
        let Some(lease) = self.leases.get_mut(&no) else {
            return;
        };
        for id in &surplus {
            let answered = Answered {
                outcome: Outcome::snooze(SURPLUS),
                on_dead: self.live.settings.on_dead,
                attachment: Attachment::Nothing,
            };
            lease.answer(*id, answered, now);
            lease.give_back_behind(*id, now);
        }
        if !surplus.is_empty() {
            // Without this pause the worker would claim and release the same items at full speed.
            self.pace.pause(now);
        }
    }

    /// Number of waiting items that could start now, given enough executors.
    pub(super) fn startable(&self) -> u32 {
        if !self.limits.is_limited {
            return u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        }
        let mut limits = self.limits.clone();
        let mut count = 0;
        for (_, item) in &self.waiting {
            let limit = limits.rules(item).limit;
            if limit.is_none_or(|limit| !limits.is_full(limit)) {
                limits.enter(limit);
                count += 1;
            }
        }
        count
    }
}
