//! Keys: the names of all single values, their form in a file, and suggestions for unknown names.

/// The form of a value in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// Text with a unit.
    Duration,
    Number,
    /// `true` or `false`.
    Flag,
    /// Several texts; comma-separated in the environment.
    List,
    /// Several whole numbers; comma-separated in the environment.
    Numbers,
}

impl Form {
    /// The expected form, for an error message.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Text => "text in quotes",
            Self::Duration => "a duration in quotes, such as \"30s\" or \"5m\"",
            Self::Number => "a whole number without quotes, such as 10",
            Self::Flag => "true or false without quotes",
            Self::List => "a list of texts, such as [\"mail\"]",
            Self::Numbers => "a list of whole numbers without quotes, such as [443, 8443]",
        }
    }
}

/// Every single value; `tenure.default.toml` has them in the same order.
pub(super) const KEYS: [(&str, Form); 37] = [
    ("database", Form::Text),
    ("store.schema", Form::Text),
    ("store.connections", Form::Number),
    ("store.planner", Form::Text),
    ("store.statements", Form::Text),
    ("store.synchronous", Form::Text),
    ("store.busy_timeout", Form::Duration),
    ("migrate.at_start", Form::Flag),
    ("server.listen", Form::Text),
    ("log.format", Form::Text),
    ("log.level", Form::Text),
    ("worker.name", Form::Text),
    ("worker.queues", Form::List),
    ("worker.concurrency", Form::Number),
    ("worker.batch", Form::Number),
    ("worker.shutdown_timeout", Form::Duration),
    ("lease.term", Form::Duration),
    ("lease.heartbeat", Form::Duration),
    ("lease.max_hold", Form::Duration),
    ("reaper.interval", Form::Duration),
    ("retry.max_retries", Form::Number),
    ("retry.base", Form::Duration),
    ("retry.cap", Form::Duration),
    ("retry.max_crashes", Form::Number),
    ("key.on_dead", Form::Text),
    ("retention.published", Form::Duration),
    ("retention.dead", Form::Duration),
    ("webhook.fan_out", Form::Flag),
    ("webhook.send", Form::Flag),
    ("webhook.key_file", Form::Text),
    ("webhook.concurrency", Form::Number),
    ("webhook.term", Form::Duration),
    ("webhook.allow_http", Form::Flag),
    ("webhook.allow", Form::List),
    ("webhook.allow_hosts", Form::List),
    ("webhook.ports", Form::Numbers),
    ("webhook.user_agent", Form::Text),
];

/// The parts of a file that are not single values.
pub(super) const TABLES: [&str; 3] = ["queues", "publishers", "routes"];

pub(super) fn find(name: &str) -> Option<(&'static str, Form)> {
    KEYS.into_iter().find(|(known, _)| *known == name)
}

pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter()
        .filter_map(|(key, _)| key.split_once('.'))
        .any(|(section, _)| section == name)
}

/// The known name closest to `name`, if it is close enough. A missing or wrong section costs one
/// edit.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let last = |name: &'_ str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let wanted = last(name);
    let cost = |candidate: &str| {
        let whole = distance(name, candidate);
        let part = distance(&wanted, &last(candidate)) + 1;
        whole.min(part)
    };
    let (cost, closest) = known
        .into_iter()
        .map(|candidate| (cost(candidate), candidate))
        .min_by_key(|(cost, _)| *cost)?;
    (cost <= 1 + wanted.chars().count() / 4).then_some(closest)
}

/// The Levenshtein distance: letters to insert, delete or replace.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        let mut next = vec![left];
        for (above, wanted) in row.iter().skip(1).zip(other.chars()) {
            let change = diagonal + usize::from(letter != wanted);
            left = change.min(above + 1).min(left + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tenure::settings::Setting;

    use super::*;
    use crate::env;

    #[test]
    fn a_distance_counts_letters() {
        for (one, other, letters) in [
            ("", "", 0),
            ("", "abc", 3),
            ("term", "term", 0),
            ("trem", "term", 2),
            ("tem", "term", 1),
            ("terms", "term", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), letters, "{one} {other}");
            assert_eq!(distance(other, one), letters, "{other} {one}");
        }
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let names = || KEYS.iter().map(|(name, _)| *name);
        for (name, meant) in [
            ("lease.trem", Some("lease.term")),
            ("lease.heart_beat", Some("lease.heartbeat")),
            ("term", Some("lease.term")),
            ("worker.term", Some("lease.term")),
            ("databse", Some("database")),
            ("worker.maximum", None),
            ("colour", None),
        ] {
            assert_eq!(nearest(name, names()), meant, "{name}");
        }
    }

    #[test]
    fn every_key_has_one_variable_named_after_it() {
        let named: Vec<_> = KEYS
            .iter()
            .map(|(key, _)| {
                let name = key.replace('.', "_").to_uppercase();
                (format!("{}{name}", env::PREFIX), *key)
            })
            .collect();
        let declared = env::VARIABLES.map(|(name, key)| (name.to_owned(), key));
        assert_eq!(named, declared);
        for setting in Setting::ALL {
            assert!(find(setting.as_str()).is_some(), "{setting}");
        }
    }
}
