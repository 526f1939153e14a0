//! Planted faults in the deliveries to endpoints.

use tenure_store::memory::Rules;

/// A rule about webhooks that a planted store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookFault {
    /// An event named for a fan-out gets deliveries although it was not settled as done.
    OwedUndone,
    /// An event gets deliveries to endpoints without a subscription.
    OwedUnwanted,
    /// An event gets another delivery each time it is done.
    OwedTwice,
    /// The order of a key applies across endpoints, so that a slow endpoint delays the others.
    KeyShared,
    /// A claim takes more of a lane than its limit.
    LaneLimitIgnored,
    /// The call of a refused delivery is recorded like an accepted one.
    SupersededBelieved,
    /// An event with deliveries is pruned.
    SourcePruned,
}

impl WebhookFault {
    pub(crate) const ALL: [Self; 7] = [
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
