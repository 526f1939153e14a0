//! `Events`: one event or several, as the enqueue methods take them.

use tenure_core::store::{Enqueued, StoreError, StoreErrorKind};
use tenure_core::{Event, NewEvent};

use sealed::Sealed;

const VERB: &str = "enqueue";

/// One event, or several that are written together, all or none.
pub trait Events: Sealed {
    /// One [`Enqueued`] for one event, a vector for several.
    type Answer: Send + 'static;

    /// Checks the events.
    ///
    /// # Errors
    /// An event is not valid; the error lists every problem of every event.
    fn into_events(self) -> Result<Vec<Event>, StoreError>;

    /// Converts the answers of the store.
    ///
    /// # Errors
    /// The store returned no answer for a single event.
    fn answer(answers: Vec<Enqueued>) -> Result<Self::Answer, StoreError>;
}

pub(crate) mod sealed {
    //! Seals the traits for connections and events.

    pub trait Sealed {}
}

macro_rules! one {
    ($($one:ty),*) => {$(
        impl Sealed for $one {}

        impl Events for $one {
            type Answer = Enqueued;

            fn into_events(self) -> Result<Vec<Event>, StoreError> {
                checked(self.into()).map(|event| vec![event])
            }

            fn answer(mut answers: Vec<Enqueued>) -> Result<Enqueued, StoreError> {
                answers.pop().ok_or_else(|| {
                    let message = "the store answered for no event; expected one answer";
                    StoreError::new(VERB, StoreErrorKind::Corrupt, message)
                })
            }
        }
    )*};
}

macro_rules! many {
    ($([$($generics:tt)*] $many:ty: $each:expr;)*) => {$(
        impl<T: Into<NewEvent> + Clone, $($generics)*> Sealed for $many {}

        impl<T: Into<NewEvent> + Clone, $($generics)*> Events for $many {
            type Answer = Vec<Enqueued>;

            fn into_events(self) -> Result<Vec<Event>, StoreError> {
                all_checked(self.into_iter().map($each))
            }

            fn answer(answers: Vec<Enqueued>) -> Result<Vec<Enqueued>, StoreError> {
                Ok(answers)
            }
        }
    )*};
}

one!(NewEvent, Event);
many!(
    [] Vec<T>: T::into;
    [] &Vec<T>: |event| event.clone().into();
    [] &[T]: |event| event.clone().into();
    [const N: usize] [T; N]: T::into;
    [const N: usize] &[T; N]: |event| event.clone().into();
);

/// Checks one event.
pub(crate) fn checked(event: NewEvent) -> Result<Event, StoreError> {
    let event = event.build();
    event.map_err(|problems| StoreError::invalid(VERB, &problems))
}

/// Checks all events; returns the problems of all of them.
fn all_checked(events: impl Iterator<Item = NewEvent>) -> Result<Vec<Event>, StoreError> {
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for (nth, event) in events.enumerate() {
        match event.build() {
            Ok(event) => good.push(event),
            Err(problems) => bad.push(format!("event {}: {problems}", nth + 1)),
        }
    }
    if bad.is_empty() {
        return Ok(good);
    }
    Err(StoreError::invalid(VERB, &bad.join("; ")))
}
