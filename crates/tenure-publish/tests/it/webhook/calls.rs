//! Calls: the request, the stored part of the response, and reuse of connections.

use std::time::Duration;

use tenure_core::webhook::{CallErrorKind, Caller as _, Directive, Reply};
use tenure_core::{Event, NewEvent, Timestamp};

use tenure_publish::webhook::verify::Verifier;

use super::{
    Answering, NOW, Received, Receiver, call, caller, config, endpoint, event, request, secrets,
};

#[tokio::test]
async fn a_call_has_the_stored_bytes_and_all_headers_once() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let mut secrets = secrets();
    secrets
        .headers
        .insert("authorization".to_owned(), "Bearer abc".to_owned());
    let endpoint = endpoint(&receiver.url(), &secrets);
    let event = NewEvent::from(event()).header("trace", "private");
    let event = event.build().unwrap();
    let reply = caller().call(&request(&endpoint, &event)).await;
    assert_eq!(reply.status, Ok(204));
    assert_eq!(reply.peer, Some(receiver.address.ip()));

    let got = receiver.only();
    assert_eq!(got.line, "POST /hooks?for=us HTTP/1.1");
    assert_eq!(got.body, event.payload().as_bytes());
    let mut names: Vec<&str> = got.pairs().map(|(name, _)| name).collect();
    names.sort_unstable();
    let expected = [
        "authorization",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "webhook-attempt",
        "webhook-fence",
        "webhook-id",
        "webhook-signature",
        "webhook-tenure-signature",
        "webhook-timestamp",
        "webhook-topic",
    ];
    assert_eq!(names, expected);
    assert_eq!(got.header("authorization"), Some("Bearer abc"));
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(got.header("host"), Some(&*receiver.address.to_string()));
    assert_eq!(got.header("webhook-timestamp"), Some("1800000000"));
    assert!(got.header("user-agent").unwrap().starts_with("tenure/"));
}

#[tokio::test]
async fn bytes_are_sent_as_bytes_with_the_content_type_of_the_event() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let endpoint = endpoint(&receiver.url(), &secrets());
    let caller = caller();
    let bytes = [0, 255, b'\r', b'\n', 7];
    let plain = Event::from_bytes("image.made", &bytes).unwrap();
    let typed = NewEvent::from_bytes("image.made", &bytes).header("Content-Type", "image/png");
    let typed = typed.build().unwrap();
    for event in [&plain, &typed] {
        assert_eq!(
            caller.call(&request(&endpoint, event)).await.status,
            Ok(204)
        );
    }
    let all = receiver.all();
    assert!(all.iter().all(|got| got.body == bytes));
    let types = all.iter().map(|got| got.header("content-type").unwrap());
    assert_eq!(
        types.collect::<Vec<_>>(),
        ["application/octet-stream", "image/png"]
    );
}

/// For any topic: the call has exactly its headers and our verifier accepts it, or it is not made.
#[tokio::test]
async fn no_topic_breaks_out_of_its_header() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let secrets = secrets();
    let endpoint = endpoint(&receiver.url(), &secrets);
    let caller = caller();
    let verifier = Verifier::new([secrets.signing[0].key.expose()]).unwrap();
    let topics = [
        "order.paid",
        " order.paid  ",
        "a: b, c; d=\"e\"",
        "bestellung.bezahlt.ü",
        "\u{2028}x\u{202e}",
        "\u{a0}x\u{3000}",
    ];
    for (nth, topic) in topics.into_iter().enumerate() {
        let event = Event::new(topic, &nth).unwrap();
        let reply = caller.call(&request(&endpoint, &event)).await;
        assert_eq!(reply.status, Ok(204), "{topic:?}");
        let got = receiver.all().pop().unwrap();
        // HTTP libraries strip the blanks around a header's value.
        let pairs = got
            .pairs()
            .map(|(name, value)| (name, value.trim_matches(' ')));
        let verified = verifier.verify(pairs, &got.body, NOW);
        let read = verified.map(|call| call.topic.unwrap());
        assert_eq!(read.as_deref(), Ok(topic.trim_matches(' ')));
        assert_eq!(got.headers.len(), receiver.all()[0].headers.len());
    }
    let blank = Event::new("  ", &1).unwrap();
    let reply = caller.call(&request(&endpoint, &blank)).await;
    let error = reply.status.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unsendable);
    for bad in ["a\r\nx-admin: 1", "a\nb", "a\u{0}", "a\u{85}", "a\u{7f}"] {
        assert!(Event::new(bad, &1).is_err(), "{bad:?}");
        let header = NewEvent::from(event()).header("content-type", bad);
        assert!(header.build().is_err(), "{bad:?}");
    }
    assert_eq!(receiver.all().len(), topics.len());
}

