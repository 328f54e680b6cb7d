//! A command that the keeper runs on another host. The keeper starts the host's ssh, which runs a starter on the other
//! host. Keeper and starter exchange frames through ssh.
//!
//! Three threads serve one connection, so that neither a slow reader nor a dead host ever stops the keeper. If the
//! keeper's side is gone, the standard input of the starter ends, and the starter then ends too.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crossdock_os::{event, process, spawn};
use crossdock_shim::arguments::Arguments;
use crossdock_shim::message::{Message, Order};
use crossdock_shim::wire::MESSAGE_MAX;

use super::GREETING;
use super::job::Job;
use crate::ssh;

/// An event for the keeper, from a connection to another host or from a thread that looks up a host name.
pub enum Event {
    /// The starter of this connection has sent a message.
    Said(u32, Message),
    /// The connection has ended. The fields are its number, whether the starter has sent its greeting, ssh's exit
    /// status, and the last lines that ssh wrote.
    Closed(u32, bool, ExitStatus, String),
    /// The answer to an agent's request: the agent's number, and whether the requested host is this host.
    Resolved(u64, bool),
}

/// The queue of events, with a descriptor that wakes its reader.
#[derive(Clone)]
pub struct Events {
    /// The sending end of the queue. If the queue is full, the sending thread waits and reads no more from its host, so
    /// a host that sends too much waits too.
    pub sender: SyncSender<Event>,
    /// A descriptor that becomes readable with each event.
    pub wake: Arc<OwnedFd>,
}

impl Events {
    /// Puts an event into the queue.
    pub fn put(&self, what: Event) {
        // The send fails only if the keeper is ending and reads no more events.
        if self.sender.send(what).is_ok() {
            event::signal(&*self.wake);
        }
    }
}

/// The most events in the queue.
pub const EVENTS_MAX: usize = 64;

/// The most frames that wait for one connection. The first two frames of a connection describe the job and the command;
/// all others are signals.
const FRAMES_MAX: usize = 64;

/// A connection to another host.
pub struct Remote {
    /// The host's name as the launcher uses it.
    pub host: String,
    /// The number of the connection of the agent that asked for this command; `None` after the agent has disconnected.
    pub agent: Option<u64>,
    /// True if the connection's command has ended.
    pub ended: bool,
    frames: SyncSender<Vec<u8>>,
    ssh: Option<OwnedFd>,
}

impl Remote {
    /// Starts ssh. The calling thread must live as long as the keeper, because ssh dies with the thread that started
    /// it.
    pub fn start(job: &Job, id: u32, to: &Arguments, streams: (File, File), events: &Events) -> Result<Self, String> {
        let mut command = Command::new(&job.ssh[0]);
        command.args(&job.ssh[1..]).args(ssh::words(to)?).arg(job.starter_command());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        spawn::default_signals(&mut command);
        spawn::die_with_parent(&mut command);
        let mut child =
            spawn::start(&mut command).map_err(|e| format!("cannot start the host's `{}`: {e}", job.ssh[0]))?;
        let ssh = process::open_pidfd(child.id() as i32).ok().flatten();
        let (mut input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (frames, queue): (SyncSender<Vec<u8>>, Receiver<Vec<u8>>) = sync_channel(FRAMES_MAX);
        // If a thread cannot be started, ssh reads the end of its input, and ends at the latest with the calling thread.
        let no_thread = |e| format!("cannot start a thread: {e}");
        let writer = crossdock_os::thread::start(move || {
            // When the keeper drops the sender, the loop ends and closes ssh's input. The input of the starter on the
            // other host then ends too, so the starter notices that the connection is closed.
            for frame in queue {
                if input.as_mut().is_none_or(|i| i.write_all(&frame).and_then(|()| i.flush()).is_err()) {
                    break;
                }
            }
        });
        writer.map_err(no_thread)?;
        let words = crossdock_os::thread::start(move || ssh::last_words(errors)).map_err(no_thread)?;
        let events = events.clone();
        let reader = crossdock_os::thread::start(move || {
            let greeted = output.is_some_and(|mut stream| {
                let greeted = ssh::greeting(&mut stream, GREETING);
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
        reader.map_err(no_thread)?;
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

    /// Makes a connection without ssh, for the fuzzer and tests. The caller gets the frames that would go to the
    /// starter.
    pub fn without_ssh(host: &str) -> (Self, Receiver<Vec<u8>>) {
        let (frames, queue) = sync_channel(FRAMES_MAX);
        (Self { host: host.to_owned(), agent: None, ended: false, frames, ssh: None }, queue)
    }

    /// Sends a message to the starter.
    pub fn say(&self, message: &Message) {
        // If the connection is gone, an event of the connection reports that, so an error of this send is ignored. If
        // the queue of frames is full, the message is dropped, so a host that reads nothing gets no further signals.
        let _ = self.frames.try_send(message.frame());
    }

    /// Closes the connection's input, which asks the starter on the other host to end. Returns the descriptor by which
    /// ssh can be killed.
    pub fn into_handle(self) -> Option<OwnedFd> {
        self.ssh
    }
}

fn pass_on(id: u32, stream: &mut impl Read, (output, errors): (File, File), events: &Events) {
    let mut streams = [Some(output), Some(errors)];
    while let Some(message) = Message::read_frame_within(stream, MESSAGE_MAX) {
        match message {
            Message::Output(number, bytes) => {
                if let Some(Some(file)) = streams.get_mut(usize::from(number != 1)) {
                    // `file` is the agent's standard output or standard error. The launcher that started the agent may
                    // have closed the reading end, so errors are ignored.
                    let _ = file.write_all(&bytes);
                }
            }
            Message::Ended(..) => {
                // The launcher Hydra waits for the end of the agent's output and errors, so these streams are closed
                // even if the command left processes in the background.
                streams = [None, None];
                events.put(Event::Said(id, message));
            }
            other => events.put(Event::Said(id, other)),
        }
    }
}
