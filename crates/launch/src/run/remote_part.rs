//! A run's part on another host as the supervisor sees it: a connection by ssh or srun.
//!
//! Two threads serve a connection, so that neither a slow host nor a dead host stops the supervisor. If the supervisor
//! is gone, the input of the part ends, and the part then ends too. Both sides send pulses, and a side that is silent
//! for too long counts as lost.

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
use super::messages::{FromPart, GREETING, PULSE_S, SILENCE_S, ToPart, line, next};
use crate::engine::{self, Engine};
use crate::ssh;

/// How long it may take to connect to a host until its part sends the greeting.
const CONNECTING: Duration = Duration::from_secs(60);
/// The most events that wait for the supervisor. While the queue is full, connections are not read.
const QUEUE: usize = 256;

/// An event of a connection to a part.
pub enum Event {
    /// The part on the host with this number has sent its greeting.
    Greeted(usize),
    /// The part on the host with this number has sent this message.
    Said(usize, FromPart),
    /// The connection has ended. The fields are the host's number, whether the part has sent its greeting, the exit
    /// status of ssh or srun, and the last lines that ssh or srun wrote.
    Closed(usize, bool, ExitStatus, String),
}

/// The queue of the events of all connections.
pub struct Events {
    sender: SyncSender<Event>,
    queue: Receiver<Event>,
    /// An eventfd that is readable while there are events.
    pub bell: Arc<OwnedFd>,
}

impl Events {
    /// Makes an empty queue.
    pub fn new() -> Result<Self, String> {
        let bell = event::eventfd().map_err(|e| e.to_string())?;
        let (sender, queue) = sync_channel(QUEUE);
        Ok(Self { sender, queue, bell: Arc::new(bell) })
    }

    /// Calls `take` for each event in the queue, but stops after the time `most`, so that a part that writes without a
    /// pause does not keep the supervisor from its other work. If events may be left, `bell` stays readable, so that
    /// the supervisor calls this function again.
    pub fn each(&self, most: Duration, mut take: impl FnMut(Event)) {
        event::clear(&*self.bell);
        let end = Instant::now() + most;
        while let Ok(event) = self.queue.try_recv() {
            take(event);
            if Instant::now() >= end {
                event::signal(&*self.bell);
                return;
            }
        }
    }
}

/// How far a part on another host is between its start and its end.
pub enum Phase {
    /// The part's host has not answered yet.
    Connecting,
    /// The part prepares its host for tasks.
    Preparing,
    /// The part is ready to start ranks. The fields are its engine, and the engine's version.
    Ready(Arc<dyn Engine>, String),
    /// The part has reported that it removed everything.
    Left,
    /// The connection to the part is gone.
    Gone,
}

/// How long it may take to connect again and remove what a killed part has left.
const SWEEPING: Duration = Duration::from_secs(35);

