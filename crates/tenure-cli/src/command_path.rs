//! Finds the program that a shell command starts with, without running anything.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The program of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The file that the shell would run.
    File(PathBuf),
    /// A word of the shell itself, or a command whose first word only the shell can expand.
    Shell,
    /// No such file, or it is not executable.
    Missing(String),
}

/// Words that the shell knows itself.
const OWN_WORDS: [&str; 31] = [
    ".", ":", "[", "alias", "break", "case", "cd", "command", "continue", "echo", "eval", "exit",
    "export", "false", "for", "if", "printf", "pwd", "read", "return", "set", "shift", "test",
    "trap", "true", "type", "ulimit", "umask", "unset", "until", "while",
];

/// Characters that end a word, and those that the shell expands or that quote.
const ENDS: [char; 7] = [' ', '\t', '\n', ';', '|', '&', '<'];
const EXPANDED: [char; 16] = [
    '$', '`', '"', '\'', '\\', '*', '?', '(', ')', '{', '}', '~', '!', '#', '>', '\0',
];

/// Finds the program of a command for `sh -c`, in the folders of `path`.
pub(crate) fn program(command: &str, path: Option<&OsStr>) -> Program {
    let mut rest = command.trim_start();
    loop {
        let (word, behind) = match rest.find(ENDS) {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        if word.is_empty() || word.contains(EXPANDED) || OWN_WORDS.contains(&word) {
            return Program::Shell;
        }
        let is_prefix = word == "exec" || word.contains('=');
        if !is_prefix {
            return find(word, path);
        }
        rest = behind.trim_start();
    }
}

fn find(word: &str, path: Option<&OsStr>) -> Program {
    let is_program = |file: &Path| {
        let found = fs::metadata(file);
        found.is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0)
    };
    let missing = || Program::Missing(word.to_owned());
    if word.contains('/') {
        let file = PathBuf::from(word);
        return if is_program(&file) {
            Program::File(file)
        } else {
            missing()
        };
    }
    // Without a search path the shell has its own.
    let Some(path) = path else {
        return Program::Shell;
    };
    let mut files = std::env::split_paths(path).map(|folder| folder.join(word));
    files
        .find(|file| is_program(file))
        .map_or_else(missing, Program::File)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_the_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, mode) in [("send-mail", 0o755), ("notes", 0o644)] {
            fs::write(path(name), "").unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let search = std::env::join_paths([Path::new("/nosuch"), folder.path()]).unwrap();
        let find = |command: &str| program(command, Some(&search));
        let there = Program::File(path("send-mail"));
        for command in [
            "send-mail --stdin",
            "  LANG=C exec send-mail",
            "send-mail|cat",
            &path("send-mail").display().to_string(),
        ] {
            assert_eq!(find(command), there, "{command}");
        }
        for command in [
            "nosuch --x",
            "notes",
            "./send-mail",
            "X=1 /no/such/cmd; true",
        ] {
            assert!(matches!(find(command), Program::Missing(_)), "{command}");
        }
        for command in [
            "cd x && nosuch",
            "\"$MAILER\" -x",
            "if true; then x; fi",
            "(x)",
            "",
        ] {
            assert_eq!(find(command), Program::Shell, "{command}");
        }
        assert_eq!(program("nosuch", None), Program::Shell);
    }
}
