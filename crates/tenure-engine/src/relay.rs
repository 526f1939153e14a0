//! Relay: the handler that sends events to a publisher, and pauses while the publisher is
//! unavailable.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Content, DELAY_MIN, Event, Failure, Item, Outcome, Publication, PublishError, PublishErrorKind,
    Publisher,
};
use tokio::time::Instant;

use crate::breaker::{Breaker, BreakerChange, BreakerConfig, Pass};
use crate::handler::{Context, Handler, Handling, Readiness};

/// Longest delay that a receiver can request.
const REQUESTED_DELAY_MAX: Duration = Duration::from_hours(6);

/// Sends events to one publisher; [`Topics`](crate::Topics) selects among several.
///
/// | the publisher answers | the event is |
/// |---|---|
/// | ok | done |
/// | retry | failed: retried by the retry policy, or after the delay that the receiver requested |
/// | reject | dead |
/// | release | released, with the requested delay; no failure is counted |
/// | away | released with a delay; no failure is counted |
///
/// *Away* means that the publisher is unavailable. After three consecutive *away* answers a circuit
/// breaker pauses the publisher, for half a second at first and up to 30 s.
/// [`readiness`](Handler::readiness) reports the pause, and events already claimed are released
/// unsent. Then one event is sent as a trial, after the publisher's own
/// [`probe`](Publisher::probe).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tenure_core::{Publication, PublishError, Publisher, Publishing, TopicPattern};
/// use tenure_engine::{BreakerConfig, Handler, Readiness, Relay, Topics};
///
/// /// A broker that is down.
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
#[derive(Debug)]
pub struct Relay {
    name: String,
    publisher: Arc<dyn Publisher>,
    breaker: Breaker,
}

impl Relay {
    /// Sends events to `publisher`; `name` identifies it in logs and errors.
    pub fn new(name: impl Into<String>, publisher: Arc<dyn Publisher>) -> Self {
        Self::with_breaker(name, publisher, BreakerConfig::default())
    }

    /// Same as [`Relay::new`], with these circuit breaker settings.
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

    /// Name of the publisher in logs and errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn relay(&self, event: &Event, cx: &Context) -> Result<Outcome, Failure> {
        let pass = match self.breaker.admit(Instant::now()) {
            Ok(pass) => pass,
            Err(time) => return Ok(Outcome::snooze(time)),
        };
        match self.send(event, cx, &pass).await {
            Ok(()) => {
                self.log_change(pass.answered(), "");
                Ok(Outcome::Done)
            }
            Err(error) => self.judge(pass, &error),
        }
    }

    async fn send(&self, event: &Event, cx: &Context, pass: &Pass<'_>) -> Result<(), PublishError> {
        if pass.is_trial()
            && let Err(error) = self.publisher.probe().await
        {
            // A failed probe does not concern this event, so it costs no attempt.
            let after = match error.kind {
                PublishErrorKind::Retry { after }
                | PublishErrorKind::Release { after }
                | PublishErrorKind::Away { after } => after,
                PublishErrorKind::Reject | _ => None,
            };
            let kind = PublishErrorKind::Away { after };
            return Err(PublishError::new(kind, error.reason));
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
        let requested =
            |after: Option<Duration>| after.map(|d| d.clamp(DELAY_MIN, REQUESTED_DELAY_MAX));
        if let PublishErrorKind::Away { after } = error.kind {
            let (time, change) = pass.away(Instant::now(), requested(after), &error.reason);
            self.log_change(change, &error.reason);
            return Ok(Outcome::snooze(time));
        }
        self.log_change(pass.answered(), "");
        if let PublishErrorKind::Release { after } = error.kind {
            return Ok(Outcome::snooze(after.unwrap_or_default().max(DELAY_MIN)));
        }
        let failure = Failure::new(format!("publisher {}: {}", self.name, error.reason));
        Err(match error.kind {
            PublishErrorKind::Reject => failure.never(),
            PublishErrorKind::Retry { after } => match requested(after) {
                Some(delay) => failure.after(delay),
                None => failure,
            },
            PublishErrorKind::Release { .. } | PublishErrorKind::Away { .. } | _ => failure,
        })
    }

    fn log_change(&self, change: BreakerChange, reason: &str) {
        let publisher = self.name.as_str();
        match change {
            BreakerChange::None => {}
            BreakerChange::Opened(delay) => {
                tracing::warn!(publisher, reason, ?delay, "publisher is unavailable");
            }
            BreakerChange::Closed => tracing::info!(publisher, "publisher is back"),
        }
    }
}