/// Connects to a host again to remove what its part has left. Returns true if everything was removed.
pub fn sweep(hosts: &Hosts, number: usize, id: &str) -> bool {
    let mut command = hosts.command(number);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    spawn::default_signals(&mut command);
    spawn::die_with_parent(&mut command);
    let Ok(mut child) = spawn::start(&mut command) else { return false };
    if let Some(mut input) = child.stdin.take() {
        // If ssh or srun has ended early, its exit code says so, so an error of this write is ignored.
        let _ = input.write_all(line(&ToPart::Sweep(id.to_owned())).as_bytes());
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

/// A part of the run on another host.
pub struct RemotePart {
    /// The name of the part's host.
    pub host: String,
    /// How far the part is between its start and its end.
    pub phase: Phase,
    /// True if the part was lost after its greeting, so that files or processes may be left on the part's host.
    pub is_broken: bool,
    /// What the part's tasks share with their host, for example the network, in words for the user; `None` if they
    /// share nothing.
    pub shared: Option<String>,
    /// The MPI tasks with ranks on several hosts, each with the folder of its endpoint on the part's host.
    pub endpoints: Vec<(String, PathBuf)>,
    /// The id of the process, ssh or srun, that connects this host with the part's host.
    pub pid: i32,
    down: Option<Sender<String>>,
    heard: Instant,
}

impl RemotePart {
    /// Begins to connect. The ssh or srun that is started dies with the calling thread.
    pub fn start(hosts: &Hosts, number: usize, events: &Events) -> Result<Self, String> {
        let mut command = hosts.command(number);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        spawn::default_signals(&mut command);
        spawn::die_with_parent(&mut command);
        let mut child = spawn::start(&mut command).map_err(|e| format!("cannot start `{}`: {e}", hosts.called()))?;
        let pid = child.id() as i32;
        let (mut input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (down, queue) = channel::<String>();
        // If a thread cannot be started, ssh or srun reads the end of its input, and ends at the latest with the
        // calling thread.
        let no_thread = |e| format!("cannot start a thread: {e}");
        let writer = crossdock_os::thread::start(move || {
            loop {
                let text = match queue.recv_timeout(Duration::from_secs(PULSE_S)) {
                    Ok(text) => text,
                    Err(RecvTimeoutError::Timeout) => line(&ToPart::Pulse),
                    // The supervisor has closed the connection. When this thread returns, it closes the input of ssh or
                    // srun. The input of the part then ends too, so the part notices that the connection is closed.
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if input.as_mut().is_none_or(|i| i.write_all(text.as_bytes()).and_then(|()| i.flush()).is_err()) {
                    return;
                }
            }
        });
        writer.map_err(no_thread)?;
        let words = crossdock_os::thread::start(move || ssh::last_words(errors)).map_err(no_thread)?;
        let (sender, bell) = (events.sender.clone(), events.bell.clone());
        let put = move |event| {
            // The send fails only if the supervisor is ending and reads no more events.
            if sender.send(event).is_ok() {
                event::signal(&*bell);
            }
        };
        let reader = crossdock_os::thread::start(move || {
            let greeted = output.is_some_and(|stream| {
                let mut stream = BufReader::new(stream);
                let greeted = ssh::greeting(&mut stream, GREETING);
                if greeted {
                    put(Event::Greeted(number));
                    while let Some(up) = next::<FromPart>(&mut stream) {
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
        reader.map_err(no_thread)?;
        let (phase, host) = (Phase::Connecting, hosts.names[number].clone());
        Ok(Self {
            host,
            phase,
            is_broken: false,
            shared: None,
            endpoints: Vec::new(),
            pid,
            down: Some(down),
            heard: Instant::now(),
        })
    }

    /// Sends a message to the part.
    pub fn say(&self, message: &ToPart) {
        if let Some(down) = &self.down {
            // If the connection is gone, an event of the connection reports that, so an error of this send is ignored.
            let _ = down.send(line(message));
        }
    }

    /// Notes that a message came from the part.
    pub fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// If the part was silent for too long, gives the reason why it counts as lost. While the part is connecting, the
    /// limit is `CONNECTING`; after that, it is `SILENCE_S`.
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

    /// The engine on the part's host, once the engine is known.
    pub fn engine(&self) -> Option<&Arc<dyn Engine>> {
        match &self.phase {
            Phase::Ready(engine, _) => Some(engine),
            _ => None,
        }
    }

    /// Notes that the part is ready to start tasks.
    pub fn ready(&mut self, engine: &str, version: String, shared: Option<String>, endpoints: Vec<(String, PathBuf)>) {
        let engine = engine::by_name(engine).unwrap_or_else(engine::no_container);
        self.phase = Phase::Ready(Arc::from(engine), version);
        (self.shared, self.endpoints) = (shared, endpoints);
    }

    /// Tells whether the part may still send messages: it has not reported its end, and its connection is not gone.
    pub fn is_there(&self) -> bool {
        !matches!(self.phase, Phase::Left | Phase::Gone)
    }

    /// Notes that the connection is gone, or that the part counts as lost after a long silence.
    pub fn give_up(&mut self) {
        if self.is_there() {
            self.is_broken |= !matches!(self.phase, Phase::Connecting);
            self.phase = Phase::Gone;
        }
        self.close();
    }

    /// Closes the connection, which makes the part end.
    pub fn close(&mut self) {
        self.down = None;
    }
}

#[cfg(test)]
mod tests {
    use crossdock_os::Deadline;

    use super::*;
    use crate::run::hosts::Launcher;

    #[test]
    fn a_part_that_is_silent_after_its_greeting_is_lost_and_something_may_be_left_there() {
        let ssh = ["sh", "-c", "exec cat"].map(str::to_owned).to_vec();
        let hosts = Hosts {
            names: vec!["n2".into()],
            here: None,
            launcher: Launcher::Ssh,
            ssh,
            starter: "crossdock".into(),
            address: None,
            transport: crossdock_link::Choice::default(),
            trusted_network: true,
        };
        let events = Events::new().unwrap();
        let mut part = RemotePart::start(&hosts, 0, &events).unwrap();
        part.give_up();
        assert!(!part.is_broken, "nothing was made before the greeting");
        for phase in [Phase::Preparing, Phase::Ready(Arc::from(engine::no_container()), String::new())] {
            (part.phase, part.is_broken) = (phase, false);
            part.heard = Instant::now().checked_sub(Duration::from_secs(SILENCE_S + 1)).unwrap();
            assert!(part.lost().is_some());
            part.give_up();
            assert!(part.is_broken && part.lost().is_none());
        }
        (part.phase, part.is_broken) = (Phase::Left, false);
        part.give_up();
        assert!(!part.is_broken && matches!(part.phase, Phase::Left));
    }

    #[test]
    fn a_round_of_events_has_an_end_and_what_is_left_comes_in_the_next_one() {
        let events = Events::new().unwrap();
        for number in 0..QUEUE {
            events.sender.send(Event::Greeted(number)).unwrap();
        }
        event::signal(&*events.bell);
        let mut taken = 0;
        let mut take = |most| {
            events.each(most, |event| {
                assert!(matches!(event, Event::Greeted(number) if number == taken));
                taken += 1;
                thread::sleep(Duration::from_millis(1));
            });
            (taken, event::wait_readable(&*events.bell, Deadline::after(Duration::ZERO)).unwrap())
        };
        let (first, rings) = take(Duration::from_millis(20));
        assert!(first < QUEUE && rings, "{first} of {QUEUE} events");
        assert_eq!(take(Duration::from_secs(60)), (QUEUE, false));
    }
}
