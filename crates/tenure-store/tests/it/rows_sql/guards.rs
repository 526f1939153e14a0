//! The SQL agrees with the guard functions. Every combination of state, token, holder and end of
//! term is written into a table without check constraints; each operation is run, and its changes
//! are compared with `may_renew`, `may_settle` and `may_reap`, row by row and column by column.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tenure_core::store::{Filter, Reap, Renew, Settle};
use tenure_core::testing::{Extent, token};
use tenure_core::{
    Boundary, Fence, Guarded, Identifier, ItemId, Lateness, Lease, LeaseTable, Outcome, Refusal,
    State, Term, Timestamp, Token, may_reap, may_renew, may_settle,
};

use super::{Bench, Checks, NOW, Rows, Table, policy, presets, seconds, shows};

const TERM: Term = Term::STANDARD;

/// The columns of a row that a guard checks.
#[derive(Clone, Debug)]
struct Case {
    id: i64,
    /// The state whose status value or time is written.
    word: State,
    /// The state that the row then has.
    state: State,
    token: Option<Token>,
    holder: Option<String>,
    until: Option<Timestamp>,
}

impl Case {
    /// The lease of the row. If the holder is not that of the token, another program took the row
    /// with its own statements, so the token is not current.
    fn lease(&self) -> Option<Lease> {
        if self.state != State::Claimed {
            return None;
        }
        let standing = self
            .token
            .clone()
            .filter(|token| self.holder.as_deref() == Some(token.holder()));
        Some(Lease {
            token: standing.unwrap_or_else(|| token("stranger", 1)),
            fence: Fence::new(0),
            claimed_at: NOW,
            // A lease without an end is never live; no claim writes one.
            until: self.until.unwrap_or(Timestamp::from_micros(i64::MIN)),
        })
    }
}

fn mine() -> Token {
    token("mailer", 7)
}

fn cases(table: &LeaseTable) -> Vec<Case> {
    let tokens = [
        None,
        Some(mine()),
        Some(token("mailer", 6)),
        Some(token("other", 7)),
    ];
    let mine = mine();
    let holders = [None, Some(mine.holder()), Some("other-0000000000000001")];
    let untils = [
        None,
        Some(NOW.before(seconds(9))),
        Some(NOW),
        Some(NOW.after(seconds(9))),
    ];
    let mut all = Vec::new();
    for word in State::ALL {
        for token in &tokens {
            for holder in holders {
                for until in untils {
                    let shown = shows(table, word, "a moment".to_owned());
                    let value = |column: &Identifier| match column {
                        column if *column == table.columns.holder => holder,
                        column if *column == table.columns.until => until.map(|_| "a moment"),
                        column => {
                            let mut shown = shown.iter();
                            let found = shown.find(|(of, _)| *of == column);
                            found.map(|(_, value)| value.trim_matches('\''))
                        }
                    };
                    let state = table.state(value).unwrap();
                    all.push(Case {
                        id: i64::try_from(all.len()).unwrap() + 1,
                        word,
                        state,
                        token: token.clone(),
                        holder: holder.map(str::to_owned),
                        until,
                    });
                }
            }
        }
    }
    all
}

/// Empties the table and writes all cases into it.
async fn write_cases(bench: &Bench, table: &LeaseTable, cases: &[Case]) {
    let columns = &table.columns;
    let telling = match table.states.status() {
        Some(status) => [Some(&status.column), None],
        None => [Some(&columns.done_at), Some(&columns.dead_at)],
    };
    let telling: Vec<&Identifier> = telling.into_iter().flatten().collect();
    let value = |case: &Case, column: &Identifier| {
        let shown = shows(table, case.word, bench.moment(Some(NOW)));
        let found = shown.into_iter().find(|(of, _)| *of == column);
        found.map_or_else(null, |(_, value)| value)
    };
    let mut sql = format!(
        "delete from {}; insert into {} ({}, topic, payload, {}, {}, {}, {}, {}{}) values",
        table.name.quoted(),
        table.name.quoted(),
        table.key.quoted(),
        table.created_at.quoted(),
        columns.token.quoted(),
        columns.holder.quoted(),
        columns.until.quoted(),
        columns.claimed_at.quoted(),
        listed(telling.iter().map(|column| column.quoted())),
    );
    let text = |value: Option<&str>| value.map_or("null".to_owned(), |value| format!("'{value}'"));
    for case in cases {
        write!(
            sql,
            "{} ({}, 'order.paid', '1', {}, {}, {}, {}, {}{})",
            if case.id == 1 { "" } else { "," },
            case.id,
            bench.moment(Some(NOW.before(seconds(60)))),
            text(case.token.as_ref().map(Token::expose)),
            text(case.holder.as_deref()),
            bench.moment(case.until),
            bench.moment(Some(NOW.before(seconds(30)))),
            listed(telling.iter().map(|column| value(case, column))),
        )
        .unwrap();
    }
    bench.execute(&sql).await;
}

