//! The command line as types. Doc comments of arguments are the text of `--help`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use tenure::operate::Filter;
use tenure::store::{QueueName, Timestamp};
use tenure::{ItemId, Problems, State};
use tenure_bench::{Bench, Demo};

use crate::commands::{
    Adopt, Bury, Completions, ConfigArgs, Deliveries, Endpoints, Enqueue, Health, Jobs, Keys,
    Listen, Man, Migrate, Prune, Queues, Replay, Retry, Serve, SettingsArgs, TableArg, Verify, Why,
    Work, Workers,
};
use crate::database::{Database, hide_addresses};
use crate::exit::Exit;
pub(crate) use crate::parse::{check_key, delivery_id, event_id, item_id, reason};
use crate::{config, env, time};

/// Parses the command line; prints help and usage errors itself.
pub(crate) fn parse() -> Result<(Cli, Command), Exit> {
    match Cli::try_parse() {
        Ok(mut cli) => match cli.command.take() {
            Some(command) => Ok((cli, command)),
            None => Err(help(&Cli::command().render_help())),
        },
        Err(error) if error.use_stderr() => {
            // The message quotes a mistyped argument, which may be an address with a password.
            let text = hide_addresses(&error.render().ansi().to_string());
            // A closed stream cannot be reported.
            drop(write!(anstream::stderr(), "{text}"));
            Err(Exit::Usage)
        }
        Err(requested) => Err(help(&requested.render())),
    }
}

fn help(text: &StyledStr) -> Exit {
    // A closed stream cannot be reported.
    drop(write!(anstream::stdout(), "{}", text.ansi()));
    Exit::Done
}

/// Leases for work on the database you already have
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    disable_help_subcommand = true,
    after_help = after_help()
)]
pub(crate) struct Cli {
    #[arg(
        help = format!(
            "The database: sqlite://PATH or postgres://USER@HOST/NAME [env: {}] [default: {}]",
            env::DATABASE,
            Database::default()
        ),
        long,
        global = true,
        help_heading = "Global options",
        value_name = "URL"
    )]
    pub(crate) database: Option<Database>,

    #[arg(
        help = format!(
            "The configuration file [env: {}] [default: {}, if it exists]",
            env::CONFIG,
            config::FILE
        ),
        long,
        global = true,
        help_heading = "Global options",
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON, one object per line
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

