//! `tenure enqueue --lines`: writes one event per line of the input, in atomic batches.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal};

use indicatif::ProgressBar;
use serde::Serialize;
use tenure::store::QueueName;
use tenure::{Event, Invalid, NewEvent, Problems, Tenure};

use super::line::{self, Piece};
use super::{Enqueue, unreadable};
use crate::args::check_key;
use crate::commands::Context;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::{events, plain};
use crate::problem::{Problem, Stop};
use crate::progress::{Total, begin};

/// Maximum events in one transaction.
const EVENTS_MAX: usize = 500;

/// Maximum bytes of payload in one transaction, so that large events do not fill the memory.
const BYTES_MAX: usize = 8 << 20;

/// Maximum number of bad lines listed in JSON; all are counted.
const NAMED_MAX: usize = 100;

/// The summary in JSON.
#[derive(Debug, Default, Serialize)]
struct Summary {
    /// Events that this call wrote.
    written: u64,
    /// Events whose dedupe key existed.
    existed: u64,
    /// Invalid lines.
    bad: u64,
    /// The first invalid lines.
    bad_lines: Vec<BadLine>,
    /// The line to continue with: the events of all lines before it are written.
    next_line: u64,
}

/// An invalid line in JSON.
#[derive(Debug, Serialize)]
struct BadLine {
    line: u64,
    why: String,
}

/// Events of one transaction.
#[derive(Debug, Default)]
struct LineBatch {
    events: Vec<Event>,
    bytes: usize,
    /// The line of the first event.
    from: u64,
}

/// The database, opened at the first event, so that invalid input does not create one.
struct Target {
    tenure: Tenure,
    queues: Vec<QueueName>,
}

struct Intake<'a> {
    cx: &'a Context,
    args: &'a Enqueue,
    progress: ProgressBar,
    target: Option<Target>,
    batch: LineBatch,
    summary: Summary,
}

