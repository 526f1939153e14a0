//! Planted faults: each replaces one shipped rule by a plausible wrong one. The model must find the
//! broken rule of `LeaseStore` and the shortest path to it.

use stateright::{Checker, HasDiscoveries, Model};
use tenure_core::{Boundary, Guarded, Lateness, Lease, Refusal, State, Token, WorkerId};

use crate::laws::{Breach, name};
use crate::world::{Request, Rules, Step, World};
use crate::{exhaust, report};

/// Returns the shortest path on which this world breaks `law`, step by step.
///
/// The checker runs with one more step at a time. Without that bound it would report the last
/// counterexample it met, which is longer.
fn shortest_way<R: Rules>(world: &World<R>, law: Breach) -> Vec<Step> {
    for depth in 2..16 {
        let checker = world
            .clone()
            .checker()
            .target_max_depth(depth)
            .finish_when(HasDiscoveries::AllOf([name(law)].into()))
            .spawn_bfs()
            .join();
        if let Some(path) = checker.discovery(name(law)) {
            return path.into_actions();
        }
    }
    panic!("the planted fault was not caught");
}

/// Prints how a planted fault breaks a rule; fails if it does not.
fn catch<R: Rules>(fault: &str, world: &World<R>, law: Breach) {
    let steps = shortest_way(world, law);
    let lines: Vec<_> = steps.iter().map(|step| format!("    {step:?}")).collect();
    let law = name(law);
    report(&format!(
        "planted: {fault}; breaks {law}\n{}",
        lines.join("\n")
    ));
}

/// Settles by id alone, whatever the lease.
#[derive(Clone)]
struct SettlesById;

impl Rules for SettlesById {
    fn may_settle(&self, _: Option<&Lease>, _: &Request<'_>, _: Lateness) -> Guarded {
        Guarded::Accepted(())
    }
}

#[test]
fn a_settle_by_id_alone_is_caught() {
    let world = World::new(SettlesById);
    catch("settle by id alone", &world, Breach::StaleWrite);
}

/// Settles any claimed item, without checking the holder.
#[derive(Clone)]
struct SettlesClaimed;

impl Rules for SettlesClaimed {
    fn may_settle(&self, lease: Option<&Lease>, _: &Request<'_>, _: Lateness) -> Guarded {
        match lease {
            None => Guarded::Refused(Refusal::NotClaimed),
            Some(_) => Guarded::Accepted(()),
        }
    }
}

#[test]
fn a_settle_by_id_and_state_is_caught() {
    let world = World::new(SettlesClaimed);
    catch("settle by id and state", &world, Breach::StaleWrite);
}

/// Compares the fence instead of the token.
#[derive(Clone)]
struct ComparesFences;

impl Rules for ComparesFences {
    fn may_settle(&self, lease: Option<&Lease>, request: &Request<'_>, _: Lateness) -> Guarded {
        match lease {
            Some(lease) if lease.fence == request.fence => Guarded::Accepted(()),
            _ => Guarded::Refused(Refusal::Lost),
        }
    }
}

#[test]
fn a_guard_that_compares_fences_is_caught_by_a_failover() {
    let world = World {
        failover: true,
        claims: 2,
        ..World::new(ComparesFences)
    };
    catch("fence-only guard, failover", &world, Breach::StaleWrite);
}

/// Only a failover exposes this fault, so worlds without a failover are not enough.
#[test]
fn a_guard_that_compares_fences_holds_while_nothing_fails_over() {
    let world = World {
        claims: 2,
        ..World::new(ComparesFences)
    };
    exhaust("fence-only guard, no failover", world);
}

/// Reads lapsed leases and later makes their items pending again by id, without another check.
#[derive(Clone)]
struct ReapsUnguarded;

impl Rules for ReapsUnguarded {
    fn may_reap(&self, _: Option<&Lease>, boundary: Boundary) -> bool {
        boundary == Boundary::Past
    }
}

#[test]
fn a_reaper_without_guard_is_caught() {
    let world = World::new(ReapsUnguarded);
    catch("reaper without guard", &world, Breach::Reopened);
}

/// Ends leases regardless of their term.
#[derive(Clone)]
struct ReapsLive;

impl Rules for ReapsLive {
    fn may_reap(&self, lease: Option<&Lease>, _: Boundary) -> bool {
        lease.is_some()
    }
}

#[test]
fn a_reap_of_a_live_lease_is_caught() {
    let world = World::new(ReapsLive);
    catch("reap of a live lease", &world, Breach::EndedLive);
}

/// Renews the live lease of the item with any token.
#[derive(Clone)]
struct RenewsWithoutToken;

impl Rules for RenewsWithoutToken {
    fn may_renew(&self, lease: Option<&Lease>, _: &Request<'_>) -> Guarded {
        match lease {
            Some(lease) if lease.is_live(crate::moment::NOW) => Guarded::Accepted(()),
            _ => Guarded::Refused(Refusal::Lost),
        }
    }
}

