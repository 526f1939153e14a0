//! Connection: one HTTP/1.1 connection, driven by whoever uses it.
//!
//! No task of its own runs it. So it does nothing while nobody waits for it, and it is closed the
//! moment that its owner is dropped: a call that was given up leaves nothing behind.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::Stream;

/// The head of an answer may have this many bytes, and no more of an answer is held at once.
const BUFFER_BYTES: usize = 64 * 1024;

type Driver = http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>;

/// A connection that requests can be sent on, one after the other.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
    pub(super) peer: SocketAddr,
    pub(super) since: Instant,
}

/// The connection ended, or what came through it was no HTTP.
pub(super) struct Ended {
    /// In words.
    pub(super) text: String,
    /// Whether it just ended, without a word that would be wrong.
    pub(super) is_silent: bool,
}

impl From<hyper::Error> for Ended {
    fn from(error: hyper::Error) -> Self {
        // The words of hyper are fixed ones; those of its causes are not all.
        Self {
            text: error.to_string(),
            is_silent: !error.is_parse(),
        }
    }
}

impl Connection {
    /// Speaks HTTP on a stream.
    pub(super) async fn open(stream: Box<dyn Stream>, peer: SocketAddr) -> Result<Self, Ended> {
        let mut http = http1::Builder::new();
        http.max_buf_size(BUFFER_BYTES);
        let (sender, driver) = http.handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender,
            driver: Box::pin(driver),
            peer,
            since: Instant::now(),
        })
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Ended> {
        let answer = self.sender.send_request(request);
        Ok(drive(&mut self.driver, answer).await??)
    }

    /// Waits for the next part of an answer; `None`: that was all.
    pub(super) async fn read(
        &mut self,
        body: &mut Incoming,
    ) -> Result<Option<Frame<Bytes>>, Ended> {
        match drive(&mut self.driver, body.frame()).await? {
            None => Ok(None),
            Some(frame) => Ok(Some(frame?)),
        }
    }

    /// Whether it can take another request: it notices here that the other end has closed it.
    pub(super) async fn is_free(&mut self) -> bool {
        let ended = poll_fn(|cx| Poll::Ready(self.driver.as_mut().poll(cx).is_ready())).await;
        !ended && self.sender.is_ready()
    }
}

/// Waits for something that comes through the connection while moving the connection along.
async fn drive<F: Future>(driver: &mut Pin<Box<Driver>>, wanted: F) -> Result<F::Output, Ended> {
    let mut wanted = pin!(wanted);
    poll_fn(|cx| {
        if let Poll::Ready(found) = wanted.as_mut().poll(cx) {
            return Poll::Ready(Ok(found));
        }
        let Poll::Ready(ended) = driver.as_mut().poll(cx) else {
            // Moving the connection along may have brought what is wanted.
            return wanted.as_mut().poll(cx).map(Ok);
        };
        // What it brought with its last breath counts.
        match (wanted.as_mut().poll(cx), ended) {
            (Poll::Ready(found), _) => Poll::Ready(Ok(found)),
            (Poll::Pending, Err(error)) => Poll::Ready(Err(error.into())),
            (Poll::Pending, Ok(())) => Poll::Ready(Err(Ended {
                text: "the connection was closed".to_owned(),
                is_silent: true,
            })),
        }
    })
    .await
}
