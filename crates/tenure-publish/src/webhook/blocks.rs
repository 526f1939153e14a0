//! Address blocks outside the public network: private, local, shared, documentation, and all forms
//! that embed an IPv4 address in an IPv6 one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), length)
}

const fn v6(first: [u16; 4], length: u8) -> Ipv6Net {
    let [a, b, c, d] = first;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), length)
}

const CLOSED_V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 8),       // this network
    v4(10, 0, 0, 8),      // private
    v4(100, 64, 0, 10),   // shared by customers of a provider
    v4(127, 0, 0, 8),     // this machine
    v4(169, 254, 0, 16),  // link local; metadata services
    v4(172, 16, 0, 12),   // private
    v4(192, 0, 0, 24),    // protocols
    v4(192, 0, 2, 24),    // documentation
    v4(192, 88, 99, 24),  // 6to4 relays
    v4(192, 168, 0, 16),  // private
    v4(198, 18, 0, 15),   // benchmarks
    v4(198, 51, 100, 24), // documentation
    v4(203, 0, 113, 24),  // documentation
    v4(224, 0, 0, 4),     // multicast
    v4(240, 0, 0, 4),     // reserved, broadcast
];

/// Block allocated to the public network. Outside of it are, among others: unspecified, loopback,
/// IPv4-compatible, NAT64 (`64:ff9b::/96`, `64:ff9b:1::/48`), discard (`100::/64`), segment routing
/// (`5f00::/16`), unique local, link local, site local, multicast.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Blocks within [`GLOBAL_V6`] that are not public.
const CLOSED_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0, 0], 23),      // protocols, among them Teredo
    v6([0x2001, 0x0db8, 0, 0], 32), // documentation
    v6([0x2002, 0, 0, 0], 16),      // 6to4
    v6([0x3fff, 0, 0, 0], 20),      // documentation
];

/// Returns true for an address of the public network. An IPv4-mapped IPv6 address counts as IPv4.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !CLOSED_V4.iter().any(|block| block.contains(&address)),
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address) && !CLOSED_V6.iter().any(|block| block.contains(&address))
        }
    }
}
