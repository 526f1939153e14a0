//! Outcome of a lease on an item.

use std::time::Duration;

use crate::retry::Failure;

/// Outcome that a holder reports when it settles an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success; final.
    Done,
    /// Failed; to be retried `after` this delay.
    Retry {
        /// Delay, computed by the retry policy and never by a database.
        after: Duration,
        /// Error text for people.
        error: String,
    },
    /// Given up; final.
    Dead {
        /// Reason as one word; [`reason`](crate::reason) has the usual ones.
        reason: String,
        /// Error text for people.
        error: String,
    },
    /// Released without a result; counts as neither a failure nor a crash.
    Release {
        /// Delay before the next claim (a snooze); may be zero.
        after: Duration,
    },
}

impl Outcome {
    /// Releases an item to be claimed again at once.
    pub const RELEASE: Self = Self::Release {
        after: Duration::ZERO,
    };

    /// Releases an item to be claimed again after this delay; no failure is counted.
    pub const fn snooze(after: Duration) -> Self {
        Self::Release { after }
    }

    /// Settles an item as dead, with this error.
    pub fn dead(error: impl Into<String>) -> Self {
        Self::Dead {
            reason: crate::reason::REJECTED.to_owned(),
            error: error.into(),
        }
    }

    /// Kind, as in the journal.
    pub const fn kind(&self) -> OutcomeKind {
        match self {
            Self::Done => OutcomeKind::Done,
            Self::Retry { .. } => OutcomeKind::Retry,
            Self::Dead { .. } => OutcomeKind::Dead,
            Self::Release { .. } => OutcomeKind::Release,
        }
    }
}

/// Accepts `Ok(())` from a handler as done.
impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Return types of a handler: `Result<Outcome, Failure>` and `Result<(), Failure>`, where `Ok(())`
/// means done.
///
/// The trait is sealed to these two, so that the compiler can infer the error type of a closure and
/// `?` needs no annotation. A function with its own error type needs one more `?`, which converts
/// its error to a [`Failure`]: `|order, cx| async move { Ok(ship(order, cx).await?) }`.
#[diagnostic::on_unimplemented(
    message = "a handler cannot answer `{Self}`",
    label = "expected `Result<Outcome, Failure>` or `Result<(), Failure>`",
    note = "a function with another error type fits as \
            `|event, cx| async move {{ Ok(handle(event, cx).await?) }}`"
)]
pub trait IntoOutcome: sealed::Sealed {
    /// Converts the return value to an outcome.
    ///
    /// # Errors
    /// The failure that the handler reported.
    fn into_outcome(self) -> Result<Outcome, Failure>;
}

impl IntoOutcome for Result<Outcome, Failure> {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        self
    }
}

impl IntoOutcome for Result<(), Failure> {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        self.map(Outcome::from)
    }
}

mod sealed {
    //! Seals [`IntoOutcome`](super::IntoOutcome).

    pub trait Sealed {}
    impl<T> Sealed for Result<T, crate::retry::Failure> {}
}

words! {
    /// Way in which a lease on an item ended. The holder reports the first four; a reap adds
    /// `Lapsed`, an operator `Buried`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum OutcomeKind: as_str, ALL {
        /// The holder succeeded.
        Done = "done",
        /// The holder failed, and the item is retried.
        Retry = "retry",
        /// The holder settled the item as dead.
        Dead = "dead",
        /// The holder released the item without a result.
        Release = "release",
        /// The term was over, and a reap ended the lease.
        Lapsed = "lapsed",
        /// An operator buried the item.
        Buried = "buried",
    }
}

impl OutcomeKind {
    /// Parses a stored word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}
