//! Parses the text of one value and sets it in the configuration.

use tenure::Invalid;
use tenure::lease::WorkerId;
use tenure::settings::{Setting, parse_duration};
use tenure::store::{Planner, QueueName, Statements, Synchronous};
use tenure::table::Identifier;

use super::file::Value;
use super::{Config, LogFormat};
use crate::database::Database;
use crate::logs;

pub(super) fn set(config: &mut Config, key: &'static str, value: &Value) -> Result<(), Invalid> {
    let text = value.text();
    let actual = match text.parse::<i128>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("{text:?}"),
    };
    let wrong = |expected: &str| Invalid::new(key, actual.clone(), expected);
    match key {
        "database" => config.database = Database::new(&text),
        "store.schema" => {
            let expected = "a name of at most 63 characters a-z, 0-9 and _, such as tenure";
            config.store.schema = Some(Identifier::new(&text).map_err(|_cause| wrong(expected))?);
        }
        "store.connections" => {
            let connections = text.parse().ok().filter(|number| *number > 0);
            config.store.connections =
                connections.ok_or_else(|| wrong("a whole number from 1, such as 10"))?;
        }
        "store.planner" => {
            config.store.planner = word(&text, &[Planner::Connection, Planner::Role], planner_word)
                .ok_or_else(|| wrong("connection or role"))?;
        }
        "store.statements" => {
            let all = [Statements::Auto, Statements::Prepared, Statements::Unnamed];
            config.store.statements = word(&text, &all, statements_word)
                .ok_or_else(|| wrong("auto, prepared or unnamed"))?;
        }
        "store.synchronous" => {
            let all = [Synchronous::Full, Synchronous::Normal];
            config.store.synchronous =
                word(&text, &all, synchronous_word).ok_or_else(|| wrong("full or normal"))?;
        }
        "store.busy_timeout" => {
            config.store.busy_timeout =
                parse_duration(&text).map_err(|_cause| wrong("a duration such as 5s"))?;
        }
        "migrate.at_start" => {
            config.migrate_at_start = text.parse().map_err(|_cause| wrong("true or false"))?;
        }
        "server.listen" => {
            let expected = "an address and a port, such as 127.0.0.1:7070";
            config.listen = text.parse().map_err(|_cause| wrong(expected))?;
        }
        "log.format" => {
            let all = [LogFormat::Text, LogFormat::Json];
            config.log.format =
                word(&text, &all, LogFormat::as_str).ok_or_else(|| wrong("text or json"))?;
        }
        "log.level" => {
            logs::filter(&text)?;
            config.log.level = text;
        }
        "worker.name" => {
            let expected = "1 to 64 of the characters A-Z a-z 0-9 . _ -";
            WorkerId::new(&text, 0).map_err(|_cause| wrong(expected))?;
            config.worker_name = text;
        }
        "worker.queues" => {
            let queues = value.parts().iter().map(|name| QueueName::new(name));
            let queues: Result<_, _> = queues.collect();
            config.serve_queues =
                queues.map_err(|_cause| wrong("names of queues, such as mail"))?;
        }
        _ if key.starts_with("webhook.") => {
            let set = config.webhook.set(key, value);
            set.map_err(|expected| wrong(&expected))?;
        }
        _ => config.settings.set(Setting::parse(key)?, &text)?,
    }
    Ok(())
}

/// The element of `all` with this text.
fn word<T: Copy>(text: &str, all: &[T], written: impl Fn(T) -> &'static str) -> Option<T> {
    all.iter().copied().find(|one| written(*one) == text)
}

pub(super) const fn planner_word(planner: Planner) -> &'static str {
    match planner {
        Planner::Connection => "connection",
        Planner::Role => "role",
    }
}

pub(super) const fn statements_word(statements: Statements) -> &'static str {
    match statements {
        Statements::Auto => "auto",
        Statements::Prepared => "prepared",
        Statements::Unnamed => "unnamed",
    }
}

pub(super) const fn synchronous_word(synchronous: Synchronous) -> &'static str {
    match synchronous {
        Synchronous::Full => "full",
        Synchronous::Normal => "normal",
    }
}
