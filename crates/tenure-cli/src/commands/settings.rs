//! `tenure settings`: shows settings and their sources, and changes them for all running workers.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde::Serialize;
use tenure::settings::{ChangeSettings, ClusterSettings, Setting};
use tenure::{Invalid, Settings};

use super::Context;
use crate::config::{Config, nearest};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time::brief;

/// Maximum number of attempts at a change that conflicts with concurrent changes.
const ATTEMPTS: u32 = 10;

/// The value that removes a setting from those of the cluster.
const DEFAULT: &str = "default";

#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    #[command(subcommand)]
    command: Option<SettingsCommand>,
}

#[derive(Debug, Subcommand)]
enum SettingsCommand {
    /// Show the settings in force here, and their sources
    #[command(after_help = "\
Examples:
  tenure settings get
  tenure settings get lease.term lease.heartbeat
  tenure settings get --json | jq .value")]
    Get {
        /// Only these, such as lease.term
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Change settings for all workers: all of the named ones, or none
    #[command(after_help = "\
These settings override every worker's own configuration; `default` removes them again. Running \
workers apply a change within seconds. A lease keeps the term it was claimed with.

Examples:
  tenure settings set lease.term=60s worker.batch=200
  tenure settings set lease.term=default")]
    Set {
        /// A setting and its new value, such as lease.term=60s
        #[arg(value_name = "NAME=VALUE", required = true)]
        changes: Vec<String>,
    },
}

pub(super) async fn run(cx: &Context, args: SettingsArgs) -> Result<Exit, Stop> {
    match args.command {
        None => get(cx, &[]).await,
        Some(SettingsCommand::Get { names }) => get(cx, &names).await,
        Some(SettingsCommand::Set { changes }) => set(cx, &changes).await,
    }
}

/// A setting in JSON.
#[derive(Debug, Serialize)]
struct SettingView {
    setting: &'static str,
    /// Null when it is not set.
    value: Option<String>,
    /// default, file, environment, flag, cluster or follows (`lease.term`).
    from: &'static str,
    /// The line of the file, the variable or the flag.
    place: Option<String>,
    /// The consequence of a value that depends on others.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

async fn get(cx: &Context, names: &[String]) -> Result<Exit, Stop> {
    let known = known_names(names, &every_name())?;
    let cluster = match cx.database.open(IfMissing::Report).await {
        Ok(tenure) => tenure.settings().await?,
        Err(Stop::Problem(problem)) if problem.exit == Exit::Nothing => {
            let message = problem.message;
            cx.output.note(format_args!(
                "{message}: this is the configuration of this process alone"
            ));
            ClusterSettings::default()
        }
        Err(stop) => return Err(stop),
    };
    let (mut views, problems) = in_force(&cx.config, &cluster);
    views.retain(|view| known.is_empty() || known.contains(&view.setting));
    if cx.output.is_json() {
        for view in &views {
            cx.output.json(view)?;
        }
        return Ok(Exit::Done);
    }
    let rows = views.iter().map(|view| {
        vec![
            Cell::new(view.setting),
            Cell::new(match (view.value.as_deref(), &view.note) {
                (Some(value), Some(note)) => format!("{value} ({note})"),
                (value, _) => value.unwrap_or("-").to_owned(),
            }),
            Cell::new(match (&view.place, view.from) {
                (Some(place), _) => place,
                (None, "follows") => "follows lease.term",
                (None, from) => from,
            }),
        ]
    });
    cx.output
        .table(&["SETTING", "VALUE", "FROM"], rows.collect())?;
    for problem in problems {
        cx.output.note(format_args!(
            "the cluster's settings conflict with this configuration, which stays in force: \
            {problem}"
        ));
    }
    for warning in &cx.config.warnings {
        cx.output.note(warning);
    }
    Ok(Exit::Done)
}

/// The names of all settings, those that can be changed for all workers first.
fn every_name() -> Vec<&'static str> {
    let changeable = Setting::ALL.iter().map(|setting| setting.as_str());
    changeable.chain(Config::own_keys()).collect()
}

/// The names, if all are known, or a problem for each unknown one.
fn known_names(names: &[String], all: &[&'static str]) -> Result<Vec<&'static str>, Stop> {
    let mut known = Vec::new();
    let mut problems = Vec::new();
    for name in names {
        match all.iter().find(|other| *other == name) {
            Some(name) => known.push(*name),
            None => problems.push(unknown(name)),
        }
    }
    if problems.is_empty() {
        return Ok(known);
    }
    Err(Stop::Problems(problems))
}

fn unknown(name: &str) -> Problem {
    let problem = Problem::new(Exit::Usage, format!("there is no setting {name:?}"));
    match nearest(name, every_name()) {
        Some(meant) => problem.hint(format!("did you mean {meant}?")),
        None => problem.hint("`tenure settings` lists them"),
    }
}

/// The settings in force in a process with this configuration, and conflicts with the cluster's.
fn in_force(config: &Config, cluster: &ClusterSettings) -> (Vec<SettingView>, Vec<Invalid>) {
    let (settings, set, problems) = match config.settings.overlaid(&cluster.values) {
        Ok(settings) => (settings, cluster.values.as_slice(), Vec::new()),
        Err(problems) => (config.settings.clone(), &[][..], problems),
    };
    let changeable = Setting::ALL.iter().map(|setting| {
        let name = setting.as_str();
        let is_set = set.iter().any(|(other, _)| other == name);
        let from = match (is_set, settings.is_following(*setting)) {
            (true, _) => Some("cluster"),
            (false, true) => Some("follows"),
            (false, false) => None,
        };
        SettingView {
            note: (*setting == Setting::MaxRetries).then(|| window(&settings)),
            ..view(config, name, Some(settings.get(*setting)), from)
        }
    });
    let own = Config::own_keys().map(|name| view(config, name, config.text_of(name), None));
    (changeable.chain(own).collect(), problems)
}

/// The time that all retries of an item take.
fn window(settings: &Settings) -> String {
    let longest = settings.retry_policy().window(0);
    format!("up to {}, about {}", brief(longest), brief(longest / 2))
}

fn view(
    config: &Config,
    setting: &'static str,
    value: Option<String>,
    from: Option<&'static str>,
) -> SettingView {
    let layer = config.place(setting).layer();
    let is_default = from.is_some() || layer == DEFAULT;
    SettingView {
        setting,
        value,
        from: from.unwrap_or(layer),
        place: (!is_default).then(|| config.place(setting).to_string()),
        note: None,
    }
}

/// A changed setting in JSON.
#[derive(Debug, Serialize)]
struct Changed {
    setting: &'static str,
    old: String,
    new: String,
    /// True if the value follows `lease.term`.
    follows: bool,
    /// The new version of the cluster's settings.
    version: u64,
}

async fn set(cx: &Context, changes: &[String]) -> Result<Exit, Stop> {
    let changes = parse_changes(changes)?;
    let tenure = cx.database.open(IfMissing::Make).await?;
    for _ in 0..ATTEMPTS {
        let cluster = tenure.settings().await?;
        let (before, after) = check_changes(&cx.config, &cluster, &changes)?;
        let change = ChangeSettings {
            version: cluster.version,
            values: changes
                .iter()
                .map(|(setting, value)| (setting.to_string(), value.clone()))
                .collect(),
        };
        if let Some(version) = tenure.change_settings(&change).await? {
            return print_changes(cx, &changed(&changes, &before, &after, version));
        }
    }
    let message = format!("another change came first in each of {ATTEMPTS} attempts");
    Err(Problem::new(Exit::Failed, message)
        .hint("nothing was changed; try again")
        .into())
}

fn print_changes(cx: &Context, changed: &[Changed]) -> Result<Exit, Stop> {
    for change in changed {
        cx.output.either(change, || {
            let Changed {
                setting, old, new, ..
            } = change;
            match (old == new, change.follows) {
                (true, _) => format!("{setting}: {new} (unchanged)"),
                (false, false) => format!("{setting}: {old} -> {new}"),
                (false, true) => format!("{setting}: {old} -> {new} (follows lease.term)"),
            }
        })?;
    }
    cx.output
        .note("running workers apply this within seconds; leases keep their term");
    Ok(Exit::Done)
}

/// A setting and its new value; `None` removes it.
type Change = (Setting, Option<String>);

/// Parses the changes, or reports all their faults.
fn parse_changes(texts: &[String]) -> Result<Vec<Change>, Stop> {
    let mut changes: Vec<Change> = Vec::new();
    let mut problems = Vec::new();
    for text in texts {
        match parse_change(text) {
            Ok((setting, _)) if changes.iter().any(|(other, _)| *other == setting) => {
                let message = format!("{setting} is named twice; expected each setting once");
                problems.push(Problem::new(Exit::Usage, message));
            }
            Ok(change) => changes.push(change),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        return Ok(changes);
    }
    Err(refused(problems))
}

fn parse_change(text: &str) -> Result<Change, Problem> {
    let usage = |message: String| Problem::new(Exit::Usage, message);
    let Some((name, value)) = text.split_once('=') else {
        let message = format!("the change is {text:?}; expected NAME=VALUE");
        return Err(usage(message).hint("such as lease.term=60s"));
    };
    let name = name.trim();
    let value = value.trim();
    let Ok(setting) = Setting::parse(name) else {
        if Config::own_keys().any(|own| own == name) {
            let message = format!("{name} is set per process and cannot be set for all workers");
            return Err(usage(message).hint("set it in tenure.toml or in the environment"));
        }
        return Err(unknown(name));
    };
    if value == DEFAULT {
        return Ok((setting, None));
    }
    match Settings::default().set(setting, value) {
        Ok(()) => Ok((setting, Some(value.to_owned()))),
        Err(problem) => Err(usage(problem.to_string())),
    }
}

/// Reports these problems, and that nothing was changed.
fn refused(mut problems: Vec<Problem>) -> Stop {
    if let Some(last) = problems.last_mut() {
        let hint = last.hint.take().map(|hint| format!("{hint}; "));
        last.hint = Some(format!("{}nothing was changed", hint.unwrap_or_default()));
    }
    Stop::Problems(problems)
}

/// The settings before and after the changes, or all reasons to refuse them.
fn check_changes(
    config: &Config,
    cluster: &ClusterSettings,
    changes: &[Change],
) -> Result<(Settings, Settings), Stop> {
    let mut values = cluster.values.clone();
    for (setting, value) in changes {
        values.retain(|(name, _)| name != setting.as_str());
        values.extend(value.clone().map(|value| (setting.to_string(), value)));
    }
    let before = config.settings.overlaid(&cluster.values);
    let before = before.unwrap_or_else(|_| config.settings.clone());
    match config.settings.overlaid(&values) {
        Ok(after) => Ok((before, after)),
        Err(problems) => {
            let reported = problems.into_iter().map(|problem| {
                let field = problem.field();
                let is_named = changes.iter().any(|(setting, _)| setting.as_str() == field);
                let is_of_cluster = values.iter().any(|(name, _)| name == field);
                let problem = Problem::new(Exit::Usage, problem.to_string());
                match (is_named, is_of_cluster) {
                    (true, _) => problem,
                    (false, true) => problem.hint(format!(
                        "{field} is set for all workers: change both at once"
                    )),
                    (false, false) => {
                        problem.hint(format!("{field} comes from {}", config.place(field)))
                    }
                }
            });
            Err(refused(reported.collect()))
        }
    }
}

/// The named settings, and those that follow them.
fn changed(changes: &[Change], before: &Settings, after: &Settings, version: u64) -> Vec<Changed> {
    Setting::ALL
        .into_iter()
        .filter_map(|setting| {
            let is_named = changes.iter().any(|(other, _)| *other == setting);
            let (old, new) = (before.get(setting), after.get(setting));
            (is_named || old != new).then_some(Changed {
                setting: setting.as_str(),
                old,
                new,
                follows: after.is_following(setting),
                version,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(values: &[(&str, &str)]) -> ClusterSettings {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        ClusterSettings {
            version: 7,
            values: values.iter().map(owned).collect(),
        }
    }

    fn parse(texts: &[&str]) -> Result<Vec<Change>, Stop> {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        parse_changes(&texts)
    }

    /// The problems, one per line, with their hints.
    fn problems<T: std::fmt::Debug>(answer: Result<T, Stop>) -> String {
        let Err(Stop::Problems(problems)) = answer else {
            panic!("it was not refused: {answer:?}");
        };
        assert!(problems.iter().all(|problem| problem.exit == Exit::Usage));
        let line = |problem: &Problem| match &problem.hint {
            Some(hint) => format!("{} ({hint})", problem.message),
            None => problem.message.clone(),
        };
        problems.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn several_values_are_one_change() {
        let changes = parse(&["lease.term=60s", "lease.heartbeat=19s"]).unwrap();
        let (before, after) = check_changes(&Config::default(), &cluster(&[]), &changes).unwrap();
        let lines: Vec<_> = changed(&changes, &before, &after, 8)
            .iter()
            .map(|one| format!("{} {} {} {}", one.setting, one.old, one.new, one.follows))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        lease.term 30s 1m false
        lease.heartbeat 7s 500ms 19s false
        lease.max_hold 1m 30s 3m true
        reaper.interval 10s 20s true
        worker.shutdown_timeout 25s 50s true
        ");
    }

    #[test]
    fn every_problem_of_a_change_is_reported() {
        let report = problems(parse(&[
            "lease.trem=60s",
            "worker.batch=many",
            "server.listen=127.0.0.1:1",
            "lease.term",
            "worker.concurrency=1",
            "worker.concurrency=2",
            "colour=blue",
        ]));
        insta::assert_snapshot!(report);
    }

    #[test]
    fn a_change_is_checked_against_the_other_settings() {
        let mut config = Config::default();
        config
            .settings
            .set(Setting::ShutdownTimeout, "30s")
            .unwrap();
        let cluster = cluster(&[("lease.heartbeat", "9s"), ("of.a.newer.program", "1")]);
        let changes = parse(&["lease.term=20s", "worker.batch=0"]).unwrap();
        let report = problems(check_changes(&config, &cluster, &changes));
        insta::assert_snapshot!(report);
        let changes = parse(&["lease.term=20s", "lease.heartbeat=default"]).unwrap();
        let (_, after) = check_changes(&Config::default(), &cluster, &changes).unwrap();
        assert_eq!(after.get(Setting::Heartbeat), "5s");
    }

    #[test]
    fn the_retries_have_a_note_with_the_time_that_they_take() {
        let note = |values: &[(&str, &str)]| {
            let (views, _) = in_force(&Config::default(), &cluster(values));
            let mut notes = views.into_iter().filter_map(|view| view.note);
            (notes.next(), notes.count())
        };
        let days = "up to 5d 6h, about 2d 15h".to_owned();
        assert_eq!(note(&[]), (Some(days), 0));
        let few = [("retry.max_retries", "2"), ("retry.base", "20s")];
        assert_eq!(note(&few), (Some("up to 1m, about 30s".to_owned()), 0));
    }

    #[test]
    fn conflicting_settings_are_not_in_force() {
        let mut config = Config::default();
        config.settings.set(Setting::Heartbeat, "9s").unwrap();
        let (views, problems) = in_force(&config, &cluster(&[("lease.term", "60s")]));
        assert_eq!(
            (views[0].value.as_deref(), views[0].from),
            (Some("1m"), "cluster")
        );
        assert!(problems.is_empty());
        let (views, problems) = in_force(&config, &cluster(&[("lease.term", "20s")]));
        assert_eq!(
            (views[0].value.as_deref(), views[0].from),
            (Some("30s"), "default")
        );
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
