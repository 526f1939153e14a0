//! Reap: ends lapsed leases; their items become pending again or dead.

use tenure_core::store::{Reap, Reaped};
use tenure_core::{Fate, ItemId, LapsePolicy, OutcomeKind, State, Timestamp, Token, reason};

use super::rules::Rules;
use super::{Destination, End, MemoryState};

impl MemoryState {
    pub(super) fn reap(&mut self, reap: &Reap, rules: &Rules, now: Timestamp) -> Vec<Reaped> {
        let mut lapsed: Vec<(Timestamp, Token)> = self
            .leases
            .values()
            .map(|leased| &leased.lease)
            .filter(|lease| (rules.may_reap)(lease.until, reap.boundary, now))
            .map(|lease| (lease.until, lease.token.clone()))
            .collect();
        lapsed.sort();
        lapsed.truncate(usize::try_from(reap.limit).unwrap_or(usize::MAX));
        let mut reaped: Vec<(Timestamp, Reaped)> = Vec::new();
        for (until, token) in lapsed {
            let Some(leased) = self.leases.get(&token) else {
                continue;
            };
            let (fence, ids) = (leased.lease.fence, leased.ids.clone());
            self.end_lapsed(&token, &reap.policy, rules, now);
            for id in ids {
                let Some(kept) = self.items.get(&id) else {
                    continue;
                };
                let state = kept.state();
                let answer = Reaped {
                    id,
                    holder: token.holder().to_owned(),
                    fence,
                    stale: now.since(until),
                    state,
                    available_at: (state == State::Pending).then_some(kept.available_at),
                };
                reaped.push((until, answer));
            }
        }
        reaped.sort_by_key(|(until, item)| (*until, item.id));
        reaped.into_iter().map(|(_, item)| item).collect()
    }

    fn end_lapsed(&mut self, token: &Token, policy: &LapsePolicy, rules: &Rules, now: Timestamp) {
        for (key, run) in self.runs(token) {
            self.lapse_run((&key, run), policy, rules, now);
        }
        let left = self.leases.get(token).map(|leased| leased.ids.clone());
        for id in left.unwrap_or_default() {
            let end = self.lapse(id, policy, now);
            self.end_hold(id, &end, rules, now);
        }
    }

    /// Ends a lapsed lease for the items of one key: the first item has crashed, the others count
    /// as released.
    fn lapse_run(
        &mut self,
        (key, run): (&str, Vec<ItemId>),
        policy: &LapsePolicy,
        rules: &Rules,
        now: Timestamp,
    ) {
        let Some(first) = run.first().map(|id| self.lapse(*id, policy, now)) else {
            return;
        };
        let is_dead = matches!(first.to, Destination::Dead(_));
        let (fates, standing) = (rules.lapse_run)(run.len(), is_dead, policy.on_dead());
        let fates: Vec<(ItemId, Fate)> = run.into_iter().zip(fates).collect();
        let mut first = Some(first);
        for (nth, (id, fate)) in fates.iter().enumerate() {
            let mut end = first.take().unwrap_or(End {
                word: OutcomeKind::Lapsed,
                counted: (rules.lapse_counts)(nth),
                error: None,
                to: Destination::Ready(None),
            });
            if let Destination::Ready(from) = end.to {
                end.to = if *fate == Fate::Head {
                    self.back_of(key, from, rules)
                } else {
                    Destination::Backlog(from)
                };
            }
            self.end_hold(*id, &end, rules, now);
        }
        self.go_on(key, (&fates, standing), rules, now);
    }

    /// Decides the end for an item that a worker was processing when the lease lapsed.
    fn lapse(&self, id: ItemId, policy: &LapsePolicy, now: Timestamp) -> End<'static> {
        let crashes = self.items.get(&id).map_or(0, |kept| kept.counters.crashes);
        let (error, to) = match policy.fate(crashes + 1) {
            Some(delay) => (
                LapsePolicy::ERROR,
                Destination::Ready(Some(now.after(delay))),
            ),
            None => (
                LapsePolicy::DEAD_ERROR,
                Destination::Dead(reason::CRASH_LOOP),
            ),
        };
        End {
            word: OutcomeKind::Lapsed,
            counted: OutcomeKind::Lapsed,
            error: Some(error),
            to,
        }
    }
}
