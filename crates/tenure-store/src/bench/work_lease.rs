//! How fast the work lease in process is: one thread, no database.

use std::time::{Duration, Instant};

use tenure_core::{AcquireResult, DomainRules, WorkLeaseError};

use crate::memory::WorkLease;

/// As many domains take turns.
const DOMAINS: u16 = 10_000;

/// Acquires and ends one offset after the other over 10,000 domains, on the calling thread, for
/// about this long; how many pairs of both per second.
///
/// # Errors
/// A pair did not go as it must.
#[expect(
    clippy::disallowed_methods,
    reason = "how long this machine takes is the question"
)]
pub fn work_lease_pairs(length: Duration) -> Result<f64, WorkLeaseError> {
    let lease = WorkLease::new(DomainRules::default());
    let domains: Vec<String> = (0..DOMAINS).map(|n| format!("customer-{n}")).collect();
    let start = Instant::now();
    let mut pairs = 0_u32;
    let mut offset = 0_i64;
    while start.elapsed() < length {
        for domain in &domains {
            if let AcquireResult::Acquired(token) = lease.try_acquire(domain, offset)? {
                pairs += u32::from(lease.succeed(domain, &token)?.hint().is_none());
            }
        }
        offset += 1;
        // As a committed log would; every domain is at the same offset here.
        lease.advance_watermark(offset);
    }
    Ok(f64::from(pairs) / start.elapsed().as_secs_f64())
}
