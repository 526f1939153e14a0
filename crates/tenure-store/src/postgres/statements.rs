//! All statements of this store, one file each, embedded at compile time. Opening the store fills
//! in the schema name, and nothing else.

use std::sync::Arc;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use tenure_core::Identifier;

use crate::render::Edit;

/// The text of a statement; safe to send.
#[derive(Clone, Debug)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    /// Wraps the text of a bundled file, or of one that `render` has filled with checked names.
    pub(crate) fn new(text: &str, schema: Option<&Identifier>) -> Self {
        Self(qualified(text, schema).into())
    }

    /// The text, for `explain` in tests.
    #[cfg(feature = "testing")]
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The text without its file header, for another driver.
    pub(crate) fn bare(&self) -> String {
        let lines = self.0.lines().filter(|line| !line.starts_with("--"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns a query to bind parameters to. Its text is safe for the driver: it contains only
    /// bundled files and checked, quoted names. It has no name unless the code that runs it finds
    /// that names are safe on its connection.
    pub(crate) fn query<'q>(&self) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.0))).persistent(false)
    }

    /// Runs a script of several statements without parameters.
    pub(crate) async fn raw(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(Arc::clone(&self.0)))
            .execute(conn)
            .await
            .map(drop)
    }
}

/// Qualifies every name that begins with `tenure_`; without a schema the text stays unchanged.
fn qualified(text: &str, schema: Option<&Identifier>) -> String {
    const OURS: &str = "tenure_";
    let Some(schema) = schema else {
        return text.to_owned();
    };
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(at) = rest.find(OURS) {
        let (before, name) = rest.split_at(at);
        let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        out.push_str(before);
        if is_whole {
            out.push_str(&schema.quoted());
            out.push('.');
        }
        out.push_str(OURS);
        rest = name.strip_prefix(OURS).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The statements of a folder of `sql/postgres/`, named after their files. The prefix keeps the
/// names of different folders apart.
macro_rules! statements {
    ($(#[$doc:meta])* $set:ident, $folder:literal, $before:literal: $($name:ident),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $set {
            $(pub(crate) $name: Statement,)*
        }

        impl $set {
            pub(crate) fn new(schema: Option<&Identifier>, edit: Edit<'_>) -> Self {
                Self {
                    $($name: Statement::new(
                        &edit(
                            concat!($before, stringify!($name)),
                            include_str!(concat!(
                                "../../sql/postgres/", $folder, "/", stringify!($name), ".sql"
                            )),
                        ),
                        schema,
                    ),)*
                }
            }

            /// All statements with their names, for tests that prepare and explain each.
            #[cfg(feature = "testing")]
            pub(crate) fn all(&self) -> Vec<(&'static str, &Statement)> {
                vec![$((concat!($before, stringify!($name)), &self.$name),)*]
            }
        }
    };
}

statements!(
    /// The statements of the work lease.
    WorkLeaseStatements, "work_lease", "work_lease_":
    view,
    change,
    open_space,
    advance,
    prune,
    idle_with_backlog,
    lapsed,
    watermark,
);

statements!(
    /// The statements of webhooks.
    WebhookStatements, "webhook", "webhook_":
    add_endpoint,
    endpoint,
    endpoints,
    change_endpoint,
    keep_health,
    subscriptions,
    fan_out,
    sources,
    page_source,
    due_deliveries,
    record_calls,
    calls,
);

statements!(
    /// The statements of jobs and checkpoints.
    JobStatements, "jobs", "jobs_":
    enqueue,
    retry,
    job,
    page,
    note,
    claim_chunk,
    make_chunk,
    renew_chunks,
    look_chunk,
    end_chunk,
    chunks,
    notable_chunks,
    held_chunks,
    kinds,
    count,
    progress,
    prune,
);

statements!(
    /// The statements of the queue layout.
    QueueStatements, "queue", "":
    enqueue,
    enqueue_unique,
    enqueue_call,
    written_here,
    enqueue_strict,
    add_keys,
    promote,
    claim,
    renew,
    settle,
    settle_and_claim,
    settle_done_and_claim,
    reap,
    look,
    replay,
    start_replay,
    replays,
    next_replay,
    replay_dead,
    replay_done,
    move_replay,
    cancel_replay,
    bury,
    delayed,
    retry_now,
    prune_choose,
    prune,
    find,
    timeline,
    page_all,
    page_pending,
    page_claimed,
    page_done,
    page_dead,
    count,
    queues,
    separate,
    separate_topics,
    due_topics,
    set_aside,
    sweep,
    keys,
    blocked_keys,
    lock_key,
    pause_key,
    resume_key,
    skip_blocked,
    add_queue,
    pause_queue,
    settings,
    change_settings,
    report,
    leave,
    prune_keys,
    prune_workers,
    workers,
    examine,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_tenure_get_the_schema() {
        let schema = Identifier::new("work").unwrap();
        let text = "select nextval('tenure_fence') from tenure_ready, my_tenure_x where a.tenure_b";
        assert_eq!(
            qualified(text, Some(&schema)),
            "select nextval('\"work\".tenure_fence') from \"work\".tenure_ready, my_tenure_x \
             where a.tenure_b"
        );
        assert_eq!(qualified(text, None), text);
    }

    /// Behind a pooler a statement may run in a transaction that has begun earlier, by as long as a
    /// pause of the process: with the time of its beginning, guards would judge too late. Only the
    /// events of a transaction share its time, by which `written_here` finds them.
    #[test]
    fn the_time_of_a_statement_is_not_that_of_its_transaction() {
        let as_written = &crate::render::as_written;
        let queue = QueueStatements::new(None, as_written);
        let webhook = WebhookStatements::new(None, as_written);
        let work_lease = WorkLeaseStatements::new(None, as_written);
        let all = queue.all().into_iter();
        for (name, statement) in all.chain(webhook.all()).chain(work_lease.all()) {
            let is_stale = statement.0.contains("coalesce($1::timestamptz, now())");
            assert!(!is_stale || name.starts_with("enqueue"), "{name}");
        }
    }

    /// The statements that settle and claim repeat the texts of settle and claim, since a statement
    /// is one file; the copies must stay identical.
    #[test]
    fn settle_and_claim_repeats_settle_and_claim() {
        let all = QueueStatements::new(None, &crate::render::as_written);
        let body = |statement: &Statement| {
            let lines = statement.0.lines().filter(|line| !line.starts_with("--"));
            let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
            let numbered: String = words.join(" ");
            numbered
                .chars()
                .filter(|c| !c.is_ascii_digit())
                .collect::<String>()
        };
        let steps = |statement: &Statement, end: &str| {
            let text = body(statement);
            let cut = text.find(end).unwrap();
            text[..cut].trim_start_matches("with ").trim().to_owned()
        };
        let settle = steps(&all.settle, "select is_late, rest, refused");
        let claim = steps(&all.claim, "select a.has_arrivals");
        let fused = body(&all.settle_and_claim);
        assert!(
            fused.contains(&settle),
            "settle_and_claim.sql differs from settle.sql"
        );
        assert!(
            fused.contains(&claim),
            "settle_and_claim.sql differs from claim.sql"
        );
        let fast = body(&all.settle_done_and_claim);
        assert!(
            fast.contains(&claim),
            "settle_done_and_claim.sql differs from claim.sql"
        );
    }
}
