//! Pool of idle connections, kept for further calls to the same host.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Target;
use super::connection::Connection;

/// Maximum idle time; most peers close a connection soon after.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Maximum age, so that changes of a name's addresses take effect.
const AGE_MAX: Duration = Duration::from_mins(1);
/// Interval between removals of stale connections.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum idle connections per host.
const PER_HOST_MAX: usize = 256;
/// Maximum idle connections.
const TOTAL_MAX: usize = 1024;

/// Encryption, host and port of a connection: calls with the same key may share it.
type PoolKey = (bool, String, u16);

fn key_of(target: &Target) -> PoolKey {
    (target.is_encrypted(), target.host(), target.port())
}

struct IdleConnection {
    connection: Connection,
    since: Instant,
}

impl IdleConnection {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.since) < IDLE_MAX
            && now.duration_since(self.connection.since) < AGE_MAX
    }
}

#[derive(Default)]
struct PoolState {
    by_key: HashMap<PoolKey, Vec<IdleConnection>>,
    count: usize,
    cleaned_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Pool(Mutex<PoolState>);

impl Pool {
    /// Takes the connection to this host that was used last, if it is fresh.
    pub(super) fn take(&self, target: &Target) -> Option<Connection> {
        let mut state = self.lock();
        let state = &mut *state;
        let idle = state.by_key.get_mut(&key_of(target))?;
        let last = idle.pop()?;
        state.count -= 1;
        if last.is_fresh(Instant::now()) {
            return Some(last.connection);
        }
        // Another idle connection may be younger than this one, and fresh: the next call takes it.
        None
    }

    /// Stores a connection for another call; drops it when the pool is full.
    pub(super) fn put(&self, target: &Target, connection: Connection) {
        let now = Instant::now();
        let mut state = self.lock();
        let due = |last: Instant| now.duration_since(last) >= CLEANUP_INTERVAL;
        if state.cleaned_at.is_none_or(due) {
            state.remove_stale(now);
        }
        if state.count >= TOTAL_MAX {
            return;
        }
        let idle = state.by_key.entry(key_of(target)).or_default();
        if idle.len() >= PER_HOST_MAX {
            return;
        }
        let since = now;
        idle.push(IdleConnection { connection, since });
        state.count += 1;
    }

    /// Closes all idle connections.
    pub(super) fn clear(&self) {
        *self.lock() = PoolState::default();
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    fn remove_stale(&mut self, now: Instant) {
        self.cleaned_at = Some(now);
        self.by_key.retain(|_, idle| {
            idle.retain(|one| one.is_fresh(now));
            !idle.is_empty()
        });
        self.count = self.by_key.values().map(Vec::len).sum();
    }
}
