//! `tenure retry`: makes pending events and deliveries due now.

use std::collections::HashSet;

use clap::Args;
use serde::Serialize;
use tenure::operate::{DelayedIn, KeyState, ListDelayed, RetryAnswer};
use tenure::store::QueueName;
use tenure::webhook::{Delivery, Endpoint, EndpointId, EndpointState};
use tenure::{Event, ItemId, State, Tenure};

use super::endpoints::no_such_endpoint;
use super::{AnswerView, Context, once_each};
use crate::args::{check_key, item_id};
use crate::database::IfMissing;
use crate::event_view::IdView;
use crate::exit::Exit;
use crate::output::{deliveries, events, plain};
use crate::problem::{Problem, Stop};
use crate::progress::{Total, begin};
use crate::time::relative;

#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The ids of events, or of deliveries: 17, d17
    #[arg(value_name = "ID", value_parser = item_id,
          conflicts_with_all = ["topic", "queue", "key", "endpoint"])]
    ids: Vec<ItemId>,

    /// Those with this topic
    #[arg(long, conflicts_with = "key")]
    topic: Option<String>,

    /// Those in this queue
    #[arg(long, value_parser = QueueName::new, conflicts_with_all = ["key", "endpoint"])]
    queue: Option<QueueName>,

    /// The head of this ordering key
    #[arg(long, allow_hyphen_values = true)]
    key: Option<String>,

    /// The deliveries to this endpoint
    #[arg(long, value_name = "ID", value_parser = EndpointId::new)]
    endpoint: Option<EndpointId>,

    /// Count them and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The result for a selection, in JSON.
#[derive(Serialize)]
struct RetriedView {
    retried: usize,
}

/// The result of a dry run, in JSON.
#[derive(Serialize)]
struct WouldRetry {
    would_retry: usize,
}

pub(super) async fn run(cx: &Context, args: &Retry) -> Result<Exit, Stop> {
    if let Some(key) = &args.key {
        check_key(key)?;
    }
    let is_selected = args.topic.is_some() || args.queue.is_some() || args.endpoint.is_some();
    if args.ids.is_empty() && args.key.is_none() && !is_selected {
        let message = "no events or deliveries to retry are named";
        return Err(Problem::new(Exit::Usage, message)
            .hint("give ids, or select by --topic, --queue, --key or --endpoint")
            .into());
    }
    let tenure = cx.database.open(IfMissing::Report).await?;
    let endpoint = match &args.endpoint {
        None => None,
        Some(id) => {
            let found = tenure.endpoint(id).await?;
            Some(found.ok_or_else(|| no_such_endpoint(id))?)
        }
    };
    let exit = match &args.key {
        None if args.ids.is_empty() => selected(cx, &tenure, args, endpoint.as_ref()).await?,
        None => each(cx, &tenure, &once_each(&args.ids), args.dry_run).await?,
        Some(key) => {
            let key = match &endpoint {
                Some(endpoint) => Delivery::key(&endpoint.id, key),
                None => key.clone(),
            };
            let head = head_of(&tenure, &key).await?;
            each(cx, &tenure, &[head], args.dry_run).await?
        }
    };
    if let Some(endpoint) = endpoint {
        remark(cx, &endpoint);
    }
    Ok(exit)
}

/// The head of a key: no other item of the key can be tried.
async fn head_of(tenure: &Tenure, key: &str) -> Result<ItemId, Stop> {
    let record = tenure.key(key).await?;
    let head = record.as_ref().and_then(|record| record.head.as_ref());
    if let Some(head) = head {
        return Ok(head.id);
    }
    let is_paused = record.is_some_and(|record| record.state == KeyState::Paused);
    let problem = if is_paused {
        Problem::new(Exit::Refused, format!("the key {key:?} is paused"))
            .hint("`tenure keys resume KEY` lets claims take from it again")
    } else {
        Problem::new(Exit::Nothing, format!("the key {key:?} has no head"))
            .hint("`tenure keys` lists keys with open events")
    };
    Err(problem.into())
}

/// Retries single items, and prints an answer for each.
async fn each(cx: &Context, tenure: &Tenure, ids: &[ItemId], is_dry: bool) -> Result<Exit, Stop> {
    if is_dry {
        let mut number = 0;
        for record in tenure.find(ids).await? {
            let is_delayed = record.available_at.is_some_and(|at| at > cx.output.now);
            let is_waiting = record.state == State::Pending && is_delayed;
            number += usize::from(is_waiting && ahead(tenure, record.id).await?.is_none());
        }
        return planned(cx, number, &format!("{number} of {}", ids.len()));
    }
    let mut exit = Exit::Done;
    for part in ids.chunks(STEP) {
        for (id, answer) in tenure.retry_now(part).await? {
            exit = exit.max(say(cx, tenure, id, answer).await?);
        }
    }
    Ok(exit)
}

/// Maximum items that one statement changes.
const STEP: usize = 1_000;

