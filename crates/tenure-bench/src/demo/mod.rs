//! `tenure demo`: shows in one terminal, with its own database, how leases work. Events flow, one
//! worker is killed, another is paused, and the demo itself settles an event too late. Workers and
//! signals are real: the workers are processes of this program. The demo reads the facts from the
//! store.

mod facts;
mod stage;

use clap::Args;
use tenure::lease::{Claim, OutcomeKind, Refusal, Settle};
use tenure::{Event, ItemId, Signals};
use tokio::time::Instant;

use self::facts::{Facts, LateAnswer, Takeover};
use self::stage::{Stage, TERM};
use crate::host::{Completion, Host};
use crate::stop::{Failure, Stop};

/// The workers, by name: the first is killed, the second is paused.
const WORKERS: [&str; 3] = ["alpha", "bravo", "charlie"];
/// Number of events published before the first fault.
const WARM: u64 = 12;
/// Number of events published between two faults.
const BETWEEN: u64 = 15;

/// The arguments of `tenure demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep the database and print its path
    #[arg(long)]
    keep: bool,
}

impl Demo {
    /// Runs the demo and prints the facts.
    ///
    /// # Errors
    /// A process or the database failed, the demo was interrupted, or an expected fact did not
    /// occur within three minutes.
    pub async fn run(&self, host: &Host<'_>) -> Result<Completion, Stop> {
        run(host, self).await
    }
}

async fn run(host: &Host<'_>, args: &Demo) -> Result<Completion, Stop> {
    let signals = Signals::new();
    let mut signals =
        signals.map_err(|cause| Failure::new("signals cannot be received").cause(cause))?;
    let mut stage = Stage::set(host).await?;
    let played = tokio::select! {
        played = play(&mut stage) => played,
        () = signals.next() => Err(Failure::new("the demo was interrupted").into()),
    };
    let kept = stage.clear(args.keep);
    let mut facts = match (played, &kept) {
        (Ok(facts), _) => facts,
        (Err(stop), kept) => {
            if let Some(folder) = kept {
                host.console
                    .note(&format_args!("kept {}", folder.display()));
            }
            return Err(stop);
        }
    };
    facts.kept = kept.map(|folder| folder.display().to_string());
    facts.print(host)
}

async fn play(stage: &mut Stage<'_>) -> Result<Facts, Stop> {
    for name in WORKERS {
        stage.start(name)?;
    }
    stage.all_here(WORKERS.len()).await?;
    stage.tell(format_args!(
        "{} work, each lease lasts {} s unless renewed",
        WORKERS.join(", "),
        TERM.as_secs()
    ))?;
    stage.open_flow();
    stage.tell("events are being written, one every 150 ms")?;
    stage.published(WARM).await?;
    let killed = kill(stage).await?;
    stage.published(BETWEEN).await?;
    let (paused, noticed) = pause(stage).await?;
    stage.published(BETWEEN).await?;
    let late = answer_late(stage).await?;
    let events = stage.close_flow().await?;
    stage.drained().await?;
    stage.tell("everything that was written is settled; the workers are told to end")?;
    stage.end_workers().await?;
    Facts::gather(stage, events, killed, (paused, noticed), late).await
}

/// Kills the first worker while it holds events; another one takes them over.
async fn kill(stage: &mut Stage<'_>) -> Result<Takeover, Stop> {
    let name = WORKERS[0];
    let held = stage.freeze(name).await?;
    stage.kill(name)?;
    let began = Instant::now();
    stage.mishap(format_args!(
        "{name} was killed (SIGKILL) with {} in hand",
        stage::listed(&held)
    ))?;
    stage.tell("no process reports this: the lease is no longer renewed, and will lapse")?;
    let taken = stage.taken_over(&held, began).await?;
    stage.good(format_args!("{}", taken.sentence()))?;
    Ok(taken)
}

/// Pauses the second worker past its term, then resumes it.
async fn pause(stage: &mut Stage<'_>) -> Result<(Takeover, String), Stop> {
    let name = WORKERS[1];
    let held = stage.freeze(name).await?;
    let began = Instant::now();
    stage.mishap(format_args!(
        "{name} is paused (SIGSTOP) with {} in hand",
        stage::listed(&held)
    ))?;
    let taken = stage.taken_over(&held, began).await?;
    stage.good(format_args!("{}", taken.sentence()))?;
    stage.thaw(name)?;
    stage.tell(format_args!(
        "{name} goes on (SIGCONT) and believes it still holds {}",
        taken.id
    ))?;
    let noticed = stage.noticed(name, &taken).await?;
    stage.good(format_args!(
        "{name} noticed by itself ({noticed}): it dropped the work and settles nothing"
    ))?;
    Ok((taken, noticed))
}

/// Claims an event in this process, lets the lease lapse and settles too late.
async fn answer_late(stage: &mut Stage<'_>) -> Result<LateAnswer, Stop> {
    let tenure = stage.tenure().clone();
    let held = loop {
        let event = Event::new(stage::TOPIC, &"claimed by hand")?;
        stage.write(event).await?;
        // This claim does not reap: the demo shows how the workers end lapsed leases.
        let ask = Claim::new(tenure.token(), 1).term(stage::term()?);
        if let Some(held) = tenure.claim_with(&ask.recovery(None)).await? {
            break held;
        }
    };
    let began = Instant::now();
    let own = stage::Holding::own(&held, tenure.worker_id().as_str());
    stage.mishap(format_args!(
        "this very process claimed {} by hand and does not renew",
        stage::listed(&own)
    ))?;
    let taken = stage.taken_over(&own, began).await?;
    stage.good(format_args!("{}", taken.sentence()))?;
    let settle = Settle::new(held.lease.token.clone()).done(held.ids());
    let answer = tenure.settle(&settle).await?;
    let refusal = answer.refused().next().map(|(_, why)| why);
    let timeline = tenure.timeline(ItemId::new(taken.id)).await?;
    let took_effect = timeline
        .iter()
        .any(|hold| hold.fence == held.lease.fence && hold.outcome == OutcomeKind::Done);
    match refusal {
        Some(why) => stage.good(format_args!(
            "its late \"done\" under fence {} was refused: {}",
            taken.fence_old,
            why_refused(why)
        ))?,
        None => stage.mishap("its late answer was NOT refused")?,
    }
    Ok(LateAnswer {
        taken,
        refusal: refusal.map(Refusal::as_str),
        took_effect,
    })
}

fn why_refused(why: Refusal) -> String {
    format!("{} ({why})", why.as_str())
}
