//! What a renewal found, put together over the few times that it asked.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use tenure_core::store::{Renew, Renewed};
use tenure_core::{Fence, Guarded, ItemId, Refusal, Timestamp, Token};

use crate::postgres::row::{get, get_moment};

pub(super) type Renewals = Vec<(Token, Guarded<Renewed>)>;

/// What is known of the leases that are being renewed.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<Token, Found>);

/// The rows of a lease, as the last look found them.
#[derive(Debug, Default)]
struct Found {
    /// When those end that were renewed, now or by an earlier look.
    renewed: BTreeMap<ItemId, Timestamp>,
    fence: Option<Fence>,
    /// Those that are in a transaction, and were not renewed yet.
    busy: BTreeSet<ItemId>,
    is_lapsed: bool,
}

impl Tally {
    /// Takes what a look at these tokens brought.
    pub(super) fn add(&mut self, tokens: &[Token], rows: &[PgRow]) -> Result<(), sqlx::Error> {
        let mut before: HashMap<&Token, Found> = HashMap::new();
        for token in tokens {
            before.extend(self.0.remove(token).map(|found| (token, found)));
        }
        for row in rows {
            let nth: i32 = get(row, 0)?;
            let place = usize::try_from(nth - 1).unwrap_or(usize::MAX);
            let Some(token) = tokens.get(place) else {
                continue;
            };
            let id = ItemId::new(get(row, 1)?);
            let found = self.0.entry(token.clone()).or_default();
            let earlier = before.get(token);
            let known = earlier.and_then(|earlier| earlier.renewed.get(&id));
            if let Some(until) = get_moment(row, 2)? {
                found.renewed.insert(id, until);
                found.fence = Some(Fence::new(get(row, 3)?));
            } else if !get::<bool>(row, 4)? {
                found.is_lapsed = true;
            } else if let Some(until) = known {
                // It is being settled, or touched otherwise, and was renewed a moment ago.
                found.renewed.insert(id, *until);
                found.fence = found.fence.or(earlier.and_then(|earlier| earlier.fence));
            } else {
                found.busy.insert(id);
            }
        }
        Ok(())
    }

    /// Whether a row of it is in a transaction and was not renewed: it may be ours or buried.
    pub(super) fn is_busy(&self, token: &Token) -> bool {
        self.0
            .get(token)
            .is_some_and(|found| !found.busy.is_empty())
    }

    /// The answers in the order asked, also for one that is asked twice; a lease that is busy has
    /// none.
    pub(super) fn answers(&self, renew: &Renew) -> Renewals {
        let unknown = Found::default();
        let mut answers = Vec::with_capacity(renew.tokens.len());
        for token in &renew.tokens {
            let found = self.0.get(token).unwrap_or(&unknown);
            if found.busy.is_empty() {
                answers.push((token.clone(), found.answer()));
            }
        }
        answers
    }
}

impl Found {
    fn answer(&self) -> Guarded<Renewed> {
        let first_end = self.renewed.values().min().copied();
        match (first_end, self.fence) {
            (Some(until), Some(fence)) => Guarded::Kept(Renewed {
                until,
                fence,
                ids: self.renewed.keys().copied().collect(),
            }),
            _ if self.is_lapsed => Guarded::Refused(Refusal::Lapsed),
            _ => Guarded::Refused(Refusal::Lost),
        }
    }
}
