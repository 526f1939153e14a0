//! A database with endpoints, workers and a receiver, and the steps of the tests.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tenure::lease::{Hold, Record};
use tenure::operate::Filter;
use tenure::store::Timestamp;
use tenure::webhook::{Attempt, AttemptOutcome};
use tenure::{ItemId, State, Tenure};
use tenure_nemesis::{Process, within};

use super::receiver::{Manner, Receiver};
use super::{ENDPOINTS, HEADER, LONGEST, MARGIN, PAYLOAD, SECRET, TERM};
use crate::crash::storm::{MAX_CRASHES, STORM_TERM};
use crate::crash::world::World;
use crate::program::Finished;

/// The configuration of every worker, in addition to that of all crash tests.
const CONFIG: &str = r#"
[webhook]
term = "TERM"
allow_http = true
allow = ["127.0.0.0/8"]
ports = [PORT]
"#;

/// A database with endpoints, and their receiver.
pub(in crate::crash) struct Site {
    pub(in crate::crash) world: World,
    pub(in crate::crash) tenure: Tenure,
    pub(super) receiver: Receiver,
    /// Output of the programs that have exited.
    said: Mutex<String>,
}

impl Site {
    /// Runs a case on both databases at once, with a receiver each.
    pub(super) async fn everywhere(manner: Manner, case: impl AsyncFn(Self)) {
        Self::on_both(|| Receiver::start(manner), case).await;
    }

    /// Runs a case like [`Site::everywhere`], with receivers that accept no connection yet.
    pub(super) async fn everywhere_closed(manner: Manner, case: impl AsyncFn(Self)) {
        Self::on_both(|| Receiver::closed(manner), case).await;
    }

    async fn on_both(receiver: impl Fn() -> Receiver, case: impl AsyncFn(Self)) {
        let postgres = World::shared_postgres().await;
        let postgres = Self::new(postgres, receiver(), TERM).await;
        let sqlite = Self::new(World::sqlite(), receiver(), TERM).await;
        tokio::join!(Box::pin(case(sqlite)), Box::pin(case(postgres)));
    }

    /// Creates a site with the endpoints of the storm.
    pub(in crate::crash) async fn storm(world: World, manner: Manner) -> Self {
        let site = Self::new(world, Receiver::start(manner), STORM_TERM).await;
        for (endpoint, topic) in ENDPOINTS {
            let schedule = "1s,1s,1s,1s,1s,1s,1s,1s,1s,1s";
            site.add(endpoint, &["--topics", topic, "--schedule", schedule]);
        }
        site
    }

    async fn new(world: World, receiver: Receiver, term: Duration) -> Self {
        let site = Self {
            tenure: world.place.tenure().await,
            world,
            receiver,
            said: Mutex::default(),
        };
        site.configure(term, "");
        site
    }

    /// Writes the configuration of the workers.
    pub(super) fn configure(&self, term: Duration, more: &str) {
        let text = CONFIG
            .replace("TERM", &tenure::settings::duration_text(term))
            .replace("PORT", &self.receiver.address.port().to_string());
        let text = format!("{text}{more}");
        self.world.configure(term, MAX_CRASHES, &text);
    }

    pub(super) fn add(&self, id: &str, rules: &[&str]) {
        let url = format!("http://{}/{id}", self.receiver.address);
        let header = format!("{}={}", HEADER.0, HEADER.1);
        let first = ["endpoints", "add", &url, "--id", id, "--secret", SECRET];
        let first = [&first[..], &["--header", &header, "--timeout", "2m"]].concat();
        self.run(&[&first, rules].concat()).succeeded();
    }

    /// Runs the program to its end; keeps its output for the search for secrets.
    pub(super) fn run(&self, args: &[&str]) -> Finished {
        let said = self.world.place.run(args);
        let text = format!("{}{}", said.out, said.err);
        self.said.lock().unwrap().push_str(&text);
        said
    }

    /// Enqueues an event.
    pub(super) fn enqueue(&self, topic: &str) -> ItemId {
        let args = ["enqueue", topic, PAYLOAD, "--json"];
        self.run(&args).succeeded().field("id").parse().unwrap()
    }

    /// Starts a worker and waits until it is ready.
    pub(super) async fn work(&self) -> Process {
        self.world.crew.ready().await
    }

    /// All deliveries, oldest first.
    pub(super) async fn deliveries(&self) -> Vec<Record> {
        let page = self.tenure.deliveries(&Filter::default(), 1000).await;
        let mut records = page.unwrap().records;
        records.reverse();
        records
    }

    /// Waits for the only delivery.
    pub(super) async fn delivery(&self) -> ItemId {
        let only = within(LONGEST, async || {
            let all = self.deliveries().await;
            assert!(all.len() < 2, "{all:?}");
            all.into_iter().next()
        });
        only.await.id
    }

    pub(super) async fn record(&self, id: ItemId) -> Record {
        // On a busy machine, the store may be unavailable for a moment.
        let found = within(LONGEST, async || self.tenure.find(&[id]).await.ok());
        found.await.remove(0)
    }

    /// Waits until a worker holds the item; returns the lease.
    pub(super) async fn hold(&self, id: ItemId) -> Hold {
        within(LONGEST, async || self.record(id).await.hold).await
    }

    /// Waits until the delivery is settled as delivered.
    pub(super) async fn delivered(&self, id: ItemId) {
        within(LONGEST, async || {
            let record = self.record(id).await;
            assert_ne!(record.state, State::Dead, "{record:?}");
            (record.state == State::Done).then_some(())
        })
        .await;
    }

