//! Values that are too large or invalid are refused before they are written, with the same message
//! on both databases, and never changed silently.

use tenure_core::job::{COUNT_MAX, CURSOR_BYTES_MAX, JobId, MatrixName, NewJob, Note};
use tenure_core::store::{ChunkEnd, EndChunk, StoreError, StoreErrorKind};
use tenure_core::testing::token;

use super::{NOW, Place, asks, ends, held_job, key, synced, take};

fn assert_invalid(place: &Place, answer: Result<impl std::fmt::Debug, StoreError>, words: &str) {
    let error = answer.expect_err(words);
    assert_eq!(error.kind(), StoreErrorKind::Invalid, "{}", place.name());
    let text = error.to_string();
    assert!(text.contains(words), "no {words:?} in {text}");
}

fn at(cursor: String) -> Note {
    Note {
        cursor: Some(cursor),
        ..Note::default()
    }
}

#[tokio::test]
async fn an_invalid_note_or_end_of_a_chunk_is_refused_and_writes_nothing() {
    for place in Place::both().await {
        let book = place.jobs();
        let hold = held_job(book, "m", &token("jobs", 1), NOW).await;
        // The leases of these tests end in the future, so no write is late.
        for (note, words) in [
            (at("x".repeat(CURSOR_BYTES_MAX + 1)), "65537 bytes"),
            (at("a\0b".to_owned()), "NUL"),
            (
                Note {
                    chunks_total: Some(COUNT_MAX + 1),
                    ..at("new".to_owned())
                },
                "9007199254740992",
            ),
            (
                Note {
                    chunks_total: Some(5),
                    result: Some("no json".to_owned()),
                    ..at("new".to_owned())
                },
                "JSON",
            ),
        ] {
            assert_invalid(&place, book.note_job(&hold, &note).await, words);
        }
        let job = book.job(hold.id, None).await.unwrap().unwrap();
        assert_eq!(
            (job.cursor, job.chunks_total),
            (None, None),
            "nothing was written"
        );
        let longest = Note {
            chunks_total: Some(COUNT_MAX),
            ..at("x".repeat(CURSOR_BYTES_MAX))
        };
        assert!(book.note_job(&hold, &longest).await.unwrap().is_accepted());

        let (key, token) = (key("m", "a"), token("chunks", 1));
        take(book, &asks(&key, &token, NOW)).await;
        let row_count = COUNT_MAX + 1;
        for end in [
            ChunkEnd::Completed { row_count },
            ChunkEnd::Synced { row_count },
        ] {
            let end = ends(&key, &token, end, NOW);
            assert_invalid(&place, book.end_chunk(&end).await, "9007199254740992");
        }
        let odd = EndChunk {
            cursor: Some("a\0b".to_owned()),
            ..ends(&key, &token, synced(), NOW)
        };
        assert_invalid(&place, book.end_chunk(&odd).await, "NUL");
        let end = ends(&key, &token, synced(), NOW);
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
    }
}

#[tokio::test]
async fn a_matrix_named_after_a_job_is_refused_except_for_its_retry() {
    for place in Place::both().await {
        let book = place.jobs();
        let job = |matrix: &str| {
            let job = NewJob::new("import", "{}").unwrap();
            job.matrix(MatrixName::new(matrix).unwrap())
        };
        for matrix in ["job-1", "job-0017"] {
            let jobs = [job("fine"), job(matrix)];
            assert_invalid(&place, book.enqueue_jobs(&jobs, None).await, matrix);
        }
        assert_eq!(place.ask("select count(*) from tenure_jobs").await, "0");
        let again = NewJob {
            retry_of: Some(JobId::new(1)),
            ..job("job-1")
        };
        let fine = [job("job-"), job("job-1a"), job("jobs-1"), again];
        book.enqueue_jobs(&fine, None).await.unwrap();
    }
}

/// Hand-written rows may contain any number; progress must still be readable.
#[tokio::test]
async fn progress_can_be_read_for_any_number_of_rows() {
    for place in Place::both().await {
        let book = place.jobs();
        for (no, chunk) in (1..).zip(["a", "b", "c"]) {
            let (key, token) = (key("m", chunk), token("chunks", no));
            take(book, &asks(&key, &token, NOW)).await;
            let end = ends(&key, &token, synced(), NOW);
            assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        }
        let matrix = MatrixName::new("m").unwrap();
        let told = book.progress(&matrix, Some(NOW)).await.unwrap();
        assert_eq!((told.done, told.rows), (3, 21));
        let many = "update tenure_checkpoints set row_count = 9223372036854775807";
        place.change(many).await.unwrap();
        let told = book.progress(&matrix, Some(NOW)).await.unwrap();
        assert!(told.rows > 9_000_000_000_000_000_000, "{told:?}");
    }
}
