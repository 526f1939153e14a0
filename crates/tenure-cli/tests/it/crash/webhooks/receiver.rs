//! A receiver of webhooks that can be told to be slow, to fail, to keep its answer back or to let
//! nobody in; it keeps everything that it was sent.

use std::collections::BTreeSet;
use std::io::{BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::Timestamp;
use tenure::webhook::verify::Verified;
use tokio::net::TcpSocket;

use super::{HEADER, LONGEST, SECRET};
use crate::crash::world::{LOOK, now, within};
use crate::receiver::{Call, read};

/// What a receiver does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Answers with this status at once.
    Status(u16),
    /// Takes its time, then answers that all is well.
    Late(Duration),
    /// Answers that all is well once [`Receiver::let_go`] says so.
    Held,
    /// Hangs up without an answer after this long.
    Cut(Duration),
}

/// What decides it: the endpoint, the call, and how many there were of its message before.
type Manner = dyn Fn(&str, &Verified, usize) -> Answer + Send + Sync;

/// A call that came.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The last part of its path.
    pub(super) endpoint: String,
    pub(super) call: Verified,
    pub(super) body: Vec<u8>,
    /// What was answered; `None` while it is open, and when one of both hung up.
    pub(super) status: Option<u16>,
    /// When the caller hung up before he had an answer.
    pub(super) left_at: Option<Timestamp>,
    /// Whether we hung up.
    pub(super) is_cut: bool,
}

impl Taken {
    pub(super) fn fence(&self) -> i64 {
        self.call.fence.expect("a call has a fence").number()
    }

    pub(super) fn attempt(&self) -> u32 {
        self.call.attempt.expect("a call has an attempt")
    }

    /// Whether it was told that it failed.
    pub(super) fn is_failed(&self) -> bool {
        self.is_cut || self.status.is_some_and(|status| status >= 300)
    }
}

#[derive(Debug, Default)]
struct Book {
    taken: Vec<Taken>,
    let_go: BTreeSet<usize>,
    /// What was not to be believed.
    forged: Vec<String>,
}

/// The receiver; its threads end with the process.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    book: Arc<Mutex<Book>>,
    manner: Arc<Manner>,
    /// While nobody is let in: the door, and those who stand in it.
    door: Mutex<Option<(TcpListener, Vec<TcpStream>)>>,
}

impl Receiver {
    /// Takes calls as `manner` says.
    pub(super) fn start(
        manner: impl Fn(&str, &Verified, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let receiver = Self::bound(TcpListener::bind("127.0.0.1:0").unwrap(), manner);
        receiver.open();
        receiver
    }

    /// Lets nobody in until [`Receiver::open`]: whoever calls waits until his connection stands.
    pub(super) fn closed(
        manner: impl Fn(&str, &Verified, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
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

    fn bound(
        listener: TcpListener,
        manner: impl Fn(&str, &Verified, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self {
            address: listener.local_addr().unwrap(),
            book: Arc::default(),
            manner: Arc::new(manner),
            door: Mutex::new(Some((listener, Vec::new()))),
        }
    }

    /// Lets callers in.
    pub(super) fn open(&self) {
        let (listener, _waiting) = self.door.lock().unwrap().take().expect("it is closed");
        let (book, manner) = (Arc::clone(&self.book), Arc::clone(&self.manner));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (book, manner) = (Arc::clone(&book), Arc::clone(&manner));
                // Who hangs up has ended it.
                std::thread::spawn(move || drop(serve(&stream, &book, &*manner)));
            }
        });
    }

    /// Answers the call of this number, or will when it comes.
    pub(super) fn let_go(&self, nth: usize) {
        self.book.lock().unwrap().let_go.insert(nth);
    }

    /// Everything that came, in order.
    pub(super) fn calls(&self) -> Vec<Taken> {
        let book = self.book.lock().unwrap();
        assert_eq!(book.forged, Vec::<String>::new());
        book.taken.clone()
    }

    /// The call of this number, once it has come.
    pub(super) async fn call(&self, nth: usize) -> Taken {
        within(LONGEST, async || self.calls().into_iter().nth(nth)).await
    }

    /// When the caller of this number hung up without an answer, once he has.
    pub(super) async fn left(&self, nth: usize) -> Timestamp {
        within(LONGEST, async || self.calls().get(nth)?.left_at).await
    }
}

/// Takes calls until one of both hangs up.
fn serve(stream: &TcpStream, book: &Mutex<Book>, manner: &Manner) -> std::io::Result<()> {
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
        // It says what it was told, as careless receivers do.
        let (body, mut out) = (format!("heard {}", HEADER.1), stream);
        let (length, echo) = (body.len(), HEADER.1);
        let head = format!("content-length: {length}\r\nx-echo: {echo}");
        write!(out, "HTTP/1.1 {status} X\r\n{head}\r\n\r\n{body}")?;
        out.flush()?;
    }
    Ok(())
}

/// Writes a call into the book; its number, and what is done with it.
fn take(call: Call, book: &Mutex<Book>, manner: &Manner) -> Option<(usize, Answer)> {
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

/// Waits for something; `false`: the caller hung up before.
fn stays(stream: &TcpStream, is_over: impl Fn() -> bool) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(LOOK))?;
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
