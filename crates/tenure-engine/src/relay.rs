//! Relay: the handler that takes events to a publisher, and leaves it alone while it is away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Content, DELAY_MIN, Event, Failure, Item, Outcome, Publication, PublishError, PublishErrorKind,
    Publisher,
};
use tokio::time::Instant;

use crate::breaker::{Admission, Breaker, BreakerConfig, Change, Pass};
use crate::handler::{Context, Handler, Handling, Readiness};

/// A receiver that asks for longer is asked again after this long.
const ASKED_MAX: Duration = Duration::from_hours(6);

/// Takes events to one publisher; [`Topics`](crate::Topics) chooses among several.
///
/// | the publisher says | then the event is |
/// |---|---|
/// | taken | done |
/// | retry | failed: tried again by the retry policy, or when the receiver asked for it |
/// | reject | dead |
/// | away | given back for a while; no failure is counted |
///
/// A publisher that was away three times in a row is left alone, for half a second at first and up
/// to 30 s: [`readiness`](Handler::readiness) says so, and events that are in hand already are
/// given back unsent. Then one event is sent as a trial, after the publisher's own
/// [`probe`](Publisher::probe).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tenure_core::{Publication, PublishError, Publisher, Publishing, TopicPattern};
/// use tenure_engine::{BreakerConfig, Handler, Readiness, Relay, Topics};
///
/// /// A broker that is not there.
/// #[derive(Debug)]
/// struct Broker;
///
/// impl Publisher for Broker {
///     fn publish<'a>(&'a self, _: &'a Publication<'a>) -> Publishing<'a> {
///         let away = PublishError::away("no connection").after(Duration::from_secs(2));
///         Box::pin(async { Err(away) })
///     }
/// }
///
/// let rules = BreakerConfig { aways_max: 5, ..BreakerConfig::default() };
/// let relay = Arc::new(Relay::with_breaker("broker", Arc::new(Broker), rules));
/// let mut topics = Topics::new();
/// topics.add(TopicPattern::new("order.*")?, relay);
/// assert_eq!(topics.readiness(), Readiness::Ready, "nothing was sent yet");
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
pub struct Relay {
    name: String,
    publisher: Arc<dyn Publisher>,
    breaker: Breaker,
}

impl Relay {
    /// Takes events to `publisher`, which people know by `name`.
    pub fn new(name: impl Into<String>, publisher: Arc<dyn Publisher>) -> Self {
        Self::with_breaker(name, publisher, BreakerConfig::default())
    }

    /// The same, but left alone by these rules while it is away.
    pub fn with_breaker(
        name: impl Into<String>,
        publisher: Arc<dyn Publisher>,
        config: BreakerConfig,
    ) -> Self {
        Self {
            name: name.into(),
            publisher,
            breaker: Breaker::new(config),
        }
    }

    /// The name of its publisher.
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn relay(&self, event: &Event, cx: &Context) -> Result<Outcome, Failure> {
        let pass = match self.breaker.admit(Instant::now()) {
            Admission::Pass(pass) => pass,
            Admission::Wait(time) => return Ok(Outcome::snooze(time)),
        };
        match self.send(event, cx, &pass).await {
            Ok(()) => {
                self.tell(pass.answered(), "");
                Ok(Outcome::Done)
            }
            Err(error) => self.judge(pass, &error),
        }
    }

    async fn send(&self, event: &Event, cx: &Context, pass: &Pass<'_>) -> Result<(), PublishError> {
        if pass.is_trial()
            && let Err(error) = self.publisher.probe().await
        {
            // It says nothing of this event, so it can cost it nothing.
            let after = match error.kind {
                PublishErrorKind::Retry { after } | PublishErrorKind::Away { after } => after,
                PublishErrorKind::Reject | _ => None,
            };
            return Err(PublishError::new(
                PublishErrorKind::Away { after },
                error.reason,
            ));
        }
        let publication = Publication {
            id: cx.id(),
            event,
            fence: cx.fence(),
            attempt: cx.attempt(),
            time_left: cx.time_left(),
        };
        self.publisher.publish(&publication).await
    }

    fn judge(&self, pass: Pass<'_>, error: &PublishError) -> Result<Outcome, Failure> {
        let asked = |after: Option<Duration>| after.map(|d| d.clamp(DELAY_MIN, ASKED_MAX));
        if let PublishErrorKind::Away { after } = error.kind {
            let (time, change) = pass.away(Instant::now(), asked(after), &error.reason);
            self.tell(change, &error.reason);
            return Ok(Outcome::snooze(time));
        }
        self.tell(pass.answered(), "");
        let failure = Failure::new(format!("publisher {}: {}", self.name, error.reason));
        Err(match error.kind {
            PublishErrorKind::Reject => failure.never(),
            PublishErrorKind::Retry { after } => match asked(after) {
                Some(delay) => failure.after(delay),
                None => failure,
            },
            PublishErrorKind::Away { .. } | _ => failure,
        })
    }