/// A body that is marked as gzip is stored as received.
#[tokio::test]
async fn a_compressed_response_is_not_unpacked() {
    let bomb = "x".repeat(1000);
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n{bomb}",
        bomb.len()
    );
    let receiver = Receiver::answering(Answering::Text(text)).await;
    let reply = call(&caller(), &receiver.url()).await;
    assert_eq!((reply.status, reply.body), (Ok(200), bomb.into_bytes()));
    let request = receiver.only();
    assert_eq!(
        request.header("accept-encoding"),
        None,
        "compression is not requested"
    );
}

/// Reply to a response with this status line and these headers.
async fn reply_to(status: &str, headers: &str) -> Reply {
    let text = format!("HTTP/1.1 {status}\r\n{headers}content-length: 2\r\n\r\nok");
    let receiver = Receiver::answering(Answering::Text(text)).await;
    call(&caller(), &receiver.url()).await
}

#[tokio::test]
async fn a_response_can_request_a_delay_or_an_end() {
    let seconds = reply_to("429 Slow", "Retry-After: 120\r\n").await;
    assert_eq!(seconds.status, Ok(429));
    assert_eq!(seconds.retry_after, Some(Duration::from_mins(2)));
    // 1 800 000 000 is 2027-01-15T08:00:00Z, a Friday; the three date formats of HTTP.
    assert_eq!(NOW, Timestamp::from_micros(1_800_000_000_000_000));
    for date in [
        "Fri, 15 Jan 2027 08:01:00 GMT",
        "Friday, 15-Jan-27 08:01:00 GMT",
        "Fri Jan 15 08:01:00 2027",
    ] {
        let reply = reply_to("503 Busy", &format!("retry-after: {date}\r\n")).await;
        assert_eq!(reply.retry_after, Some(Duration::from_mins(1)), "{date}");
    }
    let past = reply_to("503 Busy", "retry-after: Fri, 15 Jan 2027 07:00:00 GMT\r\n").await;
    assert_eq!(past.retry_after, Some(Duration::ZERO));
    for odd in ["soon", "-5", "1.5", "99999999999999999999999"] {
        let reply = reply_to("503 Busy", &format!("retry-after: {odd}\r\n")).await;
        assert_eq!(reply.retry_after, None, "{odd}");
    }
    for (text, directive) in [
        ("abort-message", Some(Directive::AbortMessage)),
        (" Disable ", Some(Directive::Disable)),
        ("explode", None),
    ] {
        let reply = reply_to("400 No", &format!("webhook-delivery: {text}\r\n")).await;
        assert_eq!(reply.directive, directive, "{text}");
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let other = Receiver::answering(Answering::status(200)).await;
    for status in [301, 302, 303, 307, 308] {
        let headers = format!("location: {}\r\n", other.url());
        assert_eq!(
            reply_to(&format!("{status} Moved"), &headers).await.status,
            Ok(status)
        );
    }
    assert!(other.all().is_empty());
}

/// A secret echoed by the receiver is not stored, whole or in part, in headers or body.
#[tokio::test]
async fn possible_secrets_are_masked_in_the_stored_response() {
    let receiver = Receiver::start(|got: &Received| {
        let echo = got.header("authorization").unwrap();
        let token = echo.strip_prefix("Bearer ").unwrap();
        let front = format!("{echo} {token}");
        // The stored part ends within the last token.
        let filler = "x".repeat(16 * 1024 - 5 - front.len());
        let body = format!("{front}{filler}{token}");
        let length = body.len();
        Answering::Text(format!(
            "HTTP/1.1 200 OK\r\nset-cookie: a=biscuit\r\nx-session-id: biscuit\r\n\
             www-authenticate: biscuit\r\nx-api-key: biscuit\r\nx-echo: <{echo}>\r\n\
             x-plain: visible\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    })
    .await;
    let mut secrets = secrets();
    secrets.headers.insert(
        "authorization".to_owned(),
        "Bearer canary-0123456789".to_owned(),
    );
    let endpoint = endpoint(&receiver.url(), &secrets);
    let event = event();
    let reply = caller().call(&request(&endpoint, &event)).await;
    assert_eq!(reply.status, Ok(200));
    let stored = format!(
        "{:?} {}",
        reply.headers,
        String::from_utf8_lossy(&reply.body)
    );
    assert!(
        !stored.contains("biscuit") && !stored.contains("cana"),
        "{}",
        &stored[..400]
    );
    assert!(
        stored.contains(r#"("x-plain", "visible")"#) && stored.contains(r#"("x-echo", "<***>")"#)
    );
    assert!(reply.body.starts_with(b"*** ***xxx"));
    assert!(reply.body.len() <= Reply::BODY_BYTES_MAX && reply.is_cut);
}

/// Receivers may echo a secret as JSON or percent-encoded.
#[tokio::test]
async fn a_secret_that_comes_back_in_another_spelling_is_masked() {
    let receiver = Receiver::start(|got: &Received| {
        let echo = got.header("x-key").unwrap();
        let json = serde_json::to_string(echo).unwrap();
        let slashes = json.replace('/', r"\/");
        let address = echo
            .replace('/', "%2F")
            .replace('"', "%22")
            .replace('\\', "%5C")
            .replace('+', "%2B")
            .replace('=', "%3D")
            .replace(',', "%2C")
            .replace(' ', "+");
        let body = format!("[{json}, {slashes}] {address}");
        let length = body.len();
        Answering::Text(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    })
    .await;
    let mut secrets = secrets();
    let value = r#"key="canary/+=\canary", more"#;
    secrets.headers.insert("x-key".to_owned(), value.to_owned());
    let endpoint = endpoint(&receiver.url(), &secrets);
    let reply = caller().call(&request(&endpoint, &event())).await;
    let body = String::from_utf8(reply.body).unwrap();
    assert_eq!(body, r#"["***", "***"] ***"#);
}

#[tokio::test]
async fn an_unrequested_response_is_not_taken_for_that_to_the_next_call() {
    let receiver = Receiver::start(|got: &Received| {
        let real = "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n";
        let forged = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged";
        match got.connection {
            1 => Answering::Text(format!("{real}{forged}")),
            _ => Answering::Text(real.to_owned()),
        }
    })
    .await;
    let caller = caller();
    for _ in 0..2 {
        let reply = call(&caller, &receiver.url()).await;
        assert_eq!((reply.status, reply.body), (Ok(500), Vec::new()));
    }
    let connections = receiver.all().into_iter().map(|got| got.connection);
    assert_eq!(connections.collect::<Vec<_>>(), [1, 2]);
}

/// A switch to another protocol counts as the response, and the connection ends.
#[tokio::test]
async fn a_switch_to_another_protocol_is_not_followed() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    let receiver = Receiver::answering(Answering::Text(format!("{switched}more"))).await;
    let caller = caller();
    for nth in 1..=2 {
        let reply = call(&caller, &receiver.url()).await;
        assert!(!matches!(reply.status, Ok(200..=299)), "{reply:?}");
        assert_eq!(receiver.all().last().map(|got| got.connection), Some(nth));
    }
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_closed_one_is_noticed() {
    let receiver = Receiver::start(|got: &Received| match got.connection {
        // Announces keep-alive, and closes.
        1 => Answering::AndClose("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()),
        _ => Answering::status(200),
    })
    .await;
    let caller = caller();
    assert_eq!(call(&caller, &receiver.url()).await.status, Ok(200));
    receiver.closed(1).await;
    for _ in 0..3 {
        assert_eq!(call(&caller, &receiver.url()).await.status, Ok(200));
    }
    let through: Vec<usize> = receiver.all().iter().map(|got| got.connection).collect();
    assert_eq!(through, [1, 2, 2, 2]);

    caller.close_idle();
    receiver.closed(2).await;
    assert_eq!(call(&caller, &receiver.url()).await.status, Ok(200));
    assert_eq!(receiver.all()[4].connection, 3);
}

/// The receiver closes a connection at the moment of reuse: there is no response, and no sign that
/// it read the request. The call is sent once more, and only once.
#[tokio::test]
async fn a_call_is_sent_again_if_its_idle_connection_closes() {
    let receiver = Receiver::start(|got: &Received| match (got.connection, got.line.as_str()) {
        (1, line) if line.contains("second") => Answering::AndClose(String::new()),
        (_, line) if line.contains("never") => Answering::AndClose(String::new()),
        _ => Answering::status(200),
    })
    .await;
    let caller = caller();
    let url = |path: &str| format!("http://{}/{path}", receiver.address);
    assert_eq!(call(&caller, &url("first")).await.status, Ok(200));
    let second = call(&caller, &url("second")).await;
    assert_eq!(second.status, Ok(200));
    assert!(second.timings.connect.is_some());
    let never = call(&caller, &url("never")).await;
    assert_eq!(never.status.unwrap_err().kind, CallErrorKind::Broken);
    let lines: Vec<usize> = receiver.all().iter().map(|got| got.connection).collect();
    assert_eq!(lines, [1, 1, 2, 2, 3]);
}

#[tokio::test]
async fn the_parts_of_a_call_are_timed() {
    let receiver = Receiver::answering(Answering::status(200)).await;
    let caller = caller();
    let url = format!("http://localhost:{}/", receiver.address.port());
    let mut config = config();
    config.resolver = super::ScriptedResolver::new([&["127.0.0.1"]]);
    let named = tenure_publish::webhook::WebhookCaller::new(config).unwrap();
    let first = call(&named, &url).await;
    assert_eq!(first.status, Ok(200));
    let t = first.timings;
    assert!(t.dns.unwrap() <= t.connect.unwrap() && t.connect <= t.first_byte);
    assert!(t.first_byte.unwrap() <= t.total && t.tls.is_none());
    let again = call(&named, &url).await.timings;
    assert!(again.dns.is_none() && again.connect.is_none() && again.first_byte.is_some());
    assert!(call(&caller, &receiver.url()).await.timings.dns.is_none());
}

/// Proves: S2-062
#[tokio::test]
async fn an_unsendable_call_is_reported_without_its_secrets() {
    let receiver = Receiver::answering(Answering::status(200)).await;
    let event = event();
    let caller = caller();
    let mut other = endpoint(&receiver.url(), &secrets());
    other.sealed = other.sealed.replace("tenure1:test:", "tenure1:gone:");
    let reply = caller.call(&request(&other, &event)).await;
    let error = reply.status.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unsendable);
    assert!(
        error
            .text
            .contains("\"gone\", which the keyring does not have")
    );

    other.sealed = "canary".to_owned();
    let error = caller
        .call(&request(&other, &event))
        .await
        .status
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unsendable);
    assert!(!error.text.contains("canary"));
    assert!(receiver.all().is_empty());
}

#[tokio::test]
async fn a_call_continues_the_trace_of_its_event() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let endpoint = endpoint(&receiver.url(), &secrets());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (given, state, expected) in [
        (parent, "v=1", (Some(parent), Some("v=1"))),
        (parent, "", (Some(parent), None)),
        ("malformed", "v=1", (None, None)),
    ] {
        let event = NewEvent::from(event()).traceparent(given);
        let event = event.header("tracestate", state).build().unwrap();
        let reply = caller().call(&request(&endpoint, &event)).await;
        assert_eq!(reply.status, Ok(204));
        let got = receiver.all().pop().unwrap();
        let trace = (got.header("traceparent"), got.header("tracestate"));
        assert_eq!(trace, expected);
    }
}
