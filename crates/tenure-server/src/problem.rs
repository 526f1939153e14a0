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
pub(crate) struct Problem(StatusCode);

impl Problem {
    /// Returns the stable code, and advice if the status is one that Tenure sets.
    fn code_and_detail(self) -> (&'static str, Option<&'static str>) {
        let (code, detail) = match self.0 {
            StatusCode::NOT_FOUND => ("not_found", "there is nothing at this path"),
            StatusCode::METHOD_NOT_ALLOWED => (
                "method_not_allowed",
                "the header allow lists the methods of this path",
            ),
            StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "the body is longer than 64 KiB"),
            StatusCode::SERVICE_UNAVAILABLE => (
                "unavailable",
                "the store does not answer at present; try again later",
            ),
            StatusCode::INTERNAL_SERVER_ERROR => {
                ("internal", "the cause is in the log of the server")
            }
            _ => return ("other", None),
        };
        (code, Some(detail))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.0;
        let (code, detail) = self.code_and_detail();
        let body = wire::ProblemView {
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            code,
            detail,
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
            return Self(StatusCode::SERVICE_UNAVAILABLE);
        }
        tracing::error!(%error, "the store refused a request");
        Self(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

pub(crate) async fn not_found() -> Problem {
    Problem(StatusCode::NOT_FOUND)
}

/// Response to a request whose handler panicked. The panic hook has logged the panic itself.
pub(crate) fn panicked(_thrown: Box<dyn Any + Send>) -> Response {
    tracing::error!("a request panicked");
    Problem(StatusCode::INTERNAL_SERVER_ERROR).into_response()
}

/// Turns plain error responses of the layers below into problems, and forbids caching of every
/// response.
pub(crate) async fn normalize(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_ours = kind.is_some_and(|kind| kind.as_bytes().ends_with(b"json"));
    let is_bare = (status.is_client_error() || status.is_server_error()) && !is_ours;
    let mut answer = if is_bare {
        let mut problem = Problem(status).into_response();
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