    fn tell(&self, change: Change, reason: &str) {
        let publisher = self.name.as_str();
        match change {
            Change::None => {}
            Change::Opened(delay) => {
                tracing::warn!(publisher, reason, ?delay, "publisher was away");
            }
            Change::Closed => tracing::info!(publisher, "publisher was back"),
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("name", &self.name)
            .field("publisher", &self.publisher)
            .finish_non_exhaustive()
    }
}

impl Handler for Relay {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        Box::pin(async move {
            match item.content {
                Content::Event(event) => self.relay(&event, &cx).await,
                Content::Delivery(_) | Content::Row(_) => Err(Failure::new(format!(
                    "the item is no event, and publisher {} takes events",
                    self.name
                ))),
            }
        })
    }

    fn readiness(&self) -> Readiness {
        match self.breaker.away(Instant::now()) {
            None => Readiness::Ready,
            Some(reason) => Readiness::Away {
                reason: format!("publisher {}: {reason}", self.name),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tenure_core::{Again, Counters, Fence, ItemId, Publishing, Timestamp};
    use tokio::time::advance;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Id, topic, fence, attempt and time left of a publication.
    type Seen = (ItemId, String, Fence, u32, Duration);

    /// Answers as it was told to, and remembers what it was asked.
    #[derive(Debug, Default)]
    struct Scripted {
        answers: Mutex<VecDeque<PublishError>>,
        probes: Mutex<VecDeque<PublishError>>,
        probed: Mutex<u32>,
        seen: Mutex<Vec<Seen>>,
        /// An event about this is never answered.
        stuck: Option<&'static str>,
    }

    impl Scripted {
        fn seen(&self) -> usize {
            self.seen.lock().unwrap().len()
        }
    }

    impl Publisher for Scripted {
        fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
            Box::pin(async move {
                self.seen.lock().unwrap().push((
                    publication.id,
                    publication.event.topic().to_owned(),
                    publication.fence,
                    publication.attempt,
                    publication.time_left,
                ));
                if self.stuck == Some(publication.event.topic()) {
                    std::future::pending::<()>().await;
                }
                self.answers.lock().unwrap().pop_front().map_or(Ok(()), Err)
            })
        }

        fn probe(&self) -> Publishing<'_> {
            *self.probed.lock().unwrap() += 1;
            Box::pin(async { self.probes.lock().unwrap().pop_front().map_or(Ok(()), Err) })
        }
    }

    fn relay_to(scripted: Scripted) -> (Relay, Arc<Scripted>) {
        let scripted = Arc::new(scripted);
        let publisher = Arc::clone(&scripted);
        (Relay::new("mail", publisher), scripted)
    }

    fn answering<const N: usize>(answers: [PublishError; N]) -> (Relay, Arc<Scripted>) {
        relay_to(Scripted {
            answers: Mutex::new(answers.into()),
            ..Scripted::default()
        })
    }

    fn item(topic: &str) -> Item {
        Item {
            id: ItemId::new(7),
            content: Content::Event(Event::new(topic, &1).unwrap()),
            available_at: Timestamp::from_micros(0),
            counters: Counters::default(),
        }
    }

    async fn handle(relay: &Relay, topic: &str) -> Result<Outcome, Failure> {
        let cx = Context {
            id: ItemId::new(7),
            token: tenure_core::testing::token("relay", 1),
            fence: Fence::new(9),
            attempt: 2,
            deadline: Instant::now() + Duration::from_secs(30),
            cancel: CancellationToken::new(),
            call: crate::beside::CallSlot::default(),
        };
        relay.handle(item(topic), cx).await
    }

    fn snoozed(millis: u64) -> Outcome {
        Outcome::snooze(Duration::from_millis(millis))
    }

    /// Proves: S4-016
    #[tokio::test(start_paused = true)]
    async fn an_event_is_published_through_the_publisher() {
        let (relay, publisher) = answering([]);
        assert_eq!(handle(&relay, "order.paid").await, Ok(Outcome::Done));
        let expected = (
            ItemId::new(7),
            "order.paid".to_owned(),
            Fence::new(9),
            2,
            Duration::from_secs(30),
        );
        assert_eq!(*publisher.seen.lock().unwrap(), [expected]);
        assert_eq!(*publisher.probed.lock().unwrap(), 0, "it was never away");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_publisher_says_of_an_event_is_its_failure() {
        let hour = Duration::from_hours(1);
        let (relay, _) = answering([
            PublishError::retry("502"),
            PublishError::retry("429").after(hour),
            PublishError::retry("429").after(Duration::MAX),
            PublishError::reject("410"),
        ]);
        let again = async || handle(&relay, "t").await.unwrap_err().again;
        assert_eq!(
            handle(&relay, "t").await,
            Err(Failure::new("publisher mail: 502"))
        );
        assert_eq!(again().await, Again::After(hour));
        assert_eq!(again().await, Again::After(ASKED_MAX));
        assert_eq!(again().await, Again::Never);
        assert_eq!(relay.readiness(), Readiness::Ready, "it answers");
    }

    #[tokio::test(start_paused = true)]
    async fn a_publisher_that_is_away_costs_no_failure() {
        let (relay, _) = answering([
            PublishError::away("full"),
            PublishError::away("full").after(Duration::from_secs(9)),
            PublishError::away("full").after(Duration::ZERO),
        ]);
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(500)));
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(9000)));
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(500)));
    }

    #[tokio::test(start_paused = true)]
    async fn claiming_pauses_while_the_publisher_is_away_and_resumes_when_it_is_back() {
        let down = || PublishError::away("connection refused");
        let (relay, publisher) = answering([down(), down(), down(), down()]);
        for _ in 0..3 {
            assert_eq!(relay.readiness(), Readiness::Ready);
            assert_eq!(handle(&relay, "t").await, Ok(snoozed(500)));
        }
        let away = Readiness::Away {
            reason: "publisher mail: connection refused".to_owned(),
        };
        assert_eq!(relay.readiness(), away);

        // What is in hand is given back for what is left, without being sent.
        advance(Duration::from_millis(200)).await;
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(300)));
        assert_eq!(publisher.seen(), 3);

        // The trial finds it away still.
        advance(Duration::from_millis(300)).await;
        assert_eq!(relay.readiness(), Readiness::Ready);
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(1000)));
        assert_eq!(relay.readiness(), away);

        // The next one finds it back.
        advance(Duration::from_secs(1)).await;
        assert_eq!(handle(&relay, "t").await, Ok(Outcome::Done));
        assert_eq!(relay.readiness(), Readiness::Ready);
        assert_eq!(handle(&relay, "t").await, Ok(Outcome::Done));
        assert_eq!(publisher.seen(), 6);
        assert_eq!(*publisher.probed.lock().unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_spares_the_event() {
        let down = || PublishError::away("down");
        let (relay, publisher) = answering([down(), down(), down()]);
        for _ in 0..3 {
            assert_eq!(handle(&relay, "t").await, Ok(snoozed(500)));
        }
        let bad = PublishError::reject("401");
        publisher.probes.lock().unwrap().push_back(bad);
        advance(Duration::from_millis(500)).await;
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(1000)));
        assert_eq!(publisher.seen(), 3, "nothing was sent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_whose_hold_is_lost_leaves_the_next_event_to_try() {
        let down = || PublishError::away("down");
        let (relay, _) = relay_to(Scripted {
            answers: Mutex::new([down(), down(), down()].into()),
            stuck: Some("stuck"),
            ..Scripted::default()
        });
        for _ in 0..3 {
            assert_eq!(handle(&relay, "t").await, Ok(snoozed(500)));
        }
        advance(Duration::from_millis(500)).await;
        {
            let trial = handle(&relay, "stuck");
            tokio::pin!(trial);
            tokio::select! {
                biased;
                outcome = &mut trial => panic!("it is stuck, and yet {outcome:?}"),
                () = std::future::ready(()) => {}
            }
            assert_ne!(relay.readiness(), Readiness::Ready, "one is on trial");
            assert_eq!(handle(&relay, "t").await, Ok(snoozed(500)));
        }
        assert_eq!(relay.readiness(), Readiness::Ready);
        assert_eq!(handle(&relay, "t").await, Ok(Outcome::Done));
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_is_not_published() {
        let (relay, publisher) = answering([]);
        let cx = Context {
            id: ItemId::new(7),
            token: tenure_core::testing::token("relay", 1),
            fence: Fence::new(9),
            attempt: 1,
            deadline: Instant::now(),
            cancel: CancellationToken::new(),
            call: crate::beside::CallSlot::default(),
        };
        let row = Item {
            content: Content::Row("{}".to_owned()),
            ..item("t")
        };
        assert!(relay.handle(row, cx).await.is_err());
        assert_eq!(publisher.seen(), 0);
    }
}
