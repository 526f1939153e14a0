//! Interoperability: the published Standard Webhooks libraries verify our calls, and we theirs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tenure_core::Clock as _;
use tenure_core::webhook::Caller as _;
use tenure_publish::webhook::verify::Verifier;
use tenure_publish::webhook::{Scheme, Secrets, SigningKey, WebhookCaller};

use super::{Answering, NOW, Received, Receiver, Wall, config, endpoint, event, request};

/// A call as received, made at the true time, and the keys that signed it.
struct SignedCall {
    secret: SigningKey,
    pair: SigningKey,
    call: Received,
}

impl SignedCall {
    /// Input for a peer, with another body besides the true one.
    fn input(&self) -> Value {
        let headers: BTreeMap<_, _> = self.call.pairs().collect();
        let body = str::from_utf8(&self.call.body).unwrap();
        json!({
            "secret": self.secret.expose(),
            "public": self.pair.public().unwrap(),
            "headers": headers,
            "body": body,
            "other": body.replace('7', "8"),
        })
    }
}

async fn made() -> SignedCall {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let secret = SigningKey::generate(Scheme::Hmac);
    let pair = SigningKey::generate(Scheme::Ed25519);
    let mut secrets = Secrets::new(pair.clone());
    let far = NOW.after(std::time::Duration::from_hours(1_000_000));
    secrets.rotate(secret.clone(), NOW, far).unwrap();
    let endpoint = endpoint(&receiver.url(), &secrets);
    let mut config = config();
    config.clock = Arc::new(Wall);
    let event = event();
    let mut request = request(&endpoint, &event);
    request.sequence = Some(3);
    let reply = WebhookCaller::new(config).unwrap().call(&request).await;
    assert_eq!(reply.status, Ok(204));
    let call = receiver.only();
    SignedCall { secret, pair, call }
}

/// Verifies a signature that the peer made at the true time.
fn assert_verifies(made: &SignedCall, timestamp: &str, signature: &str) {
    let verifier = Verifier::new([made.secret.expose()])
        .unwrap()
        .accept_plain();
    let headers = [
        ("webhook-id", "msg_of_the_peer"),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", signature),
    ];
    let verified = verifier.verify(headers, &made.call.body, Wall.now());
    assert_eq!(
        verified.map(|call| call.id).as_deref(),
        Ok("msg_of_the_peer")
    );
    assert!(verifier.verify(headers, b"{}", Wall.now()).is_err());
}

#[tokio::test]
async fn the_published_rust_library_and_we_agree() {
    let made = made().await;
    let peer = standardwebhooks::Webhook::new(&made.secret.expose()).unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in made.call.pairs() {
        let name = HeaderName::try_from(name).unwrap();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
    }
    assert!(peer.verify(&made.call.body, &headers).is_ok());
    assert!(peer.verify(b"{}", &headers).is_err());

    let now = Wall.now().as_micros() / 1_000_000;
    let signature = peer.sign("msg_of_the_peer", now, &made.call.body).unwrap();
    assert_verifies(&made, &now.to_string(), &signature);
}

#[tokio::test]
async fn the_published_python_library_and_we_agree() {
    let made = made().await;
    let mut command = Command::new(installed().join("bin/python"));
    command.arg(script("peer.py"));
    let output = run(command, &made.input());
    assert_eq!(
        (&output["believes"], &output["believes_other"]),
        (&json!(true), &json!(false))
    );
    let (timestamp, signature) = (&output["timestamp"], &output["signature"]);
    assert_verifies(
        &made,
        timestamp.as_str().unwrap(),
        signature.as_str().unwrap(),
    );
}

/// The library knows HMAC only; Node itself verifies both ed25519 signatures.
#[tokio::test]
async fn the_published_javascript_library_and_we_agree() {
    let made = made().await;
    let folder = installed();
    let mut command = Command::new(folder.join("bin/node"));
    command.arg(script("peer.mjs")).arg(folder);
    let output = run(command, &made.input());
    assert_eq!(
        (&output["believes"], &output["believes_other"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        (&output["public"], &output["public_own"]),
        (&json!(true), &json!(true))
    );
    let (timestamp, signature) = (&output["timestamp"], &output["signature"]);
    assert_verifies(
        &made,
        timestamp.as_str().unwrap(),
        signature.as_str().unwrap(),
    );
}

/// Folder with the libraries of all languages, and their interpreters.
fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers/install");
    let status = Command::new(script).arg(&folder).status();
    assert!(
        status.unwrap().success(),
        "run scripts/peers/install to see what is missing"
    );
    folder
}

fn script(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/webhook/peers");
    folder.join(name)
}

fn run(mut command: Command, input: &Value) -> Value {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut peer = command.spawn().unwrap();
    let text = input.to_string();
    peer.stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = peer.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}
