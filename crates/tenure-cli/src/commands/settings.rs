//! `tenure settings`: shows what is set and where, and changes it for all workers while they run.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde::Serialize;
use tenure::{ChangeSettings, ClusterSettings, Invalid, Setting, Settings};

use super::Context;
use crate::config::{Config, nearest};
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// How often a change is tried again that someone else's change overtook.
const TRIES: u32 = 10;

/// The value that takes a setting out of the cluster's set.
const DEFAULT: &str = "default";

#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    #[command(subcommand)]
    command: Option<SettingsCommand>,
}

#[derive(Debug, Subcommand)]
enum SettingsCommand {
    /// Show what is in force here, and where it comes from
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
    /// Change settings for all workers: all that are named, or none
    #[command(after_help = "\
What is set here stands over every worker's own configuration; `default` takes it out again. \
Running workers take a change over within seconds. A lease keeps the term it was claimed with.

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

/// A setting, in JSON.
#[derive(Debug, Serialize)]
struct Shown {
    setting: &'static str,
    /// Null: not set.
    value: Option<String>,
    /// default, file, environment, flag, cluster or follows (`lease.term`).
    from: &'static str,
    /// The line of the file, the variable or the flag.
    place: Option<String>,
}

async fn get(cx: &Context, names: &[String]) -> Result<Exit, Stop> {
    let known = known_names(names, &every_name())?;
    let tenure = cx.database.open(Absent::Report).await?;
    let cluster = tenure.settings().await?;
    let (mut shown, problems) = in_force(&cx.config, &cluster);
    shown.retain(|one| known.is_empty() || known.contains(&one.setting));
    if cx.output.is_json() {
        for one in &shown {
            cx.output.json(one)?;
        }
        return Ok(Exit::Done);
    }
    let rows = shown.iter().map(|one| {
        vec![
            Cell::new(one.setting),
            Cell::new(one.value.as_deref().unwrap_or("-")),
            Cell::new(match (&one.place, one.from) {
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
            "the cluster's settings do not fit this configuration, which stays in force: {problem}"
        ));
    }
    for remark in &cx.config.remarks {
        cx.output.note(remark);
    }
    Ok(Exit::Done)
}

/// The names of all settings: first those that can be changed for all workers.
fn every_name() -> Vec<&'static str> {
    let changeable = Setting::ALL.iter().map(|setting| setting.as_str());
    changeable.chain(Config::own_keys()).collect()
}

/// The known ones of these names, or a problem for each that is not.
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

/// What is in force in a process of this configuration, and why the cluster's values are not.
fn in_force(config: &Config, cluster: &ClusterSettings) -> (Vec<Shown>, Vec<Invalid>) {
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
        shown(config, name, Some(settings.get(*setting)), from)
    });
    let own = Config::own_keys().map(|name| shown(config, name, config.shown(name), None));
    (changeable.chain(own).collect(), problems)
}

fn shown(
    config: &Config,
    setting: &'static str,
    value: Option<String>,
    from: Option<&'static str>,
) -> Shown {
    let layer = config.place(setting).layer();
    let is_default = from.is_some() || layer == DEFAULT;
    Shown {
        setting,
        value,
        from: from.unwrap_or(layer),
        place: (!is_default).then(|| config.place(setting).to_string()),
    }
}

/// What one setting was and is, in JSON.
#[derive(Debug, Serialize)]
struct Changed {
    setting: &'static str,
    old: String,
    new: String,
    /// It was not named, but follows `lease.term`.
    follows: bool,
    /// The version of the cluster's settings from now on.
    version: u64,
}

async fn set(cx: &Context, changes: &[String]) -> Result<Exit, Stop> {
    let asked = asked(changes)?;
    let tenure = cx.database.open(Absent::Make).await?;
    for _ in 0..TRIES {
        let cluster = tenure.settings().await?;
        let (before, after) = judged(&cx.config, &cluster, &asked)?;
        let change = ChangeSettings {
            version: cluster.version,
            values: asked
                .iter()
                .map(|(setting, value)| (setting.to_string(), value.clone()))
                .collect(),
        };
        if let Some(version) = tenure.change_settings(&change).await? {
            return told(cx, &changed(&asked, &before, &after, version));
        }
    }
    let message = "the settings were changed by others again and again meanwhile";
    Err(Problem::new(Exit::Failed, message)
        .hint("nothing was changed; try again")
        .into())
}

/// Says what changed.
fn told(cx: &Context, changed: &[Changed]) -> Result<Exit, Stop> {
    for one in changed {
        cx.output.either(one, || {
            let Changed {
                setting, old, new, ..
            } = one;
            match (old == new, one.follows) {
                (true, _) => format!("{setting}: {new}, as before"),
                (false, false) => format!("{setting}: {old} -> {new}"),
                (false, true) => format!("{setting}: {old} -> {new} (follows lease.term)"),
            }
        })?;
    }
    cx.output
        .note("running workers take this over within seconds; leases keep their term");
    Ok(Exit::Done)
}

