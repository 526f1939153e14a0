//! `tenure bench --against OLD_BINARY`: two builds of the program take turns on one database.
//!
//! Every round runs both builds, each as a child process that measures one round and prints its
//! figures as JSON; the order alternates. A figure is compared with the other build's figure of the
//! same round, so that a drift in the machine's speed affects both alike.

mod build;
mod figures;
mod report;
mod statistics;

use std::fmt::Display;
use std::path::Path;

use self::build::Build;
use self::figures::ComparedRounds;
use self::report::Comparison;
use super::Bench;
use super::ballast::KEYS;
use crate::host::{Completion, Host};
use crate::stop::{Failure, Stop};

/// Compares this program with the old one and prints the figures.
pub(super) async fn run(host: &Host<'_>, args: &Bench, against: &Path) -> Result<Completion, Stop> {
    let this = std::env::current_exe();
    let this = this.map_err(|cause| Failure::new("this program cannot be found").cause(cause))?;
    let arguments = args.of_one_round();
    let (old, new) = (Build::new("old", against), Build::new("new", &this));
    let progress = host.steps(u64::from(args.rounds) * 2);
    let mut rounds = ComparedRounds::default();
    for round in 0..args.rounds {
        let is_old_first = round.is_multiple_of(2);
        let (first, second) = if is_old_first {
            (&old, &new)
        } else {
            (&new, &old)
        };
        progress.step(first.name());
        let one = first.measure(host, &arguments).await?;
        progress.step(second.name());
        let other = second.measure(host, &arguments).await?;
        if is_old_first {
            rounds.add(one, other);
        } else {
            rounds.add(other, one);
        }
    }
    progress.finish();
    let comparison = Comparison::new(against, args.rounds, &rounds);
    comparison.print(host)?;
    Ok(comparison.verdict())
}

impl Bench {
    /// The arguments of a child process that measures one round of the same run. A run with events
    /// always includes a drain with keys.
    fn of_one_round(&self) -> Vec<String> {
        let mut all: Vec<String> = ["bench", "--json", "--rounds=1"].map(str::to_owned).into();
        let mut add = |name: &str, value: &dyn Display| all.push(format!("--{name}={value}"));
        if let Some(calls) = self.webhooks.calls {
            add("webhooks", &calls);
            add("waiting", &self.webhooks.waiting);
            add("held-calls", &self.webhooks.held_calls);
            add(
                "held-for",
                &format_args!("{}ms", self.webhooks.held_for.as_millis()),
            );
            return all;
        }
        add("events", &self.events);
        add("batch", &self.batch);
        if let Some(chunks) = self.jobs.chunks {
            add("jobs", &chunks);
            add("running", &self.jobs.running);
            return all;
        }
        add("idle", &self.idle);
        add("keyed", &self.keyed.unwrap_or(KEYS));
        for (name, number) in [
            ("backlog", self.backlog),
            ("published", self.published),
            ("held", self.held),
            ("blocked", self.blocked),
            ("hot-key", self.hot_key),
            ("untaken", self.untaken),
        ] {
            if let Some(number) = number {
                add(name, &number);
            }
        }
        if self.old_snapshot {
            all.push("--old-snapshot".to_owned());
        }
        if self.shared_queue {
            all.push("--shared-queue".to_owned());
        }
        all
    }
}