/// Formats a list of SQL values.
fn listed(members: impl Iterator<Item = String>) -> String {
    let members: Vec<String> = members.map(|member| format!(", {member}")).collect();
    members.concat()
}

/// The changes that the guard allows for a row: none, or new values of some columns.
type Change<'a> = &'a dyn Fn(&Case) -> Option<Vec<(&'a str, String)>>;

/// Compares the changes of each row with the allowed ones; returns the first difference.
fn compare(
    cases: &[Case],
    before: &Table,
    after: &Table,
    change: Change<'_>,
) -> Result<(), String> {
    for case in cases {
        let mut expected = before[&case.id].clone();
        for (column, value) in change(case).unwrap_or_default() {
            expected.insert(column.to_owned(), value);
        }
        let found = &after[&case.id];
        if *found != expected {
            return Err(format!(
                "{case:?} became {found:#?}, expected {expected:#?}"
            ));
        }
    }
    Ok(())
}

fn micros(at: Timestamp) -> String {
    at.as_micros().to_string()
}

fn null() -> String {
    "null".to_owned()
}

/// The columns that are cleared when a lease ends, with their new values.
fn emptied(table: &LeaseTable) -> Vec<(&str, String)> {
    let columns = &table.columns;
    [
        &columns.holder,
        &columns.token,
        &columns.until,
        &columns.claimed_at,
    ]
    .map(|column| (column.as_str(), null()))
    .to_vec()
}

pub(super) async fn renew_keeps_its_guard(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
) -> Result<(), String> {
    let cases = cases(table);
    write_cases(bench, table, &cases).await;
    let before = bench.table(table).await;
    let stranger = token("nobody", 1);
    let renew = Renew::new(vec![mine(), stranger.clone()], TERM).at(NOW);
    // A planted fault may also cause an invalid answer.
    let answers = rows.renew(&renew).await.map_err(|e| e.to_string())?;
    let may = |case: &Case| may_renew(case.lease().as_ref(), &mine(), NOW).is_accepted();
    let change = |case: &Case| {
        let until = case.until?.max(NOW.after(TERM.length()));
        may(case).then(|| vec![(table.columns.until.as_str(), micros(until))])
    };
    compare(&cases, &before, &bench.table(table).await, &change)?;
    let kept: Vec<ItemId> = cases.iter().filter(|case| may(case)).map(id).collect();
    match &answers[..] {
        [
            (_, Guarded::Accepted(renewed)),
            (other, Guarded::Refused(Refusal::Lost)),
        ] if renewed.ids == kept && *other == stranger => Ok(()),
        _ => Err(format!("{answers:?}, expected {kept:?}")),
    }
}

fn id(case: &Case) -> ItemId {
    ItemId::new(case.id)
}

pub(super) async fn settle_keeps_its_guard(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
) -> Result<(), String> {
    let outcomes = [
        Outcome::Done,
        Outcome::Retry {
            after: seconds(5),
            error: "no answer".into(),
        },
        Outcome::Dead {
            reason: "failed".into(),
            error: "given up".into(),
        },
        Outcome::RELEASE,
        Outcome::Release { after: seconds(5) },
    ];
    for lateness in [Lateness::Accept, Lateness::Refuse] {
        for outcome in &outcomes {
            settle_as(bench, table, rows, (outcome, lateness)).await?;
        }
    }
    Ok(())
}

async fn settle_as(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
    (outcome, lateness): (&Outcome, Lateness),
) -> Result<(), String> {
    let cases = cases(table);
    write_cases(bench, table, &cases).await;
    let before = bench.table(table).await;
    let mut settle = Settle::new(mine()).at(NOW);
    settle.lateness = lateness;
    settle.items = cases
        .iter()
        .map(|case| (id(case), outcome.clone()))
        .collect();
    let answers = rows.settle(&settle).await.unwrap().items;
    let may = |case: &Case| may_settle(case.lease().as_ref(), &mine(), lateness, NOW);
    let change = |case: &Case| may(case).is_accepted().then(|| settled(table, outcome));
    compare(&cases, &before, &bench.table(table).await, &change)?;
    for (case, (_, answer)) in cases.iter().zip(&answers) {
        let expected = match (may(case), case.state) {
            (Guarded::Refused(_), State::Done | State::Dead) => {
                Guarded::Refused(Refusal::AlreadySettled)
            }
            (answer, _) => answer,
        };
        if *answer != expected {
            return Err(format!(
                "{case:?} was answered {answer:?}, expected {expected:?}"
            ));
        }
    }
    Ok(())
}

/// Settles each case as done together with a valid row, so that only the case can be refused.
pub(super) async fn settle_of_two_keeps_its_guard(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
    lateness: Lateness,
) -> Result<(), String> {
    let mut cases = cases(table);
    let live = |case: &&Case| may_settle(case.lease().as_ref(), &mine(), Lateness::Refuse, NOW);
    let companion = cases.iter().find(|case| live(case).is_accepted()).cloned();
    let companion = companion.ok_or("no case is a live lease of mine")?;
    let alone = i64::try_from(cases.len()).unwrap();
    cases.extend((1..=alone).map(|id| Case {
        id: id + alone,
        ..companion.clone()
    }));
    write_cases(bench, table, &cases).await;
    let before = bench.table(table).await;
    let may = |case: &Case| may_settle(case.lease().as_ref(), &mine(), lateness, NOW).is_accepted();
    for case in cases.iter().take_while(|case| case.id <= alone) {
        let pair = [case.id, case.id + alone].map(ItemId::new);
        let mut settle = Settle::new(mine()).done(pair).at(NOW);
        settle.lateness = lateness;
        let settled = rows.settle(&settle).await.map_err(|e| e.to_string())?;
        let kept: Vec<bool> = settled
            .items
            .iter()
            .map(|item| item.1.is_accepted())
            .collect();
        if kept != [may(case), true] {
            return Err(format!("{case:?} and its companion: accepted {kept:?}"));
        }
    }
    let change = |case: &Case| may(case).then(|| settled(table, &Outcome::Done));
    compare(&cases, &before, &bench.table(table).await, &change)
}

/// The columns of a row after a settle with this outcome.
fn settled<'a>(table: &'a LeaseTable, outcome: &Outcome) -> Vec<(&'a str, String)> {
    let columns = &table.columns;
    let mut all = emptied(table);
    let mut set = |column: &'a Identifier, value: String| {
        all.push((column.as_str(), value));
    };
    let (state, later) = match outcome {
        Outcome::Done => (State::Done, None),
        Outcome::Dead { .. } => (State::Dead, None),
        Outcome::Retry { after, .. } => (State::Pending, Some(*after)),
        Outcome::Release { after } => (State::Pending, Some(*after).filter(|d| !d.is_zero())),
    };
    if let Some(status) = table.states.status() {
        set(&status.column, status.words.word(state).as_str().to_owned());
    }
    set(
        &columns.settled_token,
        format!("{} {}", mine().expose(), outcome.kind().as_str()),
    );
    if state == State::Done {
        set(&columns.done_at, micros(NOW));
    } else {
        set(&columns.attempts, "1".to_owned());
    }
    if state == State::Dead {
        set(&columns.dead_at, micros(NOW));
    }
    if let Outcome::Retry { error, .. } | Outcome::Dead { error, .. } = outcome {
        set(&columns.failures, "1".to_owned());
        set(&columns.last_error, error.clone());
    }
    if let Some(later) = later {
        set(&columns.available_at, micros(NOW.after(later)));
    }
    all
}

