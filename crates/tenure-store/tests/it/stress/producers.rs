//! Producers on connections of their own: they commit late, or not at all, while the crew works on.

use std::sync::Arc;

use sqlx::{Connection as _, PgConnection};
use tenure_core::store::Enqueued;
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tokio::time::Instant;

use super::crew::{Crew, Dice};
use super::order::Sent;

/// Enqueues for as long as the crew works, whatever becomes of the connection.
pub(super) async fn produce(crew: Arc<Crew>, url: String, producer: u64) {
    let mut dice = Dice(crew.seed ^ (producer << 48));
    while crew.is_working() {
        // A connection may be cut, and a server down.
        drop(session(&crew, &url, &mut dice).await);
        crew.wait_for_work(5).await;
    }
}

/// Transaction by transaction, until something breaks.
async fn session(
    crew: &Crew,
    url: &str,
    dice: &mut Dice,
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
        let count = 1 + dice.below(2);
        let events: Vec<_> = (0..count).map(|_| crew.keys.event(dice)).collect();
        let answers = store.enqueue_on(&mut tx, &events).await?;
        // Others get ahead of it. Not of a strict one: some of the crew may be waiting for it.
        let is_strict = events.iter().any(tenure_core::Event::is_strict);
        let patience = if is_strict { 0 } else { dice.below(20) };
        crew.wait_for_work(u64::try_from(patience)?).await;
        if dice.below(4) == 0 {
            tx.rollback().await?;
            continue;
        }
        tx.commit().await?;
        let ids = answers.into_iter().map(Enqueued::id);
        crew.note_sent(Sent::of(&events, ids, began));
    }
    Ok(())
}
