//! Keeper: runs heartbeat, watchdog, registry and chunk renewer on a thread and a runtime of their
//! own, so that a handler that blocks its thread cannot stop renewals or deadlines.

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::oneshot;

use crate::config::Keeper;
use crate::tasks::Tasks;

/// Runs the tasks on the current runtime or, as configured, on the keeper's thread; returns the
/// notice of the end of the thread.
pub(crate) fn start(
    place: Keeper,
    tasks: &Tasks,
    keeper_tasks: Vec<BoxFuture<'static, ()>>,
) -> Option<oneshot::Receiver<()>> {
    match place {
        Keeper::SameRuntime => {
            for task in keeper_tasks {
                tasks.run(task);
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
                Ok(_) => Some(finished),
                Err(error) => {
                    tasks.fail(format!("could not start the keeper's thread: {error}"));
                    None
                }
            }
        }
    }
}

fn run(keeper_tasks: Vec<BoxFuture<'static, ()>>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(join_all(keeper_tasks));
    Ok(())
}