pub(super) async fn reap_keeps_its_guard(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
) -> Result<(), String> {
    for boundary in [Boundary::Past, Boundary::Reached] {
        let cases = cases(table);
        write_cases(bench, table, &cases).await;
        let before = bench.table(table).await;
        let mut reap = Reap::new(10_000, policy()).at(NOW);
        reap.boundary = boundary;
        let reaped = rows.reap(&reap).await.unwrap();
        let may = |case: &Case| {
            let is_over = case
                .until
                .is_some_and(|until| may_reap(until, boundary, NOW));
            case.state == State::Claimed && is_over
        };
        let change = |case: &Case| may(case).then(|| lapsed(table));
        compare(&cases, &before, &bench.table(table).await, &change)?;
        let expected: BTreeSet<(ItemId, u128)> = cases
            .iter()
            .filter(|case| may(case))
            .map(|case| (id(case), NOW.since(case.until.unwrap_or(NOW)).as_micros()))
            .collect();
        let found: BTreeSet<(ItemId, u128)> = reaped
            .iter()
            .map(|row| (row.id, row.stale.as_micros()))
            .collect();
        if found != expected {
            return Err(format!("reaped {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// The columns of a row after its first lapse.
fn lapsed(table: &LeaseTable) -> Vec<(&str, String)> {
    let columns = &table.columns;
    let mut all = emptied(table);
    let status = table.states.status();
    all.extend(status.map(|status| {
        let word = status.words.word(State::Pending);
        (status.column.as_str(), word.as_str().to_owned())
    }));
    all.extend([
        (columns.attempts.as_str(), "1".to_owned()),
        (columns.crashes.as_str(), "1".to_owned()),
        (columns.last_error.as_str(), "lease lapsed".to_owned()),
        (columns.available_at.as_str(), micros(NOW.after(seconds(1)))),
    ]);
    all
}

/// The operator's view of a row, of the rows of a state, and of the whole table agrees with the
/// cases.
async fn find_tells_the_state(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
) -> Result<(), String> {
    let cases = cases(table);
    write_cases(bench, table, &cases).await;
    let ids: Vec<ItemId> = cases.iter().map(id).collect();
    let found = rows.find(&ids).await.unwrap();
    for (case, record) in cases.iter().zip(&found) {
        if record.state != case.state {
            return Err(format!("{case:?} is found {}", record.state));
        }
    }
    let counts = rows.count(Some(NOW)).await.unwrap();
    for state in State::ALL {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        let listed = rows.list(&filter, 1000).await.unwrap().records;
        let listed: BTreeSet<ItemId> = listed.iter().map(|record| record.id).collect();
        let of_it = cases.iter().filter(|case| case.state == state);
        let expected: BTreeSet<ItemId> = of_it.map(id).collect();
        let counted = match state {
            State::Pending => counts.pending(),
            State::Claimed => counts.claimed,
            State::Done => counts.done,
            State::Dead => counts.dead,
        };
        if listed != expected || usize::try_from(counted) != Ok(expected.len()) {
            return Err(format!(
                "{state}: {counted} counted, {listed:?} listed, expected {expected:?}"
            ));
        }
    }
    Ok(())
}

/// Proves: S1-014, S1-015, S1-016, S1-028, S2-020, S2-022, S2-023, S2-024
#[tokio::test]
async fn the_sql_of_both_databases_agrees_with_the_guards() {
    for (preset, table) in Extent::chosen().of(&presets(), 2) {
        for bench in Bench::both(&table, Checks::Dropped).await {
            let rows = bench.rows(&table).await;
            let place = format!("{preset} on {}", bench.name());
            let find = find_tells_the_state(&bench, &table, &*rows).await;
            assert_eq!(find, Ok(()), "{place}");
            let renew = renew_keeps_its_guard(&bench, &table, &*rows).await;
            assert_eq!(renew, Ok(()), "{place}");
            let settle = settle_keeps_its_guard(&bench, &table, &*rows).await;
            assert_eq!(settle, Ok(()), "{place}");
            let reap = reap_keeps_its_guard(&bench, &table, &*rows).await;
            assert_eq!(reap, Ok(()), "{place}");
        }
    }
}
