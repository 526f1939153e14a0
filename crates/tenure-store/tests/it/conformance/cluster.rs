//! State shared by the processes of a cluster: settings and workers.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tenure_core::WorkerId;
use tenure_core::store::{
    Answer, ChangeSettings, ClusterSettings, Presence, Store, StoreErrorKind, WorkerRecord,
    WorkerReport,
};

use crate::world::{T0, TICK, World, at};

on_every_queue!(
    a_new_store_has_no_settings_and_no_workers,
    a_change_of_settings_is_atomic_and_raises_the_version,
    a_change_of_settings_based_on_another_version_is_refused,
    exactly_one_of_many_concurrent_changes_takes_effect,
    names_and_values_are_stored_unchanged,
    a_name_that_is_given_twice_gets_its_last_value,
    a_setting_with_a_nul_is_refused,
    a_report_replaces_the_previous_one,
    a_report_with_extreme_values_is_stored,
    a_worker_leaves_once_and_for_good,
    workers_are_listed_by_their_last_report_newest_first,
    a_worker_that_missed_three_reports_is_silent,
    without_a_given_time_the_clock_of_the_store_is_used,
);

fn outbox(world: &dyn World) -> &dyn Store {
    world.outbox().expect("a store in the queue layout")
}

fn change(version: u64, values: &[(&str, Option<&str>)]) -> ChangeSettings {
    let owned =
        |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(str::to_owned));
    ChangeSettings {
        version,
        values: values.iter().map(owned).collect(),
    }
}

/// Changes the settings; returns the new version if the change took effect.
async fn set(world: &dyn World, version: u64, values: &[(&str, Option<&str>)]) -> Option<u64> {
    let change = change(version, values);
    let answer = outbox(world).change_settings(&change).await;
    answer.expect("change settings")
}

async fn settings(world: &dyn World) -> ClusterSettings {
    outbox(world).settings().await.expect("settings")
}

/// Expected settings, for comparison.
fn of(version: u64, values: &[(&str, &str)]) -> ClusterSettings {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ClusterSettings {
        version,
        values: values.iter().map(owned).collect(),
    }
}

/// Waits for all answers concurrently.
async fn all<T>(asked: Vec<Answer<'_, T>>) -> Vec<T> {
    let mut waiting: Vec<_> = asked.into_iter().enumerate().collect();
    let mut answers: Vec<Option<T>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        waiting.retain_mut(|(nth, answer)| match answer.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                answers[*nth] = Some(answer.expect("an answer"));
                false
            }
        });
        if waiting.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

fn worker(name: &str, nonce: u64) -> WorkerId {
    WorkerId::new(name, nonce).unwrap()
}

fn report(worker: WorkerId) -> WorkerReport {
    WorkerReport {
        worker,
        host: "mill".into(),
        pid: 4711,
        version: "0.1.0".into(),
        queues: "default, mail".into(),
        topics: tenure_core::TopicSet::any(),
        concurrency: 10,
        running: 3,
        held: 7,
        settings_version: 2,
        next_within: Duration::from_millis(7_500),
    }
}

async fn tell(world: &dyn World, report: &WorkerReport, second: u64) {
    let told = outbox(world).report(report, Some(at(second))).await;
    told.expect("report");
}

async fn workers(world: &dyn World, limit: u32) -> Vec<WorkerRecord> {
    outbox(world).workers(limit).await.expect("workers").1
}

async fn a_new_store_has_no_settings_and_no_workers(world: &dyn World) {
    assert_eq!(settings(world).await, ClusterSettings::default());
    assert!(workers(world, 10).await.is_empty());
}

async fn a_change_of_settings_is_atomic_and_raises_the_version(world: &dyn World) {
    let first = [("term", Some("60s")), ("batch", Some("50"))];
    assert_eq!(set(world, 0, &first).await, Some(1));
    let both = of(1, &[("batch", "50"), ("term", "60s")]);
    assert_eq!(settings(world).await, both);
    // The change adds one setting, changes one, removes one, and removes one that does not exist.
    let second = [
        ("heartbeat", Some("10s")),
        ("batch", Some("70")),
        ("term", None),
        ("max_hold", None),
    ];
    assert_eq!(set(world, 1, &second).await, Some(2));
    let left = of(2, &[("batch", "70"), ("heartbeat", "10s")]);
    assert_eq!(settings(world).await, left);
    // An empty change also raises the version: the caller learns that no other change came between.
    assert_eq!(set(world, 2, &[]).await, Some(3));
    assert_eq!(settings(world).await.values, left.values);
}

