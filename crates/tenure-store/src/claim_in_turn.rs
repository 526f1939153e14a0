//! `claim_in_turn`: manual claims, on events and rows. They take poison items in turn with all
//! others, and release the items of a claim whose answer is lost.

use tenure_core::Held;
use tenure_core::store::{Claim, LeaseStore, Rest, Settle, StoreError};

/// One in this many claims asks for a poison item first.
const ALONE_TURN: u64 = 8;

/// Claims items; `turn` counts the claims of the caller. Poison items are claimed when nothing else
/// is available, and in every eighth turn first, so that a busy queue does not starve them.
///
/// # Errors
/// The database is unavailable, or refuses the claim.
pub async fn claim_in_turn(
    store: &dyn LeaseStore,
    turn: u64,
    ask: impl Fn() -> Claim,
) -> Result<Option<Held>, StoreError> {
    let is_alone_first = turn.is_multiple_of(ALONE_TURN);
    for is_alone in [is_alone_first, !is_alone_first] {
        let ask = if is_alone { ask().alone() } else { ask() };
        if let Some(held) = once(store, &ask).await? {
            return Ok(Some(held));
        }
    }
    Ok(None)
}

/// Claims once. If the claim failed but may have taken effect, releases its items by the token;
/// otherwise they would stay held until the lease lapses.
async fn once(store: &dyn LeaseStore, ask: &Claim) -> Result<Option<Held>, StoreError> {
    let answer = store.claim(ask).await;
    if answer.as_ref().is_err_and(StoreError::is_transient) {
        let release = Settle::new(ask.token.clone()).rest(Rest::Release);
        // If this fails as well, the lease lapses; the first error is more useful.
        drop(store.settle(&release).await);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_core::store::{
        Answer, Intake, Operate, Reap, Reaped, Renew, Renewed, Settlement, StoreErrorKind,
    };
    use tenure_core::testing::token;
    use tenure_core::{Event, Guarded, Token};

    use super::*;
    use crate::memory::{MemoryStore, SystemClock};

    /// A store whose answer to a claim is lost after the claim took effect.
    #[derive(Debug)]
    struct Forgetful(MemoryStore);

    impl LeaseStore for Forgetful {
        fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
            Box::pin(async move {
                assert!(self.0.claim(claim).await?.is_some());
                let kind = StoreErrorKind::Unavailable;
                Err(StoreError::new("claim", kind, "the answer was lost"))
            })
        }

        fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
            self.0.renew(renew)
        }

        fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
            self.0.settle(settle)
        }

        fn settle_and_claim<'a>(
            &'a self,
            settle: &'a Settle,
            claim: &'a Claim,
        ) -> Answer<'a, (Settlement, Option<Held>)> {
            self.0.settle_and_claim(settle, claim)
        }

        fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
            self.0.reap(reap)
        }
    }

    #[tokio::test]
    async fn a_claim_whose_answer_was_lost_is_released() {
        let store = Forgetful(MemoryStore::new(Arc::new(SystemClock)));
        let event = Event::new("order.paid", &7).unwrap();
        store.0.enqueue(&[event]).await.unwrap();
        let error = claim_in_turn(&store, 1, || Claim::new(token("worker", 1), 10))
            .await
            .unwrap_err();
        assert!(error.is_transient());
        let counts = store.0.count(None).await.unwrap();
        assert_eq!((counts.claimed, counts.pending()), (0, 1));
    }
}