#[test]
fn a_renewal_without_token_is_caught() {
    let world = World::new(RenewsWithoutToken);
    catch("renewal without token", &world, Breach::StaleWrite);
}

/// Renews by token, even after the term.
#[derive(Clone)]
struct RenewsLapsed;

impl Rules for RenewsLapsed {
    fn may_renew(&self, lease: Option<&Lease>, request: &Request<'_>) -> Guarded {
        match lease {
            Some(lease) if lease.token == *request.token => Guarded::Accepted(()),
            _ => Guarded::Refused(Refusal::Lost),
        }
    }
}

#[test]
fn a_renewal_of_a_lapsed_lease_is_caught() {
    let world = World::new(RenewsLapsed);
    catch("renewal of a lapsed lease", &world, Breach::Revived);
}

/// Makes items pending again but keeps the lease, and so its token.
#[derive(Clone)]
struct ReapKeepsToken;

impl Rules for ReapKeepsToken {
    fn reap_ends_lease(&self) -> bool {
        false
    }
}

#[test]
fn a_reap_that_does_not_end_the_lease_is_caught() {
    let world = World::new(ReapKeepsToken);
    catch("reap keeps the token", &world, Breach::Place);
    let blind = World {
        unchecked: Some(Breach::Place),
        ..world
    };
    catch("a stale settle is accepted", &blind, Breach::Transition);
}

/// Uses one token per worker for all of its claims.
#[derive(Clone)]
struct TokenPerWorker;

impl Rules for TokenPerWorker {
    fn token(&self, grant: u64) -> Token {
        let worker = WorkerId::new("w", grant % 2).expect("`w` is a worker's name");
        Token::new(&worker, 0, 0)
    }
}

#[test]
fn a_token_that_is_used_for_two_claims_is_caught() {
    let world = World::new(TokenPerWorker);
    catch("one token per worker", &world, Breach::TokenTwice);
    let blind = World {
        unchecked: Some(Breach::TokenTwice),
        ..world
    };
    catch("a stale settle is accepted", &blind, Breach::StaleWrite);
}

/// Replays a settled item with its former lease.
#[derive(Clone)]
struct ReplayKeepsLease;

impl Rules for ReplayKeepsLease {
    fn replay_restores_hold(&self) -> bool {
        true
    }
}

#[test]
fn a_replay_that_keeps_the_old_lease_is_caught() {
    let world = World::new(ReplayKeepsLease);
    catch("replay keeps the old lease", &world, Breach::Place);
    let blind = World {
        unchecked: Some(Breach::Place),
        ..world
    };
    catch("a stale settle is accepted", &blind, Breach::Transition);
}

/// Takes all due items, whatever the limit.
#[derive(Clone)]
struct ClaimsBeyondLimit;

impl Rules for ClaimsBeyondLimit {
    fn claim_limit(&self, _: usize) -> usize {
        usize::MAX
    }
}

#[test]
fn a_claim_beyond_the_limit_is_caught() {
    let world = World::new(ClaimsBeyondLimit);
    catch("claim beyond the limit", &world, Breach::Limit);
}

/// Also takes items that are already held.
#[derive(Clone)]
struct ClaimsClaimed;

impl Rules for ClaimsClaimed {
    fn is_claimable(&self, state: State) -> bool {
        !state.is_terminal()
    }
}

#[test]
fn a_claim_of_a_claimed_item_is_caught() {
    let world = World::new(ClaimsClaimed);
    catch("claim of a claimed item", &world, Breach::HeldTwice);
}

/// Also takes settled items.
#[derive(Clone)]
struct ClaimsSettled;

impl Rules for ClaimsSettled {
    fn is_claimable(&self, state: State) -> bool {
        state != State::Claimed
    }
}

#[test]
fn a_claim_of_a_settled_item_is_caught() {
    let world = World::new(ClaimsSettled);
    catch("claim of a settled item", &world, Breach::Reopened);
}

/// Draws the same fence for every claim.
#[derive(Clone)]
struct FenceStands;

impl Rules for FenceStands {
    fn next_fence(&self, _: u8) -> u8 {
        1
    }
}

#[test]
fn a_fence_that_does_not_rise_is_caught() {
    let world = World::new(FenceStands);
    catch("fence does not rise", &world, Breach::FenceFell);
}

/// Keeps no journal of settles.
#[derive(Clone)]
struct ForgetsSettles;

impl Rules for ForgetsSettles {
    fn remembers_settles(&self) -> bool {
        false
    }
}

#[test]
fn a_repeat_that_is_answered_differently_is_caught() {
    let world = World::new(ForgetsSettles);
    catch("settles are not remembered", &world, Breach::OtherAnswer);
}
