//! The stored work lease through the public API: invalid names, helpful errors, two programs on one
//! file.

use tenure::Tenure;
use tenure::lease::Token;
use tenure::work_lease::{AcquireResult, StoredWorkLeaseError, SucceedResult, WorkLeaseError};

/// An invalid domain or space name is refused before the store is called. The error says what is
/// expected, and shortens a long name.
#[tokio::test]
async fn invalid_names_are_refused_with_a_short_error() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let lease = tenure.work_lease("payments-3").unwrap();
    let token = tenure.token();
    let long = "x".repeat(10 * 1024);
    for name in ["", "with\nline", long.as_str()] {
        let space = tenure.work_lease(name).unwrap_err().to_string();
        let refused = [
            lease.try_acquire(name, 1).await.unwrap_err(),
            lease.submit(name, 1).await.unwrap_err(),
            lease.succeed(name, &token).await.unwrap_err(),
            lease.fail(name, &token).await.unwrap_err(),
            lease.renew(name, &token).await.unwrap_err(),
            lease.replay(name, 1).await.unwrap_err(),
            lease.reservation(name).await.unwrap_err(),
        ];
        for error in refused {
            let text = error.to_string();
            assert!(
                matches!(
                    error.contract(),
                    Some(WorkLeaseError::InvalidDomain(problem)) if problem.field() == "domain"
                ),
                "{text}"
            );
            assert!(text.contains("expected") && text.len() < 300, "{text}");
        }
        assert!(space.starts_with("space ") && space.len() < 300, "{space}");
    }
}

/// Proves: S3-006, S3-047, S3-048
#[tokio::test]
async fn errors_name_the_mistake_and_show_no_token() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let lease = tenure.work_lease("payments-3").unwrap();
    let answer = lease.try_acquire("A", 1).await.unwrap();
    let held = answer.token().unwrap().clone();
    assert_eq!(
        lease.try_acquire("A", 2).await.unwrap(),
        AcquireResult::Enqueued
    );
    let stranger = tenure.token();
    let mismatch = lease.succeed("A", &stranger).await.unwrap_err();
    let none = lease.fail("nobody", &stranger).await.unwrap_err();
    let hint = lease.succeed("A", &held).await.unwrap();
    assert_eq!(hint, SucceedResult::NextHint(2));
    let order = lease.try_acquire("A", 3).await.unwrap_err();
    for (error, start, is_illegal) in [
        (mismatch, "Token mismatch", true),
        (none, "No lease", true),
        (order, "offset 3 of the domain \"A\" is out of order", false),
    ] {
        let text = format!("{error} {error:?}");
        assert!(text.starts_with(start), "{text}");
        assert_eq!(error.is_illegal_state(), is_illegal);
        assert!(!text.contains(stranger.expose()) && !text.contains(held.expose()));
        assert!(matches!(error, StoredWorkLeaseError::Contract(_)));
    }
}

/// Proves: S3-015
#[tokio::test]
async fn two_programs_share_a_space() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let (one, two) = (
        Tenure::open(&url).await.unwrap(),
        Tenure::open(&url).await.unwrap(),
    );
    let (one, two) = (
        one.work_lease("log").unwrap(),
        two.work_lease("log").unwrap(),
    );
    let answer = one.submit("A", 1).await.unwrap();
    let text = answer.token().unwrap().expose().to_owned();
    let again = two.submit("A", 1).await.unwrap();
    assert_eq!(again.token(), answer.token());
    let token = Token::parse(&text).unwrap();
    let reservation = two.reservation("A").await.unwrap().unwrap();
    assert_eq!((reservation.offset, reservation.retry_count), (1, 0));
    let ended = two.succeed("A", &token).await.unwrap();
    assert_eq!(ended, SucceedResult::NoBacklog);
    assert_eq!(one.advance_watermark(2).await.unwrap(), 2);
    assert_eq!(two.watermark().await.unwrap(), 2);
    assert_eq!(two.lapsed(10).await.unwrap(), []);
}
