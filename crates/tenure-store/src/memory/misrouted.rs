//! Planted faults in what is owed to endpoints.

use super::rules::Rules;

/// A rule about webhooks that a planted store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookFault {
    /// An event that is named for a fan-out is owed although it was not settled done.
    OwedUndone,
    /// An event is owed to endpoints that do not want it.
    OwedUnwanted,
    /// An event is owed once more each time that it is done.
    OwedTwice,
    /// A key keeps its order across endpoints, so that a slow one holds the others back.
    KeyShared,
    /// A claim takes more of a lane than it named.
    LaneLimitIgnored,
    /// The call of a refused delivery is written down as if it had counted.
    SupersededBelieved,
    /// An event is pruned although deliveries show it.
    SourcePruned,
}

impl WebhookFault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::OwedUndone,
        Self::OwedUnwanted,
        Self::OwedTwice,
        Self::KeyShared,
        Self::LaneLimitIgnored,
        Self::SupersededBelieved,
        Self::SourcePruned,
    ];

    pub(super) fn plant(self, rules: &mut Rules) {
        match self {
            Self::OwedUndone => rules.owes = |owing| owing.is_wanted && !owing.is_owed,
            Self::OwedUnwanted => rules.owes = |owing| owing.is_done_now && !owing.is_owed,
            Self::OwedTwice => rules.owes = |owing| owing.is_done_now && owing.is_wanted,
            Self::KeyShared => rules.delivery_key = |_, key| format!("any/{key}"),
            Self::LaneLimitIgnored => rules.lane_most = |_| u32::MAX,
            Self::SupersededBelieved => rules.call_outcome = |said, _| said,
            Self::SourcePruned => rules.may_go = |_| true,
        }
    }
}
