//! `tenure completions`: the completion script of a shell.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::Shell;

use super::Context;
use crate::args::Cli;
use crate::exit::Exit;
use crate::problem::Stop;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: ShellArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

impl From<ShellArg> for Shell {
    fn from(arg: ShellArg) -> Self {
        match arg {
            ShellArg::Bash => Self::Bash,
            ShellArg::Zsh => Self::Zsh,
            ShellArg::Fish => Self::Fish,
        }
    }
}

pub(super) fn run(cx: &Context, args: &Completions) -> Result<Exit, Stop> {
    let mut script = Vec::new();
    let shell = Shell::from(args.shell);
    clap_complete::generate(shell, &mut Cli::command(), "tenure", &mut script);
    cx.output
        .line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
