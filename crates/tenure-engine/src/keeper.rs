//! Keeper: runs heartbeat, watchdog, registry and chunk renewer on a thread and a runtime of their
//! own, so that a handler that blocks its thread cannot stop renewals or deadlines.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::Keeper;
use crate::tasks::Tasks;

#[derive(Debug)]
pub(crate) struct KeeperThread(oneshot::Receiver<()>);

impl KeeperThread {
    /// Waits until the thread has finished, at most `within`.
    pub(crate) async fn finished(self, within: Duration) {
        drop(timeout(within, self.0).await);
    }
}

/// Runs the tasks on the keeper's thread or, as configured, on the current runtime.
pub(crate) fn start(
    place: Keeper,
    tasks: &Tasks,
    keeper_tasks: Vec<(&'static str, BoxFuture<'static, ()>)>,
) -> Option<KeeperThread> {
    match place {
        Keeper::SameRuntime => {
            for (name, task) in keeper_tasks {
                tasks.spawn(name, task);
            }
            None
        }
        Keeper::OwnThread => {
            let (guard, finished) = oneshot::channel::<()>();
            let failure = tasks.failure();
            let thread = std::thread::Builder::new()
                .name("tenure-keeper".to_owned())
                .spawn(move || {
                    if let Err(error) = run(keeper_tasks) {
                        let reason = format!("could not create the keeper's runtime: {error}");
                        failure.send_replace(Some(reason));
                    }
                    // Dropping the sender reports the end of the thread.
                    drop(guard);
                });
            match thread {
                Ok(_) => Some(KeeperThread(finished)),
                Err(error) => {
                    tasks.fail(format!("could not start the keeper's thread: {error}"));
                    None
                }
            }
        }
    }
}

fn run(keeper_tasks: Vec<(&'static str, BoxFuture<'static, ()>)>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(join_all(keeper_tasks.into_iter().map(|(_, task)| task)));
    Ok(())
}
