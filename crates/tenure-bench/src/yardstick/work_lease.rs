//! The rate of the work lease in process: one thread, no database.

use std::time::{Duration, Instant};

use tenure::work_lease::{AcquireResult, DomainRules, WorkLease, WorkLeaseError};

/// Number of domains, used in turn.
const DOMAINS: u16 = 10_000;

/// Acquires and completes one offset after the other over 10,000 domains, on the calling thread,
/// for about this long; returns pairs per second.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn work_lease_pairs(length: Duration) -> Result<f64, WorkLeaseError> {
    let lease = WorkLease::new(DomainRules::default());
    let keys: Vec<String> = (0..DOMAINS).map(|n| format!("customer-{n}")).collect();
    let start = Instant::now();
    let mut pairs = 0_u32;
    let mut offset = 0_i64;
    while start.elapsed() < length {
        for domain in &keys {
            if let AcquireResult::Acquired(token) = lease.try_acquire(domain, offset)? {
                pairs += u32::from(lease.succeed(domain, &token)?.hint().is_none());
            }
        }
        offset += 1;
        // A program that commits its log advances the watermark too; here all domains are at the
        // same offset.
        lease.advance_watermark(offset);
    }
    Ok(f64::from(pairs) / start.elapsed().as_secs_f64())
}
