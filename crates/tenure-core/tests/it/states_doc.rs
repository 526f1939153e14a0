//! The diagram and the tables of `docs/STATES.md` are generated from the core. This test fails when
//! one of them is stale, and prints the current form. The text between them is written by hand.

use tenure_core::{Cause, Condition, LeaseTable, State, TRANSITIONS};

#[test]
fn the_diagram_shows_the_six_transitions() {
    let mut lines = vec![
        "```mermaid".to_owned(),
        "stateDiagram-v2".to_owned(),
        "    [*] --> pending : enqueue".to_owned(),
    ];
    lines.extend(TRANSITIONS.map(|(from, cause, to)| {
        let causes = match cause {
            Cause::Claim => "claim",
            Cause::Done => "done",
            Cause::Back => "retry, release, lapse",
            Cause::Dead => "dead, budget used up, bury",
            Cause::Replay => "replay",
        };
        format!("    {from} --> {to} : {causes}")
    }));
    lines.push("```".to_owned());
    assert_on_page(&lines);
}

#[test]
fn the_table_of_causes_is_that_of_the_core() {
    let mut lines = vec![
        "| From | To | Cause | Who |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    lines.extend(TRANSITIONS.map(|(from, cause, to)| {
        let (why, who) = match cause {
            Cause::Claim => ("a worker takes a lease", "a worker"),
            Cause::Done => ("the work succeeded", "the holder"),
            Cause::Back => (
                "a retry, a release, or the lease lapsed",
                "the holder; reap after the term",
            ),
            Cause::Dead => (
                "the work failed for good, a budget was used up, or it was buried",
                "the holder; reap; an operator",
            ),
            Cause::Replay => ("replay", "an operator"),
        };
        format!("| {from} | {to} | {why} | {who} |")
    }));
    assert_on_page(&lines);
}

#[test]
fn the_table_of_words_is_that_of_the_presets() {
    let mut lines = vec![
        "| State | view `tenure_outbox`, preset `outbox` | preset `outbox_processing` | preset \
         `webhook` | presets `sync_jobs`, `sync_checkpoints` |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    let tables = [
        LeaseTable::outbox(),
        LeaseTable::outbox_processing(),
        LeaseTable::webhook(),
        LeaseTable::sync_jobs(),
    ];
    lines.extend(State::ALL.map(|state| {
        let words: Vec<String> = tables.iter().map(|table| cell(table, state)).collect();
        format!("| {state} | {} |", words.join(" | "))
    }));
    assert_on_page(&lines);
}

/// Cell of a row in this state: its word, and the column that distinguishes the row from rows in
/// other states.
fn cell(table: &LeaseTable, state: State) -> String {
    let conditions = table.conditions(state);
    let parts = conditions.iter().map(|condition| match condition {
        Condition::Is(_, word) => format!("`{}`", word.as_str()),
        Condition::Null(column) => format!("no `{column}`"),
        Condition::NotNull(column) => format!("`{column}` set"),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Asserts that the page has these lines in sequence, as a separate block.
fn assert_on_page(lines: &[String]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/STATES.md");
    let page = std::fs::read_to_string(path).expect("docs/STATES.md is there");
    let block = format!("\n\n{}\n\n", lines.join("\n"));
    let is_shown = page.replace("\r\n", "\n").contains(&block);
    assert!(is_shown, "docs/STATES.md is stale; it must show:\n{block}");
}
