//! The relations between values: each may be right and both together wrong.

use tenure::{Setting, duration_text};

use super::PublisherConfig;
use super::complaint::{Complaint, Place};
use super::key::nearest;
use super::load::Draft;

impl Draft {
    /// Checks the relations between values.
    pub(super) fn check(&mut self) {
        self.check_settings();
        self.check_routes();
        self.check_timeouts();
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
            // A value that could not be read was told already, and says nothing about others.
            if self.unread.contains(field) || is_of_term && self.unread.contains(term) {
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

    /// Every route leads to a publisher; a publisher without a route is worth a remark.
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
        self.config.remarks = unused
            .map(|(name, place)| format!("{place}: no route leads to publishers.{name}"))
            .collect();
    }

    /// A command that may run longer than the longest hold would be cut off by it.
    fn check_timeouts(&mut self) {
        let longest = self.config.settings.max_hold();
        for (name, publisher) in &self.config.publishers {
            let place = self
                .publishers
                .iter()
                .rev()
                .find(|(other, _)| other == name);
            if let PublisherConfig::Exec { timeout, .. } = publisher
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
