//! Signals that ask a process to end.

use std::io;

#[cfg(unix)]
mod kind {
    //! SIGINT and SIGTERM.

    use std::io;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    #[derive(Debug)]
    pub(super) struct Kind {
        interrupt: Signal,
        terminate: Signal,
    }

    impl Kind {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }

        pub(super) async fn next(&mut self) {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
        }
    }
}

#[cfg(windows)]
mod kind {
    //! Ctrl-C and the shutdown of the system.

    use std::io;

    use tokio::signal::windows::{CtrlC, CtrlShutdown, ctrl_c, ctrl_shutdown};

    #[derive(Debug)]
    pub(super) struct Kind {
        interrupt: CtrlC,
        shutdown: CtrlShutdown,
    }

    impl Kind {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: ctrl_c()?,
                shutdown: ctrl_shutdown()?,
            })
        }

        pub(super) async fn next(&mut self) {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.shutdown.recv() => {}
            }
        }
    }
}

/// Receives the signals that ask the process to end. From its creation on, they no longer end the
/// process by themselves.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let mut signals = tenure::Signals::new()?;
/// signals.next().await; // stop gracefully
/// signals.next().await; // stop at once
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Signals(kind::Kind);

impl Signals {
    /// Starts to receive signals.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new() -> io::Result<Self> {
        kind::Kind::new().map(Self)
    }

    /// Waits for the next signal: SIGINT or SIGTERM; on Windows, Ctrl-C or a shutdown.
    pub async fn next(&mut self) {
        self.0.next().await;
    }
}
