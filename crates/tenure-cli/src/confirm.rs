//! Asks a person before what cannot simply be taken back.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// What is asked, and what is said instead where nobody can be asked, or someone says no.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) text: String,
    /// What would be done.
    pub(crate) unasked: String,
    /// How to do it without being asked.
    pub(crate) hint: &'static str,
    /// What was not done.
    pub(crate) refused: &'static str,
}

/// Asks on a terminal; elsewhere there is nobody to ask.
pub(crate) fn confirm(question: &Question) -> Result<(), Stop> {
    let input = io::stdin();
    if !input.is_terminal() {
        let message = format!("{}, and nobody is there to ask", question.unasked);
        return Err(Problem::new(Exit::Usage, message)
            .hint(question.hint)
            .into());
    }
    ask(question, &mut input.lock(), &mut anstream::stderr())
}

fn ask(question: &Question, input: &mut impl BufRead, screen: &mut impl Write) -> Result<(), Stop> {
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
            let said = ask(&question, &mut answer.as_bytes(), &mut screen);
            assert_eq!(said.is_ok(), is_yes, "{answer:?}");
            assert_eq!(screen, b"replay 3 events? [y/N] ");
        }
    }
}
