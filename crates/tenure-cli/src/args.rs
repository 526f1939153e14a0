//! The command line, as types. The doc comments are what `--help` prints.

use std::io::Write as _;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use tenure::{Event, Filter, Invalid, ItemId, QueueName, State, Timestamp};

use crate::commands::{
    Adopt, Bench, Completions, Deliveries, Demo, Domains, Endpoints, Enqueue, Jobs, Listen, Man,
    OfTable, Prune, Queues, Replay, Serve, SettingsArgs, Verify, Why, Work, Workers,
};
use crate::database::{Database, hide_addresses};
use crate::exit::Exit;
use crate::{config, env, time};

/// Reads the command line; prints help, or what is wrong with it, by itself.
pub(crate) fn parse() -> Result<(Cli, Command), Exit> {
    match Cli::try_parse() {
        Ok(mut cli) => match cli.command.take() {
            Some(command) => Ok((cli, command)),
            None => Err(help(&Cli::command().render_help())),
        },
        Err(error) if error.use_stderr() => {
            // A mistyped argument is shown as it was given; it may be an address with a password.
            let text = hide_addresses(&error.render().ansi().to_string());
            // When nobody reads it, there is nobody to tell.
            drop(write!(anstream::stderr(), "{text}"));
            Err(Exit::Usage)
        }
        Err(asked) => Err(help(&asked.render())),
    }
}

fn help(text: &StyledStr) -> Exit {
    // When nobody reads it, there is nobody to tell.
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
        help_heading = "Everywhere",
        value_name = "URL"
    )]
    pub(crate) database: Option<Database>,

    #[arg(
        help = format!(
            "The configuration file [env: {}] [default: {}, if it is there]",
            env::CONFIG,
            config::FILE
        ),
        long,
        global = true,
        help_heading = "Everywhere",
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON, one object per line
    #[arg(long, global = true, help_heading = "Everywhere")]
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
    /// Migrate, work and answer HTTP, in one process, until it is told to stop
    #[command(after_help = "\
It works as the configuration says; SIGINT or SIGTERM lets it finish what it has in hand, a \
second one ends it at once. Figures are at /metrics, its health at /health/live and \
/health/ready.

Examples:
  tenure serve
  tenure serve --listen 127.0.0.1:8080 --database postgres://app@localhost/shop")]
    Serve(Serve),
    /// Work, without HTTP, until it is told to stop
    #[command(after_help = "\
With --exec each event is the input of a command, and its exit code the outcome.

Examples:
  tenure work --queue mail --exec 'send-mail --stdin'
  tenure work --drain --concurrency 1
  tenure work --table outbox --exec 'publish --stdin'")]
    Work(Work),
    /// Bring the database's schema up to date, or print the SQL that does
    #[command(after_help = "\
Examples:
  tenure migrate
  tenure migrate --database postgres://app@localhost/shop --print > tenure.sql")]
    Migrate(Migrate),
    /// Write an event, or one per line of the input
    #[command(after_help = "\
With --lines, each line is the payload of an event of TOPIC; without TOPIC, each line is an \
object with topic and payload, and, if it likes, queue, key, strict, priority, delay, dedupe, \
headers and event_id. The options hold for every line that does not say otherwise. Up to 500 \
events are written at a time, all or none; a line that is no event stops the reading once all \
events before it are written.

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
    /// Show all that is known of an event or a delivery: its facts, its payload, its timeline
    #[command(after_help = "\
Examples:
  tenure show 17
  tenure show d17
  tenure show 17 --json | jq .payload")]
    Show(Show),
    /// Say in one sentence why an event or a delivery is not being worked on, and what to do
    #[command(after_help = "\
A job has a number of its own: `tenure jobs why 17`.

Examples:
  tenure why 17
  tenure why d17
  tenure why 17 --table outbox
  tenure jobs why 17
  tenure why 17 --json | jq -r .code")]
    Why(Why),
    /// Count what waits, is held, is done and is dead
    #[command(after_help = "\
Examples:
  tenure stats
  tenure stats --json | jq .dead
  tenure stats --table outbox")]
    Stats(OfTable),
    /// Put events that are done or dead back, to be worked again
    #[command(after_help = "\
Name events by id, or choose them by --state, --topic, --queue, --key, --since or --until; what \
is chosen is counted and asked about first. An event with a key goes to the tail of its key; one \
that is dead and blocks its key is tried again in its place.

What is chosen is a replay on record: it goes on step by step wherever a worker runs, and in this \
process until its end. Ctrl-C and --detach leave it running; `tenure replay list`, `follow` and \
`cancel` see to it afterwards.

