//! Connection budget: the number of processes that a server's connections suffice for.

use tenure_core::store::Finding;

/// Connection counts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Connections that are not reserved for superusers.
    pub(super) connections: u64,
    /// Open connections of all clients.
    pub(super) in_use: u64,
    /// Maximum connections of one Tenure process.
    pub(super) each: u32,
}

impl Budget {
    /// Number of further processes that can open all of their connections. Running processes may
    /// open more than they have open now; the server cannot tell how many more.
    pub(super) fn more_processes(self) -> u64 {
        let free = self.connections.saturating_sub(self.in_use);
        free / u64::from(self.each.max(1))
    }

    pub(super) fn finding(self) -> Finding {
        let Self {
            connections,
            in_use,
            each,
        } = self;
        let more = self.more_processes();
        let noun = if more == 1 { "process" } else { "processes" };
        let found = format!(
            "{connections} connections, {in_use} in use: room for {more} more {noun} of {each}"
        );
        if more > 0 {
            return Finding::good("connections", found);
        }
        let hint = "start no more processes: lower `connections`, or raise max_connections";
        Finding::warning("connections", found, hint)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::store::Verdict;

    use super::*;

    fn budget(connections: u64, in_use: u64, each: u32) -> Budget {
        Budget {
            connections,
            in_use,
            each,
        }
    }

    /// Proves: S1-051
    #[test]
    fn the_number_of_processes_follows_from_the_connections() {
        for (connections, in_use, each, more) in [
            (97, 12, 10, 8),
            (97, 0, 10, 9),
            (100, 0, 10, 10),
            (97, 88, 10, 0),
            (97, 87, 10, 1),
            (97, 97, 10, 0),
            // Connections of superusers may exceed the limit for other roles.
            (97, 100, 10, 0),
            (97, 12, 1, 85),
            // A pool size of zero opens one connection.
            (97, 12, 0, 85),
            (0, 0, 10, 0),
        ] {
            let budget = budget(connections, in_use, each);
            assert_eq!(budget.more_processes(), more, "{budget:?}");
            let is_good = budget.finding().verdict == Verdict::Good;
            assert_eq!(is_good, more > 0, "{budget:?}");
        }
    }

    #[test]
    fn the_finding_shows_connections_and_remaining_processes() {
        assert_eq!(
            budget(97, 12, 10).finding().text,
            "97 connections, 12 in use: room for 8 more processes of 10"
        );
        assert_eq!(
            budget(97, 80, 10).finding().text,
            "97 connections, 80 in use: room for 1 more process of 10"
        );
        assert!(budget(97, 95, 10).finding().hint.is_some());
    }
}
