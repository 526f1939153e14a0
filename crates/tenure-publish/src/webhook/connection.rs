//! Connection: one HTTP/1.1 connection, driven by its user.
//!
//! No background task runs it. It makes progress only while its user waits, and closes when it is
//! dropped: an abandoned call leaves no connection behind.

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

/// Limit of a response head, and of the response data buffered at once.
const BUFFER_BYTES: usize = 64 * 1024;

type Driver = http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>;

/// A connection that sends one request after the other.
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
    pub(crate) peer: SocketAddr,
    pub(crate) since: Instant,
}

/// The connection closed, or its data was not valid HTTP.
pub(crate) struct ConnectionError {
    pub(crate) text: String,
    /// The peer closed the connection, without a protocol error.
    pub(crate) is_closed: bool,
}

impl From<hyper::Error> for ConnectionError {
    fn from(error: hyper::Error) -> Self {
        // Hyper's own texts are fixed; those of its sources may contain data.
        Self {
            text: error.to_string(),
            is_closed: !error.is_parse(),
        }
    }
}

impl Connection {
    /// Starts HTTP on a stream.
    pub(crate) async fn open(
        stream: Box<dyn Stream>,
        peer: SocketAddr,
    ) -> Result<Self, ConnectionError> {
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

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ConnectionError> {
        let answer = self.sender.send_request(request);
        Ok(drive(&mut self.driver, answer).await??)
    }

    /// Waits for the next part of a response; `None` at its end.
    pub(crate) async fn read(
        &mut self,
        body: &mut Incoming,
    ) -> Result<Option<Frame<Bytes>>, ConnectionError> {
        match drive(&mut self.driver, body.frame()).await? {
            None => Ok(None),
            Some(frame) => Ok(Some(frame?)),
        }
    }

    /// Returns true if the connection can take another request. Detects that the peer has closed
    /// it.
    pub(crate) async fn is_free(&mut self) -> bool {
        let is_closed = poll_fn(|cx| Poll::Ready(self.driver.as_mut().poll(cx).is_ready())).await;
        !is_closed && self.sender.is_ready()
    }
}

/// Waits for `wanted` while driving the connection.
async fn drive<F: Future>(
    driver: &mut Pin<Box<Driver>>,
    wanted: F,
) -> Result<F::Output, ConnectionError> {
    let mut wanted = pin!(wanted);
    poll_fn(|cx| {
        if let Poll::Ready(value) = wanted.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        let Poll::Ready(closed) = driver.as_mut().poll(cx) else {
            // Driving the connection may have completed `wanted`.
            return wanted.as_mut().poll(cx).map(Ok);
        };
        // Data that arrived just before the close counts.
        match (wanted.as_mut().poll(cx), closed) {
            (Poll::Ready(value), _) => Poll::Ready(Ok(value)),
            (Poll::Pending, Err(error)) => Poll::Ready(Err(error.into())),
            (Poll::Pending, Ok(())) => Poll::Ready(Err(ConnectionError {
                text: "the connection was closed".to_owned(),
                is_closed: true,
            })),
        }
    })
    .await
}
