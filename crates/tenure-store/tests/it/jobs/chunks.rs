//! Chunks: claimed, renewed and ended by matrix and name; done again, or ended for good.

use std::collections::BTreeSet;

use tenure_core::job::{ChunkClaim, ChunkKey, ChunkName, MatrixName};
use tenure_core::store::{ChunkEnd, ChunkHold, ClaimChunk, Jobs, RenewChunks};
use tenure_core::testing::token;
use tenure_core::{Guarded, Refusal, Settings, SyncState, Timestamp, Token};

use super::{
    NOW, Place, TWO_MINUTES, asks, dead, ends, failed, held_job, hold, key, refused, seconds,
    synced, take, term,
};

/// Renews one lease.
async fn renew(
    book: &dyn Jobs,
    key: &ChunkKey,
    token: &Token,
    now: Timestamp,
) -> Guarded<tenure_core::store::Renewed> {
    let renew = RenewChunks::new(vec![hold(key, token)], term()).at(now);
    book.renew_chunks(&renew).await.unwrap().remove(0).1
}

/// A claim creates an unknown chunk and holds it for two minutes; other claims get the answer that
/// it is held.
///
/// Proves: S5-009, S5-033, S5-034, S5-035, S5-036, S5-037
#[tokio::test]
async fn the_first_claim_creates_a_chunk_and_holds_it_for_its_term() {
    for place in Place::both().await {
        let (book, key) = (place.jobs(), key("orders", "2026-11"));
        let (mine, theirs) = (token("w", 1), token("x", 1));
        let chunk = take(book, &asks(&key, &mine, NOW)).await;
        let until = NOW.after(TWO_MINUTES);
        assert_eq!((&chunk.key, &chunk.lease.token), (&key, &mine));
        assert_eq!((chunk.lease.claimed_at, chunk.lease.until), (NOW, until));
        assert_eq!(
            (chunk.cursor, chunk.attempts),
            (None, 0),
            "{}",
            place.name()
        );
        let told = place.ask("select locked_by from tenure_checkpoints").await;
        assert_eq!(told, mine.holder(), "{}", place.name());
        let just_before = until.before(std::time::Duration::from_micros(1));
        for now in [NOW, just_before] {
            let answer = book.claim_chunk(&asks(&key, &theirs, now)).await.unwrap();
            let holder = mine.holder().to_owned();
            assert_eq!(answer, ChunkClaim::Held { holder, until });
        }
        let next = take(book, &asks(&key, &theirs, until)).await;
        assert_eq!(next.attempts, 1, "a lapse counts as an attempt");
        assert!(next.lease.fence > chunk.lease.fence);
    }
}

/// A heartbeat every half minute keeps a chunk indefinitely. One call renews many chunks and
/// revives none: a lapsed lease is refused even if no other worker has claimed the chunk.
///
/// Proves: S5-006, S5-038, S5-044
#[tokio::test]
async fn a_heartbeat_every_half_minute_keeps_chunks_and_revives_no_lapsed_one() {
    let settings = Settings {
        term: term(),
        heartbeat: Some(seconds(30)),
        ..Settings::default()
    };
    assert!(settings.check().is_ok(), "the timing of the specification");
    for place in Place::both().await {
        let book = place.jobs();
        let one = |n: u64| hold(&key("m", &format!("c{n}")), &token("w", n));
        let holds: Vec<ChunkHold> = (1..=50).map(one).collect();
        for mine in &holds {
            take(book, &asks(&mine.key, &mine.token, NOW)).await;
        }
        let mut now = NOW;
        for _ in 0..10 {
            now = now.after(seconds(30));
            let renew = RenewChunks::new(holds.clone(), term()).at(now);
            let answers = book.renew_chunks(&renew).await.unwrap();
            assert!(answers.iter().map(|(hold, _)| hold).eq(&holds));
            for (_, answer) in answers {
                let Guarded::Accepted(renewed) = answer else {
                    panic!("refused on {}: {answer:?}", place.name());
                };
                assert_eq!(renewed.until, now.after(TWO_MINUTES));
            }
        }
        let end = now.after(TWO_MINUTES);
        assert_eq!(
            renew(book, &holds[0].key, &holds[0].token, end).await,
            Guarded::Refused(Refusal::Lapsed)
        );
        let theirs = token("x", 1);
        take(book, &asks(&holds[0].key, &theirs, end)).await;
        assert_eq!(
            renew(book, &holds[0].key, &holds[0].token, end).await,
            Guarded::Refused(Refusal::Lost)
        );
        assert!(renew(book, &holds[0].key, &theirs, end).await.is_accepted());
    }
}