/// A setting and its new value; `None` takes it out.
type Asked = (Setting, Option<String>);

/// Reads the changes, or tells all that is wrong with them.
fn asked(changes: &[String]) -> Result<Vec<Asked>, Stop> {
    let mut asked: Vec<Asked> = Vec::new();
    let mut problems = Vec::new();
    for change in changes {
        match ask(change) {
            Ok((setting, _)) if asked.iter().any(|(other, _)| *other == setting) => {
                let message = format!("{setting} is named twice; expected each once");
                problems.push(Problem::new(Exit::Usage, message));
            }
            Ok(ask) => asked.push(ask),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        return Ok(asked);
    }
    Err(refused(problems))
}

fn ask(change: &str) -> Result<Asked, Problem> {
    let usage = |message: String| Problem::new(Exit::Usage, message);
    let Some((name, value)) = change.split_once('=') else {
        let message = format!("the change is {change:?}; expected NAME=VALUE");
        return Err(usage(message).hint("such as lease.term=60s"));
    };
    let name = name.trim();
    let value = value.trim();
    let Ok(setting) = Setting::parse(name) else {
        if Config::own_keys().any(|own| own == name) {
            let message = format!("{name} belongs to each process and cannot be set for all");
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

/// Reports all of these problems, and that it is all or nothing.
fn refused(mut problems: Vec<Problem>) -> Stop {
    if let Some(last) = problems.last_mut() {
        let hint = last.hint.take().map(|hint| format!("{hint}; "));
        last.hint = Some(format!("{}nothing was changed", hint.unwrap_or_default()));
    }
    Stop::Problems(problems)
}

/// What is in force before and after the change, or all that forbids it.
fn judged(
    config: &Config,
    cluster: &ClusterSettings,
    asked: &[Asked],
) -> Result<(Settings, Settings), Stop> {
    let mut values = cluster.values.clone();
    for (setting, value) in asked {
        values.retain(|(name, _)| name != setting.as_str());
        values.extend(value.clone().map(|value| (setting.to_string(), value)));
    }
    let before = config.settings.overlaid(&cluster.values);
    let before = before.unwrap_or_else(|_| config.settings.clone());
    match config.settings.overlaid(&values) {
        Ok(after) => Ok((before, after)),
        Err(problems) => {
            let told = problems.into_iter().map(|problem| {
                let field = problem.field();
                let is_named = asked.iter().any(|(setting, _)| setting.as_str() == field);
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
            Err(refused(told.collect()))
        }
    }
}

/// What was named, and what follows it.
fn changed(asked: &[Asked], before: &Settings, after: &Settings, version: u64) -> Vec<Changed> {
    Setting::ALL
        .into_iter()
        .filter_map(|setting| {
            let is_named = asked.iter().any(|(other, _)| *other == setting);
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

    fn ask_all(changes: &[&str]) -> Result<Vec<Asked>, Stop> {
        let changes: Vec<_> = changes.iter().map(|text| (*text).to_owned()).collect();
        asked(&changes)
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
        let asked = ask_all(&["lease.term=60s", "lease.heartbeat=19s"]).unwrap();
        let (before, after) = judged(&Config::default(), &cluster(&[]), &asked).unwrap();
        let lines: Vec<_> = changed(&asked, &before, &after, 8)
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
    fn every_problem_of_a_change_is_told() {
        let told = problems(ask_all(&[
            "lease.trem=60s",
            "worker.batch=many",
            "server.listen=127.0.0.1:1",
            "lease.term",
            "worker.concurrency=1",
            "worker.concurrency=2",
            "colour=blue",
        ]));
        insta::assert_snapshot!(told);
    }

    #[test]
    fn a_change_is_judged_with_what_stands_beside_it() {
        let mut config = Config::default();
        config
            .settings
            .set(Setting::ShutdownTimeout, "30s")
            .unwrap();
        let cluster = cluster(&[("lease.heartbeat", "9s"), ("of.a.newer.program", "1")]);
        let asked = ask_all(&["lease.term=20s", "worker.batch=0"]).unwrap();
        let told = problems(judged(&config, &cluster, &asked));
        insta::assert_snapshot!(told);
        let asked = ask_all(&["lease.term=20s", "lease.heartbeat=default"]).unwrap();
        let (_, after) = judged(&Config::default(), &cluster, &asked).unwrap();
        assert_eq!(after.get(Setting::Heartbeat), "5s");
    }

    #[test]
    fn what_does_not_fit_is_not_in_force() {
        let mut config = Config::default();
        config.settings.set(Setting::Heartbeat, "9s").unwrap();
        let (shown, problems) = in_force(&config, &cluster(&[("lease.term", "60s")]));
        assert_eq!(
            (shown[0].value.as_deref(), shown[0].from),
            (Some("1m"), "cluster")
        );
        assert!(problems.is_empty());
        let (shown, problems) = in_force(&config, &cluster(&[("lease.term", "20s")]));
        assert_eq!(
            (shown[0].value.as_deref(), shown[0].from),
            (Some("30s"), "default")
        );
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
