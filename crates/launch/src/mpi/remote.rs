//! A command on another host: the host's ssh, with a starter at its other end that speaks frames.
//!
//! Three threads serve one connection, so that neither a slow reader nor a dead host ever stops the keeper. The end of ssh's
//! standard input is what tells the starter that this side is gone.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crossdock_os::{event, process, spawn};
use crossdock_shim::arguments::Arguments;
use crossdock_shim::message::{Message, Order};

use super::GREETING;
use super::job::Job;

/// Most that a login shell may write before the starter's greeting.
const NOISE_MAX: usize = 64 << 10;
/// How much of ssh's own words is kept.
const WORDS_MAX: usize = 4096;
/// Options of ssh that would take away what the connection needs: its standard input, its session, its foreground.
const DROPPED: [&str; 9] = ["-f", "-n", "-N", "-s", "-t", "-G", "-g", "-M", "-q"];

/// What happens at a connection.
pub enum Event {
    /// The starter says this.
    Said(u32, Message),
    /// It ended: did the starter greet, how did ssh end, its last words.
    Closed(u32, bool, ExitStatus, String),
    /// Is the host of this agent's request this one?
    Resolved(u64, bool),
}

/// Where events go.
#[derive(Clone)]
pub struct Events {
    /// The queue.
    pub sender: Sender<Event>,
    /// Becomes readable with each.
    pub wake: Arc<OwnedFd>,
}

impl Events {
    /// Puts an event into the queue.
    pub fn put(&self, what: Event) {
        // A keeper that ends reads no more.
        if self.sender.send(what).is_ok() {
            event::signal(&*self.wake);
        }
    }
}

/// A connection.
pub struct Remote {
    /// The host, as the launcher calls it.
    pub host: String,
    /// The agent that asked for it, while it is there.
    pub agent: Option<u64>,
    /// Has its command ended?
    pub ended: bool,
    frames: Sender<Vec<u8>>,
    ssh: Option<OwnedFd>,
}

impl Remote {
    /// Starts ssh. Call it from the thread that lives as long as the keeper: ssh dies with it.
    pub fn start(job: &Job, id: u32, to: &Arguments, streams: (File, File), events: &Events) -> Result<Self, String> {
        let mut command = Command::new(&job.ssh[0]);
        command.args(&job.ssh[1..]).args(words(to)).arg(job.starter_command());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        spawn::default_signals(&mut command);
        spawn::die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|e| format!("cannot start the host's `{}`: {e}", job.ssh[0]))?;
        let ssh = process::open_pidfd(child.id() as i32).ok().flatten();
        let (mut input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (frames, queue): (Sender<Vec<u8>>, Receiver<Vec<u8>>) = channel();
        thread::spawn(move || {
            // Dropping the sender ends the loop and closes ssh's input, which tells the other side.
            for frame in queue {
                if input.as_mut().is_none_or(|i| i.write_all(&frame).and_then(|()| i.flush()).is_err()) {
                    break;
                }
            }
        });
        let words = thread::spawn(move || last_words(errors));
        let events = events.clone();
        thread::spawn(move || {
            let greeted = output.is_some_and(|mut stream| {
                let greeted = greeting(&mut stream);
                if greeted {
                    pass_on(id, &mut stream, streams, &events);
                }
                greeted
            });
            if let Ok(status) = child.wait() {
                let words = words.join().unwrap_or_default();
                events.put(Event::Closed(id, greeted, status, words));
            }
        });
        let remote = Self { host: to.host.clone(), agent: None, ended: false, frames, ssh };
        let text = serde_json::to_string(job).map_err(|e| e.to_string())?;
        remote.say(&Message::Job(text));
        remote.say(&Message::Run(Order {
            words: vec![to.command.clone()],
            shell: true,
            workdir: job.workdir.clone(),
            descriptor: -1,
            ..Order::default()
        }));
        Ok(remote)
    }

    /// Sends a message to the starter.
    pub fn say(&self, message: &Message) {
        // A connection that is gone tells so by its own event.
        let _ = self.frames.send(message.frame());
    }

