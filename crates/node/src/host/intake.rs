//! What arrives at the broker process: connections and messages.

use std::os::fd::{AsFd, OwnedFd};

use crossdock_layout::wire::{MAX_MESSAGE, Request};
use crossdock_os::socket::{self, Received};
use crossdock_os::{file, process};

use super::{ACCEPTS, Host, LINK, Link, deaths, descriptors};
use crate::broker::{Event, Peer};

impl Host<'_> {
    pub(super) fn accept(&mut self, endpoint: u64) {
        for turn in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(&endpoint) else { return };
            match socket::accept(listener) {
                Ok(Some(connection)) => self.admit(endpoint, connection),
                // The kernel reported the listening socket as readable, but no connection waits in its queue. The
                // reason may be that the socket was shut down.
                Ok(None) if turn == 0 && socket::is_shut_down(listener) => return self.stop_listening(endpoint),
                Ok(None) => return,
                Err(error) if error.is_out_of_descriptors() => {
                    // This process has no descriptor left for the new connection. If the connection stayed in the
                    // queue, the kernel would wake this thread again and again. So the connection is accepted with the
                    // spare descriptor and closed at once. The client sees the end of the connection.
                    self.spare = None;
                    drop(socket::accept(listener));
                    self.spare = file::spare().ok();
                    if self.spare.is_none() {
                        std::thread::sleep(std::time::Duration::from_millis(5));
                    }
                    return;
                }
                Err(error) => return self.log.failure(error),
            }
        }
    }

    /// Stops listening at an endpoint, because a process with a copy of the socket has shut it down. The kernel would
    /// report such a socket again and again, and no connection can arrive through it any more.
    fn stop_listening(&mut self, endpoint: u64) {
        if let Some(listener) = self.listeners.remove(&endpoint) {
            self.epoll.remove(listener).ok();
            self.check_keeper(self.post.drop_listener(endpoint));
            self.log
                .failure(format_args!("the socket of endpoint {endpoint} was shut down; no task can connect there"));
        }
    }

    fn admit(&mut self, endpoint: u64, connection: OwnedFd) {
        let Ok(peer) = socket::peer(&connection) else { return };
        let pidfd = deaths::pidfd_behind(&connection, peer.pid);
        let birth = match peer.pid {
            own if own == std::process::id() as i32 => Peer::DAEMON,
            // The process id 0 stands for a process that is not visible in the daemon's namespace.
            pid if pid > 0 => pidfd.as_ref().and_then(|pidfd| process::birth(pid, pidfd)).unwrap_or(0),
            _ => 0,
        };
        let peer = Peer { pid: peer.pid.max(0) as u32, birth, uid: peer.uid };
        let id = self.next_link;
        self.next_link += 1;
        if self.epoll.add(&connection, LINK | id, false).is_err() {
            return;
        }
        self.links.insert(id, Link { socket: connection, process: peer.pid, cgroup: None });
        self.feed(Event::Connected { connection: id, endpoint, peer });
        // Most clients have sent their hello by now. To read it at once saves a round of the loop, and the pidfd is
        // opened only once.
        self.newcomer = pidfd.map(|pidfd| (id, pidfd));
        self.read(id);
        self.newcomer = None;
    }

    /// Reads one message of a connection. If more messages are waiting, the next one is read in the next round of the
    /// broker's loop.
    pub(super) fn read(&mut self, id: u64) {
        let mut buffer = [0; MAX_MESSAGE + 1];
        let Some(link) = self.links.get(&id) else { return };
        match socket::receive(&link.socket, &mut buffer) {
            Ok(None) => {}
            Ok(Some(Received::Message(length, fds))) => self.message(id, Some(&buffer[..length]), fds),
            Ok(Some(Received::Truncated)) => self.message(id, None, Vec::new()),
            Ok(Some(Received::Stripped(length))) => {
                self.feed(Event::Stripped { connection: id, bytes: &buffer[..length] });
            }
            Ok(Some(Received::End)) | Err(_) => self.hang_up(id),
        }
        self.report_hung_up();
    }

    fn message(&mut self, id: u64, bytes: Option<&[u8]>, fds: Vec<OwnedFd>) {
        self.look_at_free_memory();
        let tasks_own = bytes.is_some_and(Request::takes_memory) && self.look_at_tasks_memory(id);
        self.look_at_journal();
        let kinds: Vec<_> = fds.iter().map(|fd| descriptors::kind(fd.as_fd())).collect();
        let now = self.now();
        let effects = self.broker.handle(now, Event::Message { connection: id, bytes, descriptors: &kinds });
        self.perform(effects, fds);
        if tasks_own {
            self.look_at_free_memory();
        }
    }
}
