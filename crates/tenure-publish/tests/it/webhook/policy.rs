//! The address policy compared with an independent table, in every spelling of an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use tenure_core::testing::Extent;
use tenure_core::webhook::CallErrorKind;
use tenure_publish::webhook::AddressPolicy;

/// Forbidden blocks, first and last address of each, in order. Written independently of the blocks
/// in the code, and in another form.
const CLOSED_V4: &[(&str, &str)] = &[
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.255"),
];

const CLOSED_V6: &[(&str, &str)] = &[
    ("::", "::ffff"),
    ("::1", "::1"),
    ("::", "::ffff:ffff"),
    ("64:ff9b::", "64:ff9b::ffff:ffff"),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    ("100::", "100::ffff:ffff:ffff:ffff"),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("4000::", "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
];

fn number(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().into()
}

/// Returns true if the table allows an address.
fn is_open(address: u32) -> bool {
    let mut blocks = CLOSED_V4.iter();
    !blocks.any(|(first, last)| (number(first)..=number(last)).contains(&address))
}

/// First, middle and last address of each block, and the addresses before and after the block.
fn corners() -> Vec<u32> {
    let corners = CLOSED_V4.iter().flat_map(|(first, last)| {
        let (first, last) = (number(first), number(last));
        let middle = first + (last - first) / 2;
        [
            first.wrapping_sub(1),
            first,
            middle,
            last,
            last.wrapping_add(1),
        ]
    });
    corners.collect()
}

/// Returns two lists of hosts for the URL of an endpoint: all spellings of an IPv4 address, and
/// IPv6 addresses that reach it through a translator or tunnel.
fn spellings(address: u32) -> (Vec<String>, Vec<String>) {
    let [a, b, c, d] = address.to_be_bytes();
    let plain = format!("{a}.{b}.{c}.{d}");
    let wide = |c: char| match c.to_digit(10) {
        Some(digit) => char::from_u32(0xff10 + digit).unwrap(),
        None => c,
    };
    let percent: Vec<String> = plain.bytes().map(|c| format!("%{c:02x}")).collect();
    let (high, low) = (address >> 16, address & 0xffff);
    let same = vec![
        plain.clone(),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0x{a:x}.0X{b:X}.0x{c:x}.0x{d:x}"),
        address.to_string(),
        format!("0x{address:x}"),
        format!("0{address:o}"),
        format!("{a}.{}", address & 0x00ff_ffff),
        format!("{a}.{b}.{low}"),
        percent.concat(),
        plain.chars().map(wide).collect(),
        format!("{plain}."),
        format!("[::ffff:{plain}]"),
        format!("[0:0:0:0:0:ffff:{high:x}:{low:x}]"),
    ];
    let through = vec![
        format!("[::{plain}]"),
        format!("[64:ff9b::{plain}]"),
        format!("[64:ff9b:1::{plain}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!(
            "[2001:0:0808:0808:0:ffff:{:x}:{:x}]",
            !high & 0xffff,
            !low & 0xffff
        ),
    ];
    (same, through)
}

fn is_allowed(policy: &AddressPolicy, host: &str) -> bool {
    match policy.check_url(&format!("https://{host}/hooks")) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind, CallErrorKind::Forbidden, "{host}");
            false
        }
    }
}

#[test]
fn closed_addresses_are_refused_and_open_ones_allowed_in_every_spelling() {
    let policy = AddressPolicy::default();
    for address in corners() {
        let (same, through) = spellings(address);
        assert!(same.len() + through.len() >= 12);
        for host in same {
            assert_eq!(is_allowed(&policy, &host), is_open(address), "{host}");
        }
        for host in through {
            assert!(!is_allowed(&policy, &host), "{host}");
        }
    }
}

#[test]
fn closed_blocks_of_ipv6_are_refused_from_first_to_last() {
    let policy = AddressPolicy::default();
    for (first, last) in CLOSED_V6 {
        let first = u128::from(first.parse::<Ipv6Addr>().unwrap());
        let last = u128::from(last.parse::<Ipv6Addr>().unwrap());
        for address in [first, first + (last - first) / 2, last] {
            let address = Ipv6Addr::from(address);
            assert!(!policy.check_addr(address.into()), "{address}");
            assert!(!is_allowed(&policy, &format!("[{address}]")), "{address}");
            let long = address
                .segments()
                .map(|part| format!("{part:04X}"))
                .join(":");
            assert!(!is_allowed(&policy, &format!("[{long}]")), "{long}");
        }
    }
    for open in [
        "2001:200::1",
        "2606:4700::1111",
        "2a00::1",
        "3ffe::1",
        "3fff:1000::1",
    ] {
        assert!(is_allowed(&policy, &format!("[{open}]")), "{open}");
    }
    // Zones name a link of this machine.
    for zone in [
        "[fe80::1%eth0]",
        "[fe80::1%25eth0]",
        "[2606:4700::1111%25eth0]",
    ] {
        assert!(!is_allowed(&policy, zone), "{zone}");
    }
}

