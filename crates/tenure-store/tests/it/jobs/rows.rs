//! Jobs are enqueued, listed, claimed in order and by kind, noted and cancelled; finished jobs are
//! final.

use tenure_core::job::{JobId, JobKind, MatrixName, NewJob, Note};
use tenure_core::store::{Bury, Claim, JobFilter, Prune, Pruned, Replay, Settle};
use tenure_core::testing::token;
use tenure_core::{Content, Guarded, ItemId, Outcome, Refusal, SyncState, Timestamp};

use super::{NOW, Place, asks, claim_job, held_job, key, seconds, take};

fn job(kind: &str) -> NewJob {
    NewJob::new(kind, r#"{"b": 1,  "a": [2]}"#).unwrap()
}

/// A job is read back as written, and each job without a matrix gets its own.
#[tokio::test]
async fn a_job_comes_back_as_it_was_written() {
    for place in Place::both().await {
        let book = place.jobs();
        let mut later = job("export").priority(-3);
        later.delay = seconds(60);
        later.retry_of = Some(JobId::new(1));
        let matrix = MatrixName::new("orders").unwrap();
        let jobs = [job("import"), later, job("import").matrix(matrix)];
        let ids = book.enqueue_jobs(&jobs, Some(NOW)).await.unwrap();
        assert_eq!(ids, [1, 2, 3].map(JobId::new), "{}", place.name());
        let told = book.job(JobId::new(2), Some(NOW)).await.unwrap().unwrap();
        assert_eq!(told.payload, r#"{"b": 1,  "a": [2]}"#);
        assert_eq!(
            (told.kind.as_str(), told.matrix.as_str()),
            ("export", "job-2")
        );
        assert_eq!((told.priority, told.retry_of), (-3, Some(JobId::new(1))));
        assert_eq!(told.available_at, Some(NOW.after(seconds(60))));
        assert_eq!((told.created_at, told.state), (NOW, SyncState::Available));
        assert_eq!(told.hold, None);
        let told = book.job(JobId::new(3), Some(NOW)).await.unwrap().unwrap();
        assert_eq!((told.matrix.as_str(), told.available_at), ("orders", None));
        assert_eq!(book.job(JobId::new(4), Some(NOW)).await.unwrap(), None);
    }
}

/// A claim takes urgent jobs first, then the oldest, only of the requested kinds, and none that is
/// not due.
///
/// Proves: S5-022, S5-024
#[tokio::test]
async fn jobs_are_claimed_by_priority_age_and_kind() {
    for place in Place::both().await {
        let book = place.jobs();
        let mut later = job("import").priority(9);
        later.delay = seconds(60);
        let jobs = [
            job("import"),
            job("export").priority(5),
            job("import").priority(5),
            later,
            job("import"),
        ];
        book.enqueue_jobs(&jobs, Some(NOW)).await.unwrap();
        let mut order = Vec::new();
        for n in 1..=2 {
            let claim = Claim::new(token("w", n), 1).kinds(vec!["import".into(), "no".into()]);
            let held = book.job_leases().claim(&claim.at(NOW)).await.unwrap();
            order.push(held.unwrap().items[0].id.number());
        }
        let none = Claim::new(token("w", 3), 1)
            .kinds(vec!["no".into()])
            .at(NOW);
        assert_eq!(book.job_leases().claim(&none).await.unwrap(), None);
        for n in 4..=5 {
            let held = claim_job(book, &token("w", n), NOW).await;
            order.push(held.unwrap().items[0].id.number());
        }
        assert_eq!(order, [3, 1, 2, 5], "{}", place.name());
        assert_eq!(claim_job(book, &token("w", 6), NOW).await, None);
        let then = NOW.after(seconds(60));
        assert!(claim_job(book, &token("w", 7), then).await.is_some());
    }
}

/// A handler gets the whole row, with the payload as JSON.
#[tokio::test]
async fn a_claim_returns_the_whole_job() {
    for place in Place::both().await {
        let book = place.jobs();
        held_job(book, "m", &token("w", 1), NOW).await;
        let again = NOW.after(seconds(300));
        let held = claim_job(book, &token("x", 1), again).await.unwrap();
        let Content::Row(row) = &held.items[0].content else {
            panic!("a job is a row");
        };
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        assert_eq!(row["payload"], serde_json::json!({}), "{}", place.name());
        assert_eq!(
            (row["kind"].as_str(), row["matrix_id"].as_str()),
            (Some("import"), Some("m"))
        );
        assert_eq!(held.items[0].counters.crashes, 1);
        let told = book.job(JobId::new(1), Some(again)).await.unwrap().unwrap();
        assert_eq!(told.state, SyncState::Running);
        assert_eq!(told.hold.unwrap().holder, token("x", 1).holder());
    }
}

/// Omitted fields keep their values.
#[tokio::test]
async fn only_the_holder_can_write_a_note() {
    for place in Place::both().await {
        let book = place.jobs();
        // The store checks notes by its own clock, so this claim uses it, too.
        book.enqueue_jobs(&[job("import")], None).await.unwrap();
        let mine = token("w", 1);
        let claim = Claim::new(mine.clone(), 1);
        book.job_leases().claim(&claim).await.unwrap().unwrap();
        let hold = tenure_core::store::JobHold {
            id: JobId::new(1),
            token: mine,
        };
        let note = Note {
            cursor: Some("17".into()),
            chunks_total: Some(40),
            result: None,
        };
        assert!(book.note_job(&hold, &note).await.unwrap().is_accepted());
        let note = Note {
            result: Some(r#"{"rows":  3}"#.into()),
            ..Note::default()
        };
        assert!(book.note_job(&hold, &note).await.unwrap().is_accepted());
        let told = book.job(JobId::new(1), None).await.unwrap().unwrap();
        assert_eq!(
            (told.cursor.as_deref(), told.chunks_total),
            (Some("17"), Some(40))
        );
        assert_eq!(told.result.as_deref(), Some(r#"{"rows":  3}"#));
        let no_json = Note {
            result: Some("no json".into()),
            ..Note::default()
        };
        book.note_job(&hold, &no_json).await.unwrap_err();
        let mut thief = hold.clone();
        // One token is of another worker, the other of another claim of the same worker.
        for other in [token("thief", 1), token("w", 2)] {
            thief.token = other;
            let answer = book.note_job(&thief, &note).await.unwrap();
            assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{}", place.name());
        }
        thief.id = JobId::new(9);
        let answer = book.note_job(&thief, &note).await.unwrap();
        assert_eq!(answer, Guarded::Refused(Refusal::NotFound));
        let done = Settle::new(hold.token.clone()).done([ItemId::new(1)]);
        assert_eq!(
            book.job_leases()
                .settle(&done)
                .await
                .unwrap()
                .refused()
                .count(),
            0
        );
        let answer = book.note_job(&hold, &note).await.unwrap();
        assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
    }
}

/// A finished job is final: no claim, settle, cancel or replay reopens it.
///
/// Proves: S5-008, S5-015, S5-016
#[tokio::test]
async fn a_job_that_has_ended_is_final() {
    for place in Place::both().await {
        let book = place.jobs();
        let (one, two) = (token("w", 1), token("w", 2));
        held_job(book, "m", &one, NOW).await;
        held_job(book, "m", &two, NOW).await;
        let dead = Outcome::Dead {
            reason: "rejected".into(),
            error: "x".repeat(5000),
        };
        let ids = [1, 2].map(ItemId::new);
        let settles = [
            Settle::new(one).done([ids[0]]),
            Settle::new(two).item(ids[1], dead),
        ];
        for settle in &settles {
            let answer = book.job_leases().settle(&settle.clone().at(NOW)).await;
            assert_eq!(answer.unwrap().refused().count(), 0);
        }
        let ended = [
            book.job(JobId::new(1), Some(NOW)).await.unwrap().unwrap(),
            book.job(JobId::new(2), Some(NOW)).await.unwrap().unwrap(),
        ];
        let states = ended.each_ref().map(|job| job.state);
        assert_eq!(states, [SyncState::Completed, SyncState::Failed]);
        assert_eq!(ended[1].error.as_ref().unwrap().chars().count(), 1000);
        assert_eq!(
            (ended[0].completed_at, ended[1].failed_at),
            (Some(NOW), Some(NOW))
        );
        let later = NOW.after(seconds(9000));
        assert_eq!(claim_job(book, &token("w", 3), later).await, None);
        for id in ids {
            let bury = Bury::new(id, token("op", 1), "why").at(later);
            let answer = book.job_operations().bury(&bury).await.unwrap();
            assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
        }
        let replay = Replay {
            ids: vec![ids[0], ids[1], ItemId::new(3)],
            now: Some(later),
        };
        let answers = book.job_operations().replay(&replay).await.unwrap();
        let whys: Vec<_> = answers.iter().map(|(_, answer)| answer.refusal()).collect();
        let settled = Some(Refusal::AlreadySettled);
        assert_eq!(whys, [settled, settled, Some(Refusal::NotFound)]);
        assert_eq!(
            book.job(JobId::new(1), Some(NOW)).await.unwrap().as_ref(),
            Some(&ended[0])
        );
        assert_eq!(
            book.job(JobId::new(2), Some(NOW)).await.unwrap().as_ref(),
            Some(&ended[1])
        );
    }
}

/// The job may have been pending or running.
#[tokio::test]
async fn a_cancelled_job_is_failed_and_its_holder_is_refused() {
    for place in Place::both().await {
        let book = place.jobs();
        let mine = token("w", 1);
        held_job(book, "m", &mine, NOW).await;
        book.enqueue_jobs(&[job("import")], Some(NOW))
            .await
            .unwrap();
        for id in [1, 2].map(ItemId::new) {
            let bury = Bury::new(id, token("op", 1), "not needed").at(NOW);
            let buried = book.job_operations().bury(&bury).await.unwrap();
            assert!(buried.is_accepted());
            let told = book
                .job(JobId::new(id.number()), Some(NOW))
                .await
                .unwrap()
                .unwrap();
            assert_eq!((told.state, told.hold), (SyncState::Failed, None));
            assert!(told.is_cancelled, "{}", place.name());
            assert_eq!(
                told.error.as_deref(),
                Some("not needed"),
                "{}",
                place.name()
            );
        }
        let done = Settle::new(mine).done([ItemId::new(1)]).at(NOW);
        let answer = book.job_leases().settle(&done).await.unwrap().items[0].1;
        assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
        assert_eq!(claim_job(book, &token("w", 2), NOW).await, None);
    }
}

/// Every filter returns exactly its jobs, newest first, page by page.
#[tokio::test]
async fn lists_can_be_filtered_by_kind_matrix_and_state() {
    for place in Place::both().await {
        let book = place.jobs();
        let matrix = MatrixName::new("orders").unwrap();
        for nth in 0..12 {
            let kind = if nth % 2 == 0 { "import" } else { "export" };
            let job = if nth % 3 == 0 {
                job(kind).matrix(matrix.clone())
            } else {
                job(kind)
            };
            book.enqueue_jobs(&[job], None).await.unwrap();
        }
        let long_ago = Timestamp::from_micros(1_000_000);
        // Job 1 runs, 2 has lapsed, 3 is done, 4 failed.
        for (id, now) in [(1, None), (2, Some(long_ago)), (3, None), (4, None)] {
            let mut claim = Claim::new(token("w", id), 1).recovery(None);
            claim.now = now;
            if now.is_some() {
                let early = place.moment(Timestamp::from_micros(0));
                let sql = format!("update tenure_jobs set created_at = {early} where id = 2");
                place.change(&sql).await.unwrap();
            }
            let held = book.job_leases().claim(&claim).await.unwrap().unwrap();
            assert_eq!(held.items[0].id.number(), i64::try_from(id).unwrap());
        }
        let done = Settle::new(token("w", 3)).done([ItemId::new(3)]);
        let settled = book.job_leases().settle(&done).await.unwrap();
        assert_eq!(settled.refused().count(), 0);
        let bury = Bury::new(ItemId::new(4), token("op", 1), "why");
        let buried = book.job_operations().bury(&bury).await.unwrap();
        assert!(buried.is_accepted());
        let states = |id: i64| match id {
            1 => SyncState::Running,
            2 => SyncState::Lapsed,
            3 => SyncState::Completed,
            4 => SyncState::Failed,
            _ => SyncState::Available,
        };
        let kinds = [None, Some("import"), Some("export")];
        for kind in kinds {
            for matrix in [None, Some(&matrix)] {
                for state in SyncState::ALL.map(Some).into_iter().chain([None]) {
                    for before in [None, Some(6)] {
                        let filter = JobFilter {
                            kind: kind.map(|kind| JobKind::new(kind).unwrap()),
                            matrix: matrix.cloned(),
                            state,
                            before: before.map(JobId::new),
                        };
                        let found = book.jobs(&filter, 3).await.unwrap();
                        let fits = |id: &i64| {
                            kind.is_none_or(|kind| (kind == "import") == (id % 2 == 1))
                                && (matrix.is_none() || id % 3 == 1)
                                && state.is_none_or(|state| states(*id) == state)
                                && before.is_none_or(|before| *id < before)
                        };
                        let expected: Vec<i64> = (1..=12).rev().filter(fits).take(3).collect();
                        let ids: Vec<i64> = found.iter().map(|job| job.id.number()).collect();
                        assert_eq!(ids, expected, "{filter:?} on {}", place.name());
                        assert!(found.iter().all(|job| job.state == states(job.id.number())));
                    }
                }
            }
        }
    }
}

/// Completed and failed jobs have separate retentions. Open jobs stay, and so do the chunks of a
/// matrix that the caller named or that a retry still works on.
#[tokio::test]
async fn ended_jobs_are_pruned_with_the_chunks_of_their_own_matrix() {
    for place in Place::both().await {
        let book = place.jobs();
        let orders = MatrixName::new("orders").unwrap();
        let retried = MatrixName::new("job-2").unwrap();
        let jobs = [
            job("a"),
            job("a"),
            job("a").matrix(orders),
            job("a").matrix(MatrixName::new("job-7x").unwrap()),
            job("a"),
            NewJob {
                retry_of: Some(JobId::new(2)),
                ..job("a").matrix(retried)
            },
        ];
        book.enqueue_jobs(&jobs, Some(NOW)).await.unwrap();
        for (nth, matrix) in (1..).zip(["job-1", "job-2", "orders", "job-7x", "job-5"]) {
            take(book, &asks(&key(matrix, "one"), &token("chunks", nth), NOW)).await;
        }
        for id in 1..=4_i64 {
            let token = token("jobs", id.unsigned_abs());
            claim_job(book, &token, NOW).await.unwrap();
            let mut settle = Settle::new(token);
            settle.items.push((ItemId::new(id), Outcome::Done));
            settle.now = Some(NOW);
            let settled = book.job_leases().settle(&settle).await.unwrap();
            assert_eq!(settled.refused().count(), 0);
        }
        let mut bury = Bury::new(ItemId::new(5), token("people", 1), "wrong file");
        bury.now = Some(NOW);
        let buried = book.job_operations().bury(&bury).await.unwrap();
        assert!(buried.is_accepted());

        let matrices = "select string_agg(matrix_id, ' ') from (select matrix_id \
                        from tenure_checkpoints order by matrix_id) as c";
        let prune = Prune::new(seconds(10), seconds(20));
        let early = place
            .pruner()
            .prune(&prune.clone().at(NOW.after(seconds(10))))
            .await;
        assert_eq!(early.unwrap(), Pruned::default(), "{}", place.name());
        let first = place
            .pruner()
            .prune(&prune.clone().at(NOW.after(seconds(11))))
            .await;
        let expected = Pruned {
            jobs_completed: 4,
            ..Pruned::default()
        };
        assert_eq!(first.unwrap(), expected, "{}", place.name());
        assert_eq!(place.ask(matrices).await, "job-2 job-5 job-7x orders");
        let early = place
            .pruner()
            .prune(&prune.clone().at(NOW.after(seconds(20))))
            .await;
        assert_eq!(early.unwrap(), Pruned::default(), "{}", place.name());
        let second = place
            .pruner()
            .prune(&prune.at(NOW.after(seconds(21))))
            .await;
        let expected = Pruned {
            jobs_failed: 1,
            ..Pruned::default()
        };
        assert_eq!(second.unwrap(), expected, "{}", place.name());
        assert_eq!(place.ask(matrices).await, "job-2 job-7x orders");
        assert_eq!(place.ask("select id from tenure_jobs").await, "6");
    }
}
