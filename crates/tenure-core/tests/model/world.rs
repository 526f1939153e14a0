//! The small world: a store of a few items, and everything that can happen to it in any order.
//!
//! There is no clock: any lease may reach the end of its term at any time, which covers every
//! pause, skew and slow reaper. There is no network either: any message that the holder of a token
//! could ever have sent may arrive at any time, any number of times or never, so a crashed worker,
//! a lost answer and a late repeat are all among the paths. [`Rules`] decide which steps are
//! allowed.

use stateright::{Model, Property};
use tenure_core::{
    Boundary, Fence, Guarded, Lateness, Lease, OutcomeKind, State, Timestamp, Token, WorkerId,
    may_reap, may_renew, may_settle,
};

use crate::laws::{Breach, Mover, breach_of_move, properties};
use crate::moment::{Db, GRANTS, Grant, ITEMS, Ids, LeaseRow, Moment, NOW, Row, Term};

/// Decisions of the rules. The defaults are the shipped rules; a planted fault replaces one of
/// them.
pub(crate) trait Rules: Clone + Send + Sync + 'static {
    /// The shipped guard of a renewal.
    fn may_renew(&self, lease: Option<&Lease>, request: &Request<'_>) -> Guarded {
        may_renew(lease, request.token, NOW)
    }

    /// The shipped guard of a settle.
    fn may_settle(
        &self,
        lease: Option<&Lease>,
        request: &Request<'_>,
        lateness: Lateness,
    ) -> Guarded {
        may_settle(lease, request.token, lateness, NOW)
    }

    /// The shipped guard of a reap. The store checks it again at the time of the write.
    fn may_reap(&self, lease: Option<&Lease>, boundary: Boundary) -> bool {
        lease.is_some_and(|lease| may_reap(lease.until, boundary, NOW))
    }

    /// Returns true if the shipped table allows a claim in this state.
    fn is_claimable(&self, state: State) -> bool {
        state.may_become(State::Claimed)
    }

    /// Maximum number of items that a claim with `limit` takes.
    fn claim_limit(&self, limit: usize) -> usize {
        limit
    }

    /// Token of the `grant`-th claim. Two workers alternate; no guard checks the worker.
    fn token(&self, grant: u64) -> Token {
        let worker = WorkerId::new("w", grant % 2).expect("`w` is a worker's name");
        Token::new(&worker, grant / 2, u128::from(grant))
    }

    /// The fence that follows `last`.
    fn next_fence(&self, last: u8) -> u8 {
        last + 1
    }

    /// Returns true if a reap removes the lease itself when it frees the items.
    fn reap_ends_lease(&self) -> bool {
        true
    }

    /// Returns true if a replay restores the lease that the item had when it was settled.
    fn replay_restores_hold(&self) -> bool {
        false
    }

    /// Returns true if the store remembers a settle.
    fn remembers_settles(&self) -> bool {
        true
    }
}

#[derive(Clone)]
pub(crate) struct Shipped;

impl Rules for Shipped {}

/// Credentials of a holder's request.
pub(crate) struct Request<'a> {
    pub(crate) token: &'a Token,
    pub(crate) fence: Fence,
}

/// Limits of a world. The checker exhausts a smaller world sooner.
#[derive(Clone)]
pub(crate) struct World<R> {
    pub(crate) rules: R,
    /// Tokens by grant.
    pub(crate) tokens: Vec<Token>,
    /// Maximum number of claims.
    pub(crate) claims: u8,
    /// Maximum number of replays.
    pub(crate) replays: u8,
    /// Maximum number of burials.
    pub(crate) burials: u8,
    /// A standby may take over once, with an older copy.
    pub(crate) failover: bool,
    /// Policy for settles after the end of the term.
    pub(crate) lateness: Lateness,
    /// A check to leave out, to show what follows from breaking its rule.
    pub(crate) unchecked: Option<Breach>,
}

