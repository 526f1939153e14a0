//! The signals that tell a process to end.

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
    //! Ctrl-C and the end of the session.

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

/// Receives the signals that tell the process to end; from its making on they end it no more by
/// themselves.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let mut signals = tenure::Signals::new()?;
/// signals.next().await; // end in order
/// signals.next().await; // end at once
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Signals(kind::Kind);

impl Signals {
    /// Receives them from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> io::Result<Self> {
        kind::Kind::new().map(Self)
    }

    /// Waits for the next one: SIGINT or SIGTERM.
    pub async fn next(&mut self) {
        self.0.next().await;
    }
}
