//! What the service of one host announces about one managed directory: the entry in the site's catalog.
//!
//! | key | value |
//! |---|---|
//! | `crossdock/SITE/files/LENGTH/WORKFLOW/DIRECTORY/NODE` | `1 LIFE ROLE PHASE PUBLISHED BYTES TORN FETCHED ADDRESS` |
//!
//! `docs/files.md` explains the words. Other hosts write these entries, so [`read_key`] and [`Announcement::read`]
//! accept exactly what [`key`] and [`Announcement::value`] write.

use crossdock_layout::files::Phase;
use crossdock_layout::name;
use crossdock_link::bad_node_name;

/// The maximum length, in bytes, of the value of a host's entry in the catalog for a directory.
const VALUE_MAX: usize = 512;
/// The maximum length, in bytes, of the address in the value of an entry.
const ADDRESS_MAX: usize = 255;

/// What a host does with the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRole {
    /// The host has producers.
    Produces,
    /// The host has consumers.
    Consumes,
    /// The host has producers and consumers.
    Both,
}

const ROLES: [(HostRole, &str); 3] =
    [(HostRole::Produces, "produces"), (HostRole::Consumes, "consumes"), (HostRole::Both, "both")];

const PHASES: [(Option<Phase>, &str); 5] = [
    (None, "none"),
    (Some(Phase::Coming), "coming"),
    (Some(Phase::Producing), "producing"),
    (Some(Phase::Ended), "ended"),
    (Some(Phase::Failed), "failed"),
];

/// What a host has announced about a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The number of the service's start, which is never 0. No two starts have the same number.
    pub life: u64,
    /// What the host does with the files of the directory.
    pub role: HostRole,
    /// Whether the producers of the host have not started yet, run, have ended or have failed; `None` if the host has
    /// no producers.
    pub phase: Option<Phase>,
    /// How many files the producers of the host have published.
    pub published: u64,
    /// The total size in bytes of the files that the producers of the host have published.
    pub bytes: u64,
    /// How many files of the host were not published because their writer was killed.
    pub torn: u64,
    /// How many files the host has fetched from other hosts.
    pub fetched: u64,
    /// Where other hosts reach the service; empty if no host fetches from it.
    pub address: String,
}

impl Announcement {
    /// The announcement of a host whose producers have published nothing yet. Other hosts reach its service at `address`.
    #[must_use]
    pub fn producing(life: u64, address: &str) -> Self {
        Self {
            life,
            role: HostRole::Produces,
            phase: Some(Phase::Producing),
            published: 0,
            bytes: 0,
            torn: 0,
            fetched: 0,
            address: address.to_owned(),
        }
    }

    /// Writes this announcement as the value of the host's entry in the catalog.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        let Self { life, role, phase, published, bytes, torn, fetched, address } = self;
        let (role, phase) = (word(&ROLES, role), word(&PHASES, phase));
        let address = if address.is_empty() { "-" } else { address };
        format!("1 {life:x} {role} {phase} {published} {bytes} {torn} {fetched} {address}").into_bytes()
    }

    /// Reads the value of an entry that another host wrote. The error says what is wrong with it.
    ///
    /// # Errors
    /// The value is not exactly one that [`Announcement::value`] writes.
    pub fn read(value: &[u8]) -> Result<Self, &'static str> {
        if value.len() > VALUE_MAX {
            return Err("it is too long");
        }
        let text = std::str::from_utf8(value).map_err(|_| "it is no text")?;
        let words: Vec<&str> = text.split(' ').collect();
        let [version, life, role, phase, published, bytes, torn, fetched, address] = words[..] else {
            return Err("it does not have nine words");
        };
        if version != "1" {
            return Err("it is of another version");
        }
        let number = |text: &str| text.parse().map_err(|_| "a count is no number");
        let read = Self {
            life: u64::from_str_radix(life, 16).ok().filter(|life| *life != 0).ok_or("its life is no number")?,
            role: meaning(&ROLES, role).ok_or("its role is unknown")?,
            phase: meaning(&PHASES, phase).ok_or("its phase is unknown")?,
            published: number(published)?,
            bytes: number(bytes)?,
            torn: number(torn)?,
            fetched: number(fetched)?,
            address: if address == "-" { String::new() } else { address.to_owned() },
        };
        if (read.role == HostRole::Consumes) != read.phase.is_none() {
            return Err("its phase does not fit its role");
        }
        let is_plain = address.len() <= ADDRESS_MAX && address.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || !(read.address.is_empty() || has_port(address)) {
            return Err("its address is none");
        }
        // Numbers can be written in several ways, for example with zeros in front. This host accepts only the way in
        // which it writes the number itself.
        if read.value() == value { Ok(read) } else { Err("a number is written in an unusual way") }
    }
}

fn has_port(address: &str) -> bool {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port != 0))
}

