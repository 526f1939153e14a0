//! Memory use of the work lease: none for finished domains, almost none for consecutive offsets. It
//! is measured by the work lease's own count, and by the memory of a separate process.

use std::process::Command;

use tenure_core::DomainRules;
use tenure_store::memory::WorkLease;

use super::acquired;

/// Number of domains that come and go.
const DOMAINS: usize = 50_000;
/// Number of offsets of one domain that are processed in sequence.
const OFFSETS: i64 = 100_000;

/// This variable is set in the process that measures its memory.
const ALONE: &str = "TENURE_TEST_ALONE";

/// Anonymous memory of this process in bytes; `statm` would be only approximate.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let anonymous = pages
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"));
    let kilobytes = anonymous.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() * 1024
}

/// Works on one offset of each domain.
fn work_all(lease: &WorkLease, kind: &str, offset: i64) {
    for number in 0..DOMAINS {
        let domain = format!("{kind}-{number:06}");
        let token = acquired(lease.try_acquire(&domain, offset).unwrap());
        assert!(lease.succeed(&domain, &token).is_ok());
    }
}

fn work_in_a_row(lease: &WorkLease, domain: &str) {
    for offset in 0..OFFSETS {
        let token = acquired(lease.try_acquire(domain, offset).unwrap());
        assert!(lease.succeed(domain, &token).is_ok());
    }
}

#[test]
fn an_evicted_domain_uses_no_memory() {
    let lease = WorkLease::new(DomainRules::default());
    work_all(&lease, "customer", 1);
    assert_eq!(lease.domains(), DOMAINS);
    assert!(lease.footprint() / DOMAINS > 100, "nothing to be evicted");
    lease.advance_watermark(2);
    assert_eq!(lease.evict(), DOMAINS);
    let left = lease.footprint();
    assert!(left / DOMAINS < 1, "{left} bytes are left");
}

#[test]
fn consecutive_offsets_use_almost_no_memory() {
    let lease = WorkLease::new(DomainRules::default());
    work_in_a_row(&lease, "A");
    let kept = lease.domain("A").unwrap();
    assert_eq!(
        kept.processed().ranges().collect::<Vec<_>>(),
        [(0, OFFSETS - 1)]
    );
    let bytes = lease.footprint();
    assert!(bytes < 10_000, "{bytes} bytes for {OFFSETS} offsets");
}

/// Compares the count with the memory of a process. For this, the test starts itself in a separate
/// process.
#[test]
fn the_memory_of_the_process_agrees_with_the_count() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the variable tells the started process to measure itself"
    )]
    if std::env::var_os(ALONE).is_some() {
        return measure();
    }
    let name = "work_lease::memory::the_memory_of_the_process_agrees_with_the_count";
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

fn measure() {
    let lease = WorkLease::new(DomainRules::default());
    // This call loads the program's own pages, which happens on first use.
    work_in_a_row(&lease, "warm");
    let before = resident();
    work_in_a_row(&lease, "A");
    let row = resident().saturating_sub(before);
    let most = usize::try_from(OFFSETS).unwrap();
    assert!(row <= most, "{row} bytes for {OFFSETS} offsets in a row");

    let before = resident();
    work_all(&lease, "customer", OFFSETS);
    let grown = resident().saturating_sub(before);
    let counted = lease.footprint();
    assert!(
        grown / 2 < counted && counted < grown * 2,
        "{counted} bytes are counted, {grown} taken"
    );
    lease.advance_watermark(OFFSETS + 1);
    lease.evict();
    assert_eq!(lease.domains(), 0);
    // The allocator may keep the memory of evicted domains, but the same number of new domains must
    // not need more.
    work_all(&lease, "supplier", OFFSETS + 1);
    let left = resident().saturating_sub(before).saturating_sub(grown);
    assert!(left / DOMAINS <= 100, "{left} bytes were not free again");
}
