//! The four verbs on the queue layout: each is one statement.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use tenure_core::store::{
    Answer, Claim, Company, LeaseStore, Reap, Reaped, Renew, Renewed, Rest, Settle, Settlement,
    StoreError, StoreErrorKind,
};
use tenure_core::{
    Content, Counters, Encoding, Event, Fence, Guarded, Held, Item, ItemId, Lateness, Lease,
    Outcome, Refusal, State, StoredEvent, Timestamp, Token, Word,
};

use super::PostgresStore;
use super::cursor::Start;
use super::directory::Directory;
use super::error::{breaks, store_error};
use super::row::{get, get_count, get_moment, get_timestamp, headers, moment};
use crate::error_text::error_text;
use crate::lane::{Lane, alone_lane, lanes, priority};

/// A claim that comes back short ends at most this many lapsed leases.
const INLINE_REAP_LIMIT: u32 = 100;

type Sql<'q> = Query<'q, Postgres, PgArguments>;

impl LeaseStore for PostgresStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        Box::pin(async move {
            let start = self.start(claim).await?;
            let query = self.statements().claim.query().bind(moment(claim.now));
            let rows = self
                .fetch("claim", bind_claim(query, claim, &start))
                .await?;
            self.finish_claim(claim, start, self.held(claim, &rows, 0).await?)
                .await
        })
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        Box::pin(async move {
            let tokens: Vec<&str> = renew.tokens.iter().map(Token::expose).collect();
            let query = self
                .statements()
                .renew
                .query()
                .bind(moment(renew.now))
                .bind(tokens)
                .bind(micros(renew.term.length()));
            let rows = self.fetch("renew", query).await?;
            let answers = rows
                .iter()
                .map(renewal)
                .collect::<Result<HashMap<_, _>, _>>();
            let answers = answers.map_err(|error| store_error("renew", error))?;
            let answer = |token: &Token| {
                answers
                    .get(token.expose())
                    .cloned()
                    .unwrap_or(Guarded::Refused(Refusal::Lost))
            };
            Ok(renew
                .tokens
                .iter()
                .map(|token| (token.clone(), answer(token)))
                .collect())
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        Box::pin(async move {
            settle.check()?;
            if let Some(ids) = whole_and_done(settle) {
                let query = self.statements().settle_done_and_claim.query();
                let query = query
                    .bind(moment(settle.now))
                    .bind(settle.token.expose())
                    .bind(ids);
                let rows = self.fetch("settle", bind_no_claim(query)).await?;
                if let Some(settlement) = self.settled_whole(settle, &rows)? {
                    return Ok(settlement);
                }
            }
            self.settle_each(settle).await
        })
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        Box::pin(async move {
            settle.check()?;
            let start = self.start(claim).await?;
            let Some(ids) = whole_and_done(settle) else {
                return self.settle_each_and_claim(settle, claim, start).await;
            };
            let query = self.statements().settle_done_and_claim.query();
            let query = query
                .bind(moment(settle.now))
                .bind(settle.token.expose())
                .bind(ids);
            let rows = self
                .fetch("settle", bind_claim(query, claim, &start))
                .await?;
            let held = self.held(claim, &rows, 2).await?;
            let settlement = match self.settled_whole(settle, &rows)? {
                Some(settlement) => settlement,
                None => self.settle_each(settle).await?,
            };
            Ok((settlement, self.finish_claim(claim, start, held).await?))
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        Box::pin(async move {
            let delays: Vec<i64> = reap.policy.delays().iter().copied().map(micros).collect();
            let query = self
                .statements()
                .reap
                .query()
                .bind(moment(reap.now))
                .bind(i64::from(reap.limit))
                .bind(reap.boundary == tenure_core::Boundary::Reached)
                .bind(count_param(reap.policy.max_crashes()))
                .bind(delays)
                .bind(count_param(reap.policy.alone_after()));
            let rows = self.fetch("reap", query).await?;
            let reaped = rows.iter().map(reaped).collect::<Result<_, _>>();
            reaped.map_err(|error| store_error("reap", error))
        })
    }
}

impl PostgresStore {
    async fn fetch(&self, verb: &'static str, query: Sql<'_>) -> Result<Vec<PgRow>, StoreError> {
        query.fetch_all(self.pool()).await.map_err(|error| {
            if breaks(&error, "tenure_leases_pkey") {
                return StoreError::new(
                    verb,
                    StoreErrorKind::Conflict,
                    "the token was used before",
                )
                .hint("every claim needs a new token; release what this one holds by it");
            }
            store_error(verb, error)
        })
    }

    /// Where this claim starts to look. With a given `now` (a test's) it looks at everything.
    async fn start(&self, claim: &Claim) -> Result<Start, StoreError> {
        let mut wanted: Vec<Lane> = Vec::new();
        for queue in &claim.queues {
            let number = self.queue_number("claim", queue).await?;
            match claim.company {
                Company::Together => wanted.extend(lanes(number)),
                Company::Alone => wanted.push(alone_lane(number)),
            }
        }
        let is_moved = claim.now.is_some();
        Ok(if is_moved {
            Start::front(wanted)
        } else {
            self.cursors().start(wanted)
        })
    }

    /// What remains to be done after a claim's statement: move the cursors; look again from the front
    /// if nothing came from behind them; reap if it came back short.
    async fn finish_claim(
        &self,
        claim: &Claim,
        start: Start,
        held: Option<Held>,
    ) -> Result<Option<Held>, StoreError> {
        let count = held.as_ref().map_or(0, |held| held.items.len());
        if count >= limit(claim) {
            return Ok(held);
        }
        self.cursors().drop_lanes(&start.lanes);
        let start = Start::front(start.lanes);
        let mut held = held;
        if held.is_none() {
            held = self.claim_from(claim, &start).await?;
        }
        let Some(policy) = claim.recovery.clone().filter(|_| claim.limit > 0) else {
            return Ok(held);
        };
        let mut reap = Reap::new(INLINE_REAP_LIMIT, policy).inline();
        reap.now = claim.now;
        let reaped = self.reap(&reap).await?;
        if held.is_none() && reaped.iter().any(|item| item.state == State::Pending) {
            held = self.claim_from(claim, &start).await?;
        }
        Ok(held)
    }

    async fn claim_from(&self, claim: &Claim, start: &Start) -> Result<Option<Held>, StoreError> {
        let query = self.statements().claim.query().bind(moment(claim.now));
        let rows = self.fetch("claim", bind_claim(query, claim, start)).await?;
        self.held(claim, &rows, 0).await
    }

    /// The rows of a claim, whose columns begin at `first`, as a lease in hand.
    async fn held(
        &self,
        claim: &Claim,
        rows: &[PgRow],
        first: usize,
    ) -> Result<Option<Held>, StoreError> {
        let directory = self.directory_for(rows, first).await?;
        let held = read_held(claim, rows, first, &directory);
        let (held, taken) = held.map_err(|error| store_error("claim", error))?;
        if claim.now.is_none() && taken.len() >= limit(claim) {
            self.cursors().advance(taken.into_iter());
        }
        Ok(held)
    }

    async fn settle_each(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        if settle.items.is_empty() && settle.rest == Rest::Keep {
            return Ok(Settlement::default());
        }
        let words = Words::of(settle);
        let query = words.bind(self.statements().settle.query(), settle);
        let rows = self.fetch("settle", query).await?;
        self.settlement(settle, &rows).await
    }

    async fn settle_each_and_claim(
        &self,
        settle: &Settle,
        claim: &Claim,
        start: Start,
    ) -> Result<(Settlement, Option<Held>), StoreError> {
        let words = Words::of(settle);
        let query = words.bind(self.statements().settle_and_claim.query(), settle);
        let rows = self
            .fetch("settle", bind_claim(query, claim, &start))
            .await?;
        let held = self.held(claim, &rows, 3).await?;
        let settlement = self.settlement(settle, &rows).await?;
        Ok((settlement, self.finish_claim(claim, start, held).await?))
    }

    /// The answer of the fast form; `None` when the lease was not exactly what was named.
    #[expect(clippy::unused_self, reason = "reads as one of the steps of a settle")]
    fn settled_whole(
        &self,
        settle: &Settle,
        rows: &[PgRow],
    ) -> Result<Option<Settlement>, StoreError> {
        let read = |row: &PgRow| Ok((get::<i64>(row, 0)? == 1, get::<bool>(row, 1)?));
        let answer = rows.first().map(read).transpose();
        let answer: Option<(bool, bool)> = answer.map_err(|error| store_error("settle", error))?;
        Ok(answer
            .filter(|(is_settled, _)| *is_settled)
            .map(|(_, late)| Settlement {
                items: settle
                    .items
                    .iter()
                    .map(|(id, _)| (*id, Guarded::Kept(())))
                    .collect(),
                rest: 0,
                late,
            }))
    }

    /// The answer of the general form, with a second look at what it refused.
    async fn settlement(&self, settle: &Settle, rows: &[PgRow]) -> Result<Settlement, StoreError> {
        let read = |row: &PgRow| {
            Ok((
                get::<bool>(row, 0)?,
                get::<i64>(row, 1)?,
                get::<Option<Vec<i64>>>(row, 2)?,
            ))
        };
        let answer = rows.first().map(read).transpose();
        let answer = answer.map_err(|error| store_error("settle", error))?;
        let (late, rest, refused) = answer.unwrap_or_default();
        let places = self
            .look(&settle.token, refused.unwrap_or_default())
            .await?;
        let judge = |(id, outcome): &(ItemId, Outcome)| {
            let answer = match places.get(id) {
                None => Guarded::Kept(()),
                Some(place) => place.answer(outcome.word()),
            };
            (*id, answer)
        };
        Ok(Settlement {
            items: settle.items.iter().map(judge).collect(),
            rest: u32::try_from(rest).unwrap_or(u32::MAX),
            late,
        })
    }

    /// Where these items are now, and what this token has said of them.
    pub(crate) async fn look(
        &self,
        token: &Token,
        ids: Vec<i64>,
    ) -> Result<HashMap<ItemId, Place>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let query = self
            .statements()
            .look
            .query()
            .bind(token.expose())
            .bind(ids);
        let rows = self.fetch("settle", query).await?;
        let places = rows.iter().map(Place::read).collect::<Result<_, _>>();
        places.map_err(|error| store_error("settle", error))
    }
}

/// Where an item is, and what a token has said of it.
#[derive(Debug)]
pub(crate) struct Place {
    is_mine: bool,
    word: Option<Word>,
    pub(crate) refusal: Refusal,
}

impl Place {
    fn read(row: &PgRow) -> Result<(ItemId, Self), sqlx::Error> {
        let (is_known, is_claimed) = (get::<bool>(row, 1)?, get::<bool>(row, 2)?);
        let refusal = if !is_known {
            Refusal::NotFound
        } else if is_claimed {
            Refusal::Lost
        } else if get::<bool>(row, 4)? {
            Refusal::NotClaimed
        } else {
            Refusal::AlreadySettled
        };
        let word = get::<Option<&str>>(row, 6)?.and_then(Word::parse);
        let place = Self {
            is_mine: get(row, 3)?,
            word,
            refusal,
        };
        Ok((ItemId::new(get(row, 0)?), place))
    }

    /// What a settle with this word is told: what was said before counts as said (law 9).
    fn answer(&self, word: Word) -> Guarded {
        if self.word == Some(word) {
            return Guarded::Kept(());
        }
        Guarded::Refused(if self.is_mine {
            Refusal::Lapsed
        } else {
            self.refusal
        })
    }
}

/// The ids, ascending, if all that is named is done: then the fast form may serve.
fn whole_and_done(settle: &Settle) -> Option<Vec<i64>> {
    let is_done = |(_, outcome): &(ItemId, Outcome)| *outcome == Outcome::Done;
    if settle.items.is_empty()
        || settle.lateness == Lateness::Refuse
        || !settle.items.iter().all(is_done)
    {
        return None;
    }
    let mut ids: Vec<i64> = settle.items.iter().map(|(id, _)| id.number()).collect();
    ids.sort_unstable();
    Some(ids)
}

/// A settle's items, sorted by word into the lists that the statement takes.
#[derive(Debug, Default)]
struct Words {
    done: Vec<i64>,
    retry: (Vec<i64>, Vec<i64>, Vec<String>),
    dead: (Vec<i64>, Vec<String>, Vec<String>),
    release: (Vec<i64>, Vec<i64>),
}

impl Words {
    fn of(settle: &Settle) -> Self {
        let mut words = Self::default();
        for (id, outcome) in &settle.items {
            match outcome {
                Outcome::Done => words.done.push(id.number()),
                Outcome::Retry { after, error } => {
                    words.retry.0.push(id.number());
                    words.retry.1.push(micros(*after));
                    words.retry.2.push(error_text(error));
                }
                Outcome::Dead { reason, error } => {
                    words.dead.0.push(id.number());
                    words.dead.1.push(error_text(reason));
                    words.dead.2.push(error_text(error));
                }
                Outcome::Release { after } => {
                    words.release.0.push(id.number());
                    words.release.1.push(micros(*after));
                }
            }
        }
        words
    }

    fn bind<'q>(self, query: Sql<'q>, settle: &'q Settle) -> Sql<'q> {
        let rest = match settle.rest {
            Rest::Keep => None,
            Rest::Done => Some(Word::Done.as_str()),
            Rest::Release => Some(Word::Release.as_str()),
        };
        query
            .bind(moment(settle.now))
            .bind(settle.token.expose())
            .bind(self.done)
            .bind(self.retry.0)
            .bind(self.retry.1)
            .bind(self.retry.2)
            .bind(self.dead.0)
            .bind(self.dead.1)
            .bind(self.dead.2)
            .bind(self.release.0)
            .bind(self.release.1)
            .bind(rest)
            .bind(settle.lateness == Lateness::Refuse)
    }
}

fn bind_claim<'q>(query: Sql<'q>, claim: &'q Claim, start: &Start) -> Sql<'q> {
    query
        .bind(claim.token.expose())
        .bind(claim.token.holder())
        .bind(micros(claim.term.length()))
        .bind(i64::try_from(limit(claim)).unwrap_or(0))
        .bind(start.lanes.clone())
        .bind(start.at.clone())
        .bind(start.ids.clone())
}

/// The fast form with no lanes claims nothing.
fn bind_no_claim(query: Sql<'_>) -> Sql<'_> {
    let start = Start::front(Vec::new());
    query
        .bind("")
        .bind("")
        .bind(0_i64)
        .bind(0_i64)
        .bind(start.lanes)
        .bind(start.at)
        .bind(start.ids)
}

fn limit(claim: &Claim) -> usize {
    let most = if claim.company == Company::Alone {
        1
    } else {
        Claim::LIMIT_MAX
    };
    usize::try_from(claim.limit.min(most)).unwrap_or(0)
}

type Taken = Vec<(Lane, Timestamp, i64)>;

/// The rows of a claim as a lease in hand, in the order of the lanes that were asked, and what was
/// taken from which lane.
fn read_held(
    claim: &Claim,
    rows: &[PgRow],
    first: usize,
    directory: &Directory,
) -> Result<(Option<Held>, Taken), sqlx::Error> {
    let mut lease = None;
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(id) = get::<Option<i64>>(row, first)? else {
            continue;
        };
        if lease.is_none() {
            lease = Some(Lease {
                token: claim.token.clone(),
                fence: Fence::new(get(row, first + 3)?),
                claimed_at: get_timestamp(row, first + 4)?,
                until: get_timestamp(row, first + 5)?,
            });
        }
        let lane: Lane = get(row, first + 1)?;
        items.push((lane, read_item(row, first, id, directory)?));
    }
    let taken = items
        .iter()
        .map(|(lane, item)| (*lane, item.available_at, item.id.number()))
        .collect();
    let rank = |lane: Lane| (claim_rank(claim, directory, lane), lane);
    items.sort_by_key(|(lane, item)| (rank(*lane), item.available_at, item.id));
    let items = items.into_iter().map(|(_, item)| item).collect();
    Ok((lease.map(|lease| Held { lease, items }), taken))
}

/// The place of a lane's queue in the order in which the claim named them.
fn claim_rank(claim: &Claim, directory: &Directory, lane: Lane) -> usize {
    let name = directory.name(lane);
    claim
        .queues
        .iter()
        .position(|queue| Some(queue) == name)
        .unwrap_or(usize::MAX)
}

fn read_item(
    row: &PgRow,
    first: usize,
    id: i64,
    directory: &Directory,
) -> Result<Item, sqlx::Error> {
    let own_lane: Lane = get(row, first + 9)?;
    let event = StoredEvent {
        event_id: get(row, first + 6)?,
        topic: get(row, first + 7)?,
        ordering_key: get(row, first + 8)?,
        queue: directory.name(own_lane).cloned().unwrap_or_default(),
        priority: priority(own_lane),
        payload: get(row, first + 10)?,
        headers: headers(get(row, first + 11)?),
        encoding: get::<Option<&str>>(row, first + 12)?.and_then(Encoding::parse),
    };
    Ok(Item {
        id: ItemId::new(id),
        content: Content::Event(Event::from(event)),
        available_at: get_timestamp(row, first + 2)?,
        counters: Counters {
            attempts: get_count(row, first + 13)?,
            failures: get_count(row, first + 14)?,
            crashes: get_count(row, first + 15)?,
            generation: get_count(row, first + 16)?,
        },
    })
}

fn renewal(row: &PgRow) -> Result<(String, Guarded<Renewed>), sqlx::Error> {
    let answer = match get::<Option<i64>>(row, 2)? {
        Some(fence) => Guarded::Kept(Renewed {
            fence: Fence::new(fence),
            until: get_timestamp(row, 3)?,
            ids: get::<Vec<i64>>(row, 4)?
                .into_iter()
                .map(ItemId::new)
                .collect(),
        }),
        None if get(row, 1)? => Guarded::Refused(Refusal::Lapsed),
        None => Guarded::Refused(Refusal::Lost),
    };
    Ok((get(row, 0)?, answer))
}

fn reaped(row: &PgRow) -> Result<Reaped, sqlx::Error> {
    let is_dead: bool = get(row, 4)?;
    Ok(Reaped {
        id: ItemId::new(get(row, 0)?),
        holder: get(row, 1)?,
        fence: Fence::new(get(row, 2)?),
        stale: Duration::from_micros(u64::try_from(get::<i64>(row, 6)?).unwrap_or(0)),
        state: if is_dead { State::Dead } else { State::Pending },
        available_at: get_moment(row, 5)?,
    })
}

/// A duration in whole microseconds, as the statements take it.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// A count as the statements take it.
fn count_param(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
