//! Checks that combinations of values are consistent.

use tenure::settings::{Setting, duration_text};

use super::PublisherConfig;
use super::complaint::{Complaint, Place};
use super::key::nearest;
use super::load::Draft;

impl Draft {
    pub(super) fn check(&mut self) {
        self.check_database();
        self.check_settings();
        self.check_routes();
        self.check_timeouts();
    }

    /// Refuses an address that no store can open.
    fn check_database(&mut self) {
        if let Err((text, hint)) = self.config.database.check_address() {
            let place = self.config.place("database").clone();
            self.complaints.push(Complaint::new(place, text).hint(hint));
        }
    }

    fn check_settings(&mut self) {
        let term = Setting::Term.as_str();
        let following = [
            Setting::Heartbeat,
            Setting::MaxHold,
            Setting::ReaperInterval,
            Setting::ShutdownTimeout,
        ];
        for problem in self.config.settings.check().err().unwrap_or_default() {
            let field = problem.field();
            let is_of_term = following.iter().any(|setting| setting.as_str() == field);
            // An invalid value was already reported, and cannot be checked against others.
            if self.invalid.contains(field) || is_of_term && self.invalid.contains(term) {
                continue;
            }
            let place = self.config.place(field).clone();
            let of_term = self.config.place(term);
            let hint =
                (is_of_term && *of_term != Place::Default && of_term.layer() != place.layer())
                    .then(|| format!("lease.term comes from here: {of_term}"));
            self.complaints
                .push(Complaint::new(place, problem).hint(hint));
        }
    }

    /// Checks that every route leads to a publisher; warns of a publisher without a route.
    fn check_routes(&mut self) {
        let names: Vec<&str> = self
            .publishers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        for (name, place) in &self.routed {
            let name = name.as_str();
            if !names.contains(&name) {
                let text = format!(
                    "routes.publisher is {name:?}; expected one of {}",
                    names.join(", ")
                );
                let hint = match nearest(name, names.iter().copied()) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => format!("declare it: [publishers.{name}]"),
                };
                self.complaints
                    .push(Complaint::new(place.clone(), text).hint(Some(hint)));
            }
        }
        let unused = self.publishers.iter().filter(|(name, place)| {
            let is_used = self.routed.iter().any(|(routed, _)| routed == name);
            *place != Place::Default && !is_used
        });
        self.config.warnings = unused
            .map(|(name, place)| format!("{place}: no route leads to publishers.{name}"))
            .collect();
    }

    /// Refuses a command whose timeout exceeds the maximum hold, which would cancel it first.
    fn check_timeouts(&mut self) {
        let longest = self.config.settings.max_hold();
        for (name, publisher) in &self.config.publishers {
            let place = self
                .publishers
                .iter()
                .rev()
                .find(|(other, _)| other == name);
            if let PublisherConfig::Exec { timeout, .. }
            | PublisherConfig::ExecLines { timeout, .. } = publisher
                && let Some(timeout) = timeout.filter(|timeout| *timeout > longest)
                && let Some((_, place)) = place
            {
                let text = format!(
                    "publishers.{name}.timeout is {}; expected at most lease.max_hold ({})",
                    duration_text(timeout),
                    duration_text(longest)
                );
                self.complaints.push(Complaint::new(place.clone(), text));
            }
        }
    }
}
