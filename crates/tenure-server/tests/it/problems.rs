//! Responses to requests that fail.

use std::sync::Arc;

use tenure_server::Ports;

use crate::client::{Server, memory, ports};

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let server = Server::start(ports(memory())).await;
    for path in ["/health", "/health/live/", "/v1", "/v2/stats", "/%00", "//"] {
        server.get(path).await.is_problem(404, "not_found");
    }
    server
        .request("DELETE", "/nothing")
        .await
        .is_problem(404, "not_found");
}

#[tokio::test]
async fn the_root_lists_the_paths() {
    let server = Server::start(ports(memory())).await;
    let answer = server.get("/").await;
    let paths: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    for path in paths["paths"].as_array().expect("a list") {
        let path = path.as_str().expect("a path");
        assert_ne!(server.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_allowed_methods() {
    let server = Server::start(ports(memory())).await;
    for path in ["/health/live", "/health/ready", "/metrics", "/v1/stats"] {
        let answer = server.request("POST", path).await;
        answer.is_problem(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some("GET,HEAD"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_unread() {
    let server = Server::start(ports(memory())).await;
    let head = "GET /v1/stats HTTP/1.1\r\nhost: test\r\nconnection: close\r\n";
    let answer = server
        .send(&format!("{head}content-length: 65537\r\n\r\n"))
        .await;
    answer.is_problem(413, "too_large");
}

#[tokio::test]
async fn a_request_that_panics_gets_no_details_and_affects_no_other() {
    let server = Server::start(Ports {
        health: Arc::new(|| panic!("the secret word is canary")),
        ..ports(memory())
    })
    .await;
    for _ in 0..2 {
        let answer = server.get("/health/ready").await;
        answer.is_problem(500, "internal");
        assert!(!answer.body.contains("canary"), "{answer:?}");
        assert_eq!(server.get("/health/live").await.status, 200);
    }
}
