//! `HandlerOptions`: retries, timeout and concurrency of one handler, which override the rules of
//! its queue and the settings of its worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::{Event, Failure, Item, Outcome, RetryPolicy, RetryRules, duration_text};
use tokio::time::{Instant, timeout_at};

use crate::handler::{Context, Failed, Handler, Handling, Readiness, Rules, TopicsAnswer};

/// Added to the timeout of a handler to get the maximum hold, so that the timeout fires first.
const AFTER_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of one handler that override the rules of its queue and the settings of its worker.
///
/// ```
/// use std::time::Duration;
/// use tenure_engine::HandlerOptions;
///
/// let slow = HandlerOptions::new()
///     .retries(3)
///     .backoff(Duration::from_secs(5), Duration::from_secs(3_600))
///     .timeout(Duration::from_secs(300))
///     .concurrency(2);
/// # drop(slow);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "options have no effect until a handler gets them"]
pub struct HandlerOptions {
    retry: RetryRules,
    timeout: Option<Duration>,
    concurrency: Option<u32>,
}

impl HandlerOptions {
    /// Creates options that override nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of retries; with 0, the first failure is final.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retry.max_retries = Some(retries);
        self
    }

    /// Sets the delays before retries: at most `base` after the first failure, twice as much after
    /// each further one, at most `cap`. Both are limited to 1 ms to 30 days.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        let (least, most) = RetryPolicy::DELAYS.into_inner();
        self.retry.base = Some(base.clamp(least, most));
        self.retry.cap = Some(cap.clamp(least, most));
        self
    }

    /// Sets the run time after which the worker cancels the handler, at its next await, and counts
    /// a failure. It may exceed `lease.max_hold`: the worker renews the lease meanwhile.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Limits the concurrent items of the handler in one worker; at least one.
    ///
    /// Other handlers use the remaining executors. Claimed items that the handler cannot start soon
    /// are released and due again after a second, without using up a retry.
    pub fn concurrency(mut self, items: u32) -> Self {
        self.concurrency = Some(items.max(1));
        self
    }

    /// The retries and their delays, as far as set.
    #[doc(hidden)]
    pub fn own_retry(&self) -> RetryRules {
        self.retry
    }

    /// The timeout, if set.
    #[doc(hidden)]
    pub fn own_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The concurrency, if set, as a limit separate from those of other handlers.
    #[doc(hidden)]
    pub fn own_limit(&self) -> Option<Limit> {
        static GROUPS: AtomicU64 = AtomicU64::new(0);
        let at_once = self.concurrency?;
        let group = GROUPS.fetch_add(1, Ordering::Relaxed);
        Some(Limit { group, at_once })
    }
}

/// Maximum number of items of a group that run at once in one worker.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub(crate) group: u64,
    pub(crate) at_once: u32,
}

/// A handler with its own options.
#[derive(Debug)]
pub struct WithOptions {
    inner: Arc<dyn Handler>,
    options: HandlerOptions,
    limit: Option<Limit>,
    does_fan_out: bool,
}

impl WithOptions {
    /// Wraps `inner` with these options.
    pub fn new(inner: Arc<dyn Handler>, options: HandlerOptions) -> Self {
        Self {
            inner,
            limit: options.own_limit(),
            options,
            does_fan_out: false,
        }
    }

    /// Wraps `inner` and fans out the events that it completes. The store writes the deliveries in
    /// the transaction that settles the event, so there is exactly one delivery for each event and
    /// subscribed endpoint, even after crashes.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tenure_core::Event;
    /// use tenure_engine::{Context, EventFn, WithOptions};
    ///
    /// let done = EventFn::new(|_: Event, _: Context| async { Ok(()) });
    /// let handler = WithOptions::fan_out(Arc::new(done));
    /// # drop(handler);
    /// ```
    pub fn fan_out(inner: Arc<dyn Handler>) -> Self {
        Self {
            does_fan_out: true,
            ..Self::new(inner, HandlerOptions::default())
        }
    }

    async fn work(&self, item: Item, mut cx: Context) -> Result<Outcome, Failure> {
        let Some(timeout) = self.options.timeout else {
            return self.inner.handle(item, cx).await;
        };
        let until = Instant::now() + timeout;
        cx.deadline = cx.deadline.min(until);
        let cancel = cx.cancel.clone();
        let work = self.inner.handle(item, cx);
        timeout_at(until, work).await.unwrap_or_else(|_| {
            // Stops work that the handler has spawned elsewhere.
            cancel.cancel();
            let timeout = duration_text(timeout);
            let error = format!("the handler timed out after {timeout}");
            Err(Failure::new(error))
        })
    }
}

impl Handler for WithOptions {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        Box::pin(self.work(item, cx))
    }

    fn topics(&self) -> TopicsAnswer<'_> {
        self.inner.topics()
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }

    fn fans_out(&self, event: &Event) -> bool {
        self.does_fan_out || self.inner.fans_out(event)
    }

    fn route_name(&self, item: &Item) -> Option<&str> {
        self.inner.route_name(item)
    }

    fn max_hold(&self, item: &Item) -> Option<Duration> {
        let own = self.options.timeout.map(|timeout| timeout + AFTER_TIMEOUT);
        own.max(self.inner.max_hold(item))
    }

    fn judge(&self, failed: &Failed<'_>) -> Option<Outcome> {
        self.inner.judge(failed)
    }

    fn rules(&self, item: &Item) -> Rules {
        let inner = self.inner.rules(item);
        Rules {
            retry: self.options.retry.or(inner.retry),
            limit: self.limit.or(inner.limit),
        }
    }
}