/// A done chunk is free and shows the time and the number of its rows. It can be claimed again at
/// once; a claim with `fresh_for` gets it only when this much time has passed.
///
/// Proves: S5-036, S5-039, S5-040, S5-041
#[tokio::test]
async fn a_chunk_that_was_done_recently_can_be_excluded_from_a_claim() {
    for place in Place::both().await {
        let (book, key) = (place.jobs(), key("m", "c"));
        let mine = token("w", 1);
        take(book, &asks(&key, &mine, NOW)).await;
        let done_at = NOW.after(seconds(10));
        let mut end = ends(&key, &mine, synced(), done_at);
        end.cursor = Some("here".into());
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        let told = book.chunks(&key.matrix, None, 9).await.unwrap().remove(0);
        assert_eq!((told.state, told.hold), (SyncState::Available, None));
        assert_eq!((told.synced_at, told.row_count), (Some(done_at), Some(7)));
        assert_eq!(told.cursor.as_deref(), Some("here"));
        let ask = |n: u64, bound: u64, after: u64| ClaimChunk {
            fresh_for: Some(seconds(bound)),
            ..asks(&key, &token("x", n), done_at.after(seconds(after)))
        };
        for (bound, after) in [(60, 0), (60, 59), (1, 0)] {
            let answer = book.claim_chunk(&ask(1, bound, after)).await.unwrap();
            assert_eq!(answer, ChunkClaim::Done { at: done_at }, "{}", place.name());
        }
        let again = take(book, &ask(1, 60, 60)).await;
        assert_eq!(again.cursor.as_deref(), Some("here"));
        // A chunk that is held again counts as held, even if it was done recently.
        let answer = book.claim_chunk(&ask(2, 600, 60)).await.unwrap();
        assert!(matches!(answer, ChunkClaim::Held { .. }), "{answer:?}");
        let back = ends(
            &key,
            &token("x", 1),
            ChunkEnd::Released,
            done_at.after(seconds(61)),
        );
        assert!(book.end_chunk(&back).await.unwrap().is_accepted());
        let told = book.chunks(&key.matrix, None, 9).await.unwrap().remove(0);
        assert_eq!((told.synced_at, told.row_count), (Some(done_at), Some(7)));
        take(
            book,
            &asks(&key, &token("y", 1), done_at.after(seconds(62))),
        )
        .await;
    }
}

/// A chunk that was completed, or that failed for good, cannot be claimed again.
///
/// Proves: S5-008, S5-015, S5-016, S5-033
#[tokio::test]
async fn a_chunk_that_is_completed_or_failed_for_good_cannot_be_claimed() {
    for place in Place::both().await {
        let (book, done) = (place.jobs(), key("m", "done"));
        let given_up = key("m", "dead");
        let mine = token("w", 1);
        take(book, &asks(&done, &mine, NOW)).await;
        let end = ends(&done, &mine, ChunkEnd::Completed { row_count: 3 }, NOW);
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        let theirs = token("w", 2);
        take(book, &asks(&given_up, &theirs, NOW)).await;
        let end = ends(&given_up, &theirs, dead(), NOW);
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        let later = NOW.after(seconds(90_000));
        for (key, expected) in [
            (&done, ChunkClaim::Done { at: NOW }),
            (&given_up, ChunkClaim::Failed),
        ] {
            let answer = book.claim_chunk(&asks(key, &token("x", 1), later)).await;
            assert_eq!(answer.unwrap(), expected, "{}", place.name());
        }
        for end in [synced(), failed(), ChunkEnd::Released] {
            let answer = book.end_chunk(&ends(&done, &mine, end, later)).await;
            assert_eq!(answer.unwrap(), refused(Refusal::AlreadySettled));
        }
        let told = book.chunks(&done.matrix, None, 9).await.unwrap();
        let states: Vec<SyncState> = told.iter().map(|chunk| chunk.state).collect();
        assert_eq!(states, [SyncState::Failed, SyncState::Completed]);
        let both =
            "update tenure_checkpoints set failed_at = completed_at, completed_at = completed_at
                    where chunk_hash = 'done'";
        place.change(both).await.unwrap_err();
    }
}

