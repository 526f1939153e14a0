//! Claim, inside its transaction.
//!
//! The claim reads due items from ready, lane by lane. It takes every item without a key; the heads
//! of keys share the rest of the limit in their order, each with a run of the items behind it. The
//! lane of an endpoint has its own limit, too. Events of topics that the claim does not take move
//! into lanes of their own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, named_params};
use tenure_core::store::{Claim, Isolation, Reap, StoreError};
use tenure_core::{Held, Lease, QueueName, Timestamp};

use super::error::failed;
use super::holds::{Runs, ids_by_key, json};
use super::intake::number_for;
use super::queue::{LaneRequest, check_fresh, draw_fence, lanes_of};
use super::reap::reap;
use super::row::{RowContent, Waiting};
use super::{sources, statements as sql};
use crate::lane::{Lane, same_step};
use crate::limits::{INLINE_REAP_LIMIT, SEPARATE_TOPICS_MAX, STRAY_DELAY};

/// Events that a claim may set aside in one transaction: the writer has other work, too.
const STRAYS_MAX: usize = 5_000;

/// The answer of a claim.
pub(super) enum ClaimAnswer {
    Held(Option<Held>),
    /// The claim only set events aside, and there may be more.
    OnlyStrays,
}

pub(super) fn claim(
    connection: &Connection,
    ask: &Claim,
    now: Timestamp,
) -> Result<ClaimAnswer, StoreError> {
    let lanes = lanes_of(connection, ask)?;
    let limit = usize::try_from(ask.most()).unwrap_or(usize::MAX);
    if limit == 0 || ask.topics.is_empty() {
        return Ok(ClaimAnswer::Held(None));
    }
    let taking = ClaimInProgress {
        connection,
        ask,
        limit,
        now,
        strays: Strays::default(),
    };
    let (mut items, mut is_cut) = taking.take(&lanes).map_err(failed("claim"))?;
    if let (true, Some(policy)) = (items.len() < limit && !is_cut, &ask.recovery) {
        let lapsed = Reap::new(INLINE_REAP_LIMIT, policy.clone()).inline();
        ask.tell_recovered(reap(connection, &lapsed, now)?);
        // Add reaped items only to an empty claim: added to other items, they would break the
        // order.
        if items.is_empty() {
            (items, is_cut) = taking.take(&lanes).map_err(failed("claim"))?;
        }
    }
    if items.is_empty() {
        return Ok(if taking.strays.is_over() {
            ClaimAnswer::OnlyStrays
        } else {
            ClaimAnswer::Held(None)
        });
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
    Ok(ClaimAnswer::Held(Some(held)))
}

/// A claim that moves items out of ready and the backlog.
struct ClaimInProgress<'a> {
    connection: &'a Connection,
    ask: &'a Claim,
    limit: usize,
    now: Timestamp,
    strays: Strays,
}

/// Events that a claim sets aside.
#[derive(Default)]
struct Strays {
    /// Number set aside so far.
    count: Cell<usize>,
    /// Numbers of their topics; `None`: the topic cannot become separate.
    numbers: RefCell<HashMap<(QueueName, String), Option<i32>>>,
}

impl Strays {
    fn is_over(&self) -> bool {
        self.count.get() >= STRAYS_MAX
    }
}

/// Due items of a lane, oldest first.
struct Due<'a> {
    request: &'a LaneRequest,
    items: Vec<Waiting>,
}

impl Due<'_> {
    /// Number of items without a key; the claim takes all of them.
    fn unkeyed(&self) -> usize {
        self.items
            .iter()
            .filter(|item| item.key().is_none())
            .count()
    }
}

/// Progress of reading ready.
#[derive(Default)]
struct ReadProgress {
    heads: usize,
    unkeyed: usize,
    /// True if due items remain unread.
    is_cut: bool,
}

/// An item behind a head, with its lane and turn.
type Follower = (Waiting, Lane, i64);

