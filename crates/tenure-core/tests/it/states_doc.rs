//! `docs/STATES.md` is printed from the table of transitions: this fails when the page is stale,
//! and then shows the whole page as it should be.

use std::fmt::Write as _;

use tenure_core::{Cause, State, TRANSITIONS};

#[test]
fn the_page_of_states_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/STATES.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let expected = page();
    assert!(
        found == expected,
        "docs/STATES.md is stale; its whole text must be:\n{expected}"
    );
}

fn page() -> String {
    let mut page = String::from(
        "# States\n\n\
         Printed from `TRANSITIONS` in `crates/tenure-core/src/state.rs`; a test fails when it is stale.\n\n\
         An item is in one of four states, and six transitions lead from one to another.\n\
         There is no seventh.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> pending: enqueue\n",
    );
    let mut line = |text: String| writeln!(page, "{text}").expect("a string takes all");
    for (from, cause, to) in TRANSITIONS {
        line(format!("    {from} --> {to}: {}", word(cause)));
    }
    line("```\n\n| from | to | cause | that is |\n|---|---|---|---|".into());
    for (from, cause, to) in TRANSITIONS {
        let (word, meaning) = (word(cause), meaning(cause));
        line(format!("| {from} | {to} | {word} | {meaning} |"));
    }
    line("\nThe other ten do not exist; every store refuses them:\n".into());
    for from in State::ALL {
        let refused: Vec<_> = State::ALL
            .into_iter()
            .filter(|to| !from.may_become(*to))
            .map(State::as_str)
            .collect();
        line(format!("- {from} to {}", refused.join(", ")));
    }
    let terminal: Vec<_> = State::ALL
        .into_iter()
        .filter(|state| state.is_terminal())
        .map(State::as_str)
        .collect();
    line(format!(
        "\nFinal are {}: only a replay leaves them.",
        terminal.join(" and ")
    ));
    line(
        "A lapsed lease is no state of its own: the item is claimed until a reap ends the lease."
            .into(),
    );
    line("To bury a pending item claims it for the operator first, since no way leads from pending to dead.".into());
    page
}

const fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Claim => "claim",
        Cause::Done => "done",
        Cause::Back => "back",
        Cause::Dead => "dead",
        Cause::Replay => "replay",
    }
}

const fn meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::Claim => "a worker took a lease on it",
        Cause::Done => "its holder said done",
        Cause::Back => "its holder said retry or release, or its lease lapsed and was reaped",
        Cause::Dead => "its holder said dead, a budget was used up, or an operator buried it",
        Cause::Replay => "an operator ordered it to be worked again",
    }
}
