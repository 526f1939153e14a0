//! A body that comes byte by byte.

use std::convert::Infallible;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Sleep, sleep};

/// A body that comes byte by byte, at even distances; or at once.
#[derive(Debug)]
pub(super) struct Drip {
    left: Bytes,
    distance: Duration,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Drip {
    /// These bytes, the last of them after this time.
    pub(super) fn new(bytes: Bytes, over: Duration) -> Self {
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX).max(1);
        Self {
            left: bytes,
            distance: over / count,
            wait: None,
        }
    }
}

impl Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        if self.distance.is_zero() {
            let all = std::mem::take(&mut self.left);
            return Poll::Ready(Some(Ok(Frame::data(all))));
        }
        let distance = self.distance;
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(distance)));
        if wait.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.wait = None;
        let first = self.left.split_to(1);
        Poll::Ready(Some(Ok(Frame::data(first))))
    }
}
