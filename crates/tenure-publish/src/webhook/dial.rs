//! Ports for resolving and dialling, through which every call leaves the machine. Tests replace
//! them with recorded answers.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Future of [`Resolver::resolve`].
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves host names.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// Returns all addresses of `name`.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;
}

/// Future of [`Dialler::dial`].
pub type Dialling<'a> = Pin<Box<dyn Future<Output = io::Result<Dialled>> + Send + 'a>>;

/// Opens connections.
pub trait Dialler: Send + Sync + fmt::Debug {
    /// Connects to exactly this address, which the policy has checked.
    fn dial(&self, address: SocketAddr) -> Dialling<'_>;
}

/// Byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// An open connection.
pub struct Dialled {
    /// Bytes to and from the peer.
    pub stream: Box<dyn Stream>,
    /// Address of the other end.
    pub peer: SocketAddr,
}

impl fmt::Debug for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialled")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Resolves through the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            let resolved = tokio::net::lookup_host((name, 0)).await?;
            let mut addresses: Vec<IpAddr> = resolved.map(|address| address.ip()).collect();
            addresses.dedup();
            Ok(addresses)
        })
    }
}

/// Connects by TCP, directly: proxy variables of the environment are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialler;

impl Dialler for TcpDialler {
    fn dial(&self, address: SocketAddr) -> Dialling<'_> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // A call is one small write followed by a wait, so Nagle's algorithm would only delay
            // it.
            stream.set_nodelay(true)?;
            let peer = stream.peer_addr()?;
            let stream = Box::new(stream);
            Ok(Dialled { stream, peer })
        })
    }
}
