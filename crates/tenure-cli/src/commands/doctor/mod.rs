//! `tenure doctor`: checks for anything that keeps work from being done.

mod endpoints;
mod jobs;
mod judge;
mod keys;
mod queues;
mod workers;

use comfy_table::{Cell, Color};
use serde::Serialize;
use tenure::Tenure;
use tenure::operate::{Finding, KeyFilter, Verdict};

use self::judge::{Snapshot, judge};
use super::Context;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};

/// Maximum number of workers checked: those that reported most recently.
const WORKERS_MAX: u32 = 1_000;

/// Maximum number of stuck keys checked: blocked ones first, then those stuck the longest.
const KEYS_MAX: u32 = 1_000;

/// A finding in JSON.
#[derive(Serialize)]
struct FindingView<'a> {
    subject: &'static str,
    verdict: &'static str,
    finding: &'a str,
    hint: Option<&'a str>,
}

pub(super) async fn run(cx: &Context) -> Result<Exit, Stop> {
    let findings = match examine(cx).await {
        Ok(findings) => findings,
        Err(Stop::Closed) => return Err(Stop::Closed),
        // A database that cannot be read is a finding as well.
        Err(Stop::Problem(problem)) => vec![of_problem(cx, &problem)],
        Err(Stop::Problems(problems)) => problems
            .iter()
            .map(|problem| of_problem(cx, problem))
            .collect(),
    };
    if cx.output.is_json() {
        for finding in &findings {
            cx.output.json(&view(finding))?;
        }
    } else {
        let rows = findings.iter().flat_map(rows).collect();
        cx.output.table(&["", "CHECK", "FINDING"], rows)?;
    }
    let is_bad = |finding: &Finding| finding.verdict == Verdict::Bad;
    Ok(if findings.iter().any(is_bad) {
        Exit::Failed
    } else {
        Exit::Done
    })
}

async fn examine(cx: &Context) -> Result<Vec<Finding>, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let mut findings = vec![Finding::good("database", "it answers")];
    findings.extend(tenure.examine().await?);
    let snapshot = snapshot(&tenure).await?;
    findings.extend(judge(&snapshot));
    let all: Vec<_> = tenure.endpoints_by_number().await?.into_values().collect();
    findings.extend(endpoints::judge(&all, &snapshot));
    findings.extend(endpoints::keys(&all, &cx.config.webhook));
    if let Some(facts) = jobs::read(&tenure).await? {
        findings.extend(jobs::judge(&facts, &snapshot));
    }
    Ok(findings)
}

async fn snapshot(tenure: &Tenure) -> Result<Snapshot, Stop> {
    let (now, workers) = tenure.workers(WORKERS_MAX).await?;
    Ok(Snapshot {
        counts: tenure.count().await?,
        queues: tenure.queues().await?,
        untaken: tenure.untaken_topics().await?,
        keys: tenure.keys(KeyFilter::Stuck, KEYS_MAX).await?,
        keys_max: usize::try_from(KEYS_MAX).unwrap_or(usize::MAX),
        workers,
        settings_version: tenure.store().settings().await?.version,
        now,
    })
}

/// A problem as a finding, with its causes, and with secrets hidden.
fn of_problem(cx: &Context, problem: &Problem) -> Finding {
    let causes = problem.causes.iter().map(String::as_str);
    let all: Vec<_> = [problem.message.as_str()]
        .into_iter()
        .chain(causes)
        .collect();
    let hint = problem.hint.as_deref();
    Finding {
        hint: hint.map(|hint| cx.database.hide(hint)),
        ..Finding::bad("database", cx.database.hide(&all.join(": ")), "")
    }
}

fn view(finding: &Finding) -> FindingView<'_> {
    FindingView {
        subject: finding.subject,
        verdict: finding.verdict.as_str(),
        finding: &finding.text,
        hint: finding.hint.as_deref(),
    }
}

/// The row of a finding, followed by the row of its hint.
fn rows(finding: &Finding) -> Vec<Vec<Cell>> {
    let color = match finding.verdict {
        Verdict::Good => Color::Green,
        Verdict::Warning => Color::Yellow,
        Verdict::Bad => Color::Red,
    };
    let mut rows = vec![vec![
        Cell::new(finding.verdict.as_str()).fg(color),
        Cell::new(finding.subject),
        Cell::new(plain(&finding.text)),
    ]];
    if let Some(hint) = &finding.hint {
        rows.push(vec![
            Cell::new(""),
            Cell::new(""),
            Cell::new(format!("hint: {}", plain(hint))).fg(Color::Cyan),
        ]);
    }
    rows
}
