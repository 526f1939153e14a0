//! A receiver of webhooks that can be slow, fail, withhold its answer or accept no connection. It
//! records every call.

use std::collections::BTreeSet;
use std::io::{BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::Timestamp;
use tenure::webhook::verify::Verified;
use tenure_nemesis::{POLL, now, within};
use tokio::net::TcpSocket;

use super::{HEADER, LONGEST, SECRET};
use crate::receiver::{Call, read};

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::crash) enum Answer {
    /// Answers with this status at once.
    Status(u16),
    /// Answers with 200 after this time.
    Late(Duration),
    /// Answers with 200 after [`Receiver::let_go`].
    Held,
    /// Does not answer; closes the connection after this time.
    Cut(Duration),
}

/// Chooses the answer by endpoint, call, and the number of earlier calls of the same delivery.
pub(super) type Manner = fn(&str, &Verified, usize) -> Answer;

/// A received call.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The last part of the path of the call.
    pub(super) endpoint: String,
    pub(super) call: Verified,
    pub(super) body: Vec<u8>,
    /// The status of the answer; `None` while the call is open, or if either side closed the
    /// connection.
    pub(super) status: Option<u16>,
    /// The time at which the caller closed the connection without an answer.
    pub(super) left_at: Option<Timestamp>,
    /// True if the receiver closed the connection.
    pub(super) is_cut: bool,
}

impl Taken {
    pub(super) fn fence(&self) -> i64 {
        self.call.fence.expect("a call has a fence").number()
    }

    pub(super) fn attempt(&self) -> u32 {
        self.call.attempt.expect("a call has an attempt")
    }

    /// Returns true if the answer was a failure, or the receiver closed the connection.
    pub(super) fn is_failed(&self) -> bool {
        self.is_cut || self.status.is_some_and(|status| status >= 300)
    }
}

#[derive(Debug, Default)]
struct CallLog {
    taken: Vec<Taken>,
    let_go: BTreeSet<usize>,
    /// Calls that could not be verified.
    forged: Vec<String>,
}

/// The receiver; its threads end with the process.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    book: Arc<Mutex<CallLog>>,
    manner: Manner,
    /// The listener, and the connections that fill its queue, while the receiver accepts none.
    door: Mutex<Option<(TcpListener, Vec<TcpStream>)>>,
}

impl Receiver {
    /// Starts a receiver that answers calls by `manner`.
    pub(super) fn start(manner: Manner) -> Self {
        let receiver = Self::bound(TcpListener::bind("127.0.0.1:0").unwrap(), manner);
        receiver.open();
        receiver
    }

    /// Creates a receiver that accepts no connection until [`Receiver::open`]; callers wait until
    /// then.
    pub(super) fn closed(manner: Manner) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap().into_std().unwrap();
        listener.set_nonblocking(false).unwrap();
        let receiver = Self::bound(listener, manner);
        let full = Duration::from_millis(500);
        while let Ok(stream) = TcpStream::connect_timeout(&receiver.address, full) {
            let mut door = receiver.door.lock().unwrap();
            door.as_mut().expect("it is closed").1.push(stream);
        }
        receiver
    }

    fn bound(listener: TcpListener, manner: Manner) -> Self {
        Self {
            address: listener.local_addr().unwrap(),
            book: Arc::default(),
            manner,
            door: Mutex::new(Some((listener, Vec::new()))),
        }
    }

    /// Accepts connections.
    pub(super) fn open(&self) {
        let (listener, _waiting) = self.door.lock().unwrap().take().expect("it is closed");
        let (book, manner) = (Arc::clone(&self.book), self.manner);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = Arc::clone(&book);
                // An error means that the caller has disconnected.
                std::thread::spawn(move || drop(serve(&stream, &book, manner)));
            }
        });
    }

    /// Answers the call of this number, counted from zero, now or when it arrives.
    pub(super) fn let_go(&self, nth: usize) {
        self.book.lock().unwrap().let_go.insert(nth);
    }

    /// All calls in order of arrival.
    pub(super) fn calls(&self) -> Vec<Taken> {
        let book = self.book.lock().unwrap();
        assert_eq!(book.forged, Vec::<String>::new());
        book.taken.clone()
    }

    /// Waits for the call of this number.
    pub(super) async fn call(&self, nth: usize) -> Taken {
        within(LONGEST, async || self.calls().into_iter().nth(nth)).await
    }

    /// Waits until the caller gives up the call of this number without an answer; returns the time.
    pub(super) async fn left(&self, nth: usize) -> Timestamp {
        within(LONGEST, async || self.calls().get(nth)?.left_at).await
    }
}

/// Answers calls until either side closes the connection.
fn serve(stream: &TcpStream, book: &Mutex<CallLog>, manner: Manner) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(call) = read(&mut reader)? {
        let Some((nth, answer)) = take(call, book, manner) else {
            return Ok(());
        };
        let began = now();
        let status = match answer {
            Answer::Status(status) => status,
            Answer::Cut(length) if stays(stream, || now().since(began) >= length)? => {
                book.lock().unwrap().taken[nth].is_cut = true;
                return Ok(());
            }
            Answer::Late(length) if stays(stream, || now().since(began) >= length)? => 200,
            Answer::Held if stays(stream, || book.lock().unwrap().let_go.contains(&nth))? => 200,
            Answer::Late(_) | Answer::Held | Answer::Cut(_) => {
                book.lock().unwrap().taken[nth].left_at = Some(now());
                return Ok(());
            }
        };
        book.lock().unwrap().taken[nth].status = Some(status);
        // Echoes the value of a header, as careless receivers do.
        let (body, mut out) = (format!("heard {}", HEADER.1), stream);
        let (length, echo) = (body.len(), HEADER.1);
        let head = format!("content-length: {length}\r\nx-echo: {echo}");
        write!(out, "HTTP/1.1 {status} X\r\n{head}\r\n\r\n{body}")?;
        out.flush()?;
    }
    Ok(())
}

/// Records a call; returns its number and its answer.
fn take(call: Call, book: &Mutex<CallLog>, manner: Manner) -> Option<(usize, Answer)> {
    let verified = call.verified(SECRET);
    let mut book = book.lock().unwrap();
    let verified = match verified {
        Ok(verified) => verified,
        Err(error) => {
            book.forged.push(format!("{error}: {call:?}"));
            return None;
        }
    };
    let endpoint = call.path.rsplit('/').next().unwrap_or_default().to_owned();
    let before = book.taken.iter();
    let before = before.filter(|taken| taken.endpoint == endpoint && taken.call.id == verified.id);
    let answer = manner(&endpoint, &verified, before.count());
    book.taken.push(Taken {
        endpoint,
        call: verified,
        body: call.body,
        status: None,
        left_at: None,
        is_cut: false,
    });
    Some((book.taken.len() - 1, answer))
}

/// Waits for a condition; `false` if the caller disconnects first.
fn stays(stream: &TcpStream, is_over: impl Fn() -> bool) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(POLL))?;
    while !is_over() {
        match stream.peek(&mut [0]) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return Ok(false),
        }
    }
    stream.set_read_timeout(None)?;
    Ok(true)
}