    /// Closes the connection's input, which asks the other side to end; gives what ssh can be killed with.
    pub fn into_handle(self) -> Option<OwnedFd> {
        self.ssh
    }
}

/// ssh's words up to the host.
fn words(to: &Arguments) -> Vec<String> {
    let settings = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];
    let mut words: Vec<String> = vec!["-T".into()];
    words.extend(to.options.iter().filter(|o| !DROPPED.contains(&o.as_str())).cloned());
    // Behind the launcher's own: the first setting wins in ssh.
    words.extend(settings.iter().flat_map(|s| ["-o".to_owned(), (*s).to_owned()]));
    if let Some(port) = to.port {
        words.extend(["-p".to_owned(), port.to_string()]);
    }
    if let Some(user) = &to.user {
        words.extend(["-l".to_owned(), user.clone()]);
    }
    words.extend(["--".to_owned(), to.host.clone()]);
    words
}

/// Reads until the starter's greeting.
fn greeting(stream: &mut impl Read) -> bool {
    let (mut seen, mut byte) = (Vec::from(*b"\n"), [0]);
    while seen.len() < NOISE_MAX && matches!(stream.read(&mut byte), Ok(1)) {
        seen.push(byte[0]);
        if seen.ends_with(GREETING) {
            return true;
        }
    }
    false
}

fn pass_on(id: u32, stream: &mut impl Read, (output, errors): (File, File), events: &Events) {
    let mut streams = [Some(output), Some(errors)];
    while let Some(message) = Message::read_frame(stream) {
        match message {
            Message::Output(number, bytes) => {
                if let Some(Some(file)) = streams.get_mut(usize::from(number != 1)) {
                    // The launcher may not read any more.
                    let _ = file.write_all(&bytes);
                }
            }
            Message::Ended(..) => {
                // Hydra waits for the end of these streams, whatever else goes on in the background there.
                streams = [None, None];
                events.put(Event::Said(id, message));
            }
            other => events.put(Event::Said(id, other)),
        }
    }
}

/// The last line that ssh wrote; everything is read, so that it never waits.
fn last_words(stream: Option<impl Read>) -> String {
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

/// What a connection's end means, when its command had not ended: what, and a hint.
pub fn explain(job: &Job, host: &str, greeted: bool, status: ExitStatus, words: &str) -> (String, String) {
    let said = if words.is_empty() { String::new() } else { format!(": {words}") };
    let ssh = job.ssh.join(" ");
    if greeted {
        let how = match status.signal() {
            Some(signal) => format!("ssh was killed by signal {signal}"),
            None => format!("ssh ended with {}{said}", status.code().unwrap_or(255)),
        };
        return (
            format!("the connection to it was lost ({how})"),
            "look whether the host and its network are up".into(),
        );
    }
    match status.code() {
        Some(126 | 127) => (
            format!("there is no crossdock at {} on it{said}", job.starter),
            "install the same version there, or say where it is with --starter".into(),
        ),
        _ => (
            format!("ssh cannot start anything on it{said}"),
            format!(
                "see that `{ssh} -o BatchMode=yes {host} true` works from {} without a question",
                spawn::host_name()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starter_is_found_behind_what_a_login_shell_writes() {
        let mut noise = b"Welcome!\ncrossdock-mpi 1\nrest".as_slice();
        assert!(greeting(&mut noise));
        assert_eq!(noise, b"rest");
        assert!(!greeting(&mut b"sh: crossdock: not found\n".as_slice()));
        let mut stream = GREETING;
        assert!(greeting(&mut stream));
    }

    #[test]
    fn options_that_would_close_the_lifeline_are_dropped() {
        let to = Arguments {
            options: vec!["-x".into(), "-n".into(), "-q".into()],
            host: "n2".into(),
            port: Some(7),
            ..Default::default()
        };
        let words = words(&to).join(" ");
        assert!(words.starts_with("-T -x -o BatchMode=yes") && words.ends_with("-p 7 -- n2"), "{words}");
    }
}
