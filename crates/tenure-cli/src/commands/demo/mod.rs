//! `tenure demo`: shows, in one terminal and on a database of its own, what leases are for. Events
//! flow, a worker is killed, another one stands still, a third answers late. The workers are real
//! processes of this program, the signals are real, and what is told was read from the store.

mod facts;
mod stage;

use clap::Args;
use tenure::{Claim, Event, ItemId, Refusal, Settle, Word};
use tokio::time::Instant;

use self::facts::{Facts, Late, Takeover};
use self::stage::{Stage, TERM};
use super::Context;
use super::serve::signals;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// The workers, by name: the first is killed, the second stands still.
const WORKERS: [&str; 3] = ["alpha", "bravo", "charlie"];
/// As many events are published before the first mishap.
const WARM: u64 = 12;
/// As many more are published between two mishaps.
const BETWEEN: u64 = 15;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave the database there, and say where
    #[arg(long)]
    keep: bool,
}

pub(super) async fn run(cx: &Context, args: &Demo) -> Result<Exit, Stop> {
    let mut signals = signals()?;
    let mut stage = Stage::set(cx.output).await?;
    let played = tokio::select! {
        played = play(&mut stage) => played,
        () = signals.next() => Err(Problem::new(Exit::Failed, "the demo was interrupted").into()),
    };
    let kept = stage.clear(args.keep);
    let mut facts = match (played, &kept) {
        (Ok(facts), _) => facts,
        (Err(stop), kept) => {
            if let Some(folder) = kept {
                cx.output.note(format_args!("kept {}", folder.display()));
            }
            return Err(stop);
        }
    };
    facts.kept = kept.map(|folder| folder.display().to_string());
    facts.print(&cx.output)
}

async fn play(stage: &mut Stage) -> Result<Facts, Stop> {
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

/// The first worker is killed with events in hand; someone else takes them over.
async fn kill(stage: &mut Stage) -> Result<Takeover, Stop> {
    let name = WORKERS[0];
    let held = stage.freeze(name).await?;
    stage.kill(name)?;
    let began = Instant::now();
    stage.mishap(format_args!(
        "{name} was killed (SIGKILL) with {} in hand",
        stage::listed(&held)
    ))?;
    stage.tell("nobody tells anyone: its lease is not renewed any more, and will lapse")?;
    let taken = stage.taken_over(&held, began).await?;
    stage.good(format_args!("{}", taken.sentence()))?;
    Ok(taken)
}

/// The second worker stands still past its term, then goes on.
async fn pause(stage: &mut Stage) -> Result<(Takeover, String), Stop> {
    let name = WORKERS[1];
    let held = stage.freeze(name).await?;
    let began = Instant::now();
    stage.mishap(format_args!(
        "{name} stands still (SIGSTOP) with {} in hand",
        stage::listed(&held)
    ))?;
    let taken = stage.taken_over(&held, began).await?;
    stage.good(format_args!("{}", taken.sentence()))?;
    stage.thaw(name)?;
    stage.tell(format_args!(
        "{name} goes on (SIGCONT) and believes it still holds {}",
        taken.id
    ))?;
    let noticed = stage.noticed(name).await?;
    stage.good(format_args!(
        "{name} noticed by itself ({noticed}): it dropped the work and settles nothing"
    ))?;
    Ok((taken, noticed))
}

/// This process claims an event by hand, lets the lease lapse and settles too late.
async fn answer_late(stage: &mut Stage) -> Result<Late, Stop> {
    let tenure = stage.tenure().clone();
    let held = loop {
        let event = Event::new(stage::TOPIC, &"claimed by hand")?;
        stage.write(event).await?;
        // Without recovery: it is the workers' part to end lapsed leases here.
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
        .any(|hold| hold.fence == held.lease.fence && hold.word == Word::Done);
    match refusal {
        Some(why) => stage.good(format_args!(
            "its late \"done\" under fence {} was refused: {}",
            taken.fence_old,
            why_refused(why)
        ))?,
        None => stage.mishap("its late answer was NOT refused")?,
    }
    Ok(Late {
        taken,
        refusal: refusal.map(Refusal::as_str),
        took_effect,
    })
}

/// A refusal in words.
fn why_refused(why: Refusal) -> String {
    format!("{} ({why})", why.as_str())
}
