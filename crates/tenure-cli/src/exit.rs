//! Exit codes.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    Nothing,
    Refused,
}

impl Exit {
    const ALL: [Self; 5] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Nothing,
        Self::Refused,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Nothing => 3,
            Self::Refused => 4,
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => {
                "failed: the database is unreachable, busy, full or read-only, or a check was bad"
            }
            Self::Usage => "usage or configuration: fix the command, the input or the setup",
            Self::Nothing => "nothing matched, or there is no database yet",
            Self::Refused => "refused: an item was not in the state that the command needs",
        }
    }

    /// The list for `--help`.
    pub(crate) fn help() -> String {
        let lines = Self::ALL.map(|exit| format!("\n  {}  {}", exit.code(), exit.meaning()));
        format!("Exit codes:{}", lines.concat())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