    /// Waits until the attempts of the delivery have these outcomes.
    pub(super) async fn attempted(&self, id: ItemId, outcomes: &[AttemptOutcome]) -> Vec<Attempt> {
        let mut last = Vec::new();
        let wait = within(LONGEST, async || {
            last = self.tenure.attempts(id).await.unwrap();
            let is_so = last.iter().map(|attempt| &attempt.outcome).eq(outcomes);
            is_so.then(|| last.clone())
        });
        wait.await
    }

    /// The output of `tenure deliveries show`.
    pub(super) fn delivery_view(&self, id: ItemId) -> Value {
        let args = ["deliveries", "show", &id.to_string(), "--json"];
        self.run(&args).succeeded().objects().remove(0)
    }

    /// Enqueues one more event and waits until one of its deliveries is done. All earlier events
    /// have been sent by then.
    pub(super) async fn send_one_more(&self, topic: &str) {
        let event = self.enqueue(topic);
        let filter = Filter {
            source: Some(event),
            state: Some(State::Done),
            ..Filter::default()
        };
        within(LONGEST, async || {
            let page = self.tenure.deliveries(&filter, 10).await.unwrap();
            page.records.into_iter().next()
        })
        .await;
    }

    /// Asserts that the second holder delivered the only delivery in time, that the first attempt
    /// is recorded with this outcome, and that the receiver got this many calls.
    pub(super) async fn is_recovered(&self, since: Timestamp, first: AttemptOutcome, calls: usize) {
        let id = self.delivery().await;
        self.delivered(id).await;
        let attempts = self
            .attempted(id, &[first, AttemptOutcome::Delivered])
            .await;
        let took = attempts[1].claimed_at.since(since);
        let allowed = TERM + TERM / 3 + MARGIN;
        assert!(took <= allowed, "claimed again after {took:?}");
        let shown = self.delivery_view(id);
        assert_eq!(shown["state"], "done", "{shown}");
        assert_eq!(shown["crashes"], 1, "{shown}");
        let timeline = shown["timeline"].as_array().unwrap();
        assert_eq!(timeline[0]["outcome"], first.as_str(), "{shown}");
        assert_eq!(timeline[1]["attempt"], 2, "{shown}");
        let fences: Vec<_> = timeline
            .iter()
            .filter_map(|a| a["fence"].as_i64())
            .collect();
        assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");

        // Any outstanding call reaches the receiver before this event is delivered.
        self.send_one_more("after").await;
        let taken = self.receiver.calls();
        let of_it = taken
            .iter()
            .filter(|call| call.call.id == shown["event_id"]);
        let seen: Vec<_> = of_it.map(|call| (call.attempt(), call.fence())).collect();
        let all = [(1, fences[0]), (2, fences[1])];
        assert_eq!(seen, all[2 - calls..], "{shown}");
        assert_eq!(taken.len(), calls + 1);
        assert_eq!(self.deliveries().await.len(), 2);
    }

    /// Asserts that no log or output contains a secret, a payload or a header value.
    pub(in crate::crash) fn keeps_secrets(&self) {
        let key = std::fs::read_to_string(self.world.place.path("tenure.key")).unwrap();
        let key = key.rsplit(':').next().unwrap().trim().to_owned();
        let secret = SECRET.trim_start_matches("whsec_");
        let (logs, said) = (self.world.crew.logs().concat(), self.said.lock().unwrap());
        assert!(logs.len() > 1000, "the logs are too short");
        for canary in ["canary-payload", HEADER.1, secret, &key] {
            for text in [&logs, &*said] {
                let found = text.lines().find(|line| line.contains(canary));
                assert_eq!(found, None, "{canary}");
            }
        }
    }
}

/// A lock that blocks all other writers until it is released.
pub(super) enum Blocked {
    Sqlite(rusqlite::Connection),
    Postgres(PgConnection),
}

impl Blocked {
    pub(super) async fn begin(site: &Site) -> Self {
        let place = &site.world.place;
        if place.url.starts_with("sqlite:") {
            let conn = rusqlite::Connection::open(place.file()).unwrap();
            conn.busy_timeout(LONGEST).unwrap();
            conn.execute_batch("begin immediate").unwrap();
            return Self::Sqlite(conn);
        }
        let mut conn = PgConnection::connect(&place.url).await.unwrap();
        let lock = "begin; lock table tenure_leases, tenure_events in exclusive mode";
        sqlx::raw_sql(lock).execute(&mut conn).await.unwrap();
        Self::Postgres(conn)
    }

    /// Returns true if another connection waits for the lock. On SQLite, which does not show that,
    /// it always returns true.
    pub(super) async fn is_felt(&mut self) -> bool {
        let Self::Postgres(conn) = self else {
            return true;
        };
        look_anew(conn).await;
        let ask = "select exists (select from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock')";
        sqlx::query_scalar(ask).fetch_one(conn).await.unwrap()
    }

    /// Releases the lock. On PostgreSQL it first ends all waiting connections, so that the
    /// statements of killed processes are never executed.
    pub(super) async fn end(self) {
        match self {
            Self::Sqlite(conn) => conn.execute_batch("rollback").unwrap(),
            Self::Postgres(mut conn) => {
                look_anew(&mut conn).await;
                let forget = "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
                              where datname = current_database() and wait_event_type = 'Lock'; \
                              rollback";
                sqlx::raw_sql(forget).execute(&mut conn).await.unwrap();
                conn.close().await.unwrap();
            }
        }
    }
}

/// Refreshes the statistics, because PostgreSQL otherwise shows the same activity throughout a
/// transaction.
async fn look_anew(conn: &mut PgConnection) {
    let forget = "select pg_stat_clear_snapshot()";
    sqlx::raw_sql(forget).execute(conn).await.unwrap();
}