/// Possible next steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A claim of up to `limit` items arrives; it may take those pending items that are in `due`.
    Claim { limit: usize, due: Ids },
    /// A claim finds nothing pending, ends this lapsed lease and claims its items.
    ClaimReaping(usize),
    /// Time passes for the lease of this grant: it reaches the end of its term, or goes past it.
    Wane(usize),
    /// A renewal that the holder of this grant sent for this item arrives.
    Renew(usize, usize),
    /// A settle that the holder of this grant sent arrives.
    Settle(usize, usize, OutcomeKind),
    /// A release of all items held under this grant's token arrives.
    ReleaseAll(usize),
    /// A reaper that had read this grant's lease as lapsed writes; the items in `dead` have used up
    /// their crashes.
    ReapWrite { grant: usize, dead: Ids },
    /// An operator replays an item.
    Replay(usize),
    /// An operator buries an item.
    Bury(usize),
    /// The standby takes a copy.
    Copy,
    /// The primary fails and the standby takes over.
    Failover,
}

impl<R: Rules> World<R> {
    /// Creates a world with three claims and one replay.
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

    fn request(&self, moment: &Moment, grant: usize) -> Request<'_> {
        Request {
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

    /// Takes a step of the store; the observer checks it.
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

    /// A claim that finds nothing pending ends a lapsed lease and claims its items, in one step.
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
        let request = self.request(moment, grant);
        if self
            .rules
            .may_renew(Some(&self.lease(&row)), &request)
            .is_accepted()
        {
            let lease = row.grant;
            self.make(moment, Mover::Renew { grant, lease }, |db| {
                let term = Term::Ahead;
                db.leases[row.grant] = Some(LeaseRow { term, ..row });
            });
        }
    }

    fn settle(&self, moment: &mut Moment, grant: usize, id: usize, outcome: OutcomeKind) {
        let lease = moment.db.lease_on(id).map(|row| self.lease(row));
        let request = self.request(moment, grant);
        let answer = self
            .rules
            .may_settle(lease.as_ref(), &request, self.lateness);
        if answer.is_accepted() {
            let next = match outcome {
                OutcomeKind::Done => State::Done,
                OutcomeKind::Dead => State::Dead,
                OutcomeKind::Retry
                | OutcomeKind::Release
                | OutcomeKind::Lapsed
                | OutcomeKind::Buried => State::Pending,
            };
            let remembers = self.rules.remembers_settles();
            self.make(moment, Mover::Settle(grant), |db| {
                db.unhold(id, next);
                if remembers {
                    db.journal.write(grant, id, outcome);
                }
            });
            moment.accepted.write(grant, id, outcome);
        } else {
            // A repeat is answered from the journal and changes nothing.
            let is_settled = moment.db.journal.has(grant, id, outcome);
            let was_accepted = moment.accepted.has(grant, id, outcome);
            self.note(
                moment,
                (was_accepted && !is_settled).then_some(Breach::OtherAnswer),
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

    /// There is no transition from pending to dead, so the operator first claims a pending item.
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
        // A reaper reads a lapsed lease at once and writes at any later time; a later read would
        // add no paths.
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
            Step::Settle(grant, id, outcome) => self.settle(moment, grant, id, outcome),
            Step::ReleaseAll(grant) => {
                for id in moment.db.held_under(grant).iter() {
                    self.settle(moment, grant, id, OutcomeKind::Release);
                }
            }
            Step::ReapWrite { grant, dead } => self.reap(moment, grant, Boundary::Past, dead),
            Step::Replay(id) => self.replay(moment, id),
            Step::Bury(id) => self.bury(moment, id),
            Step::Copy => moment.standby = Some(moment.db),
            Step::Failover => {
                moment.failed_over = true;
                moment.db = moment.standby.take().expect("the standby has a copy");
                // The failover starts another timeline, without the answers of the old one.
                moment.accepted = moment.db.journal;
            }
        }
    }

    /// Any subset of the claimable items may be due and not locked by another claim.
    fn claims(&self, moment: &Moment, steps: &mut Vec<Step>) {
        // Claims of operators are not limited by `claims`.
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

    /// Requests that the holder of a grant may have sent at some time.
    fn requests(moment: &Moment, steps: &mut Vec<Step>) {
        for (number, grant) in moment.grants() {
            for id in grant.ids.iter() {
                steps.push(Step::Renew(number, id));
                for outcome in [
                    OutcomeKind::Done,
                    OutcomeKind::Retry,
                    OutcomeKind::Dead,
                    OutcomeKind::Release,
                ] {
                    steps.push(Step::Settle(number, id, outcome));
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
        // A broken rule ends the path, so that the first counterexample stays visible.
        if moment.breach.is_none() {
            self.claims(moment, steps);
            Self::requests(moment, steps);
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
