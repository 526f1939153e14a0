//! Signals that ask a process to end.

use std::io;

#[cfg(unix)]
mod kind {
    //! SIGINT and SIGTERM.

    use std::io;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    pub(super) type Interrupt = Signal;
    pub(super) type Shutdown = Signal;

    pub(super) fn receive() -> io::Result<(Interrupt, Shutdown)> {
        Ok((
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ))
    }
}

#[cfg(windows)]
mod kind {
    //! Ctrl-C and the shutdown of the system.

    use std::io;

    pub(super) use tokio::signal::windows::{CtrlC as Interrupt, CtrlShutdown as Shutdown};
    use tokio::signal::windows::{ctrl_c, ctrl_shutdown};

    pub(super) fn receive() -> io::Result<(Interrupt, Shutdown)> {
        Ok((ctrl_c()?, ctrl_shutdown()?))
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
pub struct Signals(kind::Interrupt, kind::Shutdown);

impl Signals {
    /// Starts to receive signals.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new() -> io::Result<Self> {
        let (interrupt, shutdown) = kind::receive()?;
        Ok(Self(interrupt, shutdown))
    }

    /// Waits for the next signal: SIGINT or SIGTERM; on Windows, Ctrl-C or a shutdown.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}
