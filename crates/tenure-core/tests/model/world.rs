//! The small world: a store of a few items, and everything that can happen to it in any order.
//!
//! There is no clock: any lease may reach the end of its term at any moment, which covers every
//! pause, skew and slow reaper. There is no network either: whatever the holder of a token could
//! ever have sent may arrive at any moment, any number of times or never, so a crashed worker, a
//! lost answer and a late repeat are all among the paths. What may happen is decided by [`Rules`].

use stateright::{Model, Property};
use tenure_core::{
    Boundary, Fence, Guarded, Lateness, Lease, State, Timestamp, Token, Word, WorkerId, may_reap,
    may_renew, may_settle,
};

use crate::laws::{Breach, Mover, breach_of_move, properties};
use crate::moment::{Db, GRANTS, Grant, ITEMS, Ids, LeaseRow, Moment, NOW, Row, Term};

/// What is decided by rules. The defaults are the shipped ones; a planted fault replaces one.
pub(crate) trait Rules: Clone + Send + Sync + 'static {
    /// The shipped guard of a renewal.
    fn may_renew(&self, lease: Option<&Lease>, ask: &Ask<'_>) -> Guarded {
        may_renew(lease, ask.token, NOW)
    }

    /// The shipped guard of a settle.
    fn may_settle(&self, lease: Option<&Lease>, ask: &Ask<'_>, lateness: Lateness) -> Guarded {
        may_settle(lease, ask.token, lateness, NOW)
    }

    /// The shipped guard of a reap, looked at again on the lease as it is at the write.
    fn may_reap(&self, lease: Option<&Lease>, boundary: Boundary) -> bool {
        lease.is_some_and(|lease| may_reap(lease.until, boundary, NOW))
    }

    /// The shipped table says what can be claimed.
    fn is_claimable(&self, state: State) -> bool {
        state.may_become(State::Claimed)
    }

    /// How many items a claim takes that asked for `limit`.
    fn claim_limit(&self, limit: usize) -> usize {
        limit
    }

    /// The token of the `grant`-th claim. Two workers take turns; no guard looks at the worker.
    fn token(&self, grant: u64) -> Token {
        let worker = WorkerId::new("w", grant % 2).expect("`w` is a worker's name");
        Token::new(&worker, grant / 2, u128::from(grant))
    }

    /// The fence that follows `last`.
    fn next_fence(&self, last: u8) -> u8 {
        last + 1
    }

    /// Whether a reap ends the lease along with the hold on its items.
    fn reap_ends_lease(&self) -> bool {
        true
    }

    /// Whether a replay brings back the hold that the item had when it was settled.
    fn replay_restores_hold(&self) -> bool {
        false
    }

    /// Whether a settle that took effect is remembered.
    fn remembers_settles(&self) -> bool {
        true
    }
}

/// The rules as they are shipped.
#[derive(Clone)]
pub(crate) struct Shipped;

impl Rules for Shipped {}

/// What a holder shows when it asks for something.
pub(crate) struct Ask<'a> {
    pub(crate) token: &'a Token,
    pub(crate) fence: Fence,
}

/// How much happens in a world; the smaller, the sooner it is exhausted.
#[derive(Clone)]
pub(crate) struct World<R> {
    pub(crate) rules: R,
    /// By grant.
    pub(crate) tokens: Vec<Token>,
    /// Claims in all.
    pub(crate) claims: u8,
    /// Replays in all.
    pub(crate) replays: u8,
    /// Burials in all.
    pub(crate) burials: u8,
    /// Whether a standby may take over once, with an older copy.
    pub(crate) failover: bool,
    /// Whether holders settle strictly.
    pub(crate) lateness: Lateness,
    /// A check that is left out, to see what harm follows from breaking it.
    pub(crate) unchecked: Option<Breach>,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A claim of up to `limit` items arrives; of the pending ones, those in `due` may be taken.
    Claim { limit: usize, due: Ids },
    /// A claim finds nothing pending, ends this lapsed lease and claims its items.
    ClaimReaping(usize),
    /// The term of a lease comes closer to its end, and then is past it.
    Wane(usize),
    /// A renewal arrives that the holder of this grant sent for this item.
    Renew(usize, usize),
    /// A settle arrives that the holder of this grant sent.
    Settle(usize, usize, Word),
    /// A release of all that is held under this grant's token arrives.
    ReleaseAll(usize),
    /// A reaper that had read this grant's lease as lapsed writes; the crash budget of `dead` is
    /// used up.
    ReapWrite { grant: usize, dead: Ids },
    /// An operator replays an item.
    Replay(usize),
    /// An operator buries an item.
    Bury(usize),
    /// The standby takes a copy.
    Copy,
    /// The primary is gone and the standby takes over.
    Failover,
}

