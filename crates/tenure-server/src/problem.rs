//! Problem: the response to a request that failed. The client gets a stable code and a phrase; the
//! cause goes to the log.

use std::any::Any;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure_core::store::StoreError;

use crate::wire;

const PROBLEM_JSON: &str = "application/problem+json";

/// A response other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    NotFound,
    MethodNotAllowed,
    TooLarge,
    Unavailable,
    Internal,
    /// Status set by a layer below.
    Other(StatusCode),
}

impl Problem {
    fn status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Other(status) => status,
        }
    }

    fn of(status: StatusCode) -> Self {
        let known = [
            Self::NotFound,
            Self::MethodNotAllowed,
            Self::TooLarge,
            Self::Unavailable,
            Self::Internal,
        ];
        let matching = known.into_iter().find(|known| known.status() == status);
        matching.unwrap_or(Self::Other(status))
    }

    fn code(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
            Self::Other(_) => "other",
        }
    }

    fn detail(self) -> Option<&'static str> {
        match self {
            Self::NotFound => Some("there is nothing at this path"),
            Self::MethodNotAllowed => Some("the header allow lists the methods of this path"),
            Self::TooLarge => Some("the body is longer than 64 KiB"),
            Self::Unavailable => Some("the store does not answer at present; try again later"),
            Self::Internal => Some("the cause is in the log of the server"),
            Self::Other(_) => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = wire::ProblemView {
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            code: self.code(),
            detail: self.detail(),
        };
        // Numbers and fixed texts always serialize; even an empty body would still be a response.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let kind = HeaderValue::from_static(PROBLEM_JSON);
        (status, [(header::CONTENT_TYPE, kind)], body).into_response()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            tracing::warn!(%error, "the store failed during a request");
            return Self::Unavailable;
        }
        tracing::error!(%error, "the store refused a request");
        Self::Internal
    }
}

pub(crate) async fn not_found() -> Problem {
    Problem::NotFound
}

/// Response to a request whose handler panicked. The panic hook has logged the panic itself.
pub(crate) fn panicked(_thrown: Box<dyn Any + Send>) -> Response {
    tracing::error!("a request panicked");
    Problem::Internal.into_response()
}

/// Turns plain error responses of the layers below into problems, and forbids caching of every
/// response.
pub(crate) async fn normalize(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_ours = kind.is_some_and(|kind| kind.as_bytes().ends_with(b"json"));
    let is_bare = (status.is_client_error() || status.is_server_error()) && !is_ours;
    let mut answer = if is_bare {
        let mut problem = Problem::of(status).into_response();
        if let Some(allow) = response.headers().get(header::ALLOW) {
            problem.headers_mut().insert(header::ALLOW, allow.clone());
        }
        problem
    } else {
        response
    };
    let fresh = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, fresh);
    answer
}
