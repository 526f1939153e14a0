//! Loads the configuration: reads the layers, merges them and checks the result.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::Config;
use super::complaint::{Complaint, Place};
use super::file::{Given, Layer, Value, read};
use super::key::{self, nearest};
use super::value::set;
use super::webhook::Hidden;
use crate::database::Database;
use crate::env;

/// The file that is read, if it exists, when none is named.
pub(crate) const FILE: &str = "tenure.toml";

/// Maximum size of a file. A device file may never end and would fill the memory.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

const DEFAULTS: &str = include_str!("../../tenure.default.toml");

/// Sources of the configuration other than the environment.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// `--config`.
    pub(crate) file: Option<PathBuf>,
    /// `--database`.
    pub(crate) database: Option<Database>,
    /// Other flags.
    pub(crate) overrides: Vec<Override>,
}

/// A setting that a flag overrides: its name, its value, the flag.
pub(crate) type Override = (String, String, &'static str);

/// Loads the configuration, or reports all its faults.
pub(crate) fn load(sources: &Sources) -> Result<Config, Vec<Complaint>> {
    load_with(sources, &env::given())
}

/// The configuration as far as it is valid, and all its faults.
pub(crate) fn examine(sources: &Sources) -> (Config, Vec<Complaint>) {
    examine_with(sources, &env::given())
}

/// `load` in a given environment.
fn load_with(
    sources: &Sources,
    variables: &[(String, Option<String>)],
) -> Result<Config, Vec<Complaint>> {
    let (config, complaints) = examine_with(sources, variables);
    if complaints.is_empty() {
        return Ok(config);
    }
    Err(complaints)
}

fn examine_with(
    sources: &Sources,
    variables: &[(String, Option<String>)],
) -> (Config, Vec<Complaint>) {
    let mut draft = Draft::default();
    draft.layer(read(None, DEFAULTS));
    if let Some((name, text)) = draft.file_of(sources, variables) {
        draft.layer(read(Some(&name), &text));
        draft.config.file = Some(name);
    }
    draft.layer(environment(variables));
    draft.layer(flags(sources));
    let key = variables.iter().find(|(name, _)| name == env::WEBHOOK_KEY);
    draft.config.webhook.key = key.and_then(|(_, text)| text.clone()).map(Hidden);
    if let Some(database) = &sources.database {
        draft.config.database = database.clone();
        draft
            .config
            .places
            .insert("database", Place::Flag("--database"));
    }
    draft.check();
    draft.complaints.sort();
    (draft.config, draft.complaints)
}

/// Variables that are not settings.
const OTHER_VARIABLES: [&str; 2] = [env::CONFIG, env::WEBHOOK_KEY];

fn environment(variables: &[(String, Option<String>)]) -> (Layer, Vec<Complaint>) {
    let mut layer = Layer::default();
    let mut complaints = Vec::new();
    for (name, text) in variables
        .iter()
        .filter(|(name, _)| !OTHER_VARIABLES.contains(&name.as_str()))
    {
        let place = Place::Variable(name.clone());
        let known = env::VARIABLES.iter().find(|(known, _)| known == name);
        match (known.and_then(|(_, key)| key::find(key)), text) {
            (None, _) => complaints.push(unknown_variable(name, place)),
            (Some((key, _)), None) => {
                let text = format!("{key} is not valid UTF-8; expected text");
                complaints.push(Complaint::new(place, text));
            }
            (Some((key, form)), Some(text)) => layer.values.push(Given {
                key,
                value: Value::of_text(form, text),
                place,
            }),
        }
    }
    (layer, complaints)
}

fn unknown_variable(name: &str, place: Place) -> Complaint {
    let known = env::VARIABLES.iter().map(|(known, _)| *known);
    let hint = match nearest(name, known.chain(OTHER_VARIABLES)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!(
            "unset it: names with the prefix {} are reserved",
            env::PREFIX
        ),
    };
    let text = "unknown variable; expected TENURE_ with section and name, such as \
                TENURE_LEASE_TERM";
    Complaint::new(place, text).hint(Some(hint))
}

fn flags(sources: &Sources) -> (Layer, Vec<Complaint>) {
    let mut layer = Layer::default();
    let mut complaints = Vec::new();
    for (name, text, flag) in &sources.overrides {
        let place = Place::Flag(flag);
        match key::find(name) {
            Some((key, form)) => layer.values.push(Given {
                key,
                value: Value::of_text(form, text),
                place,
            }),
            None => complaints.push(Complaint::new(place, format!("there is no setting {name}"))),
        }
    }
    (layer, complaints)
}

/// A configuration being assembled.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) config: Config,
    pub(super) complaints: Vec<Complaint>,
    /// The settings with an invalid value.
    pub(super) invalid: BTreeSet<&'static str>,
    /// All declared publishers, valid or not.
    pub(super) publishers: Vec<(String, Place)>,
    /// The publishers that routes name, valid or not.
    pub(super) routed: Vec<(String, Place)>,
}

