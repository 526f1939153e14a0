//! A response body that is sent slowly.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};

/// A body sent byte by byte, or at once.
pub(super) type SlowBody = UnsyncBoxBody<Bytes, Infallible>;

/// A body whose bytes are sent at even intervals over this time.
pub(super) fn slow_body(bytes: Bytes, over: Duration) -> SlowBody {
    let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX).max(1);
    let interval = over / count;
    if interval.is_zero() {
        return Full::new(bytes).boxed_unsync();
    }
    let frames = unfold(bytes, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        // The delay is the purpose of `--slow`.
        tokio::time::sleep(interval).await;
        let first = left.split_to(1);
        Some((Ok(Frame::data(first)), left))
    });
    StreamBody::new(frames).boxed_unsync()
}
