//! Chooser: selects the endpoint lanes of each claim and the limit of each lane. An engine without
//! a chooser claims from queues.

use std::collections::BTreeMap;
use std::fmt;

use tenure_core::Term;
use tenure_core::store::{Answer, EndpointLane, Isolation};

/// Capacity of a worker for deliveries.
#[derive(Clone, Debug)]
pub struct Room {
    /// Maximum deliveries of this claim.
    pub limit: u32,
    /// Deliveries that the worker runs at once.
    pub concurrency: u32,
    /// Ordinary deliveries, or one that must run isolated.
    pub isolation: Isolation,
    /// Unsettled deliveries by endpoint number.
    pub in_hand: BTreeMap<u32, u32>,
}

/// Selects lanes of endpoints. Called by one claim at a time.
pub trait Chooser: Send + Sync + fmt::Debug + 'static {
    /// Lease term of the claimed deliveries.
    fn term(&self) -> Term {
        Term::EXTERNAL
    }

    /// Returns true if a recent read showed nothing to claim in this isolation, so that the engine
    /// need not call the store.
    fn is_known_idle(&self, _isolation: Isolation) -> bool {
        false
    }

    /// Same as [`Chooser::choose`], but uses a recent read and does not call the store.
    fn choose_again(&self, _room: &Room) -> Option<Vec<(EndpointLane, u32)>> {
        None
    }

    /// Reads the store and returns the lanes to claim from, in order, with the limit of each;
    /// empty: nothing to claim now.
    fn choose<'a>(&'a self, room: &'a Room) -> Answer<'a, Vec<(EndpointLane, u32)>>;

    /// Reports whether the claim from the last choice reached its limit.
    fn took(&self, _is_full: bool) {}
}
