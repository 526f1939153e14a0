//! A body that comes byte by byte.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};

/// A body that comes byte by byte, or at once.
pub(super) type Drip = UnsyncBoxBody<Bytes, Infallible>;

/// These bytes at even distances, the last of them after this time.
pub(super) fn drip(bytes: Bytes, over: Duration) -> Drip {
    let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX).max(1);
    let distance = over / count;
    if distance.is_zero() {
        return Full::new(bytes).boxed_unsync();
    }
    let frames = unfold(bytes, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        // To be slow is what it was asked for.
        tokio::time::sleep(distance).await;
        let first = left.split_to(1);
        Some((Ok(Frame::data(first)), left))
    });
    StreamBody::new(frames).boxed_unsync()
}
