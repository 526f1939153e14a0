//! Keeper: where heartbeat, watchdog and registry run. On a thread and a runtime of their own, so
//! that a handler that blocks its executor can stop neither the renewals nor the deadlines.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::Keeper;
use crate::tasks::Tasks;

/// The keeper's thread.
#[derive(Debug)]
pub(crate) struct KeeperThread(oneshot::Receiver<()>);

impl KeeperThread {
    /// Waits until it has ended, but not for ever.
    pub(crate) async fn ended(self, within: Duration) {
        drop(timeout(within, self.0).await);
    }
}

/// Runs these tasks where the configuration says.
pub(crate) fn start(
    place: Keeper,
    tasks: &Tasks,
    kept: Vec<(&'static str, BoxFuture<'static, ()>)>,
) -> Option<KeeperThread> {
    match place {
        Keeper::SameRuntime => {
            for (name, task) in kept {
                tasks.spawn(name, task);
            }
            None
        }
        Keeper::OwnThread => {
            let (gone, ended) = oneshot::channel::<()>();
            let failure = tasks.failure();
            let thread = std::thread::Builder::new()
                .name("tenure-keeper".to_owned())
                .spawn(move || {
                    if let Err(error) = run(kept) {
                        let reason = format!("the keeper's runtime could not be made: {error}");
                        failure.send_replace(Some(reason));
                    }
                    // Its end is told by dropping it.
                    drop(gone);
                });
            match thread {
                Ok(_) => Some(KeeperThread(ended)),
                Err(error) => {
                    tasks.fail(format!("the keeper's thread could not be started: {error}"));
                    None
                }
            }
        }
    }
}

fn run(kept: Vec<(&'static str, BoxFuture<'static, ()>)>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(join_all(kept.into_iter().map(|(_, task)| task)));
    Ok(())
}