impl<R: Rules> World<R> {
    /// Three claims and one replay.
    pub(crate) fn new(rules: R) -> Self {
        Self {
            tokens: (0_u64..)
                .map(|grant| rules.token(grant))
                .take(GRANTS)
                .collect(),
            rules,
            claims: 3,
            replays: 1,
            burials: 0,
            failover: false,
            lateness: Lateness::Accept,
            unchecked: None,
        }
    }

    fn ask(&self, moment: &Moment, grant: usize) -> Ask<'_> {
        Ask {
            token: &self.tokens[grant],
            fence: Fence::new(i64::from(moment.grant(grant).fence)),
        }
    }

    fn lease(&self, row: &LeaseRow) -> Lease {
        Lease {
            token: self.tokens[row.grant].clone(),
            fence: Fence::new(i64::from(row.fence)),
            claimed_at: Timestamp::from_micros(0),
            until: row.term.until(),
        }
    }

    /// Makes a move of the store and has the onlooker judge it.
    fn make(&self, moment: &mut Moment, mover: Mover, change: impl FnOnce(&mut Db)) {
        let before = moment.db;
        change(&mut moment.db);
        self.note(moment, breach_of_move(&before, &moment.db, mover));
    }

    fn note(&self, moment: &mut Moment, breach: Option<Breach>) {
        let breach = breach.filter(|breach| Some(*breach) != self.unchecked);
        moment.breach = moment.breach.or(breach);
    }

    fn claim(&self, moment: &mut Moment, limit: usize, ids: Ids) {
        let grant = moment.grants().count();
        let fence = self.rules.next_fence(moment.db.fence);
        moment.grants[grant] = Some(Grant { fence, ids });
        self.make(moment, Mover::Claim { grant, limit }, |db| {
            for id in ids.iter() {
                db.rows[id].state = State::Claimed;
            }
            db.fence = fence;
            db.fence_max = db.fence_max.max(fence);
            db.leases[grant] = Some(LeaseRow {
                grant,
                fence,
                term: Term::Ahead,
                ids,
            });
        });
        let is_reused = self.tokens[..grant].contains(&self.tokens[grant]);
        self.note(moment, is_reused.then_some(Breach::TokenTwice));
    }

    /// A claim that comes back empty ends a lapsed lease and claims in the same transaction.
    fn claim_reaping(&self, moment: &mut Moment, grant: usize) {
        self.reap(moment, grant, Boundary::Reached, Ids::default());
        let is_pending = |id: &usize| moment.db.rows[*id].state == State::Pending;
        let ids: Ids = (0..ITEMS).filter(is_pending).collect();
        if moment.breach.is_none() && !ids.is_empty() {
            self.claim(moment, ITEMS, ids);
        }
    }

    fn renew(&self, moment: &mut Moment, grant: usize, id: usize) {
        let Some(row) = moment.db.lease_on(id).copied() else {
            return;
        };
        let ask = self.ask(moment, grant);
        if self
            .rules
            .may_renew(Some(&self.lease(&row)), &ask)
            .is_kept()
        {
            let lease = row.grant;
            self.make(moment, Mover::Renew { grant, lease }, |db| {
                let term = Term::Ahead;
                db.leases[row.grant] = Some(LeaseRow { term, ..row });
            });
        }
    }

    fn settle(&self, moment: &mut Moment, grant: usize, id: usize, word: Word) {
        let lease = moment.db.lease_on(id).map(|row| self.lease(row));
        let ask = self.ask(moment, grant);
        let answer = self.rules.may_settle(lease.as_ref(), &ask, self.lateness);
        if answer.is_kept() {
            let next = match word {
                Word::Done => State::Done,
                Word::Dead => State::Dead,
                Word::Retry | Word::Release | Word::Lapsed | Word::Buried => State::Pending,
            };
            let remembers = self.rules.remembers_settles();
            self.make(moment, Mover::Settle(grant), |db| {
                db.unhold(id, next);
                if remembers {
                    db.journal.write(grant, id, word);
                }
            });
            moment.kept.write(grant, id, word);
        } else {
            // A repeat is answered from the journal and changes nothing.
            let is_kept = moment.db.journal.has(grant, id, word);
            let was_kept = moment.kept.has(grant, id, word);
            self.note(
                moment,
                (was_kept && !is_kept).then_some(Breach::OtherAnswer),
            );
        }
    }

    fn reap(&self, moment: &mut Moment, grant: usize, boundary: Boundary, dead: Ids) {
        let row = moment.db.leases[grant];
        let lease = row.map(|row| self.lease(&row));
        if !self.rules.may_reap(lease.as_ref(), boundary) {
            return;
        }
        let ids = row.map_or(moment.grant(grant).ids, |row| row.ids);
        let ends_lease = self.rules.reap_ends_lease();
        self.make(moment, Mover::Reap, |db| {
            for id in ids.iter() {
                let is_dead = dead.has(id);
                let state = if is_dead { State::Dead } else { State::Pending };
                if ends_lease {
                    db.unhold(id, state);
                } else {
                    db.rows[id].state = state;
                }
            }
        });
    }

    fn replay(&self, moment: &mut Moment, id: usize) {
        let keeps_hold = self.rules.replay_restores_hold();
        let holder = moment.db.journal.last_holder(id).filter(|_| keeps_hold);
        let hold = holder.map(|grant| LeaseRow {
            grant,
            fence: moment.grant(grant).fence,
            term: Term::Ahead,
            ids: moment.db.held_under(grant).with(id),
        });
        self.make(moment, Mover::Replay, |db| {
            db.rows[id].generation += 1;
            db.rows[id].state = State::Pending;
            if let Some(hold) = hold {
                db.leases[hold.grant] = Some(hold);
            }
        });
    }

    /// There is no way from pending to dead, so a pending item is claimed for the operator first.
    fn bury(&self, moment: &mut Moment, id: usize) {
        moment.burials += 1;
        if moment.db.rows[id].state == State::Pending {
            self.claim(moment, 1, Ids::default().with(id));
        }
        self.make(moment, Mover::Bury(id), |db| db.unhold(id, State::Dead));
    }

    fn wane(&self, moment: &mut Moment, grant: usize) {
        self.make(moment, Mover::Clock, |db| {
            db.leases[grant] = db.leases[grant].map(|row| LeaseRow {
                term: match row.term {
                    Term::Ahead => Term::Reached,
                    Term::Reached | Term::Past => Term::Past,
                },
                ..row
            });
        });
        // A reaper reads it at once, and its write comes whenever it comes: no later read could
        // lead to more.
        let is_past = |row: LeaseRow| row.term == Term::Past;
        moment.read[grant] = moment.db.leases[grant].is_some_and(is_past);
    }

    fn take(&self, moment: &mut Moment, step: Step) {
        match step {
            Step::Claim { limit, due } => {
                let ids = due.iter().take(self.rules.claim_limit(limit));
                self.claim(moment, limit, ids.collect());
            }
            Step::ClaimReaping(grant) => self.claim_reaping(moment, grant),
            Step::Wane(grant) => self.wane(moment, grant),
            Step::Renew(grant, id) => self.renew(moment, grant, id),
            Step::Settle(grant, id, word) => self.settle(moment, grant, id, word),
            Step::ReleaseAll(grant) => {
                for id in moment.db.held_under(grant).iter() {
                    self.settle(moment, grant, id, Word::Release);
                }
            }
            Step::ReapWrite { grant, dead } => self.reap(moment, grant, Boundary::Past, dead),
            Step::Replay(id) => self.replay(moment, id),
            Step::Bury(id) => self.bury(moment, id),
            Step::Copy => moment.standby = Some(moment.db),
            Step::Failover => {
                moment.failed_over = true;
                moment.db = moment.standby.take().expect("only a copy takes over");
                // Another timeline: what was answered on the old one is gone with it.
                moment.kept = moment.db.journal;
            }
        }
    }

    /// Any of the claimable items may be due and not locked by another claim.
    fn claims(&self, moment: &Moment, steps: &mut Vec<Step>) {
        // Operators' claims come on top.
        let claims = usize::from(self.claims + moment.burials).min(GRANTS);
        if moment.grants().count() >= claims {
            return;
        }
        let rows = moment.db.rows.iter().enumerate();
        let open: Ids = rows
            .filter_map(|(id, row)| self.rules.is_claimable(row.state).then_some(id))
            .collect();
        for due in open.subsets().filter(|due| !due.is_empty()) {
            steps.push(Step::Claim { limit: 1, due });
        }
        if open.count() > 1 {
            let limit = ITEMS;
            steps.push(Step::Claim { limit, due: open });
        }
        let is_empty = |row: &Row| row.state != State::Pending;
        if moment.db.rows.iter().all(is_empty) {
            steps.extend(moment.db.leases().map(|row| Step::ClaimReaping(row.grant)));
        }
    }

    /// What the holder of a grant may have sent at some time.
    fn asks(moment: &Moment, steps: &mut Vec<Step>) {
        for (number, grant) in moment.grants() {
            for id in grant.ids.iter() {
                steps.push(Step::Renew(number, id));
                for word in [Word::Done, Word::Retry, Word::Dead, Word::Release] {
                    steps.push(Step::Settle(number, id, word));
                }
            }
            steps.push(Step::ReleaseAll(number));
        }
    }

    fn reaps(moment: &Moment, steps: &mut Vec<Step>) {
        for row in moment.db.leases() {
            if row.term != Term::Past {
                steps.push(Step::Wane(row.grant));
            }
        }
        for (number, grant) in moment.grants().filter(|(number, _)| moment.read[*number]) {
            let writes = grant.ids.subsets().map(|dead| Step::ReapWrite {
                grant: number,
                dead,
            });
            steps.extend(writes);
        }
    }

    fn orders(&self, moment: &Moment, steps: &mut Vec<Step>) {
        let replays: u8 = moment.db.rows.iter().map(|row| row.generation).sum();
        for (id, row) in moment.db.rows.iter().enumerate() {
            if row.state.is_terminal() && replays < self.replays {
                steps.push(Step::Replay(id));
            }
            if !row.state.is_terminal() && moment.burials < self.burials {
                steps.push(Step::Bury(id));
            }
        }
        if self.failover && !moment.failed_over {
            let has_copy = moment.standby.is_some();
            steps.push(if has_copy { Step::Failover } else { Step::Copy });
        }
    }
}

impl<R: Rules> Model for World<R> {
    type State = Moment;
    type Action = Step;

    fn init_states(&self) -> Vec<Moment> {
        vec![Moment::first()]
    }

    fn actions(&self, moment: &Moment, steps: &mut Vec<Step>) {
        // A broken law ends the path, so that the first counterexample is not drowned.
        if moment.breach.is_none() {
            self.claims(moment, steps);
            Self::asks(moment, steps);
            Self::reaps(moment, steps);
            self.orders(moment, steps);
        }
    }

    fn next_state(&self, last: &Moment, step: Step) -> Option<Moment> {
        let mut moment = *last;
        self.take(&mut moment, step);
        (moment != *last).then_some(moment)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties(self.failover)
    }
}
