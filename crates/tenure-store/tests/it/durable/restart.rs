//! An offset in flight survives the process that acquired it.

use tenure_core::store::{DomainAsk, WorkLeases};
use tenure_core::testing::token;
use tenure_core::{AcquireResult, DomainName, SpaceName, SucceedResult, Token};
use tenure_store::config::StoreConfig;
use tenure_store::{migrate, open, testing};

fn ask() -> DomainAsk {
    let space = SpaceName::new("payments-3").unwrap();
    DomainAsk::new(space, DomainName::new("A").unwrap())
}

/// The first process: offset 1 is in flight and failed once, 2 waits, 0 is finished. Returns the
/// token as text.
async fn before(leases: &dyn WorkLeases) -> String {
    let ask = ask();
    for (offset, claim) in [(0, 1), (1, 2), (2, 3)] {
        let fresh = token("first", claim);
        let answer = leases.try_acquire(&ask, offset, &fresh).await.unwrap();
        assert!(answer.is_ok());
        if offset == 0 {
            let ended = leases.succeed(&ask, &fresh).await.unwrap();
            assert_eq!(ended, Ok(SucceedResult::NoBacklog));
        }
    }
    let held = token("first", 2);
    assert!(leases.fail(&ask, &held).await.unwrap().is_ok());
    held.expose().to_owned()
}

/// The second process, which gets the token of the first.
async fn after(leases: &dyn WorkLeases, text: &str) {
    let ask = ask();
    let held = Token::parse(text).unwrap();
    let reservation = leases.reservation(&ask).await.unwrap().unwrap();
    assert_eq!((reservation.offset, reservation.retry_count), (1, 1));
    let fresh = token("second", 1);
    let answer = leases.try_acquire(&ask, 1, &fresh).await.unwrap();
    assert_eq!(answer, Ok(AcquireResult::AlreadyAcquired(held.clone())));
    let answer = leases.try_acquire(&ask, 0, &fresh).await.unwrap();
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    let answer = leases.succeed(&ask, &fresh).await.unwrap();
    assert!(answer.unwrap_err().is_illegal_state());
    let answer = leases.succeed(&ask, &held).await.unwrap();
    assert_eq!(answer, Ok(SucceedResult::NextHint(2)));
    let idle = leases.idle_with_backlog(&ask.space, 10).await.unwrap();
    assert_eq!(idle, [(ask.domain.clone(), 2)]);
}

async fn survives(url: &str) {
    let config = StoreConfig::default();
    migrate(url, &config).await.unwrap();
    let store = open(url, &config).await.unwrap();
    let text = before(store.store().work_leases()).await;
    drop(store);
    let store = open(url, &config).await.unwrap();
    after(store.store().work_leases(), &text).await;
}

/// Proves: S3-015, S3-016, S3-017
#[tokio::test]
async fn a_token_outlives_its_process_on_postgres() {
    let database = testing::migrated().await;
    survives(&database.url).await;
}

/// Proves: S3-015, S3-016, S3-017
#[tokio::test]
async fn a_token_outlives_its_process_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    survives(&format!("sqlite://{}", path.display())).await;
}

#[tokio::test]
async fn work_leases_use_the_configured_schema() {
    let database = testing::postgres().await;
    let config = StoreConfig {
        schema: Some(tenure_core::Identifier::new("work").unwrap()),
        ..StoreConfig::default()
    };
    migrate(&database.url, &config).await.unwrap();
    let store = open(&database.url, &config).await.unwrap();
    let leases = store.store().work_leases();
    let text = before(leases).await;
    after(leases, &text).await;
    let moved = leases.advance_watermark(&ask().space, 2).await.unwrap();
    assert_eq!(moved, 2);
}
