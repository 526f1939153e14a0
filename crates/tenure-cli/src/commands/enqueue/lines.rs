//! `tenure enqueue --lines`: events from the input, one per line, in batches of all or none.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal};

use indicatif::ProgressBar;
use serde::Serialize;
use tenure::{Event, Invalid, QueueName, Tenure};

use super::line::{self, Piece};
use super::{Enqueue, unreadable};
use crate::args::check_key;
use crate::commands::Context;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::{events, plain};
use crate::problem::{Problem, Stop};
use crate::progress::{Whole, begin};

/// Events in one transaction.
const EVENTS_MAX: usize = 500;

/// Bytes of payload in one transaction, so that large events do not fill the memory.
const BYTES_MAX: usize = 8 << 20;

/// Bad lines that are named in JSON; all are counted.
const NAMED_MAX: usize = 100;

/// What became of the input, in JSON.
#[derive(Debug, Default, Serialize)]
struct Sum {
    /// Events that this call wrote.
    written: u64,
    /// Events that were there by their dedupe keys.
    existed: u64,
    /// Lines that are no event.
    bad: u64,
    /// The first of them.
    bad_lines: Vec<BadLine>,
    /// Where to go on: what stands before it is written.
    next_line: u64,
}

/// A line that is no event, in JSON.
#[derive(Debug, Serialize)]
struct BadLine {
    line: u64,
    why: String,
}

/// Events that go into one transaction, with the number of the line of the first.
#[derive(Debug, Default)]
struct Batch {
    events: Vec<Event>,
    bytes: usize,
    from: u64,
}

/// The database, opened with the first event; a bad input makes none.
struct Target {
    tenure: Tenure,
    queues: Vec<QueueName>,
}

struct Intake<'a> {
    cx: &'a Context,
    args: &'a Enqueue,
    progress: ProgressBar,
    target: Option<Target>,
    batch: Batch,
    sum: Sum,
}

