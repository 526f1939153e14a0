//! `tenure doctor`: looks for what keeps work from being done.

mod endpoints;
mod jobs;
mod judge;
mod keys;
mod queues;
mod workers;

use comfy_table::{Cell, Color};
use serde::Serialize;
use tenure::{DomainFilter, Finding, Tenure, Verdict};

use self::judge::{Scene, judge};
use super::Context;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};

/// Workers that are looked at, those seen last first.
const WORKERS: u32 = 1_000;

/// Keys that stand still and are looked at: the blocked ones, then those that have stood longest.
const KEYS: u32 = 1_000;

/// A finding, in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    subject: &'static str,
    verdict: &'static str,
    found: &'a str,
    hint: Option<&'a str>,
}

pub(super) async fn run(cx: &Context) -> Result<Exit, Stop> {
    let findings = match look(cx).await {
        Ok(findings) => findings,
        Err(Stop::Closed) => return Err(Stop::Closed),
        // A database that cannot be looked at is what was found.
        Err(Stop::Problem(problem)) => vec![of_problem(cx, &problem)],
        Err(Stop::Problems(problems)) => problems
            .iter()
            .map(|problem| of_problem(cx, problem))
            .collect(),
    };
    if cx.output.is_json() {
        for finding in &findings {
            cx.output.json(&shown(finding))?;
        }
    } else {
        let rows = findings.iter().flat_map(rows).collect();
        cx.output.table(&["", "WHAT", "FOUND"], rows)?;
    }
    let is_bad = |finding: &Finding| finding.verdict == Verdict::Bad;
    Ok(if findings.iter().any(is_bad) {
        Exit::Failed
    } else {
        Exit::Done
    })
}

async fn look(cx: &Context) -> Result<Vec<Finding>, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let mut findings = vec![Finding::good("database", "it answers")];
    findings.extend(tenure.examine().await?);
    let scene = scene(&tenure).await?;
    findings.extend(judge(&scene));
    let all: Vec<_> = tenure.endpoints_by_number().await?.into_values().collect();
    findings.extend(endpoints::judge(&all, &scene));
    findings.extend(endpoints::keys(&all, &cx.config.webhook));
    if let Some(found) = jobs::look(&tenure).await? {
        findings.extend(jobs::judge(&found, &scene));
    }
    Ok(findings)
}

async fn scene(tenure: &Tenure) -> Result<Scene, Stop> {
    let (now, workers) = tenure.workers(WORKERS).await?;
    Ok(Scene {
        counts: tenure.count().await?,
        queues: tenure.queues().await?,
        domains: tenure.domains(DomainFilter::Stuck, KEYS).await?,
        domains_max: usize::try_from(KEYS).unwrap_or(usize::MAX),
        workers,
        settings_version: tenure.store().settings().await?.version,
        now,
    })
}

/// What stopped the looking, as a finding; with its causes, and secrets hidden.
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

fn shown(finding: &Finding) -> Shown<'_> {
    Shown {
        subject: finding.subject,
        verdict: finding.verdict.as_str(),
        found: &finding.found,
        hint: finding.hint.as_deref(),
    }
}

/// The row of a finding, and below it the one of its hint.
fn rows(finding: &Finding) -> Vec<Vec<Cell>> {
    let color = match finding.verdict {
        Verdict::Good => Color::Green,
        Verdict::Warning => Color::Yellow,
        Verdict::Bad => Color::Red,
    };
    let mut rows = vec![vec![
        Cell::new(finding.verdict.as_str()).fg(color),
        Cell::new(finding.subject),
        Cell::new(plain(&finding.found)),
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
