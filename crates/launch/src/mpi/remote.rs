//! A command on another host: the host's ssh, with a starter at its other end that speaks frames.
//!
//! Three threads serve one connection, so that neither a slow reader nor a dead host ever stops the keeper. The end of ssh's
//! standard input is what tells the starter that this side is gone.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crossdock_os::{event, process, spawn};
use crossdock_shim::arguments::Arguments;
use crossdock_shim::message::{Message, Order};

use super::GREETING;
use super::job::Job;
use crate::ssh;

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
        command.args(&job.ssh[1..]).args(ssh::words(to)).arg(job.starter_command());
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
        let words = thread::spawn(move || ssh::last_words(errors));
        let events = events.clone();
        thread::spawn(move || {
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
