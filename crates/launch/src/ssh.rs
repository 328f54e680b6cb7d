//! Reaches a program of crossdock on another host through the host's own ssh: builds the command line, reads up to the
//! program's greeting, and explains how a connection ended.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crossdock_os::spawn;
use crossdock_shim::arguments::{self, Arguments};

/// The most bytes that a login shell may write before the starter's greeting.
const NOISE_MAX: usize = 64 << 10;
/// The most bytes that are kept of the text that ssh itself writes.
const WORDS_MAX: usize = 4096;
/// The options of a launcher's ssh command that are passed on to the host's ssh. The other options without a value are
/// left out: they would take away the connection's standard input, session or foreground, or give the other host access
/// to something of this host (its agent, its display).
const PASSED: [&str; 6] = ["-4", "-6", "-C", "-a", "-v", "-x"];
/// The options with a value that are passed on from a launcher's ssh command to the host's ssh.
const PASSED_WITH_VALUE: [&str; 2] = ["-c", "-m"];
/// The settings (`-o NAME=VALUE`) that are passed on from a launcher's ssh command to the host's ssh.
const SETTINGS: [&str; 15] = [
    "addressfamily",
    "batchmode",
    "ciphers",
    "compression",
    "connectionattempts",
    "connecttimeout",
    "hostkeyalgorithms",
    "ipqos",
    "kexalgorithms",
    "loglevel",
    "macs",
    "port",
    "serveralivecountmax",
    "serveraliveinterval",
    "tcpkeepalive",
];

/// Gives the arguments of an ssh command line: the options and the host, without the command that ssh is to run.
///
/// The options come from a program inside a container, and ssh runs outside of the container. So an option is passed on
/// only if it makes ssh run no program, read and write no file, and open no other connection. Any other option with a
/// value is an error, because the launcher's user expects that the option has an effect.
pub fn words(to: &Arguments) -> Result<Vec<String>, String> {
    let settings = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];
    let mut words: Vec<String> = vec!["-T".into()];
    let mut options = to.options.iter();
    while let Some(option) = options.next() {
        if !arguments::takes_value(option) {
            words.extend(Some(option.clone()).filter(|o| PASSED.contains(&o.as_str())));
            continue;
        }
        let value = options.next().cloned().unwrap_or_default();
        let is_passed = match option.as_str() {
            "-o" => {
                let name = value.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default();
                SETTINGS.contains(&name.to_ascii_lowercase().as_str())
            }
            other => PASSED_WITH_VALUE.contains(&other) && !value.starts_with('-'),
        };
        if !is_passed || value.contains(char::is_control) {
            return Err(format!("the launcher's option `{option} {value}` is not passed on to the host's ssh"));
        }
        words.extend([option.clone(), value]);
    }
    // These settings come after the launcher's own settings, because ssh takes the first value that it finds for a
    // setting.
    words.extend(settings.iter().flat_map(|s| ["-o".to_owned(), (*s).to_owned()]));
    if let Some(port) = to.port {
        words.extend(["-p".to_owned(), port.to_string()]);
    }
    if let Some(user) = &to.user {
        words.extend(["-l".to_owned(), user.clone()]);
    }
    words.extend(["--".to_owned(), to.host.clone()]);
    Ok(words)
}

/// Reads until the greeting of the program at the other end of the connection has arrived. The greeting begins and ends
/// with a line end. Login shells may write any text before the greeting.
pub fn greeting(stream: &mut impl Read, greeting: &[u8]) -> bool {
    let (mut seen, mut byte) = (Vec::from(*b"\n"), [0]);
    while seen.len() < NOISE_MAX && matches!(stream.read(&mut byte), Ok(1)) {
        seen.push(byte[0]);
        if seen.ends_with(greeting) {
            return true;
        }
    }
    false
}

/// Gives the last line that ssh wrote. The whole stream is read, so that ssh never waits for a reader.
pub fn last_words(stream: Option<impl Read>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..n]);
        if kept.len() > WORDS_MAX {
            kept.drain(..kept.len() - WORDS_MAX);
        }
    }
    let text = String::from_utf8_lossy(&kept).into_owned();
    text.lines().rev().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default().to_owned()
}

