//! What a claim does in its transaction.
//!
//! What is due is read from ready, lane by lane. All that has no key is taken; the heads of domains
//! share what that leaves of the limit, in their order, each with a run of those behind it. A lane
//! of an endpoint has a limit of its own, too.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, named_params};
use tenure_core::store::{Claim, Company, Reap, StoreError};
use tenure_core::{Held, Lease, Timestamp};

use super::error::failed;
use super::holds::{Runs, domains, json};
use super::queue::{Asked, check_fresh, draw_fence, lanes_of};
use super::reap::reap;
use super::row::Waiting;
use super::{sources, statements as sql};
use crate::lane::Lane;
use crate::limits::INLINE_REAP_LIMIT;

pub(super) fn claim(
    connection: &Connection,
    ask: &Claim,
    now: Timestamp,
) -> Result<Option<Held>, StoreError> {
    let lanes = lanes_of(connection, ask)?;
    let limit = usize::try_from(ask.most()).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(None);
    }
    let taking = Taking {
        connection,
        ask,
        limit,
        now,
    };
    let (mut items, mut is_cut) = taking.take(&lanes).map_err(failed("claim"))?;
    if let (true, Some(policy)) = (items.len() < limit && !is_cut, &ask.recovery) {
        let lapsed = Reap::new(INLINE_REAP_LIMIT, policy.clone()).inline();
        ask.tell_recovered(reap(connection, &lapsed, now)?);
        // What was just put back joins an empty claim only: one that has items is in order already.
        if items.is_empty() {
            (items, is_cut) = taking.take(&lanes).map_err(failed("claim"))?;
        }
    }
    if items.is_empty() {
        return Ok(None);
    }
    check_fresh(connection, &ask.token)?;
    let lease = Lease {
        token: ask.token.clone(),
        fence: draw_fence(connection, "claim")?,
        claimed_at: now,
        until: now.after(ask.term.length()),
    };
    let items = write_lease(connection, &lease, &items)
        .and_then(|()| sources::items(connection, items))
        .map_err(failed("claim"))?;
    let mut held = Held::new(lease, items, ask.most());
    held.is_full |= is_cut;
    Ok(Some(held))
}

/// Moves items from where they wait.
struct Taking<'a> {
    connection: &'a Connection,
    ask: &'a Claim,
    limit: usize,
    now: Timestamp,
}

/// What is due of a lane, the oldest first.
struct Due<'a> {
    asked: &'a Asked,
    items: Vec<Waiting>,
}

impl Due<'_> {
    /// How many have no key: all of them are taken.
    fn unkeyed(&self) -> usize {
        self.items
            .iter()
            .filter(|item| item.key().is_none())
            .count()
    }
}

/// What was read of ready so far.
#[derive(Default)]
struct Tally {
    heads: usize,
    unkeyed: usize,
    /// Whether more is there and was not read.
    is_cut: bool,
}

/// An item behind a head, with its lane and turn.
type Follower = (Waiting, Lane, i64);