/// A failure is counted, the first 1000 characters of its error are recorded, and the chunk can be
/// claimed again, with its cursor.
///
/// Proves: S5-033
#[tokio::test]
async fn a_chunk_that_fails_is_free_again_and_keeps_its_counters() {
    for place in Place::both().await {
        let (book, key) = (place.jobs(), key("m", "c"));
        for n in 1..=3 {
            let mine = token("w", n);
            let chunk = take(book, &asks(&key, &mine, NOW)).await;
            assert_eq!(u64::from(chunk.attempts), n - 1, "{}", place.name());
            assert_eq!(chunk.cursor, (n > 1).then(|| format!("row {}", n - 1)));
            let error = format!("{n}\0{}", "é".repeat(5000));
            let mut end = ends(&key, &mine, ChunkEnd::Failed { error }, NOW);
            end.cursor = Some(format!("row {n}"));
            assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        }
        let told = book.chunks(&key.matrix, None, 9).await.unwrap().remove(0);
        let error = told.error.unwrap();
        assert_eq!(error.chars().count(), 1000);
        assert!(error.starts_with("3\u{fffd}é"));
        let counters =
            "select attempts || ' ' || failures || ' ' || crashes from tenure_checkpoints";
        assert_eq!(place.ask(counters).await, "3 3 0", "{}", place.name());
    }
}

/// A worker that lost its lease or has finished the chunk changes nothing, whatever it writes.
///
/// Proves: S5-002, S5-007, S5-033, S5-042
#[tokio::test]
async fn a_holder_that_was_replaced_changes_nothing() {
    for place in Place::both().await {
        // One holder is replaced by another worker, the other one by a later claim of its own.
        for (name, new) in [("c", token("x", 1)), ("d", token("w", 2))] {
            replaced_by(&place, &key("m", name), &new).await;
        }
    }
}

async fn replaced_by(place: &Place, key: &ChunkKey, new: &Token) {
    let (book, old) = (place.jobs(), token("w", 1));
    take(book, &asks(key, &old, NOW)).await;
    let then = NOW.after(TWO_MINUTES);
    take(book, &asks(key, new, then)).await;
    let before = book.chunks(&key.matrix, None, 9).await.unwrap();
    let every = [
        Some(synced()),
        Some(ChunkEnd::Completed { row_count: 1 }),
        Some(failed()),
        Some(dead()),
        Some(ChunkEnd::Released),
        None,
    ];
    for end in every.clone() {
        let mut late = ends(key, &old, synced(), then);
        late.end = end;
        late.cursor = Some("far".into());
        let answer = book.end_chunk(&late).await.unwrap();
        assert_eq!(answer, refused(Refusal::Lost), "{}", place.name());
    }
    assert_eq!(
        renew(book, key, &old, then).await,
        Guarded::Refused(Refusal::Lost)
    );
    assert_eq!(book.chunks(&key.matrix, None, 9).await.unwrap(), before);
    let done = ends(key, new, synced(), then);
    assert!(book.end_chunk(&done).await.unwrap().is_accepted());
    // A repeat gets the same answer, because the first answer may have been lost.
    assert!(book.end_chunk(&done).await.unwrap().is_accepted());
    let other = ends(key, new, failed(), then);
    assert_eq!(
        book.end_chunk(&other).await.unwrap(),
        refused(Refusal::NotClaimed)
    );
    let none = ends(&super::key("m", "none"), new, synced(), then);
    assert_eq!(
        book.end_chunk(&none).await.unwrap(),
        refused(Refusal::NotFound)
    );
}

