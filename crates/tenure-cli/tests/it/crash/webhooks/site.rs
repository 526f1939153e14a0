//! A database with endpoints, workers on it, and a receiver: what the tests do to them and ask.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tenure::webhook::{Attempt, AttemptOutcome};
use tenure::{Filter, Hold, ItemId, Record, State, Tenure, Timestamp};

use super::receiver::Receiver;
use super::{HEADER, LONGEST, MARGIN, PAYLOAD, SECRET, TERM};
use crate::crash::world::{Process, World, within};
use crate::program::Said;

/// What every worker is configured to.
const CONFIG: &str = r#"
[lease]
term = "TERM"

[retry]
max_crashes = 50

[log]
format = "json"
level = "trace"

[webhook]
term = "TERM"
allow_http = true
allow = ["127.0.0.0/8"]
ports = [PORT]
"#;

/// A database with endpoints, and their receiver.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) tenure: Tenure,
    pub(super) receiver: Receiver,
    /// What was said by programs that have ended.
    said: Mutex<String>,
}

impl Site {
    /// On each database, with a receiver each.
    pub(super) async fn everywhere(receiver: impl Fn() -> Receiver) -> [Self; 2] {
        let postgres = World::shared_postgres().await;
        [
            Self::new(World::sqlite(), receiver(), TERM).await,
            Self::new(postgres, receiver(), TERM).await,
        ]
    }

    pub(super) async fn new(world: World, receiver: Receiver, term: Duration) -> Self {
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
            .replace("TERM", &tenure::duration_text(term))
            .replace("PORT", &self.receiver.address.port().to_string());
        self.world
            .place
            .write("tenure.toml", &format!("{text}{more}"));
    }

    /// Adds an endpoint.
    pub(super) fn add(&self, id: &str, rules: &[&str]) {
        let url = format!("http://{}/{id}", self.receiver.address);
        let header = format!("{}={}", HEADER.0, HEADER.1);
        let first = ["endpoints", "add", &url, "--id", id, "--secret", SECRET];
        let first = [&first[..], &["--header", &header, "--timeout", "2m"]].concat();
        self.run(&[&first, rules].concat()).succeeded();
    }

    /// Runs the program to its end; what it said is searched for secrets.
    pub(super) fn run(&self, args: &[&str]) -> Said {
        let said = self.world.place.run(args);
        let text = format!("{}{}", said.out, said.err);
        self.said.lock().unwrap().push_str(&text);
        said
    }

    /// A fresh event.
    pub(super) fn enqueue(&self, topic: &str) -> ItemId {
        let args = ["enqueue", topic, PAYLOAD, "--json"];
        self.run(&args).succeeded().field("id").parse().unwrap()
    }

    /// Starts a worker; it is ready.
    pub(super) async fn work(&self) -> Process {
        self.world.start(&[]).await
    }

    /// All deliveries, the oldest first.
    pub(super) async fn deliveries(&self) -> Vec<Record> {
        let page = self.tenure.deliveries(&Filter::default(), 1000).await;
        let mut records = page.unwrap().records;
        records.reverse();
        records
    }

    /// The only delivery that there is or will be.
    pub(super) async fn delivery(&self) -> ItemId {
        let only = within(LONGEST, async || {
            let all = self.deliveries().await;
            assert!(all.len() < 2, "{all:?}");
            all.into_iter().next()
        });
        only.await.id
    }

    pub(super) async fn record(&self, id: ItemId) -> Record {
        self.tenure.find(&[id]).await.unwrap().remove(0)
    }

    /// Who holds it, as soon as somebody does.
    pub(super) async fn hold(&self, id: ItemId) -> Hold {
        within(LONGEST, async || self.record(id).await.hold).await
    }

    /// Waits until it is delivered.
    pub(super) async fn delivered(&self, id: ItemId) {
        within(LONGEST, async || {
            let record = self.record(id).await;
            assert_ne!(record.state, State::Dead, "{record:?}");
            (record.state == State::Done).then_some(())
        })
        .await;
    }

    /// Waits until its attempts have ended so.
    pub(super) async fn attempted(&self, id: ItemId, outcomes: &[AttemptOutcome]) -> Vec<Attempt> {
        let mut last = Vec::new();
        let start = tokio::time::Instant::now();
        while start.elapsed() < LONGEST {
            last = self.tenure.attempts(id).await.unwrap();
            if last.iter().map(|attempt| &attempt.outcome).eq(outcomes) {
                return last;
            }
            // The store is another process's, and gives no notice.
            tokio::time::sleep(crate::crash::world::LOOK).await;
        }
        panic!("expected {outcomes:?}, found {last:?}");
    }

    /// What `tenure deliveries show` says of it.
    pub(super) fn shown(&self, id: ItemId) -> Value {
        let args = ["deliveries", "show", &id.to_string(), "--json"];
        self.run(&args).succeeded().objects().remove(0)
    }

    /// Sends one more event to this endpoint and waits until it is delivered: what was to be sent
    /// before has been sent by then.
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

    /// The only delivery was delivered by the second who held it, in time, and the first attempt is
    /// on record as this one. The receiver had this many calls.
    pub(super) async fn is_recovered(&self, since: Timestamp, first: AttemptOutcome, calls: usize) {
        let id = self.delivery().await;
        self.delivered(id).await;
        let attempts = self
            .attempted(id, &[first, AttemptOutcome::Delivered])
            .await;
        let took = attempts[1].claimed_at.since(since);
        let allowed = TERM + TERM / 3 + MARGIN;
        assert!(took <= allowed, "claimed again after {took:?}");
        let shown = self.shown(id);
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

        // Whatever was still to come has come after this one.
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

    /// Nothing that was said, by whomever, has a secret in it.
    pub(super) fn keeps_secrets(&self) {
        let key = std::fs::read_to_string(self.world.place.path("tenure.key")).unwrap();
        let key = key.rsplit(':').next().unwrap().trim().to_owned();
        let secret = SECRET.trim_start_matches("whsec_");
        let (logs, said) = (self.world.logs(), self.said.lock().unwrap());
        assert!(logs.len() > 1000, "the logs are whole");
        for canary in ["canary-payload", HEADER.1, secret, &key] {
            for text in [&logs, &*said] {
                let found = text.lines().find(|line| line.contains(canary));
                assert_eq!(found, None, "{canary}");
            }
        }
    }
}

/// Keeps everybody else from writing, until it is released.
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

    /// Whether somebody waits for it; SQLite does not tell.
    pub(super) async fn is_felt(&mut self) -> bool {
        let Self::Postgres(conn) = self else {
            return true;
        };
        look_anew(conn).await;
        let ask = "select exists (select from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock')";
        sqlx::query_scalar(ask).fetch_one(conn).await.unwrap()
    }

    /// Ends it. What those have asked for who waited, and are dead by now, is never done.
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

/// Within a transaction PostgreSQL shows the same activity for ever, unless it is told not to.
async fn look_anew(conn: &mut PgConnection) {
    let forget = "select pg_stat_clear_snapshot()";
    sqlx::raw_sql(forget).execute(conn).await.unwrap();
}