pub(super) async fn run(cx: &Context, args: &Enqueue) -> Result<Exit, Stop> {
    if let Some(topic) = &args.topic {
        let checked = args.ordered(NewEvent::from_json(topic, "null"), None, None)?;
        checked.build()?;
    }
    if let Some(key) = &args.key {
        check_key(key)?;
    }
    let input = io::stdin();
    if input.is_terminal() {
        cx.output.note("type one event per line, then Ctrl-D");
    }
    let total = size_of_file(&input).map_or(Total::Unknown, Total::Bytes);
    let mut intake = Intake {
        cx,
        args,
        progress: begin(&cx.output, total, "read"),
        target: None,
        batch: LineBatch::default(),
        summary: Summary {
            next_line: args.from_line,
            ..Summary::default()
        },
    };
    let read = intake.read(&mut input.lock()).await;
    intake.progress.finish_and_clear();
    let summary = &intake.summary;
    if read.is_ok() || cx.output.is_json() {
        cx.output.either(summary, || text(summary))?;
    }
    read?;
    if summary.bad > 0 {
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

impl Intake<'_> {
    /// Reads to the end, or to the first invalid line that is not skipped.
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
            let is_selected = number >= self.args.from_line;
            if piece == Piece::TooLong && (self.args.skip_bad || !is_selected) {
                match line::skip_rest(input) {
                    Ok(rest) => self.step(rest),
                    Err(error) => return self.broken_off(number, &error).await,
                }
            }
            if is_selected {
                let text = if number == 1 {
                    line::without_bom(&text)
                } else {
                    &text
                };
                self.take(number, &piece, text).await?;
            }
        }
        Ok(())
    }

    /// Writes the events read so far, then reports that the input cannot be read further.
    async fn broken_off(&mut self, number: u64, error: &io::Error) -> Result<(), Stop> {
        self.write(number).await?;
        let before = self.written_before(number);
        Err(unreadable(error)
            .hint(format!("{before}: continue with --from-line {number}"))
            .into())
    }

    /// Processes one line.
    async fn take(&mut self, number: u64, piece: &Piece, text: &[u8]) -> Result<(), Stop> {
        let event = match piece {
            Piece::Line => line::event(text, self.args),
            Piece::TooLong | Piece::End => {
                let expected = "a payload of at most 1 MiB and little else: store the large part \
                                elsewhere and send its address";
                Err(Invalid::new("the line", "over 2 MiB", expected).into())
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

    /// Checks the queue here rather than in the store, so that the error can name the line.
    async fn check_queue(&mut self, event: Event) -> Result<Result<Event, Problems>, Stop> {
        let target = self.open().await?;
        let name = event.queue();
        if !target.queues.contains(name) {
            target.queues = names(&target.tenure).await?;
        }
        if target.queues.contains(name) {
            return Ok(Ok(event));
        }
        let expected = format!("an existing one: `tenure queues add {name}` adds it");
        let unknown = format!("{name}, which does not exist");
        Ok(Err(Invalid::new("queue", unknown, expected).into()))
    }

    async fn open(&mut self) -> Result<&mut Target, Stop> {
        let target = if let Some(target) = self.target.take() {
            target
        } else {
            let tenure = self.cx.database.open(IfMissing::Make).await?;
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

    /// Counts an invalid line. Unless such lines are skipped, writes what precedes it and stops.
    async fn bad(&mut self, number: u64, problem: &Problems) -> Result<(), Stop> {
        let why = plain(&problem.to_string());
        self.summary.bad += 1;
        if self.args.skip_bad {
            let note = || self.cx.output.note(format_args!("line {number}: {why}"));
            self.progress.suspend(note);
        } else {
            self.write(number).await?;
        }
        if self.summary.bad_lines.len() < NAMED_MAX {
            let why = why.clone();
            self.summary.bad_lines.push(BadLine { line: number, why });
        }
        if self.args.skip_bad {
            return Ok(());
        }
        let hint = format!(
            "{}: fix it and continue with --from-line {number}, or skip such lines with --skip-bad",
            self.written_before(number)
        );
        Err(Problem::new(Exit::Usage, format!("line {number}: {why}"))
            .hint(hint)
            .into())
    }

    /// Writes the batch; all its lines are before line `next`.
    async fn write(&mut self, next: u64) -> Result<(), Stop> {
        let batch = std::mem::take(&mut self.batch);
        self.summary.next_line = next;
        if batch.events.is_empty() {
            return Ok(());
        }
        let tenure = self.open().await?.tenure.clone();
        let answers = tenure.enqueue_now(&batch.events).await.map_err(|error| {
            self.summary.next_line = batch.from;
            let is_doubtful = error.is_transient();
            self.not_written(error.into(), batch.from, next - 1, is_doubtful)
        })?;
        for answer in answers {
            if answer.is_fresh() {
                self.summary.written += 1;
            } else {
                self.summary.existed += 1;
            }
        }
        Ok(())
    }

    /// Adds to the store's problem the lines from `from` to `to`, and how to continue.
    fn not_written(&self, problem: Problem, from: u64, to: u64, is_doubtful: bool) -> Problem {
        let doubt = if is_doubtful {
            "; if the database did write them, events without a dedupe key are duplicated"
        } else {
            ""
        };
        let advice = problem
            .hint
            .map_or_else(String::new, |hint| format!("{hint}; "));
        let before = self.written_before(from);
        Problem {
            message: format!("lines {from} to {to} were not written: {}", problem.message),
            hint: Some(format!(
                "{advice}{before}: continue with --from-line {from}{doubt}"
            )),
            ..problem
        }
    }

    fn written_before(&self, number: u64) -> String {
        let first = self.args.from_line;
        match number.saturating_sub(first) {
            0 => "nothing was written".to_owned(),
            1 => format!("line {first} was written"),
            _ => format!("lines {first} to {} were written", number - 1),
        }
    }

    /// Advances the progress bar: in bytes, or in lines when the size is unknown.
    fn step(&self, bytes: u64) {
        let is_measured = self.progress.length().is_some();
        self.progress.inc(if is_measured { bytes } else { 1 });
    }
}

async fn names(tenure: &Tenure) -> Result<Vec<QueueName>, Stop> {
    let queues = tenure.queues().await?.into_iter();
    Ok(queues.map(|queue| queue.name).collect())
}

fn text(summary: &Summary) -> String {
    let number = usize::try_from(summary.written).unwrap_or(usize::MAX);
    let mut parts = vec![format!("enqueued {}", events(number))];
    if summary.existed > 0 {
        parts.push(format!("existed already: {}", summary.existed));
    }
    match summary.bad {
        0 => {}
        1 => parts.push("1 invalid line".to_owned()),
        bad => parts.push(format!("{bad} invalid lines")),
    }
    parts.join("; ")
}

/// The size of the input, if it is a file.
fn size_of_file(input: &io::Stdin) -> Option<u64> {
    use std::os::fd::AsFd;
    let file = File::from(input.as_fd().try_clone_to_owned().ok()?);
    let facts = file.metadata().ok()?;
    facts.is_file().then_some(facts.len())
}