impl Taking<'_> {
    /// Moves up to the limit of items that are due out of ready, lane by lane, and their runs out
    /// of the backlog; and whether it stopped before it had looked at all that the limit allows.
    fn take(&self, lanes: &[Asked]) -> rusqlite::Result<(Vec<Waiting>, bool)> {
        let mut all: Vec<Due<'_>> = Vec::new();
        let mut left = self.limit;
        let mut tally = Tally::default();
        for asked in lanes {
            if left == 0 || tally.is_cut {
                break;
            }
            let due = self.due(asked, left, &mut tally)?;
            left -= due.items.len();
            if !due.items.is_empty() {
                all.push(due);
            }
        }
        let mut room = self.limit - all.iter().map(Due::unkeyed).sum::<usize>();
        let mut taken = Vec::with_capacity(self.limit - left);
        for due in all {
            self.take_from(due, &mut room, &mut taken)?;
        }
        Ok((taken, tally.is_cut))
    }

    fn due<'b>(
        &self,
        asked: &'b Asked,
        left: usize,
        tally: &mut Tally,
    ) -> rusqlite::Result<Due<'b>> {
        let mut items = Vec::new();
        let mut statement = self.connection.prepare_cached(sql::CLAIM_DUE)?;
        let mut due = statement.query(named_params! {
            ":lane": asked.lane,
            ":now": self.now.as_micros(),
            ":limit": i64::try_from(left.min(asked.most)).unwrap_or(i64::MAX),
        })?;
        while let Some(found) = due.next()? {
            if self.has_enough(tally) {
                tally.is_cut = true;
                break;
            }
            let item = Waiting::read(found, asked.queue.as_ref())?;
            match item.key() {
                None => tally.unkeyed += 1,
                Some(_) => tally.heads += 1,
            }
            items.push(item);
        }
        Ok(Due { asked, items })
    }

    /// Whether the heads that were read can fill the claim with their runs; reading more, payload
    /// and all, would be for nothing. (That of deliveries is not read here.) A claim at a given
    /// moment (a test's) looks at everything.
    fn has_enough(&self, tally: &Tally) -> bool {
        let length = usize::try_from(self.ask.run_length()).unwrap_or(usize::MAX);
        self.ask.now.is_none()
            && self.ask.lanes.is_empty()
            && length > 1
            && tally.heads.saturating_mul(length) + tally.unkeyed >= self.limit
    }

    /// Takes what is due of a lane: of the heads as many as there is room for, with their runs.
    fn take_from(
        &self,
        due: Due<'_>,
        all_room: &mut usize,
        taken: &mut Vec<Waiting>,
    ) -> rusqlite::Result<()> {
        let (lane, seen) = (due.asked.lane, due.items.len());
        let mut keys = Vec::with_capacity(seen);
        let had = (*all_room).min(due.asked.most - due.unkeyed());
        let mut room = had;
        let mut runs = self.runs(&due, room)?;
        let mut followed: Vec<(String, i64)> = Vec::new();
        for item in due.items {
            let run = match item.key() {
                None => Vec::new(),
                Some(_) if room == 0 => continue,
                Some(key) => {
                    let mut run = runs.remove(key).unwrap_or_default();
                    run.truncate(room - 1);
                    room -= 1 + run.len();
                    followed.extend(run.iter().map(|item| (key.to_owned(), item.id.number())));
                    run
                }
            };
            keys.push((item.available_at.as_micros(), item.id.number()));
            taken.push(item);
            taken.extend(run);
        }
        *all_room -= had - room;
        self.remove(lane, &keys, keys.len() == seen)?;
        if !followed.is_empty() {
            self.connection
                .prepare_cached(sql::CLAIM_FOLLOWED)?
                .execute(named_params! {":run": json(&followed)})?;
        }
        Ok(())
    }

    /// Takes rows of a lane out of ready; all that was due, or some of it.
    fn remove(&self, lane: Lane, keys: &[(i64, i64)], is_all: bool) -> rusqlite::Result<()> {
        match keys.last() {
            Some((last_at, last_id)) if is_all => {
                self.connection
                    .prepare_cached(sql::CLAIM_TAKEN)?
                    .execute(named_params! {
                        ":lane": lane,
                        ":last_at": last_at,
                        ":last_id": last_id,
                    })?;
            }
            Some(_) => {
                self.connection
                    .prepare_cached(sql::CLAIM_TAKEN_SOME)?
                    .execute(named_params! {":lane": lane, ":some": json(keys)})?;
            }
            None => {}
        }
        Ok(())
    }

    /// The runs behind the heads of a lane, for as many of them as there may be room for.
    fn runs(&self, due: &Due<'_>, room: usize) -> rusqlite::Result<HashMap<String, Vec<Waiting>>> {
        let length = usize::try_from(self.ask.run_length()).unwrap_or(usize::MAX);
        let mut runs = HashMap::new();
        if length < 2 || self.ask.company == Company::Alone {
            return Ok(runs);
        }
        let heads: Vec<&Waiting> = due
            .items
            .iter()
            .filter(|item| item.key().is_some())
            .collect();
        let (mut rest, mut room) = (heads.as_slice(), room);
        // Where runs come out short, there is room for more heads than was thought.
        while room > 0 && !rest.is_empty() {
            let (some, others) = rest.split_at(room.div_ceil(length).min(rest.len()));
            let leaders = some.iter().filter(|head| may_lead(head));
            let keys: BTreeSet<&str> = leaders.filter_map(|head| head.key()).collect();
            let found = self.followers(due, &keys, length - 1)?;
            let taken: usize = some.len() + found.values().map(Vec::len).sum::<usize>();
            room = room.saturating_sub(taken);
            rest = others;
            runs.extend(found);
        }
        Ok(runs)
    }

    /// Up to `most` items that may be claimed behind each of these heads, in their order.
    fn followers(
        &self,
        due: &Due<'_>,
        keys: &BTreeSet<&str>,
        most: usize,
    ) -> rusqlite::Result<HashMap<String, Vec<Waiting>>> {
        let mut behind: HashMap<String, Vec<Follower>> = HashMap::new();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let mut statement = self.connection.prepare_cached(sql::CLAIM_FOLLOWERS)?;
        let mut rows = statement.query(named_params! {
            ":keys": json(keys),
            ":most": i64::try_from(most).unwrap_or(i64::MAX),
        })?;
        while let Some(found) = rows.next()? {
            let item = Waiting::read(found, due.asked.queue.as_ref())?;
            if let Some(key) = item.key().map(str::to_owned) {
                let follower = (item, found.get(14)?, found.get(15)?);
                behind.entry(key).or_default().push(follower);
            }
        }
        let may_follow = |(item, lane, turn): &Follower| {
            *lane == due.asked.lane && *turn == item.id.number() && item.available_at <= self.now
        };
        let run_of = |mut all: Vec<Follower>| {
            all.sort_by_key(|(_, _, turn)| *turn);
            let run = all.into_iter().take_while(may_follow);
            run.map(|(item, _, _)| item).collect()
        };
        Ok(behind
            .into_iter()
            .map(|(key, all)| (key, run_of(all)))
            .collect())
    }
}

/// Whether others are claimed behind it: not when it was tried before, or replayed.
fn may_lead(head: &Waiting) -> bool {
    head.counters.attempts == 0 && head.counters.generation == 0
}

fn write_lease(connection: &Connection, lease: &Lease, items: &[Waiting]) -> rusqlite::Result<()> {
    let mut ids: Vec<i64> = items.iter().map(|item| item.id.number()).collect();
    ids.sort_unstable();
    let mut runs = Runs::new();
    for item in items {
        if let Some(key) = item.key() {
            let run = runs.entry(key.to_owned()).or_default();
            run.push(item.id.number());
        }
    }
    connection
        .prepare_cached(sql::CLAIM_LEASE)?
        .execute(named_params! {
            ":token": lease.token.expose(),
            ":fence": lease.fence.number(),
            ":holder": lease.token.holder(),
            ":now": lease.claimed_at.as_micros(),
            ":until": lease.until.as_micros(),
            ":ids": json(&ids),
            ":domains": domains(&runs),
        })?;
    Ok(())
}