fn after_help() -> String {
    let examples = "\
Examples:
  tenure enqueue order.paid '{\"order\": 7}'
  tenure events --state dead --since 1h
  tenure stats --database postgres://app@localhost/shop";
    format!("{examples}\n\n{}", Exit::help())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Work and answer HTTP in one process, until stopped
    #[command(after_help = "\
The schema must be up to date. On PostgreSQL, --migrate, migrate.at_start or `tenure migrate` \
updates it; an SQLite file is always updated. At the first SIGINT or SIGTERM the process finishes \
the work that it holds, and at the second it ends at once. Metrics are at /metrics, health checks \
at /health/live and /health/ready.

Examples:
  tenure serve
  tenure serve --listen 127.0.0.1:8080 --database postgres://app@localhost/shop")]
    Serve(Serve),
    /// Work without HTTP, until stopped
    #[command(after_help = "\
With --exec, each event is the input of a command, whose exit code decides the outcome. With \
--exec-lines, processes stay: each gets an event as a line of JSON and answers with a line such \
as {\"id\":7,\"outcome\":\"done\"}. Other outcomes are retry, dead, release and away, with an \
optional error and after_ms.

Examples:
  tenure work --queue mail --exec 'send-mail --stdin'
  tenure work --queue mail --exec-lines 'python3 worker.py' --concurrency 2
  tenure work --drain --concurrency 1
  tenure work --table outbox --exec 'publish --stdin'")]
    Work(Work),
    /// Bring the database schema up to date, or print the SQL for it
    #[command(after_help = "\
A schema that a newer program has migrated stays as it is, if this program can use it; otherwise \
the command exits with 2.

Examples:
  tenure migrate
  tenure migrate --status
  tenure migrate --database postgres://app@localhost/shop --print > tenure.sql")]
    Migrate(Migrate),
    /// Write an event, or one per line of the input
    #[command(after_help = "\
With --lines, each line is the payload of an event of TOPIC; without TOPIC, each line is an \
object with topic and payload and, optionally, queue, key, strict, priority, delay, dedupe, \
headers and event_id. The options apply to every line that does not override them. Up to 500 \
events are written at a time, all or none; an invalid line stops the command once all events \
before it are written.

Examples:
  tenure enqueue order.paid '{\"order\": 7}'
  tenure enqueue mail.send --queue mail --delay 5m --dedupe order-7 < mail.json
  tenure enqueue order.shipped '{\"order\": 7}' --key customer-7
  echo '[1, 2]' | tenure enqueue numbers - --header trace=abc --priority 7
  tenure enqueue --lines order.paid < orders.ndjson")]
    Enqueue(Enqueue),
    /// List events, newest first; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure events
  tenure events --state dead --topic order.paid --since 1h
  tenure events --key customer-7
  tenure events --table outbox --state dead
  tenure events --limit 1000 --json | jq .topic")]
    Events(Events),
    /// Show an event or a delivery: its facts, its payload, its timeline
    #[command(after_help = "\
Examples:
  tenure show 17
  tenure show d17
  tenure show 17 --json | jq .payload")]
    Show(Show),
    /// Explain in one sentence why an event or a delivery is not being worked on, and what to do
    #[command(after_help = "\
A job has a number of its own: `tenure jobs why 17`.

Examples:
  tenure why 17
  tenure why d17
  tenure why 17 --table outbox
  tenure jobs why 17
  tenure why 17 --json | jq -r .code")]
    Why(Why),
    /// Count events, deliveries and jobs by state
    #[command(after_help = "\
Examples:
  tenure stats
  tenure stats --json | jq .dead
  tenure stats --table outbox")]
    Stats(TableArg),
    /// Make events that are done or dead pending again
    #[command(after_help = "\
Name events by id, or select them by --state, --topic, --queue, --key, --since or --until; a \
selection is counted and confirmed first. An event with a key goes to the tail of its key; a dead \
event that blocks its key is tried again in its place.

A selection becomes a bulk replay: every worker, and this process while it runs, carries it out \
step by step. Ctrl-C and --detach leave it running; `tenure replay list`, `follow` and `cancel` \
manage it afterwards.

Examples:
  tenure replay 17 18
  tenure replay --topic order.paid --dry-run
  tenure replay --state dead --since 1h --yes
  tenure replay --state dead --until 1h --rate 50/s --yes
  tenure replay --state dead --detach --yes
  tenure replay list")]
    Replay(Replay),
    /// Make events and deliveries that wait for their next attempt due now
    #[command(after_help = "\
It uses up no attempt and resets none. Name items by id, or select those that were tried before \
and wait for their backoff; the selection is changed in steps of 1,000. An event that was enqueued \
with a delay is named by its id. For each id that is not changed, the reason is printed; exits \
with 4 then, and with 3 when nothing waits.

Examples:
  tenure retry 17 d18
  tenure retry --topic order.paid --dry-run
  tenure retry --key customer-7
  tenure retry --endpoint billing")]
    Retry(Retry),
    /// Mark events dead now, even if a worker holds them
    #[command(after_help = "\
A worker that holds such an event is refused when it settles.

Examples:
  tenure bury 17 --reason 'the order was a test'")]
    Bury(Bury),
    /// End lapsed leases: their events become pending again, or dead if they lapsed too often
    #[command(after_help = "\
Examples:
  tenure reap
  tenure reap --json
  tenure reap --table outbox")]
    Reap(TableArg),
    /// Delete settled events and jobs that are past their retention
    #[command(after_help = "\
Examples:
  tenure prune
  tenure prune --published 2d --dead 14d")]
    Prune(Prune),
    /// List, add, pause and resume queues
    #[command(after_help = "\
Examples:
  tenure queues
  tenure queues add mail --term 90s
  tenure queues pause mail")]
    Queues(Queues),
    /// List ordering keys and their states; show, skip, pause and resume one
    #[command(after_help = "\
Events of one key are worked one at a time, in order. The head of a key is its first open event, \
or a dead event that blocks the key; the others wait behind it. The domains of work leases are not \
listed: docs/TROUBLESHOOTING.md has the SQL that finds them.

Examples:
  tenure keys
  tenure keys list --stuck
  tenure keys show customer-7
  tenure keys skip customer-7 --reason 'the order was a test'
  tenure keys pause customer-7")]
    Keys(Keys),
    /// Enqueue, list, show, cancel, retry and run jobs: long work, done chunk by chunk
    #[command(after_help = "\
A worker that takes over a job continues where the last one was: done chunks are not repeated.

Examples:
  tenure jobs
  tenure jobs enqueue import.orders '{\"from\": 2020}' --follow
  tenure jobs run --kind import.orders --exec ./import.sh
  tenure jobs show 17")]
    Jobs(Jobs),
    /// Add, list, edit, test, disable and remove the addresses that receive webhooks
    #[command(after_help = "\
When an event is settled as done, the same transaction queues a delivery for each endpoint \
subscribed to its topic; `tenure serve` and `tenure work` send them.

Examples:
  tenure endpoints
  tenure endpoints add https://example.com/hooks --topics 'order.*'
  tenure endpoints test example-com
  tenure endpoints disable example-com --reason 'they migrate until Friday'")]
    Endpoints(Endpoints),
    /// List the deliveries to endpoints; show, replay and bury single ones
    #[command(after_help = "\
Examples:
  tenure deliveries
  tenure deliveries list --endpoint billing --state dead
  tenure deliveries show d17
  tenure deliveries replay --endpoint billing --since 2h --rate 50/s")]
    Deliveries(Deliveries),
    /// Receive webhooks on this machine: verify and print them, be slow or fail on purpose
    #[command(after_help = "\
It listens on 127.0.0.1 only. With --secret, a call without a valid signature is answered with \
401. To send to it, plain http and this machine must be allowed: see `tenure endpoints add --help`.

Examples:
  tenure listen --secret whsec_…
  tenure listen --port 9000 --fail 503:3 --retry-after 10s
  tenure listen --late 20s --json")]
    Listen(Listen),
    /// Verify the signature of a received webhook; exits with 1 when it is not valid
    #[command(after_help = "\
Examples:
  tenure verify --secret whsec_… --header 'webhook-id: …' --header 'webhook-timestamp: …' \\
    --header 'webhook-signature: v1,…' '{\"order\": 7}'
  tenure verify --secret whpk_… --header … --at 1h - < body.json")]
    Verify(Verify),
    /// Lease the rows of a table of your own, or undo that
    #[command(after_help = "\
Missing columns are added while the table's writers go on, and recorded, so that --undo drops \
those and nothing else. An interrupted run continues when repeated. docs/ADOPT.md adopts a \
hand-written outbox step by step, and undoes it.

Examples:
  tenure adopt outbox --preset outbox_processing --print
  tenure adopt outbox --preset outbox_processing --yes
  tenure adopt mails --map mails.toml
  tenure adopt list
  tenure adopt outbox --undo")]
    Adopt(Adopt),
    /// Show the settings, or change them for all running workers
    #[command(after_help = "\
Examples:
  tenure settings
  tenure settings get lease.term --json
  tenure settings set lease.term=60s worker.batch=200
  tenure settings set lease.term=default")]
    Settings(SettingsArgs),
    /// Check the configuration without a database
    #[command(after_help = "\
Examples:
  tenure config check
  tenure --config /etc/tenure/tenure.toml config check")]
    Config(ConfigArgs),
    /// List the workers, active, missing or stopped; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure workers
  tenure workers --all --json | jq -r .host")]
    Workers(Workers),
    /// Check for anything that keeps work from being done; exits with 1 when a check is bad
    #[command(after_help = "\
Examples:
  tenure doctor
  tenure doctor --json | jq 'select(.verdict != \"good\")'")]
    Doctor,
    /// Ask the process that serves on this machine whether it is ready; exits with 1 when it is not
    #[command(after_help = "\
It asks `tenure serve` over HTTP on loopback and needs no database, so it fits a probe of a \
container: with --live a probe that restarts the process, without it one that sends it work or \
continues a rollout. It exits with 3 when no process listens.

Examples:
  tenure health
  tenure health --live
  tenure health --listen 127.0.0.1:8080 --json | jq '.checks[] | select(.problem)'")]
    Health(Health),
    /// Measure throughput and latency here, compared with bare SQL in the same run
    #[command(after_help = "\
It works in scratch tables of its own: schemas tenure_bench_… on PostgreSQL, files next to the \
database on SQLite. They are removed afterwards.

Examples:
  tenure bench --database postgres://app@localhost/shop
  tenure bench --backlog --published --old-snapshot --held --json")]
    Bench(Bench),
    /// Show in twenty seconds what happens when a worker dies, freezes or answers late
    #[command(after_help = "\
It starts workers of its own on a database of its own, in a temporary folder, and ignores \
--database and the configuration. Exits with 1 when a promise of Tenure did not hold.

Examples:
  tenure demo
  tenure demo --keep
  tenure demo --json | jq .late_answer")]
    Demo(Demo),
    /// Print the completion script of a shell
    #[command(after_help = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions fish > ~/.config/fish/completions/tenure.fish")]
    Completions(Completions),
    /// Print the manual, or write a page for every command
    #[command(after_help = "\
Examples:
  tenure man | man -l -
  tenure man --dir ~/.local/share/man/man1")]
    Man(Man),
}

/// Options that select events.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// Only those with this topic
    #[arg(long)]
    pub(crate) topic: Option<String>,

    /// Only those in this queue
    #[arg(long, value_parser = QueueName::new)]
    pub(crate) queue: Option<QueueName>,

    /// Only those with this ordering key
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) key: Option<String>,

    /// Only those written since: 1h (ago), 2026-11-15, 2026-11-15T10:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    pub(crate) since: Option<Timestamp>,
}