/// Explains why a connection ended too early: the problem, and a hint. `ssh` is the program that was called, which may
/// be srun. `program` is the path of crossdock on the other host.
pub fn explain(
    (ssh, program): (&str, &str),
    host: &str,
    greeted: bool,
    status: ExitStatus,
    words: &str,
) -> (String, String) {
    let said = if words.is_empty() { String::new() } else { format!(": {words}") };
    let name = ssh.split(' ').next().and_then(|word| word.rsplit('/').next()).unwrap_or(ssh);
    if greeted {
        let how = match status.signal() {
            Some(signal) => format!("{name} was killed by signal {signal}"),
            None => format!("{name} ended with {}{said}", status.code().unwrap_or(255)),
        };
        return (
            format!("the connection to it was lost ({how})"),
            "look whether the host and its network are up".into(),
        );
    }
    match status.code() {
        Some(126 | 127) => (
            format!("there is no crossdock at {program} on it{said}"),
            "install the same version there, or say where it is with --starter".into(),
        ),
        _ => (
            format!("{name} cannot start anything on it{said}"),
            match name {
                "srun" => format!("see that `srun --nodelist={host} --overlap true` works in this job"),
                _ => format!(
                    "see that `{ssh} -o BatchMode=yes {host} true` works from {} without a question",
                    spawn::host_name()
                ),
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: &[u8] = b"\ncrossdock-mpi 1\n";

    #[test]
    fn a_starter_is_found_behind_what_a_login_shell_writes() {
        let mut noise = b"Welcome!\ncrossdock-mpi 1\nrest".as_slice();
        assert!(greeting(&mut noise, GREETING));
        assert_eq!(noise, b"rest");
        assert!(!greeting(&mut b"sh: crossdock: not found\n".as_slice(), GREETING));
        let mut stream = GREETING;
        assert!(greeting(&mut stream, GREETING));
    }

    #[test]
    fn options_that_would_close_the_lifeline_are_dropped() {
        let to = Arguments {
            options: vec!["-x".into(), "-n".into(), "-q".into()],
            host: "n2".into(),
            port: Some(7),
            ..Default::default()
        };
        let words = words(&to).unwrap().join(" ");
        assert!(words.starts_with("-T -x -o BatchMode=yes") && words.ends_with("-p 7 -- n2"), "{words}");
    }

    /// A launcher runs in a container, but the host's ssh, to which its options go, runs outside of the container.
    #[test]
    fn no_option_of_a_launcher_makes_the_hosts_ssh_run_read_or_write_anything() {
        let words_of = |line: &[&str]| {
            let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
            arguments::parse(&line).and_then(|to| words(&to))
        };
        for bad in [
            &["-oProxyCommand=touch /tmp/x", "n2", "orted"][..],
            &["-o", "proxycommand touch /tmp/x", "n2", "orted"],
            &["-o", "PermitLocalCommand=yes", "-o", "LocalCommand=x", "n2", "orted"],
            &["n2", "-F", "/tmp/settings", "orted"],
            &["-E", "/home/user/.profile", "n2", "orted"],
            &["-I", "/tmp/library.so", "n2", "orted"],
            &["-L", "1:n3:22", "n2", "orted"],
            &["-o", "Ciphers=x\nProxyCommand=y", "n2", "orted"],
            &["-c", "x\ny", "n2", "orted"],
            &["-xJn3", "n2", "orted"],
            &["n2;x", "orted"],
            &["$(x)@n2", "orted"],
        ] {
            assert!(words_of(bad).is_err(), "{bad:?}");
        }
        let passed = words_of(&["-xqA", "-o", "LogLevel=ERROR", "-p", "22", "-m", "hmac", "n2", "orted"]).unwrap();
        assert!(passed.join(" ").starts_with("-T -x -o LogLevel=ERROR -m hmac -o BatchMode"), "{passed:?}");
    }
}