/// Retries everything that matches, step by step.
async fn selected(
    cx: &Context,
    tenure: &Tenure,
    args: &Retry,
    endpoint: Option<&Endpoint>,
) -> Result<Exit, Stop> {
    let of = match (endpoint, &args.queue) {
        (Some(endpoint), _) => DelayedIn::Endpoint(endpoint.number),
        (None, Some(queue)) => DelayedIn::Queue(queue.clone()),
        (None, None) => DelayedIn::Queues,
    };
    let mut list = ListDelayed::new(of);
    list.topic.clone_from(&args.topic);
    let number = hurry(cx, tenure, list, args.dry_run).await?;
    let counted = match endpoint {
        Some(_) => deliveries(number),
        None => events(number),
    };
    if args.dry_run {
        return planned(cx, number, &counted);
    }
    cx.output.either(&RetriedView { retried: number }, || {
        format!("{counted} made due")
    })?;
    if number == 0 {
        cx.output.note(
            "none waits for another attempt; one that was enqueued with a delay is retried by its \
             id only",
        );
        return Ok(Exit::Nothing);
    }
    Ok(Exit::Done)
}

/// Makes the listed items due, or only counts them; returns their number.
pub(super) async fn hurry(
    cx: &Context,
    tenure: &Tenure,
    mut list: ListDelayed,
    is_dry: bool,
) -> Result<usize, Stop> {
    let progress = begin(&cx.output, Total::Unknown, "retried");
    // An item that fails again meanwhile is not retried a second time.
    let mut seen = HashSet::new();
    let mut number = 0;
    loop {
        let page = tenure.delayed(&list).await?;
        let new = page.ids.into_iter().filter(|id| seen.insert(*id));
        let new: Vec<ItemId> = new.collect();
        if is_dry {
            number += new.len();
        } else if !new.is_empty() {
            let answers = tenure.retry_now(&new).await?;
            let due = answers.iter();
            number += due
                .filter(|(_, answer)| *answer == RetryAnswer::DueNow)
                .count();
        }
        progress.set_position(u64::try_from(number).unwrap_or(u64::MAX));
        list.after = page.next;
        if page.next.is_none() {
            progress.finish_and_clear();
            return Ok(number);
        }
    }
}

/// Prints the answer for one item.
async fn say(cx: &Context, tenure: &Tenure, id: ItemId, answer: RetryAnswer) -> Result<Exit, Stop> {
    let (why, exit) = match answer {
        RetryAnswer::DueNow => (None, Exit::Done),
        RetryAnswer::AlreadyDue => (Some("it is due already".to_owned()), Exit::Done),
        RetryAnswer::Behind => {
            let ahead = ahead(tenure, id).await?;
            let why = ahead.unwrap_or_else(|| "it waits behind the head of its key".to_owned());
            (Some(why), Exit::Refused)
        }
        RetryAnswer::Held => (Some("a worker is at work on it".to_owned()), Exit::Refused),
        RetryAnswer::Done => (
            Some(format!("it is done; `tenure replay {id}` repeats it")),
            Exit::Refused,
        ),
        RetryAnswer::Dead => (
            Some(format!("it is dead; `tenure replay {id}` puts it back")),
            Exit::Refused,
        ),
        RetryAnswer::NotFound => (Some("there is no such item".to_owned()), Exit::Nothing),
    };
    let object = AnswerView {
        id: IdView(id),
        accepted: why.is_none(),
        refused: why.as_ref().map(|_| answer.as_str()),
    };
    cx.output.either(&object, || match &why {
        None => format!("made due {id}"),
        Some(why) => format!("not changed {id}: {why}"),
    })?;
    Ok(exit)
}

/// The reason why an item is not the head of its key; `None` if it is, or has no key.
async fn ahead(tenure: &Tenure, id: ItemId) -> Result<Option<String>, Stop> {
    let Some(record) = tenure.find(&[id]).await?.pop() else {
        return Ok(None);
    };
    let Some(key) = record.content.event().and_then(Event::key) else {
        return Ok(None);
    };
    let key = match record.content.delivery() {
        None => key.to_owned(),
        Some(delivery) => {
            let endpoint = tenure
                .endpoints_by_number()
                .await?
                .remove(&delivery.endpoint);
            endpoint.map_or_else(|| key.to_owned(), |of| Delivery::key(&of.id, key))
        }
    };
    let Some(of) = tenure.key(&key).await? else {
        return Ok(None);
    };
    let name = plain(&of.name);
    Ok(match of.head {
        Some(head) if head.id == id => None,
        Some(head) => Some(format!(
            "it waits behind {}, the head of its key {name}",
            head.id
        )),
        None if of.state == KeyState::Paused => Some(format!("its key {name} is paused")),
        None => Some(format!(
            "its key {name} has no head yet; the next claim chooses one"
        )),
    })
}

fn planned(cx: &Context, number: usize, counted: &str) -> Result<Exit, Stop> {
    let object = WouldRetry {
        would_retry: number,
    };
    cx.output
        .either(&object, || format!("{counted} would be made due"))?;
    Ok(if number == 0 {
        Exit::Nothing
    } else {
        Exit::Done
    })
}

/// Says what still holds back the deliveries of an endpoint.
fn remark(cx: &Context, endpoint: &Endpoint) {
    let id = &endpoint.id;
    let now = cx.output.now;
    if matches!(endpoint.state, EndpointState::Disabled { .. }) {
        cx.output.hint(format_args!(
            "{id} is disabled: `tenure endpoints enable {id}` sends to it again"
        ));
    } else if let Some(until) = endpoint.health.paused_until.filter(|until| *until > now) {
        cx.output.hint(format_args!(
            "the circuit breaker pauses {id}, until {}: `tenure endpoints enable {id}` ends this",
            relative(until, now)
        ));
    }
}
