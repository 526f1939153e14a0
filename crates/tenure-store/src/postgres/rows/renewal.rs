//! Renewal with retries: merges the results of a few attempts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use sqlx::postgres::PgRow;
use tenure_core::store::Renewed;
use tenure_core::{Fence, Guarded, ItemId, Refusal, Timestamp};

use crate::postgres::row::{get, get_moment};

/// The answer for each lease.
pub(in crate::postgres) type Renewals<K> = Vec<(K, Guarded<Renewed>)>;

/// Pause before each attempt. The total is far below the shortest heartbeat.
const PAUSES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(30),
];

/// Renews leases, each identified by a `K`. Retries rows that a transaction has locked: most of
/// these are settles of the same worker and finish soon.
pub(in crate::postgres) async fn renew<K, F>(
    leases: &[K],
    ask: impl Fn(Vec<K>) -> F,
) -> Result<Renewals<K>, sqlx::Error>
where
    K: Clone + Eq + Hash,
    F: Future<Output = Result<Vec<PgRow>, sqlx::Error>>,
{
    let mut progress = RenewalProgress(HashMap::new());
    let mut open = leases.to_vec();
    for pause in PAUSES {
        if open.is_empty() {
            break;
        }
        tokio::time::sleep(pause).await;
        progress.add(&open, &ask(open.clone()).await?)?;
        open.retain(|lease| progress.is_busy(lease));
    }
    Ok(progress.answers(leases))
}

/// Intermediate results of the leases being renewed.
#[derive(Debug)]
struct RenewalProgress<K>(HashMap<K, LeaseProgress>);

/// The rows of a lease as of the last attempt.
#[derive(Debug, Default)]
struct LeaseProgress {
    /// Lease ends of the rows renewed by this or an earlier attempt.
    renewed: BTreeMap<ItemId, Timestamp>,
    fence: Option<Fence>,
    /// Rows that are locked and not renewed yet.
    busy: BTreeSet<ItemId>,
    is_lapsed: bool,
}

impl<K: Clone + Eq + Hash> RenewalProgress<K> {
    /// Merges the rows that an attempt returned for these leases.
    fn add(&mut self, asked: &[K], rows: &[PgRow]) -> Result<(), sqlx::Error> {
        let mut before: HashMap<&K, LeaseProgress> = HashMap::new();
        for lease in asked {
            before.extend(self.0.remove(lease).map(|found| (lease, found)));
        }
        for row in rows {
            let nth: i32 = get(row, 0)?;
            let place = usize::try_from(nth - 1).unwrap_or(usize::MAX);
            let Some(lease) = asked.get(place) else {
                continue;
            };
            let id = ItemId::new(get(row, 1)?);
            let found = self.0.entry(lease.clone()).or_default();
            let earlier = before.get(lease);
            let known = earlier.and_then(|earlier| earlier.renewed.get(&id));
            if let Some(until) = get_moment(row, 2)? {
                found.renewed.insert(id, until);
                found.fence = Some(Fence::new(get(row, 3)?));
            } else if !get::<bool>(row, 4)? {
                found.is_lapsed = true;
            } else if let Some(until) = known {
                // The row is locked now, for example by a settle, and an earlier attempt renewed
                // it.
                found.renewed.insert(id, *until);
                found.fence = found.fence.or(earlier.and_then(|earlier| earlier.fence));
            } else {
                found.busy.insert(id);
            }
        }
        Ok(())
    }

    /// True if a row of the lease is locked and not renewed: it may still be held, or may have been
    /// buried.
    fn is_busy(&self, lease: &K) -> bool {
        self.0
            .get(lease)
            .is_some_and(|found| !found.busy.is_empty())
    }

    /// Returns the answers in request order, including duplicates; a busy lease has no answer.
    fn answers(&self, asked: &[K]) -> Renewals<K> {
        let unknown = LeaseProgress::default();
        let mut answers = Vec::with_capacity(asked.len());
        for lease in asked {
            let found = self.0.get(lease).unwrap_or(&unknown);
            if found.busy.is_empty() {
                answers.push((lease.clone(), found.answer()));
            }
        }
        answers
    }
}

impl LeaseProgress {
    fn answer(&self) -> Guarded<Renewed> {
        let first_end = self.renewed.values().min().copied();
        match (first_end, self.fence) {
            (Some(until), Some(fence)) => Guarded::Accepted(Renewed {
                until,
                fence,
                ids: self.renewed.keys().copied().collect(),
            }),
            _ if self.is_lapsed => Guarded::Refused(Refusal::Lapsed),
            _ => Guarded::Refused(Refusal::Lost),
        }
    }
}