/// The same name in two matrices means two chunks: a change of one does not affect the other.
///
/// Proves: S5-035, S5-038, S5-042
#[tokio::test]
async fn one_name_in_two_matrices_is_two_chunks() {
    for place in Place::both().await {
        let (book, one, two) = (place.jobs(), key("m1", "same"), key("m2", "same"));
        let (mine, theirs) = (token("w", 1), token("w", 2));
        take(book, &asks(&one, &mine, NOW)).await;
        take(book, &asks(&two, &theirs, NOW)).await;
        let before = book.chunks(&two.matrix, None, 9).await.unwrap();
        let later = NOW.after(seconds(30));
        assert!(renew(book, &one, &mine, later).await.is_accepted());
        let cross = renew(book, &two, &mine, later).await;
        assert_eq!(cross, Guarded::Refused(Refusal::Lost), "{}", place.name());
        let cross = ends(&two, &mine, synced(), later);
        assert_eq!(
            book.end_chunk(&cross).await.unwrap(),
            refused(Refusal::Lost)
        );
        let end = ends(&one, &mine, synced(), later);
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        assert_eq!(book.chunks(&two.matrix, None, 9).await.unwrap(), before);
        // A claim in a third matrix does not affect the first, and the token of another chunk of
        // the same matrix is refused.
        let free = book.chunks(&one.matrix, None, 9).await.unwrap();
        take(book, &asks(&key("m3", "same"), &token("w", 3), later)).await;
        assert_eq!(book.chunks(&one.matrix, None, 9).await.unwrap(), free);
        take(book, &asks(&key("m2", "else"), &token("w", 4), later)).await;
        let cross = ends(&key("m2", "else"), &theirs, synced(), later);
        let answer = book.end_chunk(&cross).await.unwrap();
        assert_eq!(answer, refused(Refusal::Lost));
        let told = book.chunks(&two.matrix, None, 9).await.unwrap();
        assert_eq!(told.last(), before.last(), "{}", place.name());
        assert!(
            renew(book, &two, &theirs, later).await.is_accepted(),
            "{}",
            place.name()
        );
    }
}

/// A token that claimed two chunks holds both. A write to one of them, by matrix and name, does
/// not affect the other.
#[tokio::test]
async fn a_token_can_hold_two_chunks_independently() {
    for place in Place::both().await {
        let (book, a, b) = (place.jobs(), key("m", "a"), key("m", "b"));
        let mine = token("w", 1);
        take(book, &asks(&a, &mine, NOW)).await;
        take(book, &asks(&b, &mine, NOW)).await;
        let later = NOW.after(seconds(30));
        assert!(renew(book, &a, &mine, later).await.is_accepted());
        let told = book.chunks(&a.matrix, None, 9).await.unwrap();
        let ends_at = |nth: usize| told[nth].hold.as_ref().unwrap().until;
        assert_eq!(ends_at(0), later.after(TWO_MINUTES), "{}", place.name());
        assert_eq!(ends_at(1), NOW.after(TWO_MINUTES), "{}", place.name());
        let end = ends(&a, &mine, synced(), later);
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        let gone = renew(book, &a, &mine, later).await;
        assert_eq!(gone, Guarded::Refused(Refusal::Lost), "{}", place.name());
        assert!(renew(book, &b, &mine, later).await.is_accepted());
        let both = vec![hold(&a, &mine), hold(&b, &mine)];
        let renew = RenewChunks::new(both, term()).at(later);
        let answers = book.renew_chunks(&renew).await.unwrap();
        let is_kept = answers.iter().map(|(_, answer)| answer.is_accepted());
        assert!(is_kept.eq([false, true]), "{}", place.name());
        let twice = vec![hold(&b, &mine), hold(&b, &mine)];
        let renew = RenewChunks::new(twice, term()).at(later.after(seconds(1)));
        let answers = book.renew_chunks(&renew).await.unwrap();
        let is_kept = answers.iter().map(|(_, answer)| answer.is_accepted());
        assert!(is_kept.eq([true, true]), "{}", place.name());
    }
}

