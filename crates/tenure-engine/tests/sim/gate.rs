//! Gate: wraps every task of a simulated process. Open: tasks run. Shut (SIGSTOP): none is polled
//! while time advances. Broken (SIGKILL): all are dropped at once and run no more code.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use tenure_engine::Wrap;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    Shut,
    Broken,
}

#[derive(Debug)]
struct GateState {
    mode: Mode,
    /// Tasks to wake when the gate opens, in order.
    parked: Vec<Waker>,
    /// Time of the last poll.
    moment: Instant,
    /// Number of polls at that time.
    polls: u32,
}

/// Maximum polls of a process at one moment of simulated time; a process with more is spinning.
const POLLS_MAX: u32 = 20_000;

/// The gate of one process.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    /// Notifies the supervisor that the process was killed.
    pub(crate) killed: Notify,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(GateState {
                mode: Mode::Open,
                parked: Vec::new(),
                moment: Instant::now(),
                polls: 0,
            }),
            killed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.state().mode
    }

    /// Pauses the process; returns `false` if it is not running.
    pub(crate) fn shut(&self) -> bool {
        let mut state = self.state();
        let is_open = state.mode == Mode::Open;
        if is_open {
            state.mode = Mode::Shut;
        }
        is_open
    }

    /// Resumes the process; returns `false` if it was not paused.
    pub(crate) fn open(&self) -> bool {
        let mut state = self.state();
        if state.mode != Mode::Shut {
            return false;
        }
        state.mode = Mode::Open;
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        parked.into_iter().for_each(Waker::wake);
        true
    }

    /// Kills the process; returns `false` if it was dead already.
    pub(crate) fn kill(&self) -> bool {
        let mut state = self.state();
        if state.mode == Mode::Broken {
            return false;
        }
        state.mode = Mode::Broken;
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        parked.into_iter().for_each(Waker::wake);
        self.killed.notify_one();
        true
    }

    pub(crate) fn has_spun(&self) -> bool {
        self.state().polls > POLLS_MAX
    }

    /// Counts a poll; kills a process that spins, because simulated time would no longer advance.
    fn count(&self) {
        let mut state = self.state();
        let now = Instant::now();
        if state.moment != now {
            state.moment = now;
            state.polls = 0;
        }
        state.polls += 1;
        let has_spun = state.polls > POLLS_MAX;
        drop(state);
        if has_spun {
            self.kill();
        }
    }

    /// A task behind this gate.
    pub(crate) fn task(self: &Arc<Self>, inner: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        Box::pin(Gated {
            gate: Arc::clone(self),
            inner: Some(inner),
        })
    }

    /// Wraps all tasks of an engine.
    pub(crate) fn wrap(self: &Arc<Self>) -> Wrap {
        let gate = Arc::clone(self);
        Arc::new(move |inner| gate.task(inner))
    }
}

struct Gated {
    gate: Arc<Gate>,
    inner: Option<BoxFuture<'static, ()>>,
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.gate.state();
            if state.mode == Mode::Shut {
                state.parked.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        if self.gate.mode() == Mode::Open {
            self.gate.count();
        }
        let is_open = self.gate.mode() == Mode::Open;
        let is_over = match &mut self.inner {
            Some(inner) if is_open => inner.as_mut().poll(cx).is_ready(),
            _ => true,
        };
        // The task itself may have killed the process.
        if is_over || self.gate.mode() == Mode::Broken {
            self.inner = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
