//! The nemesis: what is done to the workers and to their database, and when, from one seed. The
//! order in which things happen is the machine's; the seed repeats what is tried.

use std::time::Duration;

use tokio::time::sleep;

use super::TERM;
use super::world::World;

/// As many kills as the test command makes.
const KILLS: u32 = 20;
/// A pause for every so many kills.
const KILLS_PER_PAUSE: u32 = 4;
/// A kill of the database for every so many kills of workers, rounded.
const KILLS_PER_OUTAGE: u32 = 7;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nemesis {
    pub(super) seed: u64,
    pub(super) kills: u32,
    pub(super) pauses: u32,
}

impl Nemesis {
    /// As the environment says; 20 kills and a seed of chance when it says nothing.
    pub(super) fn from_environment() -> Self {
        let kills = variable("TENURE_TEST_CRASH_KILLS")
            .and_then(|kills| u32::try_from(kills).ok())
            .unwrap_or(KILLS)
            .max(KILLS);
        Self {
            seed: variable("TENURE_TEST_CRASH_SEED").unwrap_or_else(chance),
            kills,
            pauses: kills.div_ceil(KILLS_PER_PAUSE),
        }
    }

    pub(super) fn outages(self) -> u32 {
        self.kills.div_ceil(KILLS_PER_OUTAGE)
    }

    /// Does it all, side by side.
    pub(super) async fn run(self, world: &World) {
        tokio::join!(
            self.kill(world),
            self.pause(world),
            self.kill_database(world)
        );
    }

    /// Kills workers that are not stopped, one after the other; a seat has a worker that is ready
    /// again before the next one is killed, so that somebody is always there to recover.
    async fn kill(self, world: &World) {
        let mut dice = Dice::new(self.seed, "kills");
        for _ in 0..self.kills {
            dice.wait(400, 2_000).await;
            let mut free: Vec<_> = world
                .seats
                .iter()
                .filter_map(|s| s.try_lock().ok())
                .collect();
            let nth = dice.below(free.len());
            let mut seat = free.swap_remove(nth);
            drop(free);
            world.kill(&mut seat).await;
        }
    }

    /// Stops one worker at a time for three terms.
    async fn pause(self, world: &World) {
        let mut dice = Dice::new(self.seed, "pauses");
        for _ in 0..self.pauses {
            dice.wait(100, 900).await;
            let mut seat = dice.pick(&world.seats).lock().await;
            world.pause(&mut seat, 3 * TERM).await;
        }
    }

    async fn kill_database(self, world: &World) {
        if world.server.is_none() {
            return;
        }
        let mut dice = Dice::new(self.seed, "database");
        for _ in 0..self.outages() {
            dice.wait(6_000, 10_000).await;
            world.kill_database().await;
        }
    }
}

/// Chance that a seed repeats (`SplitMix64`).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Chance of its own for each purpose.
    pub(super) fn new(seed: u64, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(seed, |mixed, byte| {
            mixed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Self(mixed)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let end = u64::try_from(end).unwrap();
        usize::try_from(mixed % end).unwrap()
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Lets some time pass, in milliseconds: this is when the next thing happens.
    async fn wait(&mut self, shortest: usize, longest: usize) {
        let millis = shortest + self.below(longest - shortest);
        sleep(Duration::from_millis(u64::try_from(millis).unwrap())).await;
    }
}

/// A number in our environment.
fn variable(name: &str) -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a test runs is no configuration of the program"
    )]
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("the variable holds a number"))
}

/// A seed that was never used before.
fn chance() -> u64 {
    uuid::Uuid::now_v7().as_u64_pair().1
}