fn word<T: PartialEq>(words: &[(T, &'static str)], wanted: &T) -> &'static str {
    words.iter().find(|(value, _)| value == wanted).map_or("", |(_, word)| word)
}

fn meaning<T: Copy>(words: &[(T, &'static str)], wanted: &str) -> Option<T> {
    words.iter().find(|(_, word)| *word == wanted).map(|(value, _)| *value)
}

/// Gives the beginning of the keys of all directories of a workflow. The keys contain the length of the workflow's
/// name, because this name may contain slashes.
#[must_use]
pub fn prefix(site: &str, workflow: &str) -> String {
    format!("crossdock/{site}/files/{}/{workflow}/", workflow.len())
}

/// Gives the key of a host's entry for a directory.
#[must_use]
pub fn key(site: &str, workflow: &str, directory: &str, node: &str) -> String {
    format!("{}{directory}/{node}", prefix(site, workflow))
}

/// Reads the directory and the node from a key that begins with `prefix`; `None` if it is no key of an entry.
pub fn read_key<'a>(prefix: &str, key: &'a str) -> Option<(&'a str, &'a str)> {
    let (directory, node) = key.strip_prefix(prefix)?.rsplit_once('/')?;
    (name::check(directory).is_ok() && bad_node_name(node).is_none()).then_some((directory, node))
}

/// The fuzzer's entry. Reads the bytes before the first zero as a key, and the bytes after it as a value. A key or a
/// value that is accepted must be exactly what this host would write.
pub fn fuzz_entry(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (key_bytes, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Ok(text) = std::str::from_utf8(key_bytes) {
        if let Some((directory, node)) = read_key(&prefix("s", "w/x"), text) {
            assert_eq!(key("s", "w/x", directory, node), text);
        }
    }
    if let Ok(read) = Announcement::read(value) {
        assert_eq!(read.value(), value);
        assert!(value.len() <= VALUE_MAX && read.life != 0 && !read.address.contains(' '));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement() -> Announcement {
        Announcement {
            life: 0xfeed,
            role: HostRole::Both,
            phase: Some(Phase::Producing),
            published: 12,
            bytes: 3_000_000_000_000,
            torn: 1,
            fetched: 0,
            address: "[fe80::1]:7700".into(),
        }
    }

    #[test]
    fn an_announcement_comes_back_as_it_was_written() {
        let own = announcement();
        assert_eq!(own.value(), b"1 feed both producing 12 3000000000000 1 0 [fe80::1]:7700");
        let consumer = Announcement { role: HostRole::Consumes, phase: None, address: String::new(), ..announcement() };
        for written in [own, consumer] {
            assert_eq!(Announcement::read(&written.value()), Ok(written));
        }
    }

    #[test]
    fn other_values_are_refused() {
        for bad in [
            "",
            "1",
            "2 feed both producing 1 1 1 1 a:1",
            "1 0 both producing 1 1 1 1 a:1",
            "1 FEED both producing 1 1 1 1 a:1",
            "1 feed owns producing 1 1 1 1 a:1",
            "1 feed both sleeping 1 1 1 1 a:1",
            "1 feed both none 1 1 1 1 a:1",
            "1 feed consumes ended 1 1 1 1 -",
            "1 feed both producing +1 1 1 1 a:1",
            "1 feed both producing 01 1 1 1 a:1",
            "1 feed both producing -1 1 1 1 a:1",
            "1 feed both producing 1 1 1 18446744073709551616 a:1",
            "1 feed both producing 1 1 1 1 a",
            "1 feed both producing 1 1 1 1 a:0",
            "1 feed both producing 1 1 1 1 :1",
            "1 feed both producing 1 1 1 1 a:70000",
            "1 feed both producing 1 1 1 1 ä:1",
            "1 feed both producing 1 1 1 1 a:1 ",
            "1 feed both producing 1 1 1 1 a:1\n",
            "1  feed both producing 1 1 1 1 a:1",
        ] {
            assert!(Announcement::read(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Announcement::read(&[0xff; 40]).is_err());
        let long = Announcement { address: format!("{}:1", "a".repeat(254)), ..announcement() };
        assert!(Announcement::read(&long.value()).is_err());
    }

    #[test]
    fn a_key_says_the_directory_and_the_node() {
        let own = key("s", "w/x", "frames", "n1");
        assert_eq!(own, "crossdock/s/files/3/w/x/frames/n1");
        assert_eq!(read_key(&prefix("s", "w/x"), &own), Some(("frames", "n1")));
        for bad in ["", "frames", "frames/", "/n1", "fr ames/n1", "frames/-n1", "frames/../n1", "frames/10.0.0.1"] {
            assert_eq!(read_key(&prefix("s", "w"), &format!("{}{bad}", prefix("s", "w"))), None, "{bad}");
        }
        assert_eq!(read_key(&prefix("s", "w"), &own), None, "it is of another workflow");
    }

    /// Runs the fuzzer's check on changed forms of good entries, so that each run of the tests does a little fuzzing.
    #[test]
    fn changed_entries_are_refused_or_are_written_as_they_were_read() {
        let good = [key("s", "w/x", "frames", "n1").into_bytes(), vec![0], announcement().value()].concat();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % below as u64).unwrap()
        };
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..=next(3) {
                let at = next(bytes.len().max(1));
                match next(4) {
                    0 if at < bytes.len() => drop(bytes.remove(at)),
                    1 => bytes.insert(at, b" 0:-/\n"[next(6)]),
                    2 if at < bytes.len() => bytes[at] = u8::try_from(next(256)).unwrap(),
                    _ => bytes.truncate(at + 1),
                }
            }
            fuzz_entry(&bytes);
        }
    }
}