impl ClaimInProgress<'_> {
    /// Moves due items out of ready, lane by lane, and their runs out of the backlog, up to the
    /// limit. The flag is true if due items within the limit remain unread.
    fn take(&self, lanes: &[LaneRequest]) -> rusqlite::Result<(Vec<Waiting>, bool)> {
        let mut all: Vec<Due<'_>> = Vec::new();
        let mut left = self.limit;
        let mut progress = ReadProgress::default();
        for request in lanes {
            if left == 0 || progress.is_cut {
                break;
            }
            let due = self.due(request, left, &mut progress)?;
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
        Ok((taken, progress.is_cut))
    }

    fn due<'b>(
        &self,
        request: &'b LaneRequest,
        left: usize,
        progress: &mut ReadProgress,
    ) -> rusqlite::Result<Due<'b>> {
        let limit = left.min(request.most);
        let mut rows = limit;
        loop {
            let (items, strays) = self.read(request, (limit, rows), progress)?;
            if strays.is_empty() {
                return Ok(Due { request, items });
            }
            self.set_aside(request, &strays)?;
            if !items.is_empty() || self.strays.is_over() {
                // Items of the claim remain behind those that were set aside.
                progress.is_cut = true;
                return Ok(Due { request, items });
            }
            rows = rows.max(STRAYS_MAX / 5);
        }
    }

    /// Reads up to `rows` due items of a lane: up to `limit` that the claim takes, and the others.
    fn read(
        &self,
        request: &LaneRequest,
        (limit, rows): (usize, usize),
        progress: &mut ReadProgress,
    ) -> rusqlite::Result<(Vec<Waiting>, Vec<Waiting>)> {
        let (mut items, mut strays) = (Vec::new(), Vec::new());
        let mut statement = self.connection.prepare_cached(sql::CLAIM_DUE)?;
        let mut due = statement.query(named_params! {
            ":lane": request.lane,
            ":now": self.now.as_micros(),
            ":limit": i64::try_from(rows).unwrap_or(i64::MAX),
        })?;
        while let Some(found) = due.next()? {
            if self.has_enough(progress) || items.len() >= limit {
                progress.is_cut = true;
                break;
            }
            let item = Waiting::read(found, request.queue.as_ref())?;
            if !self.takes(&item) {
                strays.push(item);
                continue;
            }
            match item.key() {
                None => progress.unkeyed += 1,
                Some(_) => progress.heads += 1,
            }
            items.push(item);
        }
        Ok((items, strays))
    }

    /// Returns true if the claim takes the topic of this item.
    fn takes(&self, item: &Waiting) -> bool {
        match &item.content {
            RowContent::Event(event) => self.ask.topics.takes(event.topic()),
            RowContent::Delivery { .. } => true,
        }
    }

    /// Moves events from the lane of their queue into the lanes of their topics.
    fn set_aside(&self, request: &LaneRequest, strays: &[Waiting]) -> rusqlite::Result<()> {
        let mut moved: Vec<(i64, Lane, i64)> = Vec::with_capacity(strays.len());
        for item in strays {
            let RowContent::Event(event) = &item.content else {
                continue;
            };
            let number = self.separate(event.queue(), event.topic())?;
            let (lane, at) = match number {
                Some(number) => (same_step(request.lane, number), item.available_at),
                // With too many separate topics, the event waits in the lane of its queue.
                None => (request.lane, self.now.after(STRAY_DELAY)),
            };
            moved.push((item.id.number(), lane, at.as_micros()));
        }
        let places = strays.iter();
        let places = places.map(|item| (item.available_at.as_micros(), item.id.number()));
        self.remove(request.lane, &places.collect::<Vec<_>>(), false)?;
        for text in [sql::SET_ASIDE_LANES, sql::SET_ASIDE_READY] {
            let mut statement = self.connection.prepare_cached(text)?;
            statement.execute(named_params! {":strays": json(&moved)})?;
        }
        self.strays
            .count
            .set(self.strays.count.get() + strays.len());
        Ok(())
    }

    /// Returns the number of a separate topic; `None` if the queue has too many.
    fn separate(&self, queue: &QueueName, topic: &str) -> rusqlite::Result<Option<i32>> {
        let name = (queue.clone(), topic.to_owned());
        if let Some(number) = self.strays.numbers.borrow().get(&name) {
            return Ok(*number);
        }
        self.connection
            .prepare_cached(sql::SEPARATE)?
            .execute(named_params! {
                ":name": queue.as_str(), ":topic": topic, ":most": SEPARATE_TOPICS_MAX,
            })?;
        let queue_number = number_for(self.connection, queue, "")?;
        let number = number_for(self.connection, queue, topic)?;
        let number = number.filter(|number| Some(*number) != queue_number);
        self.strays.numbers.borrow_mut().insert(name, number);
        Ok(number)
    }

    /// Returns true if the heads read so far can fill the claim with their runs; reading further
    /// rows and their payloads would be wasted. Deliveries are exempt: their payload is not read
    /// here. So is a claim at a given moment (in a test), which looks at everything.
    fn has_enough(&self, progress: &ReadProgress) -> bool {
        let length = usize::try_from(self.ask.run_length()).unwrap_or(usize::MAX);
        self.ask.now.is_none()
            && self.ask.lanes.is_empty()
            && length > 1
            && progress.heads.saturating_mul(length) + progress.unkeyed >= self.limit
    }

    /// Takes the due items of a lane: all without a key, and the heads that fit, with their runs.
    fn take_from(
        &self,
        due: Due<'_>,
        all_room: &mut usize,
        taken: &mut Vec<Waiting>,
    ) -> rusqlite::Result<()> {
        let (lane, seen) = (due.request.lane, due.items.len());
        let mut keys = Vec::with_capacity(seen);
        let had = (*all_room).min(due.request.most - due.unkeyed());
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

    /// Deletes rows of a lane from ready: all up to the last of these, or only these.
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

    /// Returns the runs behind the heads of a lane, for the heads that may fit.
    fn runs(&self, due: &Due<'_>, room: usize) -> rusqlite::Result<HashMap<String, Vec<Waiting>>> {
        let length = usize::try_from(self.ask.run_length()).unwrap_or(usize::MAX);
        let mut runs = HashMap::new();
        if length < 2 || self.ask.isolation == Isolation::Isolated {
            return Ok(runs);
        }
        let heads: Vec<&Waiting> = due
            .items
            .iter()
            .filter(|item| item.key().is_some())
            .collect();
        let (mut rest, mut room) = (heads.as_slice(), room);
        // Short runs leave room for more heads than estimated.
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

    /// Returns up to `most` claimable items behind each of these heads, in order.
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
            let item = Waiting::read(found, due.request.queue.as_ref())?;
            if let Some(key) = item.key().map(str::to_owned) {
                let follower = (item, found.get(14)?, found.get(15)?);
                behind.entry(key).or_default().push(follower);
            }
        }
        let may_follow = |(item, lane, turn): &Follower| {
            let is_next = *lane == due.request.lane && *turn == item.id.number();
            is_next && item.available_at <= self.now && self.takes(item)
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

/// Returns true if a run may follow this head: not after an attempt or a replay.
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
            ":ids_by_key": ids_by_key(&runs),
        })?;
    Ok(())
}
