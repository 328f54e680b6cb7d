//! Parses a command line of `ssh` as OpenSSH does.
//!
//! OpenSSH parses options twice with getopt: the options before the host, and those after it. The remaining words are
//! the command, joined by one space. The word `--` ends the options. If `--` stands before the host, no options are
//! read after the host either.

/// The options that take a value in OpenSSH 9.2. From OpenSSH 9.4 on, `P` takes a value too, but is not in this list.
const WITH_VALUE: &str = "BbcDEeFIiJLlmOopQRSWw";
/// Options of OpenSSH without a value.
const WITHOUT_VALUE: &str = "1246afgknqstvxACGKMNPTVXYy";

/// Tells whether a word of [`Arguments::options`] is an option whose value is the next word.
pub fn takes_value(option: &str) -> bool {
    option.strip_prefix('-').is_some_and(|flag| flag.len() == 1 && WITH_VALUE.contains(flag))
}

/// The host and the command that a command line of ssh names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Options other than user and port, as separate words: `-x`, `-o`, `StrictModes=no`.
    pub options: Vec<String>,
    /// The user from `user@host`, `-l` or `ssh://user@host`. If the command line names several users, the first one
    /// counts.
    pub user: Option<String>,
    /// The port from `-p` or `ssh://host:port`. If the command line names several ports, the first one counts, as in
    /// OpenSSH.
    pub port: Option<u16>,
    /// The name of the host.
    pub host: String,
    /// The command: the remaining words, joined by one space. It is empty if the command line has no command.
    pub command: String,
}

/// Parses the words after the program's name. The error says what is wrong with them.
pub fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut found = Arguments::default();
    let mut host = None;
    let mut rest = words;
    loop {
        let terminated;
        (rest, terminated) = options(rest, &mut found)?;
        if host.is_some() {
            break;
        }
        let Some((first, behind)) = rest.split_first() else {
            return Err("there is no host in the command line".into());
        };
        host = Some(destination(first, &mut found)?);
        rest = behind;
        if terminated || rest.is_empty() {
            break;
        }
    }
    found.host = host.unwrap_or_default();
    // Shells and settings of ssh on the keeper's host may see the names of host and user, so dangerous names are
    // refused. OpenSSH 9.6 and newer refuse them as well.
    if found.host.is_empty() || is_dangerous(&found.host) || found.host.contains('/') {
        return Err(format!("`{}` is not a host", found.host));
    }
    if let Some(user) = found.user.as_ref().filter(|user| is_dangerous(user)) {
        return Err(format!("`{user}` is not a user"));
    }
    found.command = rest.join(" ");
    Ok(found)
}

/// Tells whether a name begins like an option, or has characters with a meaning for shells.
fn is_dangerous(name: &str) -> bool {
    let special = |c: char| c.is_whitespace() || c.is_control() || "'`\"$\\;&<>|(){}".contains(c);
    name.starts_with('-') || name.contains(special)
}

/// Takes options from the beginning of the words, as getopt does. Returns the words after the options, and whether `--`
/// ended the options.
fn options<'a>(mut words: &'a [String], found: &mut Arguments) -> Result<(&'a [String], bool), String> {
    while let Some((word, behind)) = words.split_first() {
        if word == "--" {
            return Ok((behind, true));
        }
        let Some(flags) = word.strip_prefix('-').filter(|f| !f.is_empty()) else { break };
        words = behind;
        for (at, flag) in flags.char_indices() {
            if WITHOUT_VALUE.contains(flag) {
                found.options.push(format!("-{flag}"));
                continue;
            }
            if !WITH_VALUE.contains(flag) {
                return Err(format!("ssh has no option `-{flag}`"));
            }
            let joined = &flags[at + flag.len_utf8()..];
            let value = if !joined.is_empty() {
                joined.to_owned()
            } else if let Some((next, behind)) = words.split_first() {
                words = behind;
                next.clone()
            } else {
                return Err(format!("the option `-{flag}` needs a value"));
            };
            option(flag, value, found)?;
            break;
        }
    }
    Ok((words, false))
}

fn option(flag: char, value: String, found: &mut Arguments) -> Result<(), String> {
    match flag {
        'l' => {
            found.user.get_or_insert(value);
        }
        'p' => {
            let number = value.parse().ok().filter(|p| *p > 0).ok_or_else(|| format!("`{value}` is not a port"))?;
            found.port.get_or_insert(number);
        }
        _ => found.options.extend([format!("-{flag}"), value]),
    }
    Ok(())
}

/// Parses a destination: `host`, `user@host` or `ssh://[user@]host[:port]`.
fn destination(word: &str, found: &mut Arguments) -> Result<String, String> {
    let bad = || format!("`{word}` is not a host");
    let (uri, word) = match word.strip_prefix("ssh://") {
        Some(rest) => (true, rest.strip_suffix('/').unwrap_or(rest)),
        None => (false, word),
    };
    let (user, mut host) = word.rsplit_once('@').map_or((None, word), |(user, host)| (Some(user), host));
    if user == Some("") {
        return Err(bad());
    }
    if uri {
        let behind_address = host.rfind(']').unwrap_or(0);
        if let Some(colon) = host[behind_address..].rfind(':') {
            let port = host[behind_address + colon + 1..].parse().ok().filter(|p| *p > 0).ok_or_else(bad)?;
            found.port.get_or_insert(port);
            host = &host[..behind_address + colon];
        }
        host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    }
    if let Some(user) = user {
        // If the command line names another user by `-l USER` before the destination `USER@HOST`, the user of `-l`
        // counts.
        found.user.get_or_insert(user.to_owned());
    }
    Ok(host.to_owned())
}
