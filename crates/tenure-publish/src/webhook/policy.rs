//! Address policy: decides which addresses may be called.
//!
//! Receivers choose the URLs of endpoints, and Tenure runs inside the operator's network: without
//! this policy a receiver could make it call the database, the cloud's metadata service or another
//! machine there. The caller resolves a name once, checks each of its addresses, and connects to a
//! checked one; a name with one forbidden address is not called at all.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;

use hyper::Uri;
use hyper::header::HeaderValue;
use ipnet::IpNet;
use tenure_core::webhook::{CallError, CallErrorKind};
use url::{Host, Url};

use super::blocks::is_public;
use super::call_error;

const URL_BYTES_MAX: usize = 2048;
/// Prefix length of IPv4-mapped IPv6 addresses.
const MAPPED_BITS: u8 = 96;

/// Addresses that may be called. Default: those of the public network, by https, at the usual
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
    /// Allows `http` besides `https`. Default: false.
    pub allow_http: bool,
    /// Networks that may be called although they are not public. Default: none.
    pub allow: Vec<IpNet>,
    /// Host names that may be called at any address, written as in the URL of an endpoint.
    /// Default: none.
    pub allow_hosts: Vec<String>,
    /// Ports that may be called. Default: 80, 443 and 8443.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Networks that are never called, even if a field above allows them.
    pub deny: Vec<IpNet>,
    /// Listening addresses of Tenure's own services, such as the database and the HTTP server. They
    /// are never called, even if a field above allows them. A service on this machine is denied at
    /// every address of the machine.
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
    /// Parses the URL of an endpoint. If it has a host name, the caller checks the addresses of
    /// that name at each call.
    ///
    /// # Errors
    /// The URL is not valid, or may not be called.
    pub fn check_url(&self, url: &str) -> Result<Target, CallError> {
        if url.len() > URL_BYTES_MAX {
            return Err(forbidden("the address is over 2048 bytes long"));
        }
        // The parser repairs blanks, backslashes and a third slash, but the author of such a URL
        // may have meant another host.
        let is_odd = |c: char| c == '\\' || c.is_control() || c.is_whitespace();
        let front = url.split_once("://").map(|(_, front)| front);
        if url.contains(is_odd) || front.is_none_or(|front| front.starts_with('/')) {
            let text = "the address is malformed; expected one like https://example.com/hooks";
            return Err(forbidden(text));
        }
        // The parser's error may quote the input.
        let url = Url::parse(url).map_err(|_cause| {
            forbidden("the address is not a URL; expected one like https://example.com")
        })?;
        let is_encrypted = match url.scheme() {
            "https" => true,
            "http" if self.allow_http => false,
            "http" => return Err(forbidden("the address is not encrypted; expected https")),
            _ => return Err(forbidden("the address is neither https nor http")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            let text = "the address contains a name or password; use a header instead";
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

    /// Returns true if an address may be called. Does not check ports and host names.
    pub fn check_addr(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_allowed = || self.allow.iter().any(|net| net.contains(&address));
        !self.is_denied(address) && (is_allowed() || is_public(address))
    }

    /// Checks one address of a target.
    pub(super) fn check_target(
        &self,
        target: &Target,
        address: IpAddr,
    ) -> Result<SocketAddr, CallError> {
        let address = address.to_canonical();
        let socket = SocketAddr::new(address, target.port);
        let is_denied = self.is_own_socket(socket) || self.is_denied(address);
        let is_named = || self.allow_hosts.iter().any(|host| target.is_named(host));
        if !is_denied && (is_named() || self.check_addr(address)) {
            return Ok(socket);
        }
        // The text must not name the address, which stays hidden from the author of the endpoint.
        Err(forbidden("its network address may not be called"))
    }

    /// Returns true for an address in a denied network. This includes networks written as
    /// IPv4-mapped IPv6, but not wider ones, which are meant for IPv6.
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

    /// Returns true for a socket of Tenure's own services. A socket bound to `0.0.0.0` is reachable
    /// at every address of this machine; a socket known as `127.0.0.1` may be, too.
    fn is_own_socket(&self, socket: SocketAddr) -> bool {
        let mut sockets = self
            .deny_own
            .iter()
            .filter(|own| own.port() == socket.port());
        sockets.any(|own| {
            let own = own.ip().to_canonical();
            own == socket.ip() || (is_local(own) && is_local(socket.ip()))
        })
    }
}

/// Returns true for an address of this machine.
fn is_local(address: IpAddr) -> bool {
    address.is_unspecified()
        || address.is_loopback()
        // The system can bind a socket only to its own addresses.
        || UdpSocket::bind((address, 0)).is_ok()
}

fn forbidden(text: &str) -> CallError {
    call_error(CallErrorKind::Forbidden, text)
}

/// The parsed URL of an endpoint that may be called, as far as the policy can decide without
/// resolving its host name.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    host: Host<String>,
    port: u16,
    is_encrypted: bool,
    authority: HeaderValue,
    path: Uri,
}

impl Target {
    pub(crate) fn new(url: &Url, is_encrypted: bool, port: u16) -> Result<Self, CallError> {
        let host = match url.host() {
            Some(Host::Domain(name)) => {
                let name = name.strip_suffix('.').unwrap_or(name);
                Host::Domain(name.to_ascii_lowercase())
            }
            Some(Host::Ipv4(address)) => Host::Ipv4(address),
            Some(Host::Ipv6(address)) => Host::Ipv6(address),
            None => return Err(forbidden("the address has no host")),
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

    /// Name or address of the host.
    pub fn host(&self) -> String {
        self.host.to_string()
    }

    /// Port of the URL, or the default of its scheme.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns true for https.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Host name, if it has to be resolved.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => Some(name),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    /// Host address, if the URL contains one.
    pub(crate) fn literal(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some((*address).into()),
            Host::Ipv6(address) => Some((*address).into()),
        }
    }

    /// Value of the header `host`.
    pub(crate) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Path and query for the request line.
    pub(crate) fn path(&self) -> &Uri {
        &self.path
    }

    fn is_named(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        self.name()
            .is_some_and(|ours| ours.eq_ignore_ascii_case(name))
    }
}

impl fmt::Debug for Target {
    /// Leaves out the path, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("host", &self.host())
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
