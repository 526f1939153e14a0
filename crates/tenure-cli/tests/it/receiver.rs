//! A local receiver of webhooks for tests: it records calls and answers with given statuses.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver as Channel, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::{Clock as _, SystemClock};
use tenure::webhook::verify::{Verified, Verifier, VerifyError};

use crate::program::Place;

/// A received call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Call {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let header = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value.as_str())
    }

    /// Verifies the signature of the call.
    pub(crate) fn verified(&self, key: &str) -> Result<Verified, VerifyError> {
        let headers = self.headers.iter().map(|(name, value)| (name, value));
        let verifier = Verifier::new([key]).unwrap();
        verifier.verify(headers, &self.body, SystemClock.now())
    }
}

/// The receiver; its threads end with the process.
pub(crate) struct Receiver {
    address: SocketAddr,
    calls: Channel<Call>,
}

impl Receiver {
    /// Starts a receiver that answers its first calls with these statuses, in order, and all others
    /// with 200.
    pub(crate) fn start(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (send, calls) = mpsc::channel();
        let answers = Arc::new(Mutex::new(statuses.iter().copied().collect()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (send, answers) = (send.clone(), Arc::clone(&answers));
                // An error means that the caller has disconnected.
                std::thread::spawn(move || drop(serve(&stream, &send, &answers)));
            }
        });
        Self { address, calls }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// Allows the program of this place to call the receiver.
    pub(crate) fn allow(&self, place: &Place) {
        place.write("tenure.toml", &allowing(self.address.port()));
    }

    /// Waits for the next call.
    #[track_caller]
    pub(crate) fn next(&self) -> Call {
        let call = self.calls.recv_timeout(Duration::from_secs(30));
        call.expect("a call comes within half a minute")
    }

    /// Asserts that no further call has arrived.
    #[track_caller]
    pub(crate) fn is_quiet(&self) {
        let call = self.calls.try_recv();
        assert!(call.is_err(), "{call:?}");
    }
}

/// A configuration that allows calls to this machine at this port.
pub(crate) fn allowing(port: u16) -> String {
    format!("[webhook]\nallow_http = true\nallow = [\"127.0.0.0/8\"]\nports = [{port}]\n")
}

/// Reads a call; `None` when the connection is closed.
pub(crate) fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Call>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut call = Call {
        path,
        headers,
        body: Vec::new(),
    };
    let length = call.header("content-length").unwrap_or("0");
    call.body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut call.body)?;
    Ok(Some(call))
}

/// Answers calls until the connection is closed.
fn serve(
    stream: &TcpStream,
    calls: &Sender<Call>,
    answers: &Mutex<VecDeque<u16>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(call) = read(&mut reader)? {
        let status = answers.lock().unwrap().pop_front().unwrap_or(200);
        drop(calls.send(call));
        let mut out = stream;
        write!(out, "HTTP/1.1 {status} X\r\ncontent-length: 5\r\n\r\nnoted")?;
        out.flush()?;
    }
    Ok(())
}
