//! Build: a program that is measured as a child process.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use super::figures::ComparedFigures;
use crate::host::Host;
use crate::stop::Failure;

/// Lines of a failed build's standard error that are repeated in the message.
const ERROR_LINES: usize = 5;

/// One of the two builds.
#[derive(Debug)]
pub(super) struct Build {
    name: &'static str,
    program: PathBuf,
}

impl Build {
    pub(super) fn new(name: &'static str, program: &Path) -> Self {
        Self {
            name,
            program: program.to_owned(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the build with these arguments and reads its figures.
    pub(super) async fn measure(
        &self,
        host: &Host<'_>,
        arguments: &[String],
    ) -> Result<ComparedFigures, Failure> {
        let mut command = Command::new(&self.program);
        for variable in host.variables {
            command.env_remove(variable);
        }
        let output = command
            .args(arguments)
            // In the environment, because other users can read a command line.
            .env("TENURE_DATABASE", host.database)
            // The file may have settings that the other build does not know.
            .env("TENURE_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        let output = output.map_err(|cause| self.failed("cannot be run").cause(cause))?;
        if !output.status.success() {
            let mut failure = self.failed(&format!("ended with {}", output.status));
            let text = String::from_utf8_lossy(&output.stderr);
            for line in text.lines().take(ERROR_LINES) {
                failure = failure.cause(line);
            }
            return Err(failure.hint(format!(
                "run it by itself to see more: {} {}",
                self.program.display(),
                arguments.join(" ")
            )));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let mut objects = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let object: Option<Value> = objects.rfind(Value::is_object);
        let object = object.ok_or_else(|| self.failed("printed no figures as JSON"))?;
        Ok(ComparedFigures::read(&object))
    }

    fn failed(&self, what: &str) -> Failure {
        Failure::new(format!(
            "the {} build {} {what}",
            self.name,
            self.program.display()
        ))
    }
}
