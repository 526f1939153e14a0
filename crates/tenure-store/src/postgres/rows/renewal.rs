//! A renewal: it asks a few times, and puts together what it found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use sqlx::postgres::PgRow;
use tenure_core::store::Renewed;
use tenure_core::{Fence, Guarded, ItemId, Refusal, Timestamp};

use crate::postgres::row::{get, get_moment};

/// The answer for each lease.
pub(in crate::postgres) type Renewals<K> = Vec<(K, Guarded<Renewed>)>;

/// Before each time that a renewal asks. In all it takes far less than the shortest heartbeat.
const PAUSES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(30),
];

/// Renews leases, each called by a `K`, and asks again for what is in a transaction just now: most
/// of those are the settles of the same worker, and over in a moment.
pub(in crate::postgres) async fn renew<K, F>(
    leases: &[K],
    ask: impl Fn(Vec<K>) -> F,
) -> Result<Renewals<K>, sqlx::Error>
where
    K: Clone + Eq + Hash,
    F: Future<Output = Result<Vec<PgRow>, sqlx::Error>>,
{
    let mut tally = Tally(HashMap::new());
    let mut open = leases.to_vec();
    for pause in PAUSES {
        if open.is_empty() {
            break;
        }
        tokio::time::sleep(pause).await;
        tally.add(&open, &ask(open.clone()).await?)?;
        open.retain(|lease| tally.is_busy(lease));
    }
    Ok(tally.answers(leases))
}

/// What is known of the leases that are being renewed.
#[derive(Debug)]
struct Tally<K>(HashMap<K, Found>);

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

impl<K: Clone + Eq + Hash> Tally<K> {
    /// Takes what a look at these leases brought.
    fn add(&mut self, asked: &[K], rows: &[PgRow]) -> Result<(), sqlx::Error> {
        let mut before: HashMap<&K, Found> = HashMap::new();
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
    fn is_busy(&self, lease: &K) -> bool {
        self.0
            .get(lease)
            .is_some_and(|found| !found.busy.is_empty())
    }

    /// The answers in the order asked, also for one that is asked twice; a lease that is busy has
    /// none.
    fn answers(&self, asked: &[K]) -> Renewals<K> {
        let unknown = Found::default();
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