impl Handler for Relay {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        Box::pin(async move {
            let Content::Event(event) = item.content else {
                let name = &self.name;
                let error =
                    format!("the item is not an event, and publisher {name} accepts only events");
                return Err(Failure::new(error));
            };
            self.relay(&event, &cx).await
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

    /// Id, topic, fence, attempt and time left.
    type Published = (ItemId, String, Fence, u32, Duration);

    /// Publisher with scripted answers that records its publications.
    #[derive(Debug, Default)]
    struct Scripted {
        answers: Mutex<VecDeque<PublishError>>,
        probes: Mutex<VecDeque<PublishError>>,
        probed: Mutex<u32>,
        published: Mutex<Vec<Published>>,
        /// Events of this topic are never answered.
        stuck: Option<&'static str>,
    }

    impl Scripted {
        fn published(&self) -> usize {
            self.published.lock().unwrap().len()
        }
    }

    impl Publisher for Scripted {
        fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
            Box::pin(async move {
                self.published.lock().unwrap().push((
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
            call: crate::attachment::CallSlot::default(),
            event: None,
            trace_parent: None,
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
        assert_eq!(*publisher.published.lock().unwrap(), [expected]);
        assert_eq!(*publisher.probed.lock().unwrap(), 0, "no trial was needed");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_publisher_is_a_failure_of_the_event() {
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
        assert_eq!(again().await, Again::After(REQUESTED_DELAY_MAX));
        assert_eq!(again().await, Again::Never);
        assert_eq!(relay.readiness(), Readiness::Ready, "the publisher answers");
    }

    #[tokio::test(start_paused = true)]
    async fn an_away_answer_counts_no_failure() {
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
    async fn an_event_that_is_given_back_does_not_pause_the_publisher() {
        let day = Duration::from_hours(24);
        let release = || PublishError::release("not yet");
        let (relay, _) = answering([release(), release(), release(), release().after(day)]);
        for _ in 0..3 {
            assert_eq!(handle(&relay, "t").await, Ok(snoozed(100)));
        }
        assert_eq!(handle(&relay, "t").await, Ok(Outcome::snooze(day)));
        assert_eq!(relay.readiness(), Readiness::Ready);
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

        // Events already claimed are released for the remaining delay without being sent.
        advance(Duration::from_millis(200)).await;
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(300)));
        assert_eq!(publisher.published(), 3);

        // At the trial the publisher is still unavailable.
        advance(Duration::from_millis(300)).await;
        assert_eq!(relay.readiness(), Readiness::Ready);
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(1000)));
        assert_eq!(relay.readiness(), away);

        // At the next trial the publisher is available again.
        advance(Duration::from_secs(1)).await;
        assert_eq!(handle(&relay, "t").await, Ok(Outcome::Done));
        assert_eq!(relay.readiness(), Readiness::Ready);
        assert_eq!(handle(&relay, "t").await, Ok(Outcome::Done));
        assert_eq!(publisher.published(), 6);
        assert_eq!(*publisher.probed.lock().unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_probe_the_event_is_released_unsent() {
        let down = || PublishError::away("down");
        let (relay, publisher) = answering([down(), down(), down()]);
        for _ in 0..3 {
            assert_eq!(handle(&relay, "t").await, Ok(snoozed(500)));
        }
        let bad = PublishError::reject("401");
        publisher.probes.lock().unwrap().push_back(bad);
        advance(Duration::from_millis(500)).await;
        assert_eq!(handle(&relay, "t").await, Ok(snoozed(1000)));
        assert_eq!(publisher.published(), 3, "nothing was sent");
    }

    #[tokio::test(start_paused = true)]
    async fn if_a_trial_loses_its_lease_the_next_event_becomes_the_trial() {
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
                outcome = &mut trial => panic!("a stuck trial answered {outcome:?}"),
                () = std::future::ready(()) => {}
            }
            assert_ne!(relay.readiness(), Readiness::Ready, "a trial is under way");
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
            call: crate::attachment::CallSlot::default(),
            event: None,
            trace_parent: None,
        };
        let row = Item {
            content: Content::Row("{}".to_owned()),
            ..item("t")
        };
        assert!(relay.handle(row, cx).await.is_err());
        assert_eq!(publisher.published(), 0);
    }
}
