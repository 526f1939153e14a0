//! Confirmation by a person before a change that is hard to undo.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// A question, and the messages for a refusal or a missing terminal.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) text: String,
    /// The change to be made, for the error without a terminal.
    pub(crate) unasked: String,
    /// The hint that names the option to skip the question.
    pub(crate) hint: &'static str,
    /// The message after a refusal.
    pub(crate) refused: &'static str,
}

/// Asks on a terminal; fails where there is none.
pub(crate) fn confirm(question: &Question) -> Result<(), Stop> {
    let input = io::stdin();
    if !input.is_terminal() {
        let message = format!(
            "{}, and there is no terminal to confirm it on",
            question.unasked
        );
        return Err(Problem::new(Exit::Usage, message)
            .hint(question.hint)
            .into());
    }
    prompt(question, &mut input.lock(), &mut anstream::stderr())
}

fn prompt(
    question: &Question,
    input: &mut impl BufRead,
    screen: &mut impl Write,
) -> Result<(), Stop> {
    write!(screen, "{} [y/N] ", question.text)?;
    screen.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    let message = format!("not confirmed: {}", question.refused);
    Err(Problem::new(Exit::Failed, message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let question = Question {
            text: "replay 3 events?".to_owned(),
            unasked: "3 events would be replayed".to_owned(),
            hint: "--yes",
            refused: "nothing was replayed",
        };
        for (answer, is_yes) in [
            ("y\n", true),
            ("yes\n", true),
            ("n\n", false),
            ("\n", false),
            ("", false),
            ("yellow\n", false),
        ] {
            let mut screen = Vec::new();
            let confirmed = prompt(&question, &mut answer.as_bytes(), &mut screen);
            assert_eq!(confirmed.is_ok(), is_yes, "{answer:?}");
            assert_eq!(screen, b"replay 3 events? [y/N] ");
        }
    }
}
