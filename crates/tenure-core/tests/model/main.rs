//! Explores every interleaving of a small world, with the shipped guards and the shipped table of
//! transitions. Proves that law 1–6 and law 9 hold within the limits of that world and, by planted
//! faults, that the model detects a violation of each.

#[cfg(test)]
mod laws;
#[cfg(test)]
mod moment;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod world;

use stateright::{Checker, Model};
use tenure_core::Lateness;

use crate::world::{Rules, Shipped, World};

/// Visits every state of a world; fails at the first broken rule.
fn exhaust<R: Rules>(title: &str, world: World<R>) {
    let checker = world.checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.is_done());
    report(&format!(
        "{title}: {} states exhausted, {} steps, depth {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    ));
}

#[expect(
    clippy::print_stderr,
    reason = "the number of states is the result that a reader wants to see"
)]
fn report(line: &str) {
    eprintln!("{line}");
}

/// Two items, two workers, three claims, one replay: law 1–6 and law 9, late settles accepted.
#[test]
fn the_laws_hold_in_every_interleaving() {
    let world = World::new(Shipped);
    exhaust("late settles accepted", world);
}

#[test]
fn the_laws_hold_when_holders_settle_strictly() {
    let world = World {
        lateness: Lateness::Refuse,
        ..World::new(Shipped)
    };
    exhaust("late settles refused", world);
}

#[test]
fn the_laws_hold_when_an_operator_buries() {
    let world = World {
        burials: 1,
        claims: 2,
        ..World::new(Shipped)
    };
    exhaust("with a burial", world);
}

#[test]
fn the_laws_hold_across_a_failover_that_draws_fences_again() {
    let world = World {
        failover: true,
        claims: 2,
        ..World::new(Shipped)
    };
    exhaust("with a failover", world);
}
