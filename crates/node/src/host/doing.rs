//! Carries out effects in order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossdock_layout::wire::{ANSWER, Answer, PIN_PAGE, PIN_SLOTS};
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::{OsError, OsResult, file, memfd, socket};

use super::{Host, LISTENER};
use crate::broker::{Attachment, Effect, Event, Peer};
use crate::table;

impl Host<'_> {
    /// Carries out the broker's effects. `descriptors` came with the message that caused them.
    pub(super) fn perform(&mut self, effects: Vec<Effect>, descriptors: Vec<OwnedFd>) {
        let mut came = descriptors.into_iter();
        for effect in effects {
            // Nothing that follows from records may be visible before they are written. A question to the kernel
            // follows from none.
            if !matches!(effect, Effect::Record(_) | Effect::ProveItem { .. }) {
                self.write_down();
            }
            match effect {
                Effect::Record(record) => self.journal.note(&record),
                Effect::Make { segment, size, label, .. } => {
                    let outcome = self.make(segment.0, size, &label);
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Made { outcome });
                    self.perform(more, Vec::new());
                }
                Effect::MakePage { page, label } => {
                    let outcome = self.make(page.0, PIN_PAGE, &label).and_then(|number| self.fill(page.0, number));
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Made { outcome });
                    self.perform(more, Vec::new());
                }
                Effect::TellOfPage { series } => table::tell_of_page(&self.words, series),
                Effect::MakeItem { file, size } => {
                    let outcome = self.make_item(file.0, size).map(|()| 0);
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Made { outcome });
                    self.perform(more, Vec::new());
                }
                Effect::ProveItem { item, file, dying } => {
                    let verdict = self.prove_item(file.0, dying);
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Proved { item, file, verdict });
                    self.perform(more, Vec::new());
                }
                Effect::CopyItem { item, from, to, size } => self.copy_item(item, from, to, size),
                Effect::FetchItem { to, size, pull } => match self.make_item(to.0, size) {
                    Ok(()) => self.node_order(pull),
                    Err(why) => self.pull_failed(&pull, why),
                },
                Effect::Site(order) => self.site_order(order),
                Effect::Nodes(order) => self.node_order(order),
                Effect::Log { line } => {
                    self.log.event(line);
                }
                Effect::Adopt { segment } => {
                    if let Some(fd) = came.next() {
                        // The offered descriptor may be read-only, and its open file description belongs to another
                        // process. So it is opened anew.
                        self.keep(segment.0, file::reopen(&fd).unwrap_or(fd));
                    }
                }
                Effect::Listen { endpoint } => {
                    if let Some(fd) = came.next() {
                        self.listen(endpoint, fd);
                    }
                }
                Effect::Unlisten { endpoint } => {
                    if let Some(fd) = self.listeners.remove(&endpoint) {
                        // The launcher may have a copy, and the epoll set must not report it any more.
                        self.epoll.remove(fd).ok();
                    }
                    self.told(self.post.drop_listener(endpoint));
                }
                Effect::Forget { segment } => {
                    self.segments.remove(&segment.0);
                    self.forget_file(segment.0);
                    self.told(self.post.drop_segment(segment.0));
                }
                Effect::ClearPins { page, from, count } => self.clear(page.0, from, count),
                Effect::Alive { member, connection, peer } => self.alive(member, connection, peer),
                Effect::Dead { member } => {
                    table::set_dead(&self.words, member);
                    self.unwatch(member);
                }
                Effect::Send { connection, message, with } => self.send(connection, &message, with),
                Effect::Close { connection, why } => {
                    // The member may live on, and nothing else reports its end.
                    self.look_soon();
                    let usual = matches!(why.as_str(), "it left" | "its process is dead" | "its workflow ended");
                    if self.links.remove(&connection).is_some() && !usual {
                        self.log.event(format_args!("connection {connection} was closed: {why}"));
                    }
                }
            }
        }
        self.write_down();
    }

    /// When this returns, everything that was noted is in the journal.
    fn write_down(&mut self) {
        if let Err(error) = self.journal.flush() {
            // Nothing that is not written down may be promised. So the broker ends, and the next one starts from what
            // is written.
            self.log.failure(format_args!("the journal cannot be written: {error}"));
            std::process::abort();
        }
    }

    /// The keeper continues without this broker, but the broker cannot continue without the keeper.
    pub(super) fn told(&self, told: crossdock_os::OsResult<()>) {
        if let Err(error) = told {
            self.log.failure(format_args!("the keeper cannot be reached: {error}"));
            std::process::abort();
        }
    }

    fn make(&mut self, id: u64, size: u64, label: &str) -> Result<u64, String> {
        // The kernel allows 249 bytes of name.
        let label = &label[..label.len().min(240)];
        // The processes that use its pages take them and are charged for them.
        let made = memfd::create(label, size);
        let fd = made.map_err(|error| {
            let hint = hint(&error);
            format!("no segment of {size} bytes could be made: {error}; {hint}")
        })?;
        let number = memfd::number(&fd);
        self.keep(id, fd);
        Ok(number)
    }

    pub(super) fn keep(&mut self, id: u64, fd: OwnedFd) {
        self.told(self.post.hold_segment(id, fd.as_fd()));
        self.segments.insert(id, fd);
    }

    /// A pin page's memory is taken at once, so that no observer's first store finds the node full.
    fn fill(&mut self, page: u64, number: u64) -> Result<u64, String> {
        let reserved = self.segments.get(&page).map_or(Ok(()), |fd| memfd::reserve(fd, 0, PIN_PAGE));
        reserved.map(|()| number).map_err(|error| {
            self.segments.remove(&page);
            self.told(self.post.drop_segment(page));
            format!("there is no memory for a pin page: {error}; {}", hint(&error))
        })
    }

    /// Clears these slots, so that they pin nothing any more.
    fn clear(&self, page: u64, from: u32, count: u32) {
        let Some(fd) = self.segments.get(&page) else { return };
        let slot = PIN_PAGE / u64::from(PIN_SLOTS);
        if let Err(error) = memfd::clear(fd, u64::from(from) * slot, u64::from(count) * slot) {
            self.log.failure(format_args!("a pin page could not be cleared, what it pins stays: {error}"));
        }
    }

    fn listen(&mut self, endpoint: u64, fd: OwnedFd) {
        self.told(self.post.hold_listener(endpoint, fd.as_fd()));
        let watched = socket::set_nonblocking(&fd).and_then(|()| self.epoll.add(&fd, LISTENER | endpoint, false));
        match watched {
            Ok(()) => drop(self.listeners.insert(endpoint, fd)),
            Err(error) => self.log.failure(format_args!("endpoint {endpoint}: {error}")),
        }
    }

    fn alive(&mut self, member: MemberId, connection: u64, peer: Peer) {
        table::set_alive(&self.words, member);
        self.watch(member, connection, peer);
    }

    fn send(&mut self, connection: u64, message: &[u8], with: Attachment) {
        let opened = match with {
            Attachment::Papers { member } => return self.send_papers(connection, message, member),
            Attachment::Item { file, writable } => self.with_spare(|host| host.open_item(connection, file.0, writable)),
            Attachment::Segment { segment, writable: false } | Attachment::Series { pool: segment, .. } => {
                self.with_spare(|host| host.segments.get(&segment.0).map(file::reopen_read_only).transpose())
            }
            Attachment::Segment { .. } | Attachment::Nothing => Ok(None),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return self.send_failure(connection, message, &error.to_string()),
        };
        let Some(link) = self.links.get(&connection) else { return };
        let held = |segment: SegmentId| self.segments.get(&segment.0).map(AsFd::as_fd);
        let opened = opened.as_ref().map(AsFd::as_fd);
        let fds: Option<Vec<BorrowedFd<'_>>> = match with {
            Attachment::Nothing | Attachment::Papers { .. } => Some(Vec::new()),
            Attachment::Segment { segment, writable: true } => held(segment).map(|fd| vec![fd]),
            Attachment::Segment { .. } | Attachment::Item { .. } => opened.map(|fd| vec![fd]),
            Attachment::Series { page, .. } => opened.zip(held(page)).map(|(pool, page)| vec![pool, page]),
        };
        let Some(fds) = fds else {
            return self.send_failure(connection, message, "the daemon has lost its descriptor");
        };
        let sent = socket::send(&link.socket, message, &fds);
        self.sent(connection, message, !fds.is_empty(), sent);
    }

    /// Opens something for a client, if necessary with the descriptor that is kept for this case, because what the
    /// client asked for is done and written down by now.
    fn with_spare<T>(&mut self, mut open: impl FnMut(&mut Self) -> OsResult<T>) -> OsResult<T> {
        open(self).or_else(|error| {
            if !error.is_out_of_room() {
                return Err(error);
            }
            self.spare = None;
            let opened = open(self);
            self.spare = file::spare().ok();
            opened
        })
    }

    /// A member's lock on the roll is in flight before this process knows whether it arrives. So the copy here is
    /// closed.
    fn send_papers(&mut self, connection: u64, message: &[u8], member: MemberId) {
        let papers = self.with_spare(|host| Ok((host.roll.roll.enter(member.0)?, host.roll.roll.reader()?)));
        let Some(link) = self.links.get(&connection) else { return };
        let sent = match &papers {
            Ok((entry, reader)) => {
                socket::send(&link.socket, message, &[self.table.as_fd(), entry.as_fd(), reader.as_fd()])
            }
            Err(error) => return self.send_failure(connection, message, &error.to_string()),
        };
        drop(papers);
        self.sent(connection, message, true, sent);
    }

    fn sent(&mut self, connection: u64, message: &[u8], with_descriptors: bool, outcome: OsResult<bool>) {
        match outcome {
            Ok(true) => {}
            // The broker does not wait for a client that lets its answers pile up until the kernel accepts no more.
            Ok(false) => self.hang_up(connection),
            // Too many descriptors are in flight to clients that do not take them.
            Err(error) if with_descriptors && error.is_too_many_in_flight() => {
                self.send_failure(connection, message, "too many descriptors are on their way to programs; try again");
            }
            // The kernel has no room at present. The client connects again and repeats what has no answer.
            Err(error) if error.is_out_of_room() => self.hang_up(connection),
            // The end of the connection comes as an event of its own.
            Err(_) => {}
        }
    }

    /// Answers with a failure instead.
    pub(super) fn send_failure(&mut self, connection: u64, message: &[u8], why: &str) {
        let Some(link) = self.links.get(&connection) else { return };
        let opcode = u16::from_le_bytes([message[0], message[1]]) & !ANSWER;
        let request = u64::from_le_bytes(message[8..16].try_into().expect("an encoded message has a header"));
        let failed = Answer::Failed { status: Status::NoSpace, text: why.to_owned() }.encode(opcode, request);
        if !matches!(socket::send(&link.socket, &failed, &[]), Ok(true)) {
            self.hang_up(connection);
        }
    }

    pub(super) fn hang_up(&mut self, connection: u64) {
        self.links.remove(&connection);
        self.feed(Event::Disconnected { connection });
        self.look_soon();
    }
}

/// A hint for memory that could not be made.
pub(super) fn hint(error: &OsError) -> &'static str {
    if error.is_out_of_descriptors() {
        "the daemon has no descriptor left; remove segments or raise its limit (ulimit -n)"
    } else if error.is_beyond_file_limit() {
        "the daemon may make no file as large; raise its limit (ulimit -f)"
    } else {
        "the node has no memory left for it"
    }
}
