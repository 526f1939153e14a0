//! `tenure endpoints enable`, `disable` and `remove`.

use tenure::webhook::{Disabled, EndpointId, EndpointState, Health};

use super::{find, kept, shown};
use crate::commands::Context;
use crate::confirm::{Question, confirm};
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

pub(super) async fn enable(cx: &Context, id: &EndpointId) -> Result<Exit, Stop> {
    change(cx, id, EndpointState::Enabled, "enabled").await
}

pub(super) async fn disable(cx: &Context, id: &EndpointId, reason: &str) -> Result<Exit, Stop> {
    let state = EndpointState::Disabled {
        why: Disabled::ByHand(reason.to_owned()),
        since: cx.output.now,
    };
    let exit = change(cx, id, state, "disabled").await?;
    cx.output
        .note("what is queued for it waits; events from now on are not owed to it");
    Ok(exit)
}

pub(super) async fn remove(cx: &Context, id: &EndpointId, is_sure: bool) -> Result<Exit, Stop> {
    if !is_sure {
        confirm(&Question {
            text: format!("remove {id} for good, and bury what is queued for it?"),
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
    word: &str,
) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let seen = find(&tenure, id).await?;
    if matches!(seen.state, EndpointState::Removed { .. }) {
        let message = format!("the endpoint {id} was removed, for good");
        return Err(Problem::new(Exit::Refused, message)
            .hint("`tenure endpoints add URL --id …` adds another one")
            .into());
    }
    let answer = tenure
        .edit_endpoint(id, |change| change.state.clone_from(&state))
        .await?;
    let mut endpoint = kept(id, answer)?;
    // A store clears it for one that was disabled; one that is left alone was enabled all along.
    if endpoint.state == EndpointState::Enabled && endpoint.health != Health::default() {
        tenure.forget_health(id).await?;
        endpoint.health = Health::default();
    }
    shown::one(cx, &endpoint, word)
}
