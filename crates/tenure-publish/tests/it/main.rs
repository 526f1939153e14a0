//! The publishers, with real files, real commands and real signals.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

mod exec;
mod lines;
mod webhook;

use std::future::Future;
use std::process::Command;
use std::time::Duration;

use tenure_core::{Event, Fence, ItemId, Publication};

/// The second try of `event`, by the ninth claim, with half a minute to go.
fn publication(event: &Event) -> Publication<'_> {
    Publication {
        id: ItemId::new(7),
        event,
        fence: Fence::new(9),
        attempt: 2,
        time_left: Duration::from_secs(30),
    }
}

/// Waits until `found` says yes; gives up after a time in which it always should have.
async fn until<Fut: Future<Output = bool>>(what: &str, found: impl Fn() -> Fut) {
    for _ in 0..2000 {
        if found().await {
            return;
        }
        // What another process does gives no notice.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to this: {what}");
}

/// This test program again, in a process of its own, to run the one test `name` with `argument`.
/// A test that is only the other half of another one reads its argument by [`argument`], and does
/// nothing without.
fn another_process(name: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, &format!("argument={argument}")]);
    command
}

/// What [`another_process`] was given; the test runner takes it for one more filter.
fn argument() -> Option<String> {
    std::env::args().find_map(|word| Some(word.strip_prefix("argument=")?.to_owned()))
}
