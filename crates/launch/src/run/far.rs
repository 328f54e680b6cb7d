//! A run's part on another host, as the supervisor sees it: a connection by ssh or srun.
//!
//! Two threads serve a connection, so that neither a slow host nor a dead one stops the supervisor. The end of the
//! connection's input tells the part that the supervisor is gone; a pulse tells either side that a silent peer is lost.

use std::io::{BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_os::{event, spawn};

use super::hosts::Hosts;
use super::words::{Down, GREETING, PULSE_S, SILENCE_S, Up, line, next};
use crate::engine::{self, Engine};
use crate::ssh;

/// How long a host may take until its part speaks.
const CONNECTING: Duration = Duration::from_secs(60);
/// Messages that wait for the supervisor; beyond these the connection waits.
const QUEUE: usize = 256;

/// What happens at a connection.
pub enum Event {
    /// The part greets.
    Greeted(usize),
    /// It says this.
    Said(usize, Up),
    /// The connection ended: did the part greet, how did its program end, its last words.
    Closed(usize, bool, ExitStatus, String),
}

/// Where the events of all connections arrive.
pub struct Events {
    sender: SyncSender<Event>,
    queue: Receiver<Event>,
    /// Readable when there are some.
    pub bell: Arc<OwnedFd>,
}

impl Events {
    /// An empty queue.
    pub fn new() -> Result<Self, String> {
        let bell = event::eventfd().map_err(|e| e.to_string())?;
        let (sender, queue) = sync_channel(QUEUE);
        Ok(Self { sender, queue, bell: Arc::new(bell) })
    }

    /// The next event.
    pub fn next(&self) -> Option<Event> {
        self.queue.try_recv().ok()
    }
}

/// How far a part is.
pub enum Phase {
    /// Its host has not answered yet.
    Connecting,
    /// It makes itself ready.
    Preparing,
    /// It takes ranks.
    Ready(Arc<dyn Engine>, String),
    /// It has said that nothing is left.
    Left,
    /// Its connection is gone.
    Gone,
}

/// How long removing what a killed part has left may take, the new connection included.
const SWEEPING: Duration = Duration::from_secs(35);

/// Connects to a host anew, to remove what is left of its part. Says whether that worked.
pub fn sweep(hosts: &Hosts, number: usize, id: &str) -> bool {
    let mut command = hosts.command(number);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    spawn::default_signals(&mut command);
    spawn::die_with_parent(&mut command);
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A program that ends early says so by its exit code.
        let _ = input.write_all(line(&Down::Sweep(id.to_owned())).as_bytes());
    }
    let end = Instant::now() + SWEEPING;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            _ => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// A part on another host.
pub struct Far {
    /// The host's name.
    pub host: String,
    /// How far it is.
    pub phase: Phase,
    /// It spoke, and its connection broke: something may be left there.
    pub is_broken: bool,
    /// What tasks there share with the host.
    pub shared: Option<String>,
    /// The MPI tasks with ranks on several hosts, and the folder of each task's endpoint there.
    pub endpoints: Vec<(String, PathBuf)>,
    /// Where other hosts fetch files from it; empty if none does.
    pub files: String,
    /// The connection's program here.
    pub pid: i32,
    down: Option<Sender<String>>,
    heard: Instant,
}

impl Far {
    /// Begins to connect. The program dies with the calling thread.
    pub fn start(hosts: &Hosts, number: usize, events: &Events) -> Result<Self, String> {
        let mut command = hosts.command(number);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        spawn::default_signals(&mut command);
        spawn::die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|e| format!("cannot start `{}`: {e}", hosts.called()))?;
        let pid = child.id() as i32;
        let (mut input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (down, queue) = channel::<String>();
        thread::spawn(move || {
            loop {
                let text = match queue.recv_timeout(Duration::from_secs(PULSE_S)) {
                    Ok(text) => text,
                    Err(RecvTimeoutError::Timeout) => line(&Down::Pulse),
                    // The supervisor has closed the connection; dropping the input tells the part.
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if input.as_mut().is_none_or(|i| i.write_all(text.as_bytes()).and_then(|()| i.flush()).is_err()) {
                    return;
                }
            }
        });
        let words = thread::spawn(move || ssh::last_words(errors));
        let (sender, bell) = (events.sender.clone(), events.bell.clone());
        let put = move |event| {
            // A supervisor that ends reads no more.
            if sender.send(event).is_ok() {
                event::signal(&*bell);
            }
        };
        thread::spawn(move || {
            let greeted = output.is_some_and(|stream| {
                let mut stream = BufReader::new(stream);
                let greeted = ssh::greeting(&mut stream, GREETING);
                if greeted {
                    put(Event::Greeted(number));
                    while let Some(up) = next::<Up>(&mut stream) {
                        put(Event::Said(number, up));
                    }
                }
                greeted
            });
            if let Ok(status) = child.wait() {
                let words = words.join().unwrap_or_default();
                put(Event::Closed(number, greeted, status, words));
            }
        });
        let (phase, host) = (Phase::Connecting, hosts.names[number].clone());
        Ok(Self {
            host,
            phase,
            is_broken: false,
            shared: None,
            endpoints: Vec::new(),
            files: String::new(),
            pid,
            down: Some(down),
            heard: Instant::now(),
        })
    }

    /// Says something to the part.
    pub fn say(&self, message: &Down) {
        if let Some(down) = &self.down {
            // A connection that is gone tells so by its own event.
            let _ = down.send(line(message));
        }
    }

    /// Something was heard of it.
    pub fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Why it is lost, if it was silent for too long.
    pub fn lost(&self) -> Option<String> {
        let silent = self.heard.elapsed();
        match self.phase {
            Phase::Connecting if silent > CONNECTING => Some(format!("no answer within {} s", CONNECTING.as_secs())),
            Phase::Preparing | Phase::Ready(..) if silent > Duration::from_secs(SILENCE_S) => {
                Some(format!("it was last heard of {} s ago", silent.as_secs()))
            }
            _ => None,
        }
    }

    /// The engine there, once it is known.
    pub fn engine(&self) -> Option<&Arc<dyn Engine>> {
        match &self.phase {
            Phase::Ready(engine, _) => Some(engine),
            _ => None,
        }
    }

    /// The part is ready.
    pub fn ready(
        &mut self,
        engine: &str,
        version: String,
        shared: Option<String>,
        endpoints: Vec<(String, PathBuf)>,
        files: String,
    ) {
        let engine = engine::by_name(engine).unwrap_or_else(engine::no_container);
        self.phase = Phase::Ready(Arc::from(engine), version);
        (self.shared, self.endpoints, self.files) = (shared, endpoints, files);
    }

    /// Can something still come from it?
    pub fn is_there(&self) -> bool {
        !matches!(self.phase, Phase::Left | Phase::Gone)
    }

    /// Closes the connection, which tells the part to end.
    pub fn close(&mut self) {
        self.down = None;
    }
}