Examples:
  tenure replay 17 18
  tenure replay --topic order.paid --dry-run
  tenure replay --state dead --since 1h --yes
  tenure replay --state dead --until 1h --rate 50/s --yes
  tenure replay --state dead --detach --yes
  tenure replay list")]
    Replay(Replay),
    /// Settle events dead, now, whoever holds them
    #[command(after_help = "\
A holder that is at work on such an event is refused when it settles.

Examples:
  tenure bury 17 --reason 'the order was a test'")]
    Bury(Bury),
    /// End lapsed leases: their events wait again, or are dead if they lapsed too often
    #[command(after_help = "\
Examples:
  tenure reap
  tenure reap --json
  tenure reap --table outbox")]
    Reap(OfTable),
    /// Delete events and jobs that ended, past their retention
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
    /// List ordering keys and where they stand; show, skip, pause and resume one
    #[command(after_help = "\
Events of one key are worked one at a time, in order. The first of them that is neither done nor \
dead is the head of the key; the others wait behind it. The domains of work leases are not listed: \
docs/OPERATIONS.md has the SQL that finds them.

Examples:
  tenure domains
  tenure domains list --stuck
  tenure domains show customer-7
  tenure domains skip customer-7 --reason 'the order was a test'
  tenure domains pause customer-7")]
    Domains(Domains),
    /// Long work, done chunk by chunk: write, list, show, cancel, retry and run jobs
    #[command(after_help = "\
Whoever takes a job up goes on where its last worker was: chunks that are done are not done again.

Examples:
  tenure jobs
  tenure jobs enqueue import.orders '{\"from\": 2020}' --follow
  tenure jobs run --kind import.orders --exec ./import.sh
  tenure jobs show 17")]
    Jobs(Jobs),
    /// Add, list, edit, try, disable and remove the addresses that receive webhooks
    #[command(after_help = "\
Events that are done are owed to the endpoints that are subscribed to their topics, in the same \
transaction; `tenure serve` and `tenure work` send them.

Examples:
  tenure endpoints
  tenure endpoints add https://example.com/hooks --topics 'order.*'
  tenure endpoints test example-com
  tenure endpoints disable example-com --reason 'they migrate until Friday'")]
    Endpoints(Endpoints),
    /// List what is owed to endpoints; show, replay and bury single deliveries
    #[command(after_help = "\
Examples:
  tenure deliveries
  tenure deliveries list --endpoint billing --state dead
  tenure deliveries show d17
  tenure deliveries replay --endpoint billing --since 2h --rate 50/s")]
    Deliveries(Deliveries),
    /// Receive webhooks on this machine: verify them, print them, be slow or fail on purpose
    #[command(after_help = "\
It listens on 127.0.0.1 alone. A call whose signature is not believed is answered with 401. To \
send to it, plain http and this machine must be allowed: see `tenure endpoints add --help`.

Examples:
  tenure listen --secret whsec_…
  tenure listen --port 9000 --fail 503:3 --retry-after 10s
  tenure listen --late 20s --json")]
    Listen(Listen),
    /// Say whether a call that was received can be believed; exits with 1 when it cannot
    #[command(after_help = "\
Examples:
  tenure verify --secret whsec_… --header 'webhook-id: …' --header 'webhook-timestamp: …' \\
    --header 'webhook-signature: v1,…' '{\"order\": 7}'
  tenure verify --secret whpk_… --header … --at 1h - < body.json")]
    Verify(Verify),
    /// Lease the rows of a table of your own, or give it back
    #[command(after_help = "\
The columns that it lacks are added while its writers go on, and noted, so that --undo takes away \
those and nothing else. Run again, it goes on where it stopped. docs/ADOPT.md takes a hand-written \
outbox there and back.

Examples:
  tenure adopt outbox --preset outbox_processing --print
  tenure adopt outbox --preset outbox_processing --yes
  tenure adopt mails --map mails.toml
  tenure adopt list
  tenure adopt outbox --undo")]
    Adopt(Adopt),
    /// Show what is set, or change it for all workers while they run
    #[command(after_help = "\
Examples:
  tenure settings
  tenure settings get lease.term --json
  tenure settings set lease.term=60s worker.batch=200
  tenure settings set lease.term=default")]
    Settings(SettingsArgs),
    /// List the workers: those that are here, fell silent or left; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure workers
  tenure workers --all --json | jq -r .host")]
    Workers(Workers),
    /// Look for what keeps work from being done; exits with 1 when something is bad
    #[command(after_help = "\