/// The gate checks every 16,381st address. This step is less than 2^14, so every block of 2^14
/// addresses is hit; it is odd, so every last byte occurs. `scripts/prove` checks all addresses.
#[test]
fn every_ipv4_address_is_judged_as_the_table_says() {
    let step = Extent::chosen().size(16_381, 1);
    let policy = AddressPolicy::default();
    let table: Vec<(u32, u32)> = CLOSED_V4
        .iter()
        .map(|(first, last)| (number(first), number(last)))
        .collect();
    let closed = |address: u32| {
        let block = table.partition_point(|(first, _)| *first <= address);
        block > 0 && address <= table[block - 1].1
    };
    std::thread::scope(|scope| {
        for eighth in 0..8_u32 {
            let (policy, closed) = (&policy, &closed);
            scope.spawn(move || {
                let first = eighth << 29;
                let all = (first..=first + ((1 << 29) - 1)).step_by(step);
                for address in all.chain(if eighth == 0 { corners() } else { vec![] }) {
                    let plain = IpAddr::V4(address.into());
                    assert_eq!(policy.check_addr(plain), !closed(address), "{plain}");
                }
            });
        }
    });
}

#[test]
fn only_https_urls_without_credentials_at_usual_ports_are_allowed() {
    let policy = AddressPolicy::default();
    let refused = [
        "",
        "example.com",
        "ftp://example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://example.com/",
        "https://",
        "https:///hooks",
        "https://user@example.com/",
        "https://user:pw@example.com/",
        "https://:pw@example.com/",
        "https://example.com:22/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://[::1",
        "https:example.com",
        "https:/example.com",
        "https:\\\\example.com/",
        "https://example.com\\@10.0.0.1/",
        "https://exam\nple.com/",
        " https://example.com/",
    ];
    for url in refused {
        let error = policy.check_url(url).unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Forbidden, "{url}");
        for secret in ["user", "pw", "passwd"] {
            assert!(!error.text.contains(secret), "{}", error.text);
        }
    }
    assert!(
        policy
            .check_url(&format!("https://example.com/{}", "a".repeat(3000)))
            .is_err()
    );
    let target = policy
        .check_url("https://EXAMPLE.com.:8443/a?b=secret#c")
        .unwrap();
    assert_eq!(target.host(), "example.com");
    assert_eq!(target.port(), 8443);
    assert!(target.is_encrypted());
    assert!(!format!("{target:?}").contains("secret"));
}

#[test]
fn allowed_networks_can_be_widened_and_denied_ones_stay_denied() {
    let policy = AddressPolicy {
        allow_http: true,
        allow: vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()],
        ports: vec![1..=65535],
        deny: vec![
            "10.1.2.0/24".parse().unwrap(),
            "8.8.8.8/32".parse().unwrap(),
            "::ffff:10.1.4.0/120".parse().unwrap(),
        ],
        deny_own: vec!["10.1.3.3:5432".parse().unwrap()],
        ..AddressPolicy::default()
    };
    for open in [
        "10.1.0.1",
        "[fd00::1]",
        "[::ffff:10.1.0.1]",
        "10.1.3.3",
        "8.8.4.4",
    ] {
        assert!(
            policy.check_url(&format!("http://{open}/")).is_ok(),
            "{open}"
        );
    }
    let closed = [
        "10.2.0.1",
        "10.1.2.3",
        "[::ffff:10.1.2.3]",
        "10.1.4.9",
        "[::ffff:10.1.4.9]",
        "8.8.8.8",
        "10.1.3.3:5432",
        "[::ffff:10.1.3.3]:5432",
        "127.0.0.1",
    ];
    for closed in closed {
        assert!(
            policy.check_url(&format!("http://{closed}/")).is_err(),
            "{closed}"
        );
    }
}

#[test]
fn denying_all_of_ipv6_denies_no_ipv4() {
    let policy = AddressPolicy {
        deny: vec!["::/0".parse().unwrap()],
        ..AddressPolicy::default()
    };
    assert!(policy.check_url("https://8.8.8.8/").is_ok());
    assert!(policy.check_url("https://[2600::1]/").is_err());
}

/// A socket bound to `0.0.0.0` is reachable at every address of this machine; a socket known as
/// `127.0.0.1` may be, too.
#[test]
fn an_own_socket_is_denied_at_every_address_of_this_machine() {
    let outward = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing: the system only chooses the source address.
    let ours = outward
        .connect("198.51.100.1:9")
        .and_then(|()| outward.local_addr());
    let mut here: Vec<String> = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "[::1]", "[::]"]
        .map(str::to_owned)
        .to_vec();
    here.push("[::ffff:127.0.0.1]".to_owned());
    here.extend(ours.ok().map(|address| address.ip().to_string()));
    for own in ["0.0.0.0:7070", "[::]:7070", "127.0.0.1:7070", "[::1]:7070"] {
        let policy = AddressPolicy {
            allow_http: true,
            allow: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            ports: vec![1..=65535],
            deny_own: vec![own.parse().unwrap()],
            ..AddressPolicy::default()
        };
        for host in &here {
            let own_socket = policy.check_url(&format!("http://{host}:7070/"));
            assert!(own_socket.is_err(), "{host} when ours is {own}");
            let other = policy.check_url(&format!("http://{host}:7071/"));
            assert!(other.is_ok(), "{host} when ours is {own}");
        }
        // An address of another machine.
        assert!(policy.check_url("http://192.0.2.7:7070/").is_ok(), "{own}");
    }
}
