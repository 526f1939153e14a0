//! `tenure completions`: what a shell needs to complete our command line.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::Shell;

use super::Context;
use crate::args::Cli;
use crate::exit::Exit;
use crate::problem::Stop;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// For this shell
    shell: ShellWord,
}

/// The word for a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShellWord {
    Bash,
    Zsh,
    Fish,
}

impl From<ShellWord> for Shell {
    fn from(word: ShellWord) -> Self {
        match word {
            ShellWord::Bash => Self::Bash,
            ShellWord::Zsh => Self::Zsh,
            ShellWord::Fish => Self::Fish,
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