Examples:
  tenure doctor
  tenure doctor --json | jq 'select(.verdict != \"good\")'")]
    Doctor,
    /// Measure how fast it is here, beside bare SQL in the same run
    #[command(after_help = "\
It works in scratch tables of its own: the schemas tenure_bench_… on PostgreSQL, files beside \
the database on SQLite. They are gone afterwards.

Examples:
  tenure bench --database postgres://app@localhost/shop
  tenure bench --backlog --published --old-snapshot --held --json")]
    Bench(Bench),
    /// Show in twenty seconds what happens when a worker dies, stands still or answers late
    #[command(after_help = "\
It starts workers of its own on a database of its own, in a temporary folder: --database and the \
configuration are not looked at. Exits with 1 when something that Tenure promises did not hold.

Examples:
  tenure demo
  tenure demo --keep
  tenure demo --json | jq .late_answer")]
    Demo(Demo),
    /// Print what a shell needs to complete this command line
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

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Print the SQL and change nothing
    #[arg(long)]
    pub(crate) print: bool,
}

/// Which events.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// Only those of this topic
    #[arg(long)]
    pub(crate) topic: Option<String>,

    /// Only those of this queue
    #[arg(long, value_parser = QueueName::new)]
    pub(crate) queue: Option<QueueName>,

    /// Only those of this ordering key
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) key: Option<String>,

    /// Only those written since: 1h (ago), 2026-11-15, 2026-11-15T10:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    pub(crate) since: Option<Timestamp>,
}

impl Choice {
    /// As a filter, for items in this state.
    pub(crate) fn filter(&self, state: Option<State>) -> Result<Filter, Invalid> {
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

    /// Whether it asks for what rows of an adopted table do not have.
    pub(crate) fn is_of_events(&self) -> bool {
        self.topic.is_some() || self.queue.is_some() || self.key.is_some()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only those in this state
    #[arg(long)]
    pub(crate) state: Option<StateWord>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// At most this many, 1 to 1000
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    /// Only those before this id: the next page
    #[arg(long, value_name = "ID", value_parser = item_id)]
    pub(crate) before: Option<ItemId>,

    #[command(flatten)]
    pub(crate) of: OfTable,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The id of the event, or of the delivery: 17, d17
    #[arg(value_parser = item_id)]
    pub(crate) id: ItemId,

    #[command(flatten)]
    pub(crate) of: OfTable,
}

#[derive(Debug, Args)]
pub(crate) struct Bury {
    /// The ids of events, or of deliveries: 17, d17
    #[arg(value_name = "ID", required = true, value_parser = item_id)]
    pub(crate) ids: Vec<ItemId>,

    /// Why, for people
    #[arg(long, value_parser = reason)]
    pub(crate) reason: String,

    #[command(flatten)]
    pub(crate) of: OfTable,
}

/// The word for a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateWord {
    Pending,
    Claimed,
    Done,
    Dead,
}

impl From<StateWord> for State {
    fn from(word: StateWord) -> Self {
        match word {
            StateWord::Pending => Self::Pending,
            StateWord::Claimed => Self::Claimed,
            StateWord::Done => Self::Done,
            StateWord::Dead => Self::Dead,
        }
    }
}

/// Refuses what no event can have as its key. The command line is not checked by its reader, which
/// would show the whole of a long one.
pub(crate) fn check_key(key: &str) -> Result<(), Invalid> {
    Event::from_json("any", "null")?.key(key).map(drop)
}

/// Reads why an operator does something. Blanks tell nobody.
pub(crate) fn reason(text: &str) -> Result<String, Invalid> {
    if text.trim().is_empty() {
        let expected = "a few words for people, such as 'the order was a test'";
        return Err(Invalid::new("the reason", "blank", expected));
    }
    Ok(text.to_owned())
}

/// Reads an id.
pub(crate) fn item_id(text: &str) -> Result<ItemId, Invalid> {
    text.parse()
}

/// Reads the id of a delivery.
pub(crate) fn delivery_id(text: &str) -> Result<ItemId, Invalid> {
    let id = item_id(text)?;
    if id.is_delivery() {
        return Ok(id);
    }
    let expected = format!("that of a delivery, such as d{text}");
    Err(Invalid::new("the id", format!("{text:?}"), expected))
}

/// Reads the id of an event.
pub(crate) fn event_id(text: &str) -> Result<ItemId, Invalid> {
    let id = item_id(text)?;
    if id.is_delivery() {
        let expected = "that of an event, such as 17";
        return Err(Invalid::new("the id", format!("{text:?}"), expected));
    }
    Ok(id)
}