/// Progress counts each chunk once, by its current state, and lists are sorted by name.
#[tokio::test]
async fn progress_counts_every_chunk_by_its_state() {
    for place in Place::both().await {
        let book = place.jobs();
        let nothing = MatrixName::new("none").unwrap();
        let told = book.progress(&nothing, Some(NOW)).await.unwrap();
        assert_eq!((told.total, told.done, told.began_at), (None, 0, None));
        let matrix = MatrixName::new("m").unwrap();
        held_job(book, "m", &token("w", 90), NOW).await;
        place
            .change("update tenure_jobs set chunks_total = 40 where id = 1")
            .await
            .unwrap();
        for n in 0..8 {
            let (key, mine) = (key("m", &format!("c{n}")), token("w", n));
            take(book, &asks(&key, &mine, NOW)).await;
            let end = match n {
                0 | 1 => synced(),
                2 => ChunkEnd::Completed { row_count: 100 },
                3 => failed(),
                _ => continue,
            };
            let end = ends(&key, &mine, end, NOW);
            assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        }
        another_matrix(&place).await;
        // This chunk fails for good after it was done once.
        for (n, end) in (80..).zip([synced(), dead()]) {
            let (key, mine) = (key("m", "dead"), token("w", n));
            take(book, &asks(&key, &mine, NOW)).await;
            let end = ends(&key, &mine, end, NOW);
            assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        }
        // This chunk is done once, and then held again.
        let then = NOW.after(seconds(60));
        take(book, &asks(&key("m", "c1"), &token("w", 91), then)).await;
        let told = book.progress(&matrix, Some(then)).await.unwrap();
        assert_eq!(
            (told.total, told.done, told.running, told.failed),
            (Some(40), 2, 5, 1)
        );
        assert_eq!((told.rows, told.began_at, told.now), (107, Some(NOW), then));
        let each = seconds(20); // three ended in a minute
        assert_eq!(told.left(), Some(each * 37), "{}", place.name());
        // The leases of c4 to c7 have lapsed; that of c1 has not.
        let told = book.progress(&matrix, Some(NOW.after(TWO_MINUTES))).await;
        assert_eq!(told.unwrap().running, 1, "{}", place.name());
        let mut names = BTreeSet::new();
        let mut after: Option<ChunkName> = None;
        loop {
            let page = book.chunks(&matrix, after.as_ref(), 3).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.key.chunk.clone());
            for chunk in page {
                let name = chunk.key.chunk.to_string();
                assert!(names.iter().all(|seen| *seen < name));
                names.insert(name);
            }
        }
        assert_eq!(names.len(), 9);
    }
}

/// Creates a newer job, a done chunk and a held chunk, which must not affect other matrices.
async fn another_matrix(place: &Place) {
    let book = place.jobs();
    held_job(book, "n", &token("w", 92), NOW).await;
    let total = "update tenure_jobs set chunks_total = 7 where matrix_id = 'n'";
    place.change(total).await.unwrap();
    for n in 93..95 {
        let (key, mine) = (key("n", &format!("c{n}")), token("w", n));
        take(book, &asks(&key, &mine, NOW)).await;
        if n == 93 {
            let end = ends(&key, &mine, synced(), NOW);
            assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        }
    }
}

/// Each claim has its own connection; exactly one succeeds in every round.
///
/// Proves: S5-017, S5-033
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_concurrent_claims_gets_the_chunk() {
    for place in Place::both().await {
        let (one, two) = (place.another().await, place.another().await);
        for round in 0..40 {
            let key = key("m", &format!("c{}", round / 2));
            // In even rounds the claim must create the chunk; in odd rounds the chunk exists, and
            // the lease of the round before has lapsed.
            let now = NOW.after(seconds(200 * round));
            let (mine, theirs) = (token("w", round), token("x", round));
            let asked = (asks(&key, &mine, now), asks(&key, &theirs, now));
            let (a, b) = tokio::join!(one.claim_chunk(&asked.0), two.claim_chunk(&asked.1));
            let (a, b) = (a.unwrap(), b.unwrap());
            let got = [&a, &b].map(|answer| matches!(answer, ChunkClaim::Claimed(_)));
            assert_eq!(got.iter().filter(|got| **got).count(), 1, "{a:?} {b:?}");
            let lost = [a, b]
                .into_iter()
                .find(|a| !matches!(a, ChunkClaim::Claimed(_)));
            assert!(matches!(lost, Some(ChunkClaim::Held { .. })), "{lost:?}");
        }
    }
}
