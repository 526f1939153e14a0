//! The command of a publisher, as it is run: through `sh -c`, as the leader of a process group.

use std::fmt;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use tenure_core::PublishError;
use tokio::process::Command;

use super::running::{GRACE, Running};

/// Variables that not every event has.
const OPTIONAL: [&str; 4] = ["TENURE_EVENT_ID", "TENURE_KEY", "TRACEPARENT", "TRACESTATE"];

#[derive(Clone)]
pub(super) struct Shell {
    pub(super) program: &'static str,
    command: String,
    /// Limit per event.
    pub(super) timeout: Option<Duration>,
    hidden: Vec<String>,
}

impl Shell {
    pub(super) fn new(command: impl Into<String>) -> Self {
        Self {
            program: "sh",
            command: command.into(),
            timeout: None,
            hidden: Vec::new(),
        }
    }

    pub(super) fn hide<N: Into<String>>(&mut self, names: impl IntoIterator<Item = N>) {
        self.hidden.extend(names.into_iter().map(Into::into));
    }

    /// Time that the command may take for one event.
    pub(super) fn time(&self, time_left: Duration) -> Duration {
        let time = usable(time_left);
        self.timeout.map_or(time, |timeout| timeout.min(time))
    }

    /// Starts the command with these variables besides the environment of this process.
    pub(super) fn spawn(
        &self,
        variables: Vec<(String, String)>,
        input: Stdio,
        output: Stdio,
    ) -> Result<Running, PublishError> {
        if let Some((name, _)) = variables.iter().find(|(_, value)| value.contains('\0')) {
            return Err(PublishError::reject(format!(
                "{name} contains a NUL character, which an environment cannot hold"
            )));
        }
        let mut command = Command::new(self.program);
        command
            .arg("-c")
            .arg(&self.command)
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::piped())
            .process_group(0);
        // A variable that the event does not set must not come from this process's environment.
        for name in self.hidden.iter().map(String::as_str).chain(OPTIONAL) {
            command.env_remove(name);
        }
        command.envs(variables);
        let child = command.spawn().map_err(|cause| {
            let reason = format!("cannot run `{}`: {cause}", self.program);
            if cause.kind() == io::ErrorKind::ArgumentListTooLong {
                // The headers of the event are the most likely cause.
                return PublishError::retry(reason);
            }
            PublishError::away(reason)
        })?;
        Ok(Running::new(child))
    }
}

impl fmt::Debug for Shell {
    /// Leaves out the command, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell")
            .field("timeout", &self.timeout)
            .field("hidden", &self.hidden)
            .finish_non_exhaustive()
    }
}

/// Part of the rest of a lease that work may take. The other part must suffice to stop the command.
pub(super) fn usable(time_left: Duration) -> Duration {
    time_left.saturating_sub(GRACE.min(time_left / 4))
}
