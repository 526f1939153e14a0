//! Producers on separate connections, which commit late, or not at all, while the crew works.

use std::sync::Arc;

use sqlx::{Connection as _, PgConnection};
use tenure_core::store::Enqueued;
use tenure_nemesis::Rng;
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tokio::time::Instant;

use super::crew::Crew;
use super::order::Sent;

/// Enqueues while the crew works, and reconnects after a failure.
pub(super) async fn produce(crew: Arc<Crew>, url: String, producer: u64) {
    let mut rng = Rng::new(crew.seed, &format!("producer-{producer}"));
    while crew.is_working() {
        // A connection may be cut, or the server may be down.
        drop(session(&crew, &url, &mut rng).await);
        crew.wait_for_work(5).await;
    }
}

/// Runs transactions until one fails.
async fn session(
    crew: &Crew,
    url: &str,
    rng: &mut Rng,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let config = StoreConfig {
        connections: 1,
        ..StoreConfig::default()
    };
    let store = PostgresStore::open(url, &config).await?;
    let mut conn = PgConnection::connect(url).await?;
    while crew.is_working() {
        let mut tx = conn.begin().await?;
        let began = Instant::now();
        let count = 1 + rng.below(2);
        let events: Vec<_> = (0..count).map(|_| crew.keys.event(rng)).collect();
        let answers = store.enqueue_on(&mut tx, &events).await?;
        // The open transaction lets other producers overtake it. A strict one commits at once,
        // because the crew may be waiting for it.
        let is_strict = events.iter().any(tenure_core::Event::is_strict);
        let patience = if is_strict { 0 } else { rng.below(20) };
        crew.wait_for_work(u64::try_from(patience)?).await;
        if rng.below(4) == 0 {
            tx.rollback().await?;
            continue;
        }
        tx.commit().await?;
        let ids = answers.into_iter().map(Enqueued::id);
        crew.note_sent(Sent::of(&events, ids, began));
    }
    Ok(())
}
