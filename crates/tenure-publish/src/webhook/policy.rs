//! Address policy: which addresses may be called.
//!
//! An endpoint's address comes from outside, and we stand inside: without this rule a receiver
//! could make us call the database, the metadata of the cloud or a neighbour. The name is resolved
//! once, every address it has is judged, and the connection goes to a judged address; a name that
//! has one forbidden address is not called at all.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;

use hyper::Uri;
use hyper::header::HeaderValue;
use ipnet::IpNet;
use tenure_core::webhook::{CallError, CallErrorKind};
use url::{Host, Url};

use super::blocks::is_public;

/// No address is longer.
const URL_BYTES_MAX: usize = 2048;
/// In IPv6 these bits say that it is IPv4, and the others which.
const MAPPED_BITS: u8 = 96;

/// Which addresses may be called. By default those of the public network, by https, at the usual
/// ports.
///
/// ```
/// use tenure_publish::webhook::AddressPolicy;
///
/// let policy = AddressPolicy::default();
/// assert!(policy.check_url("https://example.com/hooks?for=us").is_ok());
/// for url in [
///     "http://example.com/",       // not encrypted
///     "https://me:pw@example.com", // a password in the address
///     "https://0x7f.1/",           // this machine, in disguise
///     "https://[::ffff:10.0.0.1]/",
///     "https://example.com:5432/",
/// ] {
///     assert!(policy.check_url(url).is_err(), "{url}");
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AddressPolicy {
    /// Whether `http` is allowed beside `https`; not unless set.
    pub allow_http: bool,
    /// Networks that may be called although they are not public; none unless set.
    pub allow: Vec<IpNet>,
    /// Names that may be called whatever their addresses are, written as in the address of an
    /// endpoint; none unless set.
    pub allow_hosts: Vec<String>,
    /// Ports that may be called; 80, 443 and 8443 unless set.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Networks that are never called, whatever the fields above say.
    pub deny: Vec<IpNet>,
    /// Our own doors, such as the database and our listener: never called, whatever the fields
    /// above say. One on this machine is closed at every address that the machine has.
    pub deny_own: Vec<SocketAddr>,
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self {
            allow_http: false,
            allow: Vec::new(),
            allow_hosts: Vec::new(),
            ports: vec![80..=80, 443..=443, 8443..=8443],
            deny: Vec::new(),
            deny_own: Vec::new(),
        }
    }
}

impl AddressPolicy {
    /// Reads the address of an endpoint. Of a name it says nothing yet: its addresses are judged
    /// when it is called.
    ///
    /// # Errors
    /// It is no address, or none that may be called.
    pub fn check_url(&self, url: &str) -> Result<Target, CallError> {
        if url.len() > URL_BYTES_MAX {
            return Err(forbidden("the address is over 2048 bytes long"));
        }
        // The parser mends much: blanks, backslashes, a third slash. Who writes such an address
        // means another one than we would call.
        let is_odd = |c: char| c == '\\' || c.is_control() || c.is_whitespace();
        let front = url.split_once("://").map(|(_, front)| front);
        if url.contains(is_odd) || front.is_none_or(|front| front.starts_with('/')) {
            let text = "the address is oddly written; expected one as https://example.com/hooks";
            return Err(forbidden(text));
        }
        // The parser's own words may quote what it read.
        let url = Url::parse(url).map_err(|_cause| {
            forbidden("the address is no URL; expected one as https://example.com")
        })?;
        let is_encrypted = match url.scheme() {
            "https" => true,
            "http" if self.allow_http => false,
            "http" => return Err(forbidden("the address is not encrypted; expected https")),
            _ => return Err(forbidden("the address is neither https nor http")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            let text = "the address has a name or password in it; use a header for it";
            return Err(forbidden(text));
        }
        let port = url.port_or_known_default().unwrap_or(0);
        if !self.ports.iter().any(|range| range.contains(&port)) {
            return Err(forbidden(&format!("port {port} may not be called")));
        }
        let target = Target::new(&url, is_encrypted, port)?;
        if let Some(address) = target.literal() {
            self.check_target(&target, address)?;
        }
        Ok(target)
    }

    /// Whether an address may be called, ports and names aside.
    pub fn check_addr(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_allowed = || self.allow.iter().any(|net| net.contains(&address));
        !self.is_denied(address) && (is_allowed() || is_public(address))
    }

    /// Judges an address that a target has.
    pub(super) fn check_target(
        &self,
        target: &Target,
        address: IpAddr,
    ) -> Result<SocketAddr, CallError> {
        let address = address.to_canonical();
        let socket = SocketAddr::new(address, target.port);
        let is_denied = self.is_own_door(socket) || self.is_denied(address);
        let is_named = || self.allow_hosts.iter().any(|host| target.is_named(host));
        if !is_denied && (is_named() || self.check_addr(address)) {
            return Ok(socket);
        }
        // Not which one: who may not call it may not learn it from us either.
        Err(forbidden(
            "its network address is not one that may be called",
        ))
    }

    /// Also by a network that is written as IPv4 mapped into IPv6; not by a wider one, which is
    /// meant for IPv6.
    fn is_denied(&self, address: IpAddr) -> bool {
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            IpAddr::V6(_) => address,
        };
        let mut nets = self.deny.iter();
        nets.any(|net| {
            let is_mapped = net.prefix_len() >= MAPPED_BITS && net.contains(&mapped);
            is_mapped || net.contains(&address)
        })
    }

