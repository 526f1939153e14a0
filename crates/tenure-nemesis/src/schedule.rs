//! A seeded schedule of faults. The seed repeats the choice of faults; the machine decides the
//! interleaving.

use std::time::Duration;

use tokio::time::sleep;

use crate::crew::Crew;

/// Number of kills by default; `TENURE_TEST_CRASH_KILLS` overrides it.
const KILLS: usize = 5;
/// Kills of workers for each pause.
const KILLS_PER_PAUSE: usize = 4;
/// Kills of workers for each kill of the database server.
const KILLS_PER_OUTAGE: usize = 5;

/// Number of faults of each kind, and the seed that chooses them.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Seed of every choice; scenarios print it and read it from `TENURE_TEST_CRASH_SEED`.
    pub seed: u64,
    /// Number of workers to kill, one after the other.
    pub kills: usize,
    /// Number of pauses longer than the term.
    pub pauses: usize,
    /// Number of kills of the database server, if the run has one.
    pub outages: usize,
}

impl Schedule {
    /// Reads `TENURE_TEST_CRASH_KILLS` and `TENURE_TEST_CRASH_SEED`.
    pub fn from_environment() -> Self {
        let kills = variable("TENURE_TEST_CRASH_KILLS");
        let kills = kills.map_or(KILLS, |kills| usize::try_from(kills).unwrap());
        Self {
            seed: variable("TENURE_TEST_CRASH_SEED").unwrap_or_else(rand::random),
            kills,
            pauses: kills / KILLS_PER_PAUSE,
            outages: kills.div_ceil(KILLS_PER_OUTAGE),
        }
    }

    /// Injects all faults, the kinds concurrently. A pause lasts for `pause`. Every other kill hits
    /// a worker for which `is_busy` is true; its arguments are the worker's name and the number of
    /// the kill.
    pub async fn run(
        self,
        crew: &Crew,
        pause: Duration,
        is_busy: impl AsyncFn(&str, usize) -> bool,
    ) {
        tokio::join!(
            self.kill(crew, is_busy),
            self.pause(crew, pause),
            self.kill_server(crew)
        );
    }

    /// Kills workers that are not paused. Each successor is ready before the next kill, so that a
    /// worker is always running.
    async fn kill(self, crew: &Crew, is_busy: impl AsyncFn(&str, usize) -> bool) {
        let mut rng = Rng::new(self.seed, "kills");
        for nth in 0..self.kills {
            rng.wait(400, 2_000).await;
            if nth % 2 == 0 {
                crew.kill_busy(async |name| is_busy(name, nth).await).await;
            } else {
                crew.kill_any(|free| rng.below(free)).await;
            }
        }
    }

    async fn pause(self, crew: &Crew, length: Duration) {
        let mut rng = Rng::new(self.seed, "pauses");
        for _ in 0..self.pauses {
            rng.wait(100, 900).await;
            crew.pause(rng.below(crew.len()), length).await;
        }
    }

    async fn kill_server(self, crew: &Crew) {
        let mut rng = Rng::new(self.seed, "server");
        for _ in 0..crew.servers.as_ref().map_or(0, |_| self.outages) {
            rng.wait(3_000, 8_000).await;
            crew.kill_server().await;
        }
    }
}

/// Random numbers that a seed reproduces (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A separate sequence for each purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(seed, |mixed, byte| {
            mixed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Self(mixed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let end = u64::try_from(end).unwrap();
        usize::try_from(mixed % end).unwrap()
    }

    /// A random element.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Waits a random number of milliseconds before the next fault.
    async fn wait(&mut self, shortest: usize, longest: usize) {
        let millis = shortest + self.below(longest - shortest);
        sleep(Duration::from_millis(u64::try_from(millis).unwrap())).await;
    }
}

fn variable(name: &str) -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the length of a test is not a setting of the program"
    )]
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("the variable holds a number"))
}
