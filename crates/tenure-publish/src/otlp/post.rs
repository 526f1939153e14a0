//! One request to the collector, over a connection that is kept.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use tenure_core::Invalid;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use super::OtlpConfig;
use crate::webhook::connection::Connection;
use crate::webhook::tls;
use crate::webhook::{Stream, Target};

/// Part of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where spans go.
pub(super) struct Collector {
    target: Target,
    headers: HeaderMap,
    timeout: Duration,
    /// `None` without encryption.
    tls: Option<TlsConnector>,
    connection: Option<Connection>,
}

/// A failed request.
pub(super) struct PostError {
    pub(super) text: String,
    /// Worth another attempt.
    pub(super) is_transient: bool,
}

impl PostError {
    fn transient(text: impl Display) -> Self {
        Self {
            text: text.to_string(),
            is_transient: true,
        }
    }
}

impl Collector {
    pub(super) fn new(config: &OtlpConfig) -> Result<Self, Invalid> {
        // The text of the address may hold a secret.
        let bad = || {
            let expected = "an address of http or https, such as http://127.0.0.1:4318";
            Invalid::new("the address of the collector", "another text", expected)
        };
        let url = Url::parse(&config.endpoint).map_err(|_cause| bad())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad());
        }
        let port = url.port_or_known_default().ok_or_else(bad)?;
        let target = Target::new(&url, url.scheme() == "https", port).map_err(|_error| bad())?;
        let tls = target.is_encrypted().then(|| tls::connector(""));
        let tls = tls.transpose()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let bad = || Invalid::new("header", format!("{name:?}"), "one that can be sent");
            let name = HeaderName::try_from(name).map_err(|_cause| bad())?;
            let mut value = HeaderValue::try_from(value).map_err(|_cause| bad())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let agent = concat!("tenure/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(HOST, target.authority().clone());
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, protobuf);
        Ok(Self {
            target,
            headers,
            timeout: config.timeout,
            tls,
            connection: None,
        })
    }

    /// Host and port, for the log.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.target.host(), self.target.port())
    }

    /// Posts the body and returns the answer to it.
    pub(super) async fn post(&mut self, body: Bytes) -> Result<Vec<u8>, PostError> {
        // Taken, so that a request that fails or is abandoned leaves no connection behind.
        let connection = self.connection.take();
        let within = self.timeout;
        let answer = timeout(within, self.exchange(connection, body)).await;
        let late = |_| PostError::transient(format_args!("no answer within {within:?}"));
        let (connection, answer) = answer.map_err(late)??;
        self.connection = Some(connection);
        Ok(answer)
    }

    // By exclusive reference, because a connection cannot be shared by threads.
    async fn exchange(
        &mut self,
        kept: Option<Connection>,
        body: Bytes,
    ) -> Result<(Connection, Vec<u8>), PostError> {
        let mut connection = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        if !connection.is_free().await {
            connection = self.connect().await?;
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(self.target.path());
        request.headers_mut().clone_from(&self.headers);
        let broken = |error: crate::webhook::connection::ConnectionError| error.text;
        let answer = connection.send(request).await;
        let answer = answer.map_err(|error| PostError::transient(broken(error)))?;
        let status = answer.status();
        let mut content = answer.into_body();
        let mut bytes = Vec::new();
        loop {
            let frame = connection.read(&mut content).await;
            let frame = frame.map_err(|error| PostError::transient(broken(error)))?;
            let Some(frame) = frame else { break };
            bytes.extend(frame.into_data().unwrap_or_default());
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(PostError::transient("the answer is too long"));
            }
        }
        if status.is_success() {
            return Ok((connection, bytes));
        }
        let text = format!("the collector answered {}", status.as_u16());
        Err(PostError {
            text,
            is_transient: is_transient(status),
        })
    }

    async fn connect(&mut self) -> Result<Connection, PostError> {
        let (host, port) = (self.target.host(), self.target.port());
        let stream = TcpStream::connect(format!("{host}:{port}")).await;
        let stream = stream.map_err(PostError::transient)?;
        stream.set_nodelay(true).map_err(PostError::transient)?;
        let peer = stream.peer_addr().map_err(PostError::transient)?;
        let mut stream: Box<dyn Stream> = Box::new(stream);
        if let Some(tls) = &self.tls {
            let encrypted = tls::encrypt(tls, &self.target, stream).await;
            stream = encrypted.map_err(PostError::transient)?;
        }
        let opened = Connection::open(stream, peer).await;
        opened.map_err(|error| PostError::transient(error.text))
    }
}

/// The answers that OTLP wants to be asked again.
fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}
