//! Encryption: the certificate must match the host name, not the dialled address.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tenure_core::webhook::CallErrorKind;
use tenure_publish::webhook::{AddressPolicy, WebhookCaller};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{Recorder, ScriptedResolver, call, config};

/// Starts a receiver for `name` that answers with the requested server name; returns its address
/// and certificate.
async fn encrypted(name: &str) -> (std::net::SocketAddr, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let server =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A caller that does not trust us ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let requested = stream
                .get_ref()
                .1
                .server_name()
                .unwrap_or("none")
                .to_owned();
            let mut got = Vec::new();
            while !got.ends_with(b"true}") {
                assert!(stream.read_buf(&mut got).await.unwrap() > 0);
            }
            let length = requested.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{requested}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, cert.pem())
}

fn caller(address: std::net::SocketAddr, authorities: &str) -> WebhookCaller {
    let mut config = config();
    config.policy = AddressPolicy::default();
    authorities.clone_into(&mut config.authorities);
    config.resolver = ScriptedResolver::new([&["1.1.1.1"]]);
    config.dialler = Arc::new(Recorder {
        receiver: Some(address),
        ..Recorder::default()
    });
    WebhookCaller::new(config).unwrap()
}

#[tokio::test]
async fn the_handshake_uses_the_host_name() {
    let (address, pem) = encrypted("hooks.example").await;
    let reply = call(&caller(address, &pem), "https://hooks.example/a").await;
    assert_eq!(reply.status, Ok(200));
    assert_eq!(reply.body, b"hooks.example");
    let t = reply.timings;
    assert!(t.connect <= t.tls && t.tls <= t.first_byte && t.tls.is_some());
}

#[tokio::test]
async fn a_certificate_of_another_name_or_authority_is_refused() {
    let (address, pem) = encrypted("hooks.example").await;
    for (caller, url) in [
        (caller(address, &pem), "https://other.example/?q=canary"),
        (caller(address, &pem), "https://1.1.1.1/?q=canary"),
        (caller(address, ""), "https://hooks.example/?q=canary"),
    ] {
        let error = call(&caller, url).await.status.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Tls, "{url}: {}", error.text);
        assert!(!error.text.contains("canary"), "{}", error.text);
    }
}

#[test]
fn invalid_authorities_are_refused() {
    let mut config = config();
    config.authorities =
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    assert!(WebhookCaller::new(config).is_err());
}
