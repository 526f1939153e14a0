//! Settle, inside its transaction.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, named_params};
use tenure_core::store::{Rest, Settle, Settlement, StoreError};
use tenure_core::{
    Fate, Guarded, ItemId, Lateness, OnDead, Outcome, OutcomeKind, Refusal, Timestamp, settle_run,
};

use super::calls;
use super::error::failed;
use super::fan_out::FanOut;
use super::holds::{Ends, IdsByOutcome, Leased, ReturnTo, Runs, json};
use super::item_states::look;
use super::statements as sql;
use super::turns::Turns;

/// Settles items. The caller has checked that no item is named twice.
pub(super) fn settle(
    connection: &Connection,
    ask: &Settle,
    now: Timestamp,
) -> Result<Settlement, StoreError> {
    try_settle(connection, ask, now).map_err(failed("settle"))
}

fn try_settle(
    connection: &Connection,
    ask: &Settle,
    now: Timestamp,
) -> rusqlite::Result<Settlement> {
    let lease = lease_of(connection, ask.token.expose())?;
    let settlement = if let Some(lease) = &lease {
        settle_lease(connection, ask, lease, now)?
    } else {
        let none_held = vec![false; ask.items.len()];
        answer(connection, ask, &none_held, Guarded::Accepted(()))?
    };
    if !ask.calls.is_empty() {
        calls::settled(connection, ask, &settlement, now)?;
    }
    Ok(settlement)
}

fn settle_lease(
    connection: &Connection,
    ask: &Settle,
    lease: &Leased,
    now: Timestamp,
) -> rusqlite::Result<Settlement> {
    let share = Share::of(ask, lease)?;
    let is_over = lease.until <= now;
    if is_over && ask.lateness == Lateness::Refuse {
        let lapsed = Guarded::Refused(Refusal::Lapsed);
        return answer(connection, ask, &share.is_held, lapsed);
    }
    let mut settling = Settling::new(lease, ask.on_dead, now)?;
    let rest = settling.hear(ask, &share);
    let fan_out = FanOut::of(ask, settling.said.get(&OutcomeKind::Done));
    settling.write(connection)?;
    fan_out.write(connection, now)?;
    let early = settling.early;
    let mut settlement = answer(connection, ask, &share.is_held, Guarded::Accepted(()))?;
    for (id, answer) in &mut settlement.items {
        if early.contains(&id.number()) {
            *answer = Guarded::Refused(Refusal::OutOfTurn);
        }
    }
    Ok(Settlement {
        rest,
        late: is_over && settling.has_ended,
        ..settlement
    })
}

fn lease_of(connection: &Connection, token: &str) -> rusqlite::Result<Option<Leased>> {
    connection
        .prepare_cached(sql::SETTLE_LEASE)?
        .query_row(named_params! {":token": token}, |row| {
            Leased::read(token.to_owned(), row, 0)
        })
        .optional()
}

/// The named items that the lease holds, and its other items.
struct Share {
    is_held: Vec<bool>,
    unnamed: Vec<i64>,
}

impl Share {
    fn of(ask: &Settle, lease: &Leased) -> rusqlite::Result<Self> {
        let mut named: Vec<i64> = ask.items.iter().map(|(id, _)| id.number()).collect();
        named.sort_unstable();
        // Common case: the settle names the whole lease. Then the texts are equal, and nothing is
        // parsed.
        if json(&named) == lease.ids {
            return Ok(Self {
                is_held: vec![true; named.len()],
                unnamed: Vec::new(),
            });
        }
        let mut unnamed = lease.held()?;
        let is_held = ask
            .items
            .iter()
            .map(|(id, _)| unnamed.binary_search(&id.number()).is_ok())
            .collect();
        unnamed.retain(|id| named.binary_search(id).is_err());
        Ok(Self { is_held, unnamed })
    }
}

/// A settle that is being applied to a lease.
struct Settling<'a> {
    lease: &'a Leased,
    on_dead: OnDead,
    now: Timestamp,
    runs: Runs,
    /// Outcomes of keyed items, collected before runs are decided; true if the settle names the
    /// item.
    words: HashMap<i64, (Outcome, bool)>,
    said: IdsByOutcome,
    ends: Ends,
    turns: Turns,
    /// Items that stay held.
    left: Vec<i64>,
    /// Items named although an earlier item of their key is not settled.
    early: HashSet<i64>,
    has_ended: bool,
}

