//! Pool: connections that wait for another call to the same host.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Target;
use super::connection::Connection;

/// A connection that has waited longer is closed: its other end is about to do so.
const IDLE: Duration = Duration::from_secs(20);
/// A connection that is older is not used again, so that a name is looked up now and then.
const AGE: Duration = Duration::from_mins(1);
/// How often all are looked through.
const ROUND: Duration = Duration::from_secs(5);
/// At most so many wait for one host.
const PER_HOST: usize = 256;
/// At most so many wait.
const TOTAL: usize = 1024;

/// What a connection can be used for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    is_encrypted: bool,
    host: String,
    port: u16,
}

impl Key {
    fn of(target: &Target) -> Self {
        Self {
            is_encrypted: target.is_encrypted(),
            host: target.host(),
            port: target.port(),
        }
    }
}

struct Waiting {
    connection: Connection,
    since: Instant,
}

impl Waiting {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.since) < IDLE && now.duration_since(self.connection.since) < AGE
    }
}

#[derive(Default)]
struct Shelves {
    by_key: HashMap<Key, Vec<Waiting>>,
    count: usize,
    looked_through: Option<Instant>,
}

/// Connections that wait for another call.
#[derive(Default)]
pub(super) struct Pool(Mutex<Shelves>);

impl Pool {
    /// The connection to this host that has waited least, if there is one.
    pub(super) fn take(&self, target: &Target) -> Option<Connection> {
        let mut shelves = self.lock();
        let shelves = &mut *shelves;
        let waiting = shelves.by_key.get_mut(&Key::of(target))?;
        let last = waiting.pop()?;
        shelves.count -= 1;
        if last.is_fresh(Instant::now()) {
            return Some(last.connection);
        }
        // The others have waited longer, or the next call looks at them.
        None
    }

    /// Keeps a connection for another call.
    pub(super) fn put(&self, target: &Target, connection: Connection) {
        let now = Instant::now();
        let mut shelves = self.lock();
        let due = |last: Instant| now.duration_since(last) >= ROUND;
        if shelves.looked_through.is_none_or(due) {
            shelves.look_through(now);
        }
        if shelves.count >= TOTAL {
            return;
        }
        let waiting = shelves.by_key.entry(Key::of(target)).or_default();
        if waiting.len() >= PER_HOST {
            return;
        }
        let since = now;
        waiting.push(Waiting { connection, since });
        shelves.count += 1;
    }

    /// Closes all that wait.
    pub(super) fn clear(&self) {
        *self.lock() = Shelves::default();
    }

    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelves {
    fn look_through(&mut self, now: Instant) {
        self.looked_through = Some(now);
        self.by_key.retain(|_, waiting| {
            waiting.retain(|one| one.is_fresh(now));
            !waiting.is_empty()
        });
        self.count = self.by_key.values().map(Vec::len).sum();
    }
}