async fn a_change_of_settings_based_on_another_version_is_refused(world: &dyn World) {
    assert_eq!(set(world, 0, &[("term", Some("60s"))]).await, Some(1));
    let before = world.dump().await;
    let values = [("term", None), ("batch", Some("7"))];
    for version in [0, 2, 99, u64::MAX] {
        assert_eq!(set(world, version, &values).await, None, "{version}");
    }
    assert_eq!(world.dump().await, before);
    assert_eq!(set(world, 1, &values).await, Some(2));
}

async fn exactly_one_of_many_concurrent_changes_takes_effect(world: &dyn World) {
    for version in 0..10 {
        let names: Vec<String> = (0..8).map(|nth| format!("{version}.{nth}")).collect();
        let changes: Vec<ChangeSettings> = names
            .iter()
            .map(|name| change(version, &[(name, Some("1")), ("last", Some(name))]))
            .collect();
        let store = outbox(world);
        let asked = changes.iter().map(|change| store.change_settings(change));
        let answers = all(asked.collect()).await;
        let won: Vec<&String> = answers
            .iter()
            .zip(&names)
            .filter_map(|(answer, name)| answer.map(|new| (new, name)))
            .map(|(new, name)| {
                assert_eq!(new, version + 1);
                name
            })
            .collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        let found = settings(world).await;
        assert_eq!(found.version, version + 1);
        // The settings contain one name per winner so far, and the name of the last winner.
        assert_eq!(u64::try_from(found.values.len()), Ok(version + 2));
        assert!(found.values.contains(&("last".to_owned(), won[0].clone())));
    }
}

async fn names_and_values_are_stored_unchanged(world: &dyn World) {
    let long = "x".repeat(100_000);
    // The names are in byte order.
    let odd = [
        ("", ""),
        (" ", "  "),
        ("$1", "?1 :name %s"),
        ("'; drop table tenure_settings; --", "''\"\""),
        ("007", "007"),
        ("1e3", "1e3"),
        ("B", "null"),
        ("[\"a\"]", "{\"a\":[1,2]}"),
        ("\\n", "\\u0041\\"),
        ("a", "true"),
        ("a\tb\r\n", "\u{1}\u{7f}\u{feff}"),
        ("long", &long),
        ("name.that.nobody.knows", "1"),
        ("é", "\u{301}e\u{301}"),
        ("\u{1f980}", "\u{10ffff}\u{202e}"),
    ];
    let asked = odd.iter().rev().map(|(name, value)| (*name, Some(*value)));
    assert_eq!(set(world, 0, &asked.collect::<Vec<_>>()).await, Some(1));
    assert_eq!(settings(world).await, of(1, &odd));
    let out: Vec<_> = odd.iter().map(|(name, _)| (*name, None)).collect();
    assert_eq!(set(world, 1, &out).await, Some(2));
    assert_eq!(settings(world).await, of(2, &[]));
}

async fn a_name_that_is_given_twice_gets_its_last_value(world: &dyn World) {
    let values = [
        ("a", Some("1")),
        ("b", Some("1")),
        ("a", Some("2")),
        ("b", None),
        ("c", None),
        ("c", Some("3")),
    ];
    assert_eq!(set(world, 0, &values).await, Some(1));
    assert_eq!(settings(world).await, of(1, &[("a", "2"), ("c", "3")]));
}

async fn a_setting_with_a_nul_is_refused(world: &dyn World) {
    for odd in [("a\0", Some("1")), ("a", Some("\0")), ("\0", None)] {
        let change = change(0, &[("b", Some("1")), odd]);
        let refused = outbox(world).change_settings(&change).await;
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Invalid);
    }
    assert_eq!(settings(world).await, ClusterSettings::default());
}

async fn a_report_replaces_the_previous_one(world: &dyn World) {
    let first = report(worker("mill", 1));
    tell(world, &first, 0).await;
    let second = WorkerReport {
        host: "other".into(),
        pid: 1,
        version: "0.2.0".into(),
        queues: String::new(),
        topics: tenure_core::TopicSet::any(),
        concurrency: 20,
        running: 0,
        held: 0,
        settings_version: 3,
        next_within: Duration::from_mins(1),
        ..first.clone()
    };
    let record = |report: &WorkerReport, seen: u64| WorkerRecord {
        report: report.clone(),
        started_at: T0,
        reported_at: at(seen),
        left_at: None,
    };
    assert_eq!(workers(world, 10).await, [record(&first, 0)]);
    tell(world, &second, 7).await;
    assert_eq!(workers(world, 10).await, [record(&second, 7)]);
}