pub(super) async fn run(cx: &Context, args: &Enqueue) -> Result<Exit, Stop> {
    if let Some(topic) = &args.topic {
        args.ordered(Event::from_json(topic, "null")?, None, None)?;
    }
    if let Some(key) = &args.key {
        check_key(key)?;
    }
    let input = io::stdin();
    if input.is_terminal() {
        cx.output.note("type one event per line, then Ctrl-D");
    }
    let whole = size_of_file(&input).map_or(Whole::Unknown, Whole::Bytes);
    let mut intake = Intake {
        cx,
        args,
        progress: begin(&cx.output, whole, "read"),
        target: None,
        batch: Batch::default(),
        sum: Sum {
            next_line: args.from_line,
            ..Sum::default()
        },
    };
    let read = intake.read(&mut input.lock()).await;
    intake.progress.finish_and_clear();
    let sum = &intake.sum;
    if read.is_ok() || cx.output.is_json() {
        cx.output.either(sum, || words(sum))?;
    }
    read?;
    if sum.bad > 0 {
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

impl Intake<'_> {
    /// Reads to the end, or to the first line that is no event.
    async fn read(&mut self, input: &mut impl BufRead) -> Result<(), Stop> {
        let mut text = Vec::new();
        for number in 1_u64.. {
            let (piece, bytes) = match line::read(input, &mut text) {
                Ok(read) => read,
                Err(error) => return self.broken_off(number, &error).await,
            };
            self.step(bytes);
            if piece == Piece::End {
                return self.write(number).await;
            }
            let is_asked = number >= self.args.from_line;
            if piece == Piece::TooLong && (self.args.skip_bad || !is_asked) {
                match line::pass_over(input) {
                    Ok(rest) => self.step(rest),
                    Err(error) => return self.broken_off(number, &error).await,
                }
            }
            if is_asked {
                let text = if number == 1 {
                    line::unmarked(&text)
                } else {
                    &text
                };
                self.take(number, &piece, text).await?;
            }
        }
        Ok(())
    }

    /// Reports that the input cannot be read any further, once all before that is written.
    async fn broken_off(&mut self, number: u64, error: &io::Error) -> Result<(), Stop> {
        self.write(number).await?;
        let before = self.written_before(number);
        Err(unreadable(error)
            .hint(format!("{before}: go on with --from-line {number}"))
            .into())
    }

    /// Takes one line.
    async fn take(&mut self, number: u64, piece: &Piece, text: &[u8]) -> Result<(), Stop> {
        let event = match piece {
            Piece::Line => line::event(text, self.args),
            Piece::TooLong | Piece::End => {
                let expected = "a payload of at most 1 MiB, and little around it: keep the large \
                                part elsewhere and send its address";
                Err(Invalid::new("the line", "over 2 MiB", expected))
            }
        };
        let checked = match event {
            Ok(None) => return Ok(()),
            Ok(Some(event)) => self.check_queue(event).await?,
            Err(problem) => Err(problem),
        };
        match checked {
            Ok(event) => self.add(number, event).await,
            Err(problem) => self.bad(number, &problem).await,
        }
    }

    /// Told here and not by the store, so that the line is known.
    async fn check_queue(&mut self, event: Event) -> Result<Result<Event, Invalid>, Stop> {
        let target = self.open().await?;
        let name = event.queue_name();
        if !target.queues.contains(name) {
            target.queues = names(&target.tenure).await?;
        }
        if target.queues.contains(name) {
            return Ok(Ok(event));
        }
        let expected = format!("one that is there: `tenure queues add {name}` declares it");
        Ok(Err(Invalid::new(
            "queue",
            format!("{name}, unknown"),
            expected,
        )))
    }

    async fn open(&mut self) -> Result<&mut Target, Stop> {
        let target = if let Some(target) = self.target.take() {
            target
        } else {
            let tenure = self.cx.database.open(Absent::Make).await?;
            let queues = names(&tenure).await?;
            Target { tenure, queues }
        };
        Ok(self.target.insert(target))
    }

    async fn add(&mut self, number: u64, event: Event) -> Result<(), Stop> {
        let bytes = event.payload().len();
        let batch = &self.batch;
        if batch.events.len() >= EVENTS_MAX || batch.bytes + bytes > BYTES_MAX {
            self.write(number).await?;
        }
        if self.batch.events.is_empty() {
            self.batch.from = number;
        }
        self.batch.events.push(event);
        self.batch.bytes += bytes;
        Ok(())
    }

    /// Counts a line that is no event; or stops at it, once all before it are written.
    async fn bad(&mut self, number: u64, problem: &Invalid) -> Result<(), Stop> {
        let why = plain(&problem.to_string());
        self.sum.bad += 1;
        if self.args.skip_bad {
            let note = || self.cx.output.note(format_args!("line {number}: {why}"));
            self.progress.suspend(note);
        } else {
            self.write(number).await?;
        }
        if self.sum.bad_lines.len() < NAMED_MAX {
            let why = why.clone();
            self.sum.bad_lines.push(BadLine { line: number, why });
        }
        if self.args.skip_bad {
            return Ok(());
        }
        let hint = format!(
            "{}: mend it and go on with --from-line {number}, or pass over such lines with \
             --skip-bad",
            self.written_before(number)
        );
        Err(Problem::new(Exit::Usage, format!("line {number}: {why}"))
            .hint(hint)
            .into())
    }

    /// Writes the batch, whose lines are all before line `next`.
    async fn write(&mut self, next: u64) -> Result<(), Stop> {
        let batch = std::mem::take(&mut self.batch);
        self.sum.next_line = next;
        if batch.events.is_empty() {
            return Ok(());
        }
        let tenure = self.open().await?.tenure.clone();
        let answers = tenure.enqueue_all(&batch.events).await.map_err(|error| {
            self.sum.next_line = batch.from;
            let is_doubtful = error.is_transient();
            self.not_written(error.into(), batch.from, next - 1, is_doubtful)
        })?;
        for answer in answers {
            if answer.is_fresh() {
                self.sum.written += 1;
            } else {
                self.sum.existed += 1;
            }
        }
        Ok(())
    }

    /// The store's problem with the lines from `from` to `to`, and how to go on.
    fn not_written(&self, problem: Problem, from: u64, to: u64, is_doubtful: bool) -> Problem {
        let doubt = if is_doubtful {
            "; if the database wrote them after all, events without a dedupe key come twice"
        } else {
            ""
        };
        let advice = problem
            .hint
            .map_or_else(String::new, |hint| format!("{hint}; "));
        let before = self.written_before(from);
        Problem {
            message: format!("lines {from} to {to} are not written: {}", problem.message),
            hint: Some(format!(
                "{advice}{before}: go on with --from-line {from}{doubt}"
            )),
            ..problem
        }
    }

    fn written_before(&self, number: u64) -> String {
        let first = self.args.from_line;
        match number.saturating_sub(first) {
            0 => "nothing is written".to_owned(),
            1 => format!("line {first} is written"),
            _ => format!("lines {first} to {} are written", number - 1),
        }
    }

    /// Shows how far the reading came: in bytes, or in lines where the end is unknown.
    fn step(&self, bytes: u64) {
        let is_measured = self.progress.length().is_some();
        self.progress.inc(if is_measured { bytes } else { 1 });
    }
}

async fn names(tenure: &Tenure) -> Result<Vec<QueueName>, Stop> {
    let queues = tenure.queues().await?.into_iter();
    Ok(queues.map(|queue| queue.name).collect())
}

fn words(sum: &Sum) -> String {
    let number = usize::try_from(sum.written).unwrap_or(usize::MAX);
    let mut parts = vec![format!("enqueued {}", events(number))];
    if sum.existed > 0 {
        parts.push(format!("already there: {}", sum.existed));
    }
    match sum.bad {
        0 => {}
        1 => parts.push("1 line is no event".to_owned()),
        bad => parts.push(format!("{bad} lines are no events")),
    }
    parts.join("; ")
}

/// The size of the input, where it is a file.
fn size_of_file(input: &io::Stdin) -> Option<u64> {
    use std::os::fd::AsFd;
    let file = File::from(input.as_fd().try_clone_to_owned().ok()?);
    let facts = file.metadata().ok()?;
    facts.is_file().then_some(facts.len())
}