    /// A door at `0.0.0.0` is open at every address of this machine, and one that we know as
    /// `127.0.0.1` may be.
    fn is_own_door(&self, socket: SocketAddr) -> bool {
        let mut doors = self
            .deny_own
            .iter()
            .filter(|own| own.port() == socket.port());
        doors.any(|own| {
            let own = own.ip().to_canonical();
            own == socket.ip() || (is_here(own) && is_here(socket.ip()))
        })
    }
}

/// Whether an address is one of this machine.
fn is_here(address: IpAddr) -> bool {
    address.is_unspecified()
        || address.is_loopback()
        // The system lets nobody take an address that it does not have.
        || UdpSocket::bind((address, 0)).is_ok()
}

fn forbidden(text: &str) -> CallError {
    CallError {
        kind: CallErrorKind::Forbidden,
        text: text.to_owned(),
    }
}

/// An address of an endpoint that was read and may be called, as far as can be said without
/// resolving its name.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    host: Host<String>,
    port: u16,
    is_encrypted: bool,
    authority: HeaderValue,
    path: Uri,
}

impl Target {
    fn new(url: &Url, is_encrypted: bool, port: u16) -> Result<Self, CallError> {
        let host = match url.host() {
            Some(Host::Domain(name)) => {
                let name = name.strip_suffix('.').unwrap_or(name);
                Host::Domain(name.to_ascii_lowercase())
            }
            Some(Host::Ipv4(address)) => Host::Ipv4(address),
            Some(Host::Ipv6(address)) => Host::Ipv6(address),
            None => return Err(forbidden("the address names no host")),
        };
        let unwritable = || forbidden("the address cannot be written in a request");
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        let authority = HeaderValue::try_from(authority).map_err(|_cause| unwritable())?;
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let path = Uri::try_from(path).map_err(|_cause| unwritable())?;
        Ok(Self {
            host,
            port,
            is_encrypted,
            authority,
            path,
        })
    }

    /// The name or address of the host.
    pub fn host(&self) -> String {
        self.host.to_string()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is called by https.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The host's name, if it has to be resolved.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => Some(name),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    /// The host's address, if it is one.
    pub(super) fn literal(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some((*address).into()),
            Host::Ipv6(address) => Some((*address).into()),
        }
    }

    /// For the header `host`.
    pub(super) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// For the first line of the request.
    pub(super) fn path(&self) -> &Uri {
        &self.path
    }

    fn is_named(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        self.name()
            .is_some_and(|ours| ours.eq_ignore_ascii_case(name))
    }
}

impl fmt::Debug for Target {
    /// Without the path, which may have a secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("host", &self.host())
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