async fn a_report_with_extreme_values_is_stored(world: &dyn World) {
    let odd = WorkerReport {
        host: "'\"\\ \n é \u{1f980}".into(),
        pid: u32::MAX,
        version: String::new(),
        queues: "a\0b".into(),
        topics: tenure_core::TopicSet::any(),
        concurrency: u32::MAX,
        running: u32::MAX,
        held: u32::MAX,
        settings_version: 1 << 62,
        // The store rounds up to milliseconds, so that no worker is silent too early.
        next_within: Duration::from_micros(1_001),
        ..report(worker("A-z_9.", u64::MAX))
    };
    tell(world, &odd, 0).await;
    let kept = WorkerReport {
        queues: "a\u{fffd}b".into(),
        topics: tenure_core::TopicSet::any(),
        next_within: Duration::from_millis(2),
        ..odd
    };
    assert_eq!(workers(world, 1).await[0].report, kept);
}

async fn a_worker_leaves_once_and_for_good(world: &dyn World) {
    let store = outbox(world);
    let (first, other) = (worker("mill", 1), worker("mill", 2));
    tell(world, &report(first.clone()), 0).await;
    tell(world, &report(other), 0).await;
    store.leave(&first, Some(at(5))).await.expect("leave");
    store.leave(&first, Some(at(9))).await.expect("leave");
    // The worker's last report was in flight when the worker left.
    tell(world, &report(first.clone()), 10).await;
    let found = workers(world, 10).await;
    assert_eq!(found[0].report.worker, first);
    assert_eq!(
        (found[0].reported_at, found[0].left_at),
        (at(10), Some(at(5)))
    );
    assert_eq!(found[1].left_at, None);
    let before = world.dump().await;
    let unknown = worker("nobody", 1);
    store.leave(&unknown, Some(at(5))).await.expect("leave");
    assert_eq!(world.dump().await, before);
}

async fn workers_are_listed_by_their_last_report_newest_first(world: &dyn World) {
    let store = outbox(world);
    let reports: Vec<WorkerReport> = (0..1000).map(|n| report(worker("mill", n))).collect();
    // Two workers report at each time; they are listed by id.
    let asked = reports.iter().zip(0..);
    let asked = asked.map(|(report, n)| store.report(report, Some(at(n / 2))));
    all(asked.collect()).await;
    let mut expected = Vec::new();
    for pair in (0..500).rev() {
        expected.extend([worker("mill", 2 * pair), worker("mill", 2 * pair + 1)]);
    }
    for limit in [0, 1, 10, 999, 1000, 1001, u32::MAX] {
        let found: Vec<WorkerId> = workers(world, limit)
            .await
            .into_iter()
            .map(|record| record.report.worker)
            .collect();
        let most = expected.len().min(usize::try_from(limit).unwrap());
        assert_eq!(found, expected[..most], "{limit}");
    }
}

async fn a_worker_that_missed_three_reports_is_silent(world: &dyn World) {
    let id = worker("mill", 1);
    tell(world, &report(id.clone()), 10).await;
    let found = workers(world, 1).await;
    let end = at(10).after(Duration::from_millis(3 * 7_500));
    for (now, presence) in [
        (T0, Presence::Active),
        (at(10), Presence::Active),
        (end, Presence::Active),
        (end.after(TICK), Presence::Silent),
    ] {
        assert_eq!(found[0].presence(now), presence, "at {now}");
    }
    outbox(world).leave(&id, Some(at(20))).await.expect("leave");
    let found = workers(world, 1).await;
    assert_eq!(found[0].presence(at(20)), Presence::Left);
    assert_eq!(found[0].presence(end.after(TICK)), Presence::Left);
}

async fn without_a_given_time_the_clock_of_the_store_is_used(world: &dyn World) {
    let store = outbox(world);
    let id = worker("mill", 1);
    let (before, _) = store.workers(0).await.expect("workers");
    store
        .report(&report(id.clone()), None)
        .await
        .expect("report");
    store.leave(&id, None).await.expect("leave");
    let (now, found) = store.workers(1).await.expect("workers");
    let (reported_at, left_at) = (found[0].reported_at, found[0].left_at.unwrap());
    assert_eq!(found[0].started_at, reported_at);
    assert!(before <= reported_at && reported_at <= left_at && left_at <= now);
}
