//! Dialling: checked addresses and nothing else, whatever the name server answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::webhook::{CallErrorKind, Reply};
use tenure_publish::webhook::{AddressPolicy, WebhookCaller};

use super::{Answering, Receiver, Recorder, ScriptedResolver, call, config, local};

/// Default policy, but with http, because the receivers here do not encrypt.
fn public() -> AddressPolicy {
    AddressPolicy {
        allow_http: true,
        ..AddressPolicy::default()
    }
}

fn caller(resolver: &Arc<ScriptedResolver>, dialler: &Arc<Recorder>) -> WebhookCaller {
    let mut config = config();
    config.policy = public();
    config.resolver = Arc::<ScriptedResolver>::clone(resolver);
    config.dialler = Arc::<Recorder>::clone(dialler);
    WebhookCaller::new(config).unwrap()
}

fn assert_forbidden(reply: &Reply) {
    let error = reply.status.as_ref().unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Forbidden);
    assert_eq!(error.text, "its network address may not be called");
    assert_eq!(reply.peer, None);
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// One forbidden address among good ones, first, in the middle or last, forbids the call.
#[tokio::test]
async fn one_forbidden_address_forbids_the_whole_call() {
    let closed = [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "fd00::1",
        "fe80::1",
    ];
    let recorder = Arc::new(Recorder::default());
    let told = ScriptedResolver::new([&[]]);
    let caller = caller(&told, &recorder);
    for closed in closed {
        let mixed: [&[&str]; 4] = [
            &[closed],
            &[closed, "1.1.1.1"],
            &["1.1.1.1", closed, "8.8.8.8"],
            &["1.1.1.1", "2606:4700::1111", closed],
        ];
        for answer in mixed {
            told.set([answer]);
            assert_forbidden(&call(&caller, "http://rebind.example/").await);
            assert!(recorder.dialled().is_empty(), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_name_that_changes_to_a_private_address_is_not_followed() {
    let receiver = Receiver::answering(Answering::AndClose(
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_owned(),
    ))
    .await;
    let recorder = Recorder::to(&receiver);
    let told = ScriptedResolver::new([&["1.1.1.1"], &["127.0.0.1"]]);
    let caller = caller(&told, &recorder);
    assert_eq!(
        call(&caller, "http://rebind.example/").await.status,
        Ok(200)
    );
    for _ in 0..3 {
        assert_forbidden(&call(&caller, "http://rebind.example/").await);
    }
    assert_eq!(recorder.dialled(), [address("1.1.1.1:80")]);
    assert_eq!(receiver.only().header("host"), Some("rebind.example"));
}

/// The checked addresses are dialled in their order, and the name is not resolved again.
#[tokio::test]
async fn all_checked_addresses_are_tried() {
    let recorder = Arc::new(Recorder::default());
    let told = ScriptedResolver::new([
        &["1.1.1.1", "::ffff:8.8.8.8", "2606:4700::1111"],
        &["127.0.0.1"],
    ]);
    let caller = caller(&told, &recorder);
    let reply = call(&caller, "http://three.example:8443/").await;
    assert_eq!(reply.status.unwrap_err().kind, CallErrorKind::Connect);
    let expected = ["1.1.1.1:8443", "8.8.8.8:8443", "[2606:4700::1111]:8443"];
    assert_eq!(recorder.dialled(), expected.map(address));
}

#[tokio::test]
async fn addresses_in_disguise_are_not_dialled() {
    let recorder = Arc::new(Recorder::default());
    let caller = caller(&ScriptedResolver::new([&["1.1.1.1"]]), &recorder);
    let urls = [
        "http://127.0.0.1/",
        "http://0x7f000001/",
        "http://017700000001/",
        "http://2130706433/",
        "http://127.1/",
        "http://%31%32%37.0.0.1/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://[::ffff:7f00:1]/",
        "http://[::]/",
        "http://user:canary@1.1.1.1/",
        "http://1.1.1.1:22/",
        "ftp://1.1.1.1/",
    ];
    for url in urls {
        let reply = call(&caller, url).await;
        let error = reply.status.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Forbidden, "{url}");
        assert!(!error.text.contains("canary"));
    }
    assert!(recorder.dialled().is_empty());
}

/// An open connection is checked again before it is reused.
#[tokio::test]
async fn an_open_connection_is_checked_again() {
    let receiver = Receiver::answering(Answering::status(200)).await;
    let recorder = Recorder::to(&receiver);
    let caller = caller(&ScriptedResolver::new([&["1.1.1.1"]]), &recorder);
    for _ in 0..2 {
        assert_eq!(
            call(&caller, "http://pooled.example/").await.status,
            Ok(200)
        );
    }
    assert_eq!(recorder.dialled().len(), 1, "it is used again");
    caller.set_policy(AddressPolicy {
        deny: vec!["1.1.1.0/24".parse().unwrap()],
        ..public()
    });
    assert_forbidden(&call(&caller, "http://pooled.example/").await);
    assert_eq!(receiver.all().len(), 2);
    receiver.closed(1).await;
}

/// The peer that the dialler reports is checked, not only the requested address.
#[tokio::test]
async fn the_peer_is_checked_after_dialling() {
    #[derive(Debug)]
    struct Elsewhere(Recorder);
    impl tenure_publish::webhook::Dialler for Elsewhere {
        fn dial(&self, address: SocketAddr) -> tenure_publish::webhook::Dialling<'_> {
            Box::pin(async move {
                let mut dialled = self.0.dial(address).await?;
                dialled.peer = "10.0.0.1:80".parse().unwrap();
                Ok(dialled)
            })
        }
    }
    let receiver = Receiver::answering(Answering::status(200)).await;
    let mut config = config();
    config.policy = public();
    config.resolver = ScriptedResolver::new([&["1.1.1.1"]]);
    config.dialler = Arc::new(Elsewhere(Recorder {
        receiver: Some(receiver.address),
        ..Recorder::default()
    }));
    let caller = WebhookCaller::new(config).unwrap();
    assert_forbidden(&call(&caller, "http://elsewhere.example/").await);
    assert!(receiver.all().is_empty());
}

#[tokio::test]
async fn an_allowed_host_name_may_be_at_any_address_except_our_own_sockets() {
    let receiver = Receiver::answering(Answering::status(200)).await;
    let recorder = Recorder::to(&receiver);
    let caller = caller(&ScriptedResolver::new([&["10.0.0.7"]]), &recorder);
    assert_forbidden(&call(&caller, "http://inside.example/").await);
    let open = AddressPolicy {
        allow_hosts: vec!["Inside.example.".to_owned()],
        ..public()
    };
    caller.set_policy(open.clone());
    assert_eq!(
        call(&caller, "http://inside.example/").await.status,
        Ok(200)
    );
    assert_forbidden(&call(&caller, "http://outside.example/").await);
    caller.set_policy(AddressPolicy {
        deny_own: vec![address("10.0.0.7:80")],
        ..open
    });
    assert_forbidden(&call(&caller, "http://inside.example/").await);
}

#[tokio::test]
async fn a_name_without_an_address_is_reported() {
    let recorder = Arc::new(Recorder::default());
    let caller = caller(&ScriptedResolver::new([&[]]), &recorder);
    let error = call(&caller, "http://none.example/?q=canary")
        .await
        .status
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Dns);
    assert!(!error.text.contains("canary"));
}

/// A silent name server or host uses up the time for connecting, not that of the whole call.
#[tokio::test(start_paused = true)]
async fn connecting_has_a_time_limit_of_its_own() {
    #[derive(Debug)]
    struct Never;
    impl tenure_publish::webhook::Resolver for Never {
        fn resolve<'a>(&'a self, name: &'a str) -> tenure_publish::webhook::Resolving<'a> {
            Box::pin(async move {
                if name == "slow.example" {
                    std::future::pending::<()>().await;
                }
                Ok(vec![
                    "127.0.0.1".parse().unwrap(),
                    "127.0.0.2".parse().unwrap(),
                ])
            })
        }
    }
    impl tenure_publish::webhook::Dialler for Never {
        fn dial(&self, _address: SocketAddr) -> tenure_publish::webhook::Dialling<'_> {
            Box::pin(std::future::pending())
        }
    }
    let mut config = config();
    config.policy = local();
    config.resolver = Arc::new(Never);
    config.dialler = Arc::new(Never);
    let caller = WebhookCaller::new(config).unwrap();
    for (url, kind) in [
        ("http://slow.example/", CallErrorKind::Timeout),
        ("http://deaf.example/", CallErrorKind::Connect),
    ] {
        let start = tokio::time::Instant::now();
        let error = call(&caller, url).await.status.unwrap_err();
        assert_eq!(error.kind, kind, "{}", error.text);
        let took = start.elapsed();
        assert!((4900..=5100).contains(&took.as_millis()), "{took:?}");
        assert!(took < Duration::from_secs(20));
    }
}
