//! The sender's connection to the receiving process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crossdock_os::clock::now_ns;

use crate::Place;
use crate::send::Sender;
use crate::site::Setting;

/// The pause before a transfer. It is long enough for the receiver to fall asleep while it waits, and for its daemon to
/// ask the other node.
const PAUSE: Duration = Duration::from_millis(2);

/// The receiving process. It ends when this value is dropped.
pub struct Peer {
    child: Child,
    tell: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
    /// The address of the receiving process's raw TCP server.
    pub raw: String,
}

impl Peer {
    /// Starts the receiving process on node `b`.
    pub fn start(place: &Place, setting: &Setting) -> Self {
        let own = std::env::current_exe().expect("this program's path").display().to_string();
        let words: Vec<&str> = place.before.iter().map(String::as_str).chain([own.as_str()]).collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["--receive", &serde_json::to_string(setting).expect("texts")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the receiving process starts");
        let tell = child.stdin.take();
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let mut peer = Self { child, tell, said, raw: String::new() };
        peer.raw = peer.line();
        peer
    }

    /// Sends one object. Returns the time in microseconds until the receiver had the object open.
    pub fn transfer(&mut self, site: &str, noun: &str, sender: &mut dyn Sender, bytes: usize, number: u64) -> f64 {
        let name = sender.write(bytes, number);
        let mut tell = self.tell.as_ref().expect("it runs");
        writeln!(tell, "{site} {noun} {name} {bytes} {number}").expect("it reads");
        assert_eq!(self.line(), "waits");
        std::thread::sleep(PAUSE);
        let begun = now_ns();
        sender.send();
        let open: u64 = self.line().parse().expect("a time");
        sender.done();
        open.saturating_sub(begun) as f64 / 1e3
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it says something");
        assert!(!line.is_empty(), "the receiving process ended");
        line.trim_end().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The receiving process ends when its standard input is closed.
        self.tell = None;
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
