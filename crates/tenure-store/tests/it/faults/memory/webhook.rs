//! Planted faults in the deliveries to endpoints.

use tenure_store::memory::Rules;

/// A rule about webhooks that a planted store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookFault {
    /// An event named for a fan-out gets deliveries although it was not settled as done.
    DeliveryForUndone,
    /// An event gets deliveries to endpoints without a subscription.
    DeliveryUnsubscribed,
    /// An event gets another delivery each time it is done.
    DeliveryTwice,
    /// The order of a key applies across endpoints, so that a slow endpoint delays the others.
    KeyShared,
    /// A claim takes more of a lane than its limit.
    LaneLimitIgnored,
    /// The call of a refused delivery is recorded like an accepted one.
    SupersededNotMarked,
    /// An event with deliveries is pruned.
    SourcePruned,
}

impl WebhookFault {
    pub(crate) const ALL: [Self; 7] = [
        Self::DeliveryForUndone,
        Self::DeliveryUnsubscribed,
        Self::DeliveryTwice,
        Self::KeyShared,
        Self::LaneLimitIgnored,
        Self::SupersededNotMarked,
        Self::SourcePruned,
    ];

    pub(super) fn plant(self, rules: &mut Rules) {
        match self {
            Self::DeliveryForUndone => rules.owes = |owing| owing.is_wanted && !owing.is_owed,
            Self::DeliveryUnsubscribed => rules.owes = |owing| owing.is_done_now && !owing.is_owed,
            Self::DeliveryTwice => rules.owes = |owing| owing.is_done_now && owing.is_wanted,
            Self::KeyShared => rules.delivery_key = |_, key| format!("any/{key}"),
            Self::LaneLimitIgnored => rules.lane_most = |_| u32::MAX,
            Self::SupersededNotMarked => rules.call_outcome = |said, _| said,
            Self::SourcePruned => rules.may_go = |_| true,
        }
    }
}
