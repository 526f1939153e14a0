//! Progress on a terminal is a bar that moves and disappears at the end; elsewhere it is plain
//! lines.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tenure::job::{ChunkAnswer, HeldJob};
use tenure::{Outcome, Worker};
use tokio::sync::Semaphore;

use crate::program::{Place, everywhere, soon};

const CHUNKS: u64 = 4;

/// The program with its error stream on a terminal; dropping the value kills it.
struct OnTerminal {
    child: Child,
    /// Everything that the terminal received.
    screen: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    fn start(place: &Place, args: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let theirs = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&theirs, size).unwrap();
        let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        let child = command
            .args(args)
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(theirs)
            .spawn()
            .unwrap();
        // Dropping the command closes its copy of the terminal, which would otherwise stay open.
        drop(command);
        let screen = Arc::new(Mutex::new(String::new()));
        let writes = Arc::clone(&screen);
        let reader = std::thread::spawn(move || {
            let mut terminal = File::from(ours);
            let mut bytes = [0; 4096];
            // An error means that the other side is closed.
            while let Ok(count @ 1..) = terminal.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                writes.lock().unwrap().push_str(&text);
            }
        });
        Self {
            child,
            screen,
            reader: Some(reader),
        }
    }

    /// Waits until the terminal has received this text.
    async fn shows(&self, part: &str) {
        let received = async || {
            // The program polls the job only every half second, so the text may take a while.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            self.screen.lock().unwrap().contains(part).then_some(())
        };
        let screen = Arc::clone(&self.screen);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(25), soon(received)).await;
        assert!(
            waited.is_ok(),
            "no {part:?} in {:?}",
            screen.lock().unwrap()
        );
    }

    /// Waits until the program exits, and returns its output.
    fn wait(mut self) -> String {
        let mut printed = String::new();
        let mut out = self.child.stdout.take().unwrap();
        out.read_to_string(&mut printed).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.reader.take().unwrap().join().unwrap();
        printed
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Killing a process that has exited fails, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A worker on jobs with four chunks of ten rows each. Each permit lets one chunk finish.
async fn worker(place: &Place) -> (Worker, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let permits = Arc::clone(&gate);
    let work = move |job: HeldJob| {
        let gate = Arc::clone(&permits);
        async move {
            job.total(CHUNKS).await?;
            for number in 1..=CHUNKS {
                gate.acquire().await?.forget();
                let chunk = job.chunk(&number.to_string()).claim().await?;
                if let ChunkAnswer::Claimed(chunk) = chunk {
                    chunk.complete(10).await?;
                }
            }
            Ok(Outcome::Done)
        }
    };
    let jobs = place.tenure().await.jobs();
    let worker = jobs.on("import", work).start().await;
    (worker.unwrap(), gate)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bar_follows_a_job_on_a_terminal_and_is_gone_at_its_end() {
    for place in everywhere().await {
        let id = place.job("import");
        let follower = OnTerminal::start(&place, &["jobs", "show", &id, "--follow"]);
        let empty = "[                              ]";
        follower
            .shows(&format!("{empty} available: 0 chunks"))
            .await;
        let (worker, gate) = worker(&place).await;
        follower
            .shows(&format!("{empty} running: 0/4 chunks"))
            .await;
        gate.add_permits(1);
        // One of four chunks fills a quarter of the thirty columns.
        follower
            .shows("[=======>                      ] running: 1/4 chunks")
            .await;
        follower.shows(", 10 rows, ").await;
        gate.add_permits(2);
        follower
            .shows("[======================>       ] running: 3/4 chunks")
            .await;
        gate.add_permits(1);
        let screen = Arc::clone(&follower.screen);
        let printed = follower.wait();
        assert!(printed.contains("state        completed"), "{printed}");
        assert!(printed.contains("4/4 chunks, 40 rows"), "{printed}");
        assert!(
            !printed.contains('['),
            "a bar on standard output: {printed}"
        );
        let screen = screen.lock().unwrap().clone();
        assert!(
            !screen.contains("=] available"),
            "the bar of an available job is not empty: {screen:?}"
        );
        assert!(
            screen.ends_with("\r\u{1b}[2K"),
            "the bar was not erased: {screen:?}"
        );
        worker.stop().await;
    }
}

/// Without a terminal, the program prints one line per change, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_every_change_is_a_line() {
    for place in everywhere().await {
        let id = place.job("import");
        let mut follower = place.start(&["jobs", "show", &id, "--follow"]);
        assert_eq!(follower.out_line(), "available: 0 chunks\n");
        let (worker, gate) = worker(&place).await;
        assert!(follower.out_line().starts_with("running: 0"));
        gate.add_permits(1);
        let mut line = follower.out_line();
        while line.starts_with("running: 0") {
            line = follower.out_line();
        }
        assert!(line.starts_with("running: 1/4 chunks, 10 rows"), "{line}");
        gate.add_permits(3);
        let output = follower.wait().succeeded();
        assert!(output.out.contains("4/4 chunks, 40 rows"), "{output:?}");
        assert_eq!(output.err, "", "{output:?}");
        assert!(!output.out.contains('\u{1b}'), "{output:?}");
        worker.stop().await;
    }
}
