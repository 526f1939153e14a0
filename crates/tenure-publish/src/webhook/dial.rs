//! Resolving and dialling: the two ways by which a call leaves the machine, as ports, so that a
//! test can answer and record instead.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The addresses of a name, on their way.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// All addresses of `name`.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;
}

/// A connection, on its way.
pub type Dialling<'a> = Pin<Box<dyn Future<Output = io::Result<Dialled>> + Send + 'a>>;

/// Opens connections.
pub trait Dialler: Send + Sync + fmt::Debug {
    /// Connects to this address, which has been judged, and to no other one.
    fn dial(&self, address: SocketAddr) -> Dialling<'_>;
}

/// What bytes go through.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection, and who is at its other end.
pub struct Dialled {
    /// The bytes.
    pub stream: Box<dyn Stream>,
    /// The other end.
    pub peer: SocketAddr,
}

impl fmt::Debug for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialled")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Asks the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            addresses.dedup();
            Ok(addresses)
        })
    }
}

/// Connects by TCP, directly: no proxy, whatever the environment says.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialler;

impl Dialler for TcpDialler {
    fn dial(&self, address: SocketAddr) -> Dialling<'_> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // A call is one small write and a wait for the answer.
            stream.set_nodelay(true)?;
            let peer = stream.peer_addr()?;
            let stream = Box::new(stream);
            Ok(Dialled { stream, peer })
        })
    }
}