impl Choice {
    /// Returns the filter for items in this state.
    pub(crate) fn filter(&self, state: Option<State>) -> Result<Filter, Problems> {
        if let Some(key) = &self.key {
            check_key(key)?;
        }
        Ok(Filter {
            state,
            topic: self.topic.clone(),
            queue: self.queue.clone(),
            key: self.key.clone(),
            since: self.since,
            ..Filter::default()
        })
    }

    pub(crate) fn is_given(&self) -> bool {
        self.is_of_events() || self.since.is_some()
    }

    /// Returns true if an option is used that does not apply to rows of an adopted table.
    pub(crate) fn is_of_events(&self) -> bool {
        self.topic.is_some() || self.queue.is_some() || self.key.is_some()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only those in this state
    #[arg(long)]
    pub(crate) state: Option<StateArg>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// At most this many, 1 to 1000
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    /// Only those before this id: the next page
    #[arg(long, value_name = "ID", value_parser = item_id)]
    pub(crate) before: Option<ItemId>,

    #[command(flatten)]
    pub(crate) of: TableArg,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The id of the event, or of the delivery: 17, d17
    #[arg(value_parser = item_id)]
    pub(crate) id: ItemId,

    #[command(flatten)]
    pub(crate) of: TableArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateArg {
    Pending,
    Claimed,
    Done,
    Dead,
}

impl From<StateArg> for State {
    fn from(arg: StateArg) -> Self {
        match arg {
            StateArg::Pending => Self::Pending,
            StateArg::Claimed => Self::Claimed,
            StateArg::Done => Self::Done,
            StateArg::Dead => Self::Dead,
        }
    }
}
