//! `tenure endpoints test`: calls an endpoint once with a test event.

use serde::Serialize;
use serde_json::json;
use tenure::webhook::{CallDetail, Caller as _, EndpointId, Request};
use tenure::{Event, Fence, ItemId};
use uuid::Uuid;

use super::find;
use crate::commands::Context;
use crate::commands::deliveries::{beginning, micros, times};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::webhook;

/// The topic of test events; they are never queued.
const TOPIC: &str = "tenure.test";

/// The answer in JSON.
#[derive(Serialize)]
struct TestCallView<'a> {
    endpoint: &'a str,
    message: String,
    status: Option<u16>,
    error: Option<String>,
    #[serde(flatten)]
    detail: &'a CallDetail,
}

pub(super) async fn run(cx: &Context, id: &EndpointId) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let endpoint = find(&tenure, id).await?;
    let keys = webhook::keys(&cx.config.webhook)?;
    // Checked before the call: if a secret cannot be decrypted, the receiver is not at fault.
    webhook::open(&endpoint, &keys)?;
    let own = webhook::own_addresses(&cx.config).await;
    let caller = webhook::caller(&cx.config.webhook, keys, own)?;
    let sent_at = cx.output.now.to_string();
    let event = Event::new(
        TOPIC,
        &json!({"test": true, "endpoint": id.as_str(), "at": sent_at}),
    )?;
    let message = Uuid::now_v7();
    let request = Request {
        endpoint: &endpoint,
        delivery: ItemId::new(ItemId::FIRST_DELIVERY),
        message,
        event: &event,
        attempt: 1,
        fence: Fence::new(0),
        sequence: None,
        time_limit: endpoint.settings.timeout,
    };
    let reply = caller.call(&request).await;
    let detail = CallDetail::of(&reply);
    let status = reply.status.as_ref().ok().copied();
    let error = reply.status.as_ref().err().map(ToString::to_string);
    let object = TestCallView {
        endpoint: id.as_str(),
        message: message.to_string(),
        status,
        error: error.clone(),
        detail: &detail,
    };
    cx.output.either(&object, || {
        let result = match (status, &error) {
            (Some(status), _) => format!("{id} answered {status}"),
            (None, Some(error)) => format!("{id} did not answer: {}", plain(error)),
            (None, None) => format!("{id} did not answer"),
        };
        let took = format!("{result} after {}", micros(detail.total_us));
        match times(&detail) {
            times if times.is_empty() => took,
            times => format!("{took} ({times})"),
        }
    })?;
    if !detail.body.is_empty() && !cx.output.is_json() {
        cx.output.line(beginning(&detail))?;
    }
    let is_success = status.is_some_and(|status| (200..300).contains(&status));
    Ok(if is_success { Exit::Done } else { Exit::Failed })
}
