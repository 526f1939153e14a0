//! `tenure endpoints enable`, `disable` and `remove`.

use tenure::operate::{DelayedIn, ListDelayed};
use tenure::webhook::{Disabled, EndpointHealth, EndpointId, EndpointState};

use super::{accepted, find, view};
use crate::commands::Context;
use crate::commands::retry::hurry;
use crate::confirm::{Question, confirm};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::deliveries;
use crate::problem::{Problem, Stop};

pub(super) async fn enable(cx: &Context, id: &EndpointId, retry: bool) -> Result<Exit, Stop> {
    let exit = change(cx, id, EndpointState::Enabled, "enabled").await?;
    let tenure = cx.database.open(IfMissing::Report).await?;
    let number = find(&tenure, id).await?.number;
    if retry {
        let list = ListDelayed::new(DelayedIn::Endpoint(number));
        let retried = hurry(cx, &tenure, list, false).await?;
        cx.output
            .note(format_args!("{} made due", deliveries(retried)));
        return Ok(exit);
    }
    let counts = tenure.count().await?.deliveries.endpoints;
    let counts = counts.iter().find(|(of, _)| *of == number);
    if let Some((_, counts)) = counts.filter(|(_, counts)| counts.delayed > 0) {
        let waiting = deliveries(usize::try_from(counts.delayed).unwrap_or(usize::MAX));
        cx.output.hint(format_args!(
            "{waiting} to be retried later: `tenure retry --endpoint {id}` retries now"
        ));
    }
    Ok(exit)
}

pub(super) async fn disable(cx: &Context, id: &EndpointId, reason: &str) -> Result<Exit, Stop> {
    let state = EndpointState::Disabled {
        why: Disabled::ByHand(reason.to_owned()),
        since: cx.output.now,
    };
    let exit = change(cx, id, state, "disabled").await?;
    cx.output
        .note("its queued deliveries wait; new events are not queued for it");
    Ok(exit)
}

pub(super) async fn remove(cx: &Context, id: &EndpointId, is_sure: bool) -> Result<Exit, Stop> {
    if !is_sure {
        confirm(&Question {
            text: format!("remove {id} for good, and bury its queued deliveries?"),
            unasked: format!("{id} would be removed for good"),
            hint: "--yes removes it; `tenure endpoints disable` stops sending for a while",
            refused: "nothing was removed",
        })?;
    }
    let since = cx.output.now;
    change(cx, id, EndpointState::Removed { since }, "removed").await
}

async fn change(
    cx: &Context,
    id: &EndpointId,
    state: EndpointState,
    done: &str,
) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let current = find(&tenure, id).await?;
    if matches!(current.state, EndpointState::Removed { .. }) {
        let message = format!("the endpoint {id} was removed for good");
        return Err(Problem::new(Exit::Refused, message)
            .hint("`tenure endpoints add URL --id …` adds another one")
            .into());
    }
    let answer = tenure
        .edit_endpoint(id, |change| change.state.clone_from(&state))
        .await?;
    let mut endpoint = accepted(id, answer)?;
    // The store resets the health only of an endpoint that was disabled. An endpoint that is
    // backing off was enabled already, so its health is reset here.
    if endpoint.state == EndpointState::Enabled && endpoint.health != EndpointHealth::default() {
        tenure.forget_health(id).await?;
        endpoint.health = EndpointHealth::default();
    }
    view::print(cx, &endpoint, done)
}
