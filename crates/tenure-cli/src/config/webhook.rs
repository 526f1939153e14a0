//! The section `webhook` of the configuration.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use tenure::Term;
use tenure::settings::{duration_text, parse_duration};

use super::file::Value;

#[derive(Clone, Debug)]
pub(crate) struct WebhookConfig {
    /// Settling an event as done creates deliveries for the endpoints subscribed to it.
    pub(crate) fan_out: bool,
    /// This process sends deliveries.
    pub(crate) send: bool,
    /// The file with the keys that encrypt secrets.
    pub(crate) key_file: PathBuf,
    /// The keys themselves, from the environment; they override the file.
    pub(crate) key: Option<Hidden>,
    /// Maximum concurrent calls of the process.
    pub(crate) concurrency: u32,
    /// The term of leases on deliveries.
    pub(crate) term: Term,
    /// Plain http may be called.
    pub(crate) allow_http: bool,
    /// Networks that may be called although they are not public.
    pub(crate) allow: Vec<String>,
    /// Host names that may be called, whatever addresses they resolve to.
    pub(crate) allow_hosts: Vec<String>,
    /// The ports that may be called.
    pub(crate) ports: Vec<u16>,
    /// `None` means `tenure/` and the version.
    pub(crate) user_agent: Option<String>,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hidden(pub(crate) String);

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl AsRef<str> for Hidden {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

impl Default for WebhookConfig {
    /// The values of the embedded file.
    fn default() -> Self {
        Self {
            fan_out: true,
            send: true,
            key_file: PathBuf::from("tenure.key"),
            key: None,
            concurrency: 200,
            term: Term::EXTERNAL,
            allow_http: false,
            allow: Vec::new(),
            allow_hosts: Vec::new(),
            ports: vec![80, 443, 8443],
            user_agent: None,
        }
    }
}

const CONCURRENCY_MAX: u32 = 10_000;

impl WebhookConfig {
    /// The user agent of calls.
    pub(crate) fn agent(&self) -> String {
        let own = || format!("tenure/{}", env!("CARGO_PKG_VERSION"));
        self.user_agent.clone().unwrap_or_else(own)
    }

    /// Sets one value; the error says what was expected.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let text = value.text();
        match key {
            "webhook.fan_out" => self.fan_out = flag(&text)?,
            "webhook.send" => self.send = flag(&text)?,
            "webhook.allow_http" => self.allow_http = flag(&text)?,
            "webhook.key_file" if text.trim().is_empty() => {
                return Err("the name of a file, such as tenure.key".to_owned());
            }
            "webhook.key_file" => self.key_file = PathBuf::from(text),
            "webhook.concurrency" => {
                let number = text.parse().ok();
                let fits = number.filter(|number| (1..=CONCURRENCY_MAX).contains(number));
                self.concurrency = fits.ok_or("a whole number from 1 to 10000, such as 200")?;
            }
            "webhook.term" => {
                let length = parse_duration(&text).ok();
                let term = length.and_then(|length| Term::renewable(length).ok());
                self.term = term.ok_or_else(|| {
                    let lengths = Term::renewable_range();
                    format!("a duration from {lengths}, such as 90s")
                })?;
            }
            "webhook.allow" => {
                let is_wrong = |part: &&String| !is_network(part);
                if value.parts().iter().any(|part| is_wrong(&part)) {
                    return Err("networks such as 10.20.0.0/16 or fd00::/8".to_owned());
                }
                self.allow = value.parts().to_vec();
            }
            "webhook.allow_hosts" => {
                if value.parts().iter().any(|part| !is_host(part)) {
                    return Err("names of hosts, such as hooks.internal".to_owned());
                }
                self.allow_hosts = value.parts().to_vec();
            }
            "webhook.ports" => self.ports = ports(value)?,
            _ => self.user_agent = Some(agent(text)?),
        }
        Ok(())
    }

    /// The text of a value; `None` when it is not set.
    pub(super) fn text_of(&self, key: &str) -> Option<String> {
        let listed = |parts: &[String]| Some(parts.join(", ")).filter(|text| !text.is_empty());
        match key {
            "webhook.fan_out" => Some(self.fan_out.to_string()),
            "webhook.send" => Some(self.send.to_string()),
            "webhook.key_file" => Some(self.key_file.display().to_string()),
            "webhook.concurrency" => Some(self.concurrency.to_string()),
            "webhook.term" => Some(duration_text(self.term.length())),
            "webhook.allow_http" => Some(self.allow_http.to_string()),
            "webhook.allow" => listed(&self.allow),
            "webhook.allow_hosts" => listed(&self.allow_hosts),
            "webhook.ports" => {
                let ports: Vec<_> = self.ports.iter().map(ToString::to_string).collect();
                listed(&ports)
            }
            "webhook.user_agent" => self.user_agent.clone(),
            _ => None,
        }
    }
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_cause| "true or false".to_owned())
}

fn ports(value: &Value) -> Result<Vec<u16>, String> {
    let ports: Option<Vec<u16>> = value.parts().iter().map(|part| part.parse().ok()).collect();
    ports
        .filter(|ports| !ports.is_empty() && !ports.contains(&0))
        .ok_or_else(|| "one or more ports from 1 to 65535, such as 443".to_owned())
}

/// Checks that the text can be the value of a header.
fn agent(text: String) -> Result<String, String> {
    let is_good = !text.is_empty()
        && text.len() <= 256
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_good {
        return Ok(text);
    }
    Err("1 to 256 printable characters, such as shop-webhooks/1.0".to_owned())
}

/// Returns true for an IP address, a slash and a prefix length.
fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_host(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    !text.is_empty() && text.len() <= 253 && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_address_and_its_bits() {
        for good in [
            "10.20.0.0/16",
            "127.0.0.0/8",
            "fd00::/8",
            "::1/128",
            "0.0.0.0/0",
        ] {
            assert!(is_network(good), "{good}");
        }
        for bad in [
            "10.20.0.0",
            "10.20.0.0/33",
            "::1/129",
            "10.20/16",
            "x/8",
            "10.0.0.0/+8",
            "",
        ] {
            assert!(!is_network(bad), "{bad}");
        }
    }

    #[test]
    fn keys_are_never_printed() {
        let config = WebhookConfig {
            key: Some(Hidden("canary".to_owned())),
            ..WebhookConfig::default()
        };
        assert!(!format!("{config:?}").contains("canary"));
        assert!(!format!("{:?}", Hidden::from("canary".to_owned())).contains("canary"));
    }
}
