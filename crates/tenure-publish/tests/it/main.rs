//! Tests of the publishers, with real files, real commands and real signals.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

mod exec;
mod exec_lines;
mod lines;
mod webhook;

use std::future::Future;
use std::process::Command;
use std::time::Duration;

use tenure_core::{Event, Fence, ItemId, Publication};

/// Second attempt of `event`, by the ninth claim, with 30 s left.
fn publication(event: &Event) -> Publication<'_> {
    Publication {
        id: ItemId::new(7),
        event,
        fence: Fence::new(9),
        attempt: 2,
        time_left: Duration::from_secs(30),
    }
}

/// Polls until `is_reached` returns true; panics after ten seconds or more.
async fn until<Fut: Future<Output = bool>>(what: &str, is_reached: impl Fn() -> Fut) {
    for _ in 0..2000 {
        if is_reached().await {
            return;
        }
        // Another process sends no notification.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never reached: {what}");
}

/// Runs this test program in another process, with only the test `name` and `argument`. Such a test
/// is half of another one: it reads [`argument`] and does nothing without it.
fn another_process(name: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, &format!("argument={argument}")]);
    command
}

/// Argument of [`another_process`]; the test runner takes it for one more filter.
fn argument() -> Option<String> {
    std::env::args().find_map(|arg| Some(arg.strip_prefix("argument=")?.to_owned()))
}
