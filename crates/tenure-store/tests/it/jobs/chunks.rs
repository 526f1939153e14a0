//! Chunks.

use tenure_core::testing::token;

use super::{NOW, Place, asks, key, take};

#[tokio::test]
async fn smoke() {
    for place in Place::both().await {
        let book = place.book();
        take(book, &asks(&key("m", "c"), &token("w", 1), NOW)).await;
    }
}