impl<'a> Settling<'a> {
    fn new(lease: &'a Leased, on_dead: OnDead, now: Timestamp) -> rusqlite::Result<Self> {
        Ok(Self {
            lease,
            on_dead,
            now,
            runs: lease.runs()?,
            words: HashMap::new(),
            said: IdsByOutcome::new(),
            ends: Ends::default(),
            turns: Turns::default(),
            left: Vec::new(),
            early: HashSet::new(),
            has_ended: false,
        })
    }

    /// Decides the fate of every item; returns the number of unnamed items that it ended.
    fn hear(&mut self, ask: &Settle, share: &Share) -> u32 {
        let for_rest = match ask.rest {
            Rest::Keep => None,
            Rest::Done => Some(Outcome::Done),
            Rest::Release => Some(Outcome::RELEASE),
        };
        let keyed: HashSet<i64> = self.runs.values().flatten().copied().collect();
        for ((id, outcome), is_held) in ask.items.iter().zip(&share.is_held) {
            let id = id.number();
            match is_held {
                false => {}
                true if keyed.contains(&id) => {
                    self.words.insert(id, (outcome.clone(), true));
                }
                true => self.say(id, outcome, ReturnTo::Ready),
            }
        }
        let mut rest = 0;
        for id in &share.unnamed {
            match &for_rest {
                Some(outcome) if keyed.contains(id) => {
                    self.words.insert(*id, (outcome.clone(), false));
                }
                Some(outcome) => {
                    self.say(*id, outcome, ReturnTo::Ready);
                    rest += 1;
                }
                None if keyed.contains(id) => {}
                None => self.left.push(*id),
            }
        }
        for (key, run) in std::mem::take(&mut self.runs) {
            rest += self.settle_run(key, &run);
        }
        self.left.sort_unstable();
        rest
    }

    /// Decides the fate of the items of a key; returns the number of unnamed items that it ended.
    fn settle_run(&mut self, key: String, run: &[i64]) -> u32 {
        let words: Vec<Option<OutcomeKind>> = run
            .iter()
            .map(|id| self.words.get(id).map(|(outcome, _)| outcome.kind()))
            .collect();
        let (fates, _) = settle_run(&words, self.on_dead);
        let mut rest = 0;
        for (id, fate) in run.iter().zip(&fates) {
            let word = self.words.remove(id);
            let is_named = word.as_ref().is_none_or(|(_, is_named)| *is_named);
            if fate.is_refused() && is_named {
                self.early.insert(*id);
            }
            match (fate, word) {
                (Fate::Held | Fate::OutOfTurn, _) => self.left.push(*id),
                (Fate::OutOfTurnBehind, _) | (_, None) => {
                    self.say(*id, &Outcome::RELEASE, ReturnTo::Behind);
                }
                (_, Some((outcome, _))) => {
                    self.say(*id, &outcome, ReturnTo::Behind);
                    rest += u32::from(!is_named);
                }
            }
        }
        self.turns.note(key, run.iter().copied().zip(fates));
        rest
    }

    fn say(&mut self, id: i64, outcome: &Outcome, back: ReturnTo) {
        self.has_ended = true;
        self.said.entry(outcome.kind()).or_default().push(id);
        self.ends.say(id, outcome, back, self.now);
    }

    /// Writes all changes, if any.
    fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if !self.has_ended {
            return Ok(());
        }
        self.lease.keep(connection, &self.left)?;
        for (word, ids) in std::mem::take(&mut self.said) {
            self.lease.note(connection, word, ids, self.now)?;
        }
        std::mem::take(&mut self.ends).write(connection, self.now)?;
        std::mem::take(&mut self.turns).write(connection, self.now)
    }
}

/// Answers each named item: with `for_held` if the token held it; otherwise with the earlier
/// answer, if the token reported the same outcome before; otherwise by the state of the item.
fn answer(
    connection: &Connection,
    ask: &Settle,
    is_held: &[bool],
    for_held: Guarded,
) -> rusqlite::Result<Settlement> {
    let others: Vec<(ItemId, OutcomeKind)> = ask
        .items
        .iter()
        .zip(is_held)
        .filter(|(_, is_held)| !**is_held)
        .map(|((id, outcome), _)| (*id, outcome.kind()))
        .collect();
    let mut for_others = look(connection, ask.token.expose(), &others)?.into_iter();
    let items = ask
        .items
        .iter()
        .zip(is_held)
        .map(|((id, _), is_held)| {
            let known = if *is_held {
                Some(for_held)
            } else {
                for_others.next()
            };
            (*id, known.unwrap_or(Guarded::Refused(Refusal::NotFound)))
        })
        .collect();
    Ok(Settlement {
        items,
        ..Settlement::default()
    })
}