impl Draft {
    /// The name and the text of the file, if it exists.
    fn file_of(
        &mut self,
        sources: &Sources,
        variables: &[(String, Option<String>)],
    ) -> Option<(String, String)> {
        let variable = variables.iter().find(|(name, _)| name == env::CONFIG);
        let (path, place) = match (&sources.file, variable) {
            (Some(path), _) => (path.clone(), Some(Place::Flag("--config"))),
            (None, Some((name, path))) => {
                let path = path.as_deref().unwrap_or_default();
                (path.into(), Some(Place::Variable(name.clone())))
            }
            (None, None) => (FILE.into(), None),
        };
        let name = path.display().to_string();
        match (text_of(&path), place) {
            (Ok(text), _) => Some((name, text)),
            (Err(error), None) if error.kind() == io::ErrorKind::NotFound => None,
            (Err(error), place) => {
                let place = place.unwrap_or_else(|| Place::File {
                    path: name.clone(),
                    line: 1,
                });
                let text = format!("cannot read {name:?} ({error}); expected a TOML file");
                self.complaints.push(Complaint::new(place, text));
                None
            }
        }
    }

    /// Merges a layer over the earlier ones.
    fn layer(&mut self, (layer, complaints): (Layer, Vec<Complaint>)) {
        self.complaints.extend(complaints);
        for given in layer.values {
            match set(&mut self.config, given.key, &given.value) {
                Ok(()) if given.place == Place::Default => {}
                Ok(()) => drop(self.config.places.insert(given.key, given.place)),
                Err(problem) => {
                    self.invalid.insert(given.key);
                    self.complaints.push(Complaint::new(given.place, problem));
                }
            }
        }
        self.config.queues.extend(layer.tables.queues);
        for (name, (publisher, place)) in layer.tables.publishers {
            if let Some(publisher) = publisher {
                self.config.publishers.insert(name.clone(), publisher);
            }
            self.publishers.push((name, place));
        }
        if let Some(routes) = layer.tables.routes {
            self.config.routes = routes;
            self.routed = layer.tables.routed;
        }
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = fs::File::open(path)?.take(FILE_BYTES_MAX);
    file.read_to_string(&mut text)?;
    if file.limit() == 0 {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::settings::Setting;

    use super::super::PublisherConfig;
    use super::*;
    use crate::problem::Problem;

    /// The configuration of this file, these variables and these flags, or its complaints as text.
    fn loaded(
        text: &str,
        variables: &[(&str, &str)],
        flags: &[(&str, &str, &'static str)],
    ) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        fs::write(&path, text).unwrap();
        let sources = Sources {
            file: Some(path.clone()),
            database: None,
            overrides: flags
                .iter()
                .map(|(key, text, flag)| ((*key).to_owned(), (*text).to_owned(), *flag))
                .collect(),
        };
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, text)| ((*name).to_owned(), Some((*text).to_owned())))
            .collect();
        load_with(&sources, &variables).map_err(|complaints| {
            let lines = complaints.into_iter().map(|complaint| {
                let problem = Problem::from(complaint);
                let hint = problem.hint.map(|hint| format!("\n    hint: {hint}"));
                problem.message + &hint.unwrap_or_default()
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            text.replace(&path.display().to_string(), FILE)
        })
    }

    #[test]
    fn the_embedded_file_equals_the_default_of_the_types() {
        let mut config = loaded("", &[], &[]).unwrap();
        assert!(config.file.take().is_some());
        assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
        let (layer, complaints) = read(None, DEFAULTS);
        assert_eq!(complaints, []);
        let present: Vec<_> = layer.values.iter().map(|given| given.key).collect();
        for (key, _) in key::KEYS {
            let last = key.rsplit('.').next().unwrap();
            let is_example = DEFAULTS.contains(&format!("\n#{last} = "));
            assert!(
                present.contains(&key) || is_example,
                "{key} is not in the file"
            );
        }
    }

    #[test]
    fn the_examples_in_the_embedded_file_are_valid() {
        let is_example = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
        let text: Vec<_> = DEFAULTS
            .lines()
            .map(|line| {
                Some(line)
                    .filter(is_example)
                    .map_or(line, |line| &line[1..])
            })
            .collect();
        let config = loaded(&text.join("\n"), &[], &[]).unwrap();
        assert_eq!(config.settings.get(Setting::Heartbeat), "7s 500ms");
        assert_eq!(config.queues.len(), 1);
        assert_eq!(config.publishers.len(), 3);
    }

    #[test]
    fn later_layers_override_earlier_ones() {
        let text = "[lease]\nterm = \"40s\"\n[worker]\nbatch = 1_0\nconcurrency = 2\n";
        let variables = [
            ("TENURE_LEASE_TERM", "50s"),
            ("TENURE_WORKER_CONCURRENCY", "3"),
            ("TENURE_WORKER_QUEUES", "mail, bulk"),
        ];
        let flags = [("worker.concurrency", "4", "--concurrency")];
        let config = loaded(text, &variables, &flags).unwrap();
        let settings = &config.settings;
        let values = (
            settings.get(Setting::Term),
            settings.batch,
            settings.concurrency,
        );
        assert_eq!(values, ("50s".to_owned(), 10, 4));
        assert_eq!(
            config.text_of("worker.queues").as_deref(),
            Some("mail, bulk")
        );
        let from = |key| (config.place(key).layer(), config.place(key).to_string());
        assert_eq!(
            from("lease.term"),
            ("environment", "TENURE_LEASE_TERM".to_owned())
        );
        assert!(from("worker.batch").1.ends_with("tenure.toml:4"));
        assert_eq!(from("worker.concurrency").1, "--concurrency");
        assert_eq!(from("reaper.interval").0, "default");
    }

    #[test]
    fn routes_replace_the_default_and_publishers_are_added() {
        let text = "\
[publishers.mailer]
kind = \"exec\"
command = \"send-mail\"
timeout = \"10s\"
[publishers.spare]
kind = \"lines\"
path = \"spare.jsonl\"
[publishers.worker]
kind = \"exec-lines\"
command = \"worker.py\"
timeout = \"20s\"
processes = 2
[[routes]]
topics = [\"mail.*\", \"order.*.late\"]
publisher = \"mailer\"
[[routes]]
topics = [\"*\"]
publisher = \"worker\"
";
        let config = loaded(text, &[], &[]).unwrap();
        let names: Vec<_> = config.publishers.keys().map(String::as_str).collect();
        assert_eq!(names, ["mailer", "output", "spare", "worker"]);
        let worker = PublisherConfig::ExecLines {
            command: "worker.py".to_owned(),
            timeout: Some(Duration::from_secs(20)),
            processes: Some(2),
        };
        assert_eq!(config.publishers["worker"], worker);
        let routed: Vec<_> = config.routes.iter().map(|route| &route.publisher).collect();
        assert_eq!(routed, ["mailer", "worker"]);
        assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
        assert!(config.warnings[0].ends_with(":5: no route leads to publishers.spare"));
    }

    /// Proves: S1-019, S2-033
    #[test]
    fn all_faults_are_reported_at_once_with_their_places() {
        let text = "\
databse = \"postgres://u:canary@h/db\"
term = \"30s\"
[lease]
trem = \"30s\"
heartbeat = \"10s\"
max_hold = 90
[worker]
name = \"a b\"
queues = [\"mail\", 7]
concurrency = 0
batch = \"100\"
[store]
connections = 0
planner = \"me\"
schema = \"Tenure\"
[server]
listen = \"localhost\"
[log]
format = \"xml\"
level = \"infoo\"
[[queues]]
name = \"mail\"
[[queues]]
name = \"mail\"
term = \"25h\"
[[queues]]
trem = \"9s\"
[publishers.mailer]
kind = \"exce\"
[publishers.runner]
kind = \"exec\"
path = \"x\"
timeout = \"0s\"
[publishers.slow]
kind = \"exec\"
command = \"sleep 1h\"
timeout = \"1h\"
[publishers.nothing]
[publishers.staying]
kind = \"exec-lines\"
comand = \"worker.py\"
timeout = \"1h\"
processes = 0
[[routes]]
topics = [\"ord*\"]
publisher = \"mialer\"
[[routes]]
topics = []
[retry]
max_crashes = 2
max_retries = -1
";
        let variables = [
            ("TENURE_DATABSE", "postgres://u:canary@h/db"),
            ("TENURE_REAPER_INTERVAL", "30s"),
            ("TENURE_HOME", "x"),
            ("TENURE_LOG_LEVEL", "debug=tenure"),
        ];
        let flags = [("worker.shutdown_timeout", "31s", "--shutdown-timeout")];
        let report = loaded(text, &variables, &flags).unwrap_err();
        assert!(!report.contains("canary"), "{report}");
        insta::assert_snapshot!(report);
    }

    #[test]
    fn all_faults_of_webhooks_are_reported_with_their_lines() {
        let text = "\
[webhook]
allow = [\"10.0.0.0\"]
allow_http = \"yes\"
allow_hosts = [\"a b\"]
ports = [0]
concurrency = 0
term = \"25h\"
key_file = \"\"
user_agent = \"a\\nb\"
sned = true
";
        let variables = [
            ("TENURE_WEBHOOK_SEND", "no"),
            ("TENURE_WEBHOOK_KEY", "canary"),
        ];
        let report = loaded(text, &variables, &[]).unwrap_err();
        for line in 2..=10 {
            let place = format!("tenure.toml:{line}: ");
            assert_eq!(report.matches(&place).count(), 1, "{place}{report}");
        }
        assert!(report.contains("TENURE_WEBHOOK_SEND: "), "{report}");
        assert!(report.contains("did you mean webhook.send?"), "{report}");
        assert!(!report.contains("canary"), "{report}");

        let text = "[webhook]\nports = [443, 9000]\nallow = [\"10.0.0.0/8\"]\nsend = false\n";
        let variables = [("TENURE_WEBHOOK_ALLOW", "fd00::/8, 127.0.0.0/8")];
        let config = loaded(text, &variables, &[]).unwrap();
        assert_eq!(
            config.text_of("webhook.ports").as_deref(),
            Some("443, 9000")
        );
        let networks = Some("fd00::/8, 127.0.0.0/8");
        assert_eq!(config.text_of("webhook.allow").as_deref(), networks);
        assert!(!config.webhook.send && config.webhook.fan_out);
    }

    #[test]
    fn an_inconsistency_names_the_layer_that_caused_it() {
        let text = "[lease]\nheartbeat = \"10s\"\nterm = \"60s\"\n";
        assert!(loaded(text, &[], &[]).is_ok());
        let report = loaded(text, &[("TENURE_LEASE_TERM", "20s")], &[]).unwrap_err();
        insta::assert_snapshot!(report);
        let report = loaded("", &[("TENURE_LEASE_HEARTBEAT", "10s")], &[]).unwrap_err();
        insta::assert_snapshot!(report);
        let report = loaded(text, &[("TENURE_LEASE_TERM", "soon")], &[]).unwrap_err();
        insta::assert_snapshot!(report);
    }

    #[test]
    fn invalid_toml_is_reported_with_line_and_column() {
        let secret = "[store]\nschema = \"x\ndatabase = \"postgres://u:canary@h/db\"\n";
        let report = loaded(secret, &[], &[]).unwrap_err();
        assert!(!report.contains("canary"), "{report}");
        insta::assert_snapshot!(report);
        let report = loaded("[lease]\nterm = 30s\n", &[], &[]).unwrap_err();
        insta::assert_snapshot!(report);
        let report = loaded("[lease]\n[lease]\n", &[], &[]).unwrap_err();
        insta::assert_snapshot!(report);
    }

    #[test]
    fn parts_of_a_wrong_type_are_reported() {
        let text = "queues = \"mail\"\npublishers = 1\nroutes = true\nlease = \"30s\"\n";
        let report = loaded(text, &[], &[]).unwrap_err();
        insta::assert_snapshot!(report);
    }
}
