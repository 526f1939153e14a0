//! Chooser: who says before each claim which endpoints' lanes are claimed from, and how much of
//! each. An engine without one claims from queues.

use std::collections::BTreeMap;
use std::fmt;

use tenure_core::Term;
use tenure_core::store::{Answer, Company, EndpointLane};

/// The room that a worker has for deliveries.
#[derive(Clone, Debug)]
pub struct Room {
    /// At most so many are claimed.
    pub limit: u32,
    /// So many a worker works on at once.
    pub places: u32,
    /// Which: the ordinary ones, or one that must be worked alone.
    pub company: Company,
    /// How many it has in hand for which endpoint, by the endpoint's number.
    pub in_hand: BTreeMap<u32, u32>,
}

/// Chooses lanes of endpoints. It is asked by one claim at a time.
pub trait Chooser: Send + Sync + fmt::Debug + 'static {
    /// The term of what is claimed.
    fn term(&self) -> Term {
        Term::EXTERNAL
    }

    /// Whether it is known already that there is nothing to claim in this company, so that the
    /// store need not be asked.
    fn is_known_idle(&self, _company: Company) -> bool {
        false
    }

    /// The lanes of [`Chooser::choose`], if they are known without asking the store once more.
    fn choose_again(&self, _room: &Room) -> Option<Vec<(EndpointLane, u32)>> {
        None
    }

    /// The lanes to claim from, the first one first, and at most how much from each; none: there
    /// is nothing to claim now. The store is asked.
    fn choose<'a>(&'a self, room: &'a Room) -> Answer<'a, Vec<(EndpointLane, u32)>>;

    /// A claim from what was chosen last was answered: it brought all that was asked for, or less.
    fn took(&self, _is_full: bool) {}
}
