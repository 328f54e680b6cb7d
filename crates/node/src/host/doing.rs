//! Carries out the broker's effects, one after another.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossdock_layout::wire::{ANSWER, Answer, PIN_PAGE, PIN_SLOTS};
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::{OsError, OsResult, file, memfd, socket};

use super::{Host, LISTENER};
use crate::broker::{Attachment, Effect, Event};
use crate::table;

/// How long the broker waits before it tries again to write to a full disk.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(50);
/// How long the broker waits before it tries again to watch the listening socket of an endpoint.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

impl Host<'_> {
    /// Carries out effects. `descriptors` came with the client's message that caused these effects. Then reports the
    /// connections that were closed meanwhile.
    pub(super) fn perform(&mut self, effects: Vec<Effect>, descriptors: Vec<OwnedFd>) {
        self.carry_out(effects, descriptors);
        self.report_hung_up();
    }

    fn carry_out(&mut self, effects: Vec<Effect>, descriptors: Vec<OwnedFd>) {
        let mut came = descriptors.into_iter();
        for effect in effects {
            // All records must be in the journal before the effects that follow become visible to clients. A question
            // to the kernel is not visible to clients, so it may come earlier.
            if !matches!(effect, Effect::Record(_) | Effect::ProveItem { .. }) {
                self.write_down();
            }
            match effect {
                Effect::Record(record) => self.journal.note(&record),
                Effect::Make { segment, size, label, first, .. } => {
                    let outcome = self.make(segment.0, size, &label, &first);
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Made { outcome });
                    self.carry_out(more, Vec::new());
                }
                Effect::MakePage { page, label } => {
                    let outcome = self.make(page.0, PIN_PAGE, &label, &[]).and_then(|number| self.fill(page.0, number));
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Made { outcome });
                    self.carry_out(more, Vec::new());
                }
                Effect::TellOfPage { series } => table::tell_of_page(&self.words, series),
                Effect::MakeItem { file, size } => {
                    let outcome = self.make_item(file.0, size).map(|()| 0);
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Made { outcome });
                    self.carry_out(more, Vec::new());
                }
                Effect::ProveItem { item, file, size, dying } => {
                    let verdict = self.prove_item(file.0, size, dying);
                    let now = self.now();
                    let more = self.broker.handle(now, Event::Proved { item, file, verdict });
                    self.carry_out(more, Vec::new());
                }
                Effect::CutItem { file, size } => self.cut_item(file.0, size),
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
                        // The offered descriptor may be read-only, and another process shares its open file
                        // description. So the memory is opened anew. If that fails, the offered descriptor is kept, and
                        // `make_writable` opens the memory anew before a program gets it for writing.
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
                        // The launcher may have a copy of this socket. So this process removes the socket from the
                        // epoll set, which would otherwise go on reporting it.
                        self.epoll.remove(fd).ok();
                    }
                    self.check_keeper(self.post.drop_listener(endpoint));
                }
                Effect::Forget { segment } => {
                    self.segments.remove(&segment.0);
                    self.forget_file(segment.0);
                    self.check_keeper(self.post.drop_segment(segment.0));
                }
                Effect::ClearPins { page, from, count } => self.clear(page.0, from, count),
                Effect::Alive { member } => table::set_alive(&self.words, member),
                Effect::Dead { member } => {
                    table::set_dead(&self.words, member);
                    self.unwatch(member);
                }
                Effect::Send { connection, message, with } => self.send(connection, &message, with),
                Effect::Close { connection, why } => {
                    // The member may still live, and no event will report its death. So the kernel is asked about it
                    // soon.
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

    /// Writes all records that were noted for the journal into its file. If the disk is full, waits until the disk has
    /// free space. A change that is not in the journal must not be promised to a client. Ending this broker would not
    /// help, because the next broker would need the same space.
    fn write_down(&mut self) {
        let mut is_told = false;
        while let Err(error) = self.journal.flush() {
            if !is_full(&error) {
                // This broker ends, and the next one starts from the journal.
                self.log.failure(format_args!("the journal cannot be written: {error}"));
                std::process::abort();
            }
            if !is_told {
                self.log.failure(format_args!("no room for the journal: {error}; nothing is answered until there is"));
                is_told = true;
            }
            std::thread::sleep(FULL_DISK_PAUSE);
        }
    }

    /// Handles the result of a message to the keeper. A broker cannot continue without its keeper. So if the message
    /// was not sent, this broker ends, and the keeper starts the next one.
    pub(super) fn check_keeper(&self, sent: crossdock_os::OsResult<()>) {
        if let Err(error) = sent {
            self.log.failure(format_args!("the keeper cannot be reached: {error}"));
            std::process::abort();
        }
    }

    fn make(&mut self, id: u64, size: u64, label: &str, first: &[u8]) -> Result<u64, String> {
        // The kernel allows at most 249 bytes for the name of a memfd, so a longer label is cut.
        let label = &label[..label.len().min(240)];
        // Memory is allocated for the first bytes only. The processes that use the other pages allocate these pages, and
        // are charged for them.
        let made = memfd::create(label, size).and_then(|fd| file::write_all_at(&fd, first, 0).map(|()| fd));
        let fd = made.map_err(|error| {
            let hint = hint(&error);
            format!("no segment of {size} bytes could be made: {error}; {hint}")
        })?;
        let number = memfd::number(&fd);
        self.keep(id, fd);
        Ok(number)
    }

    pub(super) fn keep(&mut self, id: u64, fd: OwnedFd) {
        self.check_keeper(self.post.hold_segment(id, fd.as_fd()));
        self.segments.insert(id, fd);
    }

    /// Allocates a pin page's memory at once. Otherwise an observer's first store could fail because the node has no
    /// memory left.
    fn fill(&mut self, page: u64, number: u64) -> Result<u64, String> {
        let reserved = self.segments.get(&page).map_or(Ok(()), |fd| memfd::reserve(fd, 0, PIN_PAGE));
        reserved.map(|()| number).map_err(|error| {
            self.segments.remove(&page);
            self.check_keeper(self.post.drop_segment(page));
            format!("there is no memory for a pin page: {error}; {}", hint(&error))
        })
    }

    /// Opens a segment's memory for writing if its descriptor is read-only. A member that may only read has offered
    /// this descriptor after the former keeper's death, and the daemon could not open the memory anew at that moment.
    fn make_writable(&mut self, id: u64) -> OsResult<()> {
        let Some(fd) = self.segments.get(&id) else { return Ok(()) };
        if file::is_open_for_writing(fd)? {
            return Ok(());
        }
        let opened = self.with_spare(|host| host.segments.get(&id).map(file::reopen).transpose())?;
        if let Some(fd) = opened {
            self.keep(id, fd);
        }
        Ok(())
    }

    /// Fills these slots of a pin page with zeros, so that they pin no version any more.
    fn clear(&mut self, page: u64, from: u32, count: u32) {
        let slot = PIN_PAGE / u64::from(PIN_SLOTS);
        let cleared = self.make_writable(page).and_then(|()| match self.segments.get(&page) {
            Some(fd) => memfd::clear(fd, u64::from(from) * slot, u64::from(count) * slot),
            None => Ok(()),
        });
        if let Err(error) = cleared {
            self.log.failure(format_args!("a pin page could not be cleared, what it pins stays: {error}"));
        }
    }

    fn listen(&mut self, endpoint: u64, fd: OwnedFd) {
        self.check_keeper(self.post.hold_listener(endpoint, fd.as_fd()));
        self.listeners.insert(endpoint, fd);
        if let Err(error) = self.watch_listener(endpoint) {
            self.log.failure(format_args!("no task can connect to endpoint {endpoint} yet: {error}"));
            self.unwatched.insert(endpoint);
            self.watch_retry = Instant::now() + WATCH_PAUSE;
        }
    }

    fn watch_listener(&self, endpoint: u64) -> OsResult<()> {
        let Some(fd) = self.listeners.get(&endpoint) else { return Ok(()) };
        socket::set_nonblocking(fd)?;
        self.epoll.add(fd, LISTENER | endpoint, false)
    }

    /// Tries again to watch the listening sockets that could not be watched, because the kernel lacked memory or the user
    /// had too many watches. Their endpoints are in the journal already, so tasks connect to them.
    pub(super) fn watch_listeners_again(&mut self) {
        if self.unwatched.is_empty() || Instant::now() < self.watch_retry {
            return;
        }
        let unwatched = std::mem::take(&mut self.unwatched);
        self.unwatched = unwatched.into_iter().filter(|endpoint| self.watch_listener(*endpoint).is_err()).collect();
        self.watch_retry = Instant::now() + WATCH_PAUSE;
    }

    fn send(&mut self, connection: u64, message: &[u8], with: Attachment) {
        let opened = match with {
            Attachment::Papers { member } => return self.send_papers(connection, message, member),
            Attachment::Item { file, writable } => self.with_spare(|host| host.open_item(connection, file.0, writable)),
            Attachment::Segment { segment, writable: false } => self.open_read_only(segment.0),
            Attachment::Series { pool, page, .. } => {
                self.make_writable(page.0).and_then(|()| self.open_read_only(pool.0))
            }
            Attachment::Segment { segment, writable: true } => self.make_writable(segment.0).map(|()| None),
            Attachment::Nothing => Ok(None),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // The journal already says that the member has what it asked for. If memory or another resource is
                // short for the moment, the client gets no answer: the client connects again, lists what it really has,
                // and repeats its request. After any other error, the client gets the reason before its connection is
                // closed.
                if !error.is_out_of_room() {
                    self.send_failure(connection, message, &error.to_string());
                }
                return self.hang_up(connection);
            }
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
        self.sent(connection, sent);
    }

    fn open_read_only(&mut self, segment: u64) -> OsResult<Option<OwnedFd>> {
        self.with_spare(|host| host.segments.get(&segment).map(file::reopen_read_only).transpose())
    }

    /// Calls `open`, which opens a file for a client. If the process has no descriptor left, gives up the spare
    /// descriptor and calls `open` again, because the client's request is already done and in the journal.
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

    /// Sends a new member its liveness table and its lock on the roll. The descriptor in flight keeps the lock, so this
    /// process closes its own copy of the descriptor even before the message arrives. Then watches the member's process;
    /// meanwhile the client reads the message.
    fn send_papers(&mut self, connection: u64, message: &[u8], member: MemberId) {
        let papers = self.with_spare(|host| Ok((host.roll.roll.enter(member.0)?, host.roll.roll.reader()?)));
        let Some(link) = self.links.get(&connection) else { return };
        let sent = papers.map(|(entry, reader)| {
            socket::send(&link.socket, message, &[self.table.as_fd(), entry.as_fd(), reader.as_fd()])
        });
        self.watch(member, connection);
        match sent {
            Err(error) => self.send_failure(connection, message, &error.to_string()),
            Ok(Err(error)) if error.is_too_many_in_flight() => {
                self.send_failure(connection, message, "too many descriptors are on their way to programs; try again");
            }
            Ok(sent) => self.sent(connection, sent),
        }
    }

    fn sent(&mut self, connection: u64, outcome: OsResult<bool>) {
        match outcome {
            Ok(true) => {}
            // The client does not read its answers, and the kernel accepts no more of them. The broker does not wait
            // for the client, but closes the connection.
            Ok(false) => self.hang_up(connection),
            // The kernel lacks memory or another resource for the message at present, or too many descriptors are in
            // flight to clients that do not receive them. The client connects again, lists what it has, and repeats its
            // unanswered requests.
            Err(error) if error.is_out_of_room() || error.is_too_many_in_flight() => self.hang_up(connection),
            // The connection to the client is broken. Another event reports the end of this connection.
            Err(_) => {}
        }
    }

    /// Sends a client a failure as the answer to its request, in place of `message`.
    pub(super) fn send_failure(&mut self, connection: u64, message: &[u8], why: &str) {
        let Some(link) = self.links.get(&connection) else { return };
        let opcode = u16::from_le_bytes([message[0], message[1]]) & !ANSWER;
        let request = u64::from_le_bytes(message[8..16].try_into().expect("an encoded message has a header"));
        let failed = Answer::Failed { status: Status::NoSpace, text: why.to_owned() }.encode(opcode, request);
        if !matches!(socket::send(&link.socket, &failed, &[]), Ok(true)) {
            self.hang_up(connection);
        }
    }

    /// Closes a connection. The host reports this to the broker only after it has carried out all effects of the
    /// present event: a broker that has asked for memory expects the answer before any other event.
    pub(super) fn hang_up(&mut self, connection: u64) {
        self.links.remove(&connection);
        self.hung_up.push_back(connection);
        self.look_soon();
    }

    /// Reports the closed connections to the broker.
    pub(super) fn report_hung_up(&mut self) {
        while let Some(connection) = self.hung_up.pop_front() {
            self.look_at_journal();
            let now = self.now();
            let effects = self.broker.handle(now, Event::Disconnected { connection });
            self.carry_out(effects, Vec::new());
        }
    }
}

/// Tells whether a file could not be written because its disk is full, or because the daemon's user may use no more of
/// the disk.
fn is_full(error: &std::io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge | ErrorKind::OutOfMemory)
}

/// Gives a hint for the user when memory could not be made.
pub(super) fn hint(error: &OsError) -> &'static str {
    if error.is_out_of_descriptors() {
        "the daemon has no descriptor left; remove segments or raise its limit (ulimit -n)"
    } else if error.is_beyond_file_limit() {
        "the daemon may make no file as large; raise its limit (ulimit -f)"
    } else {
        "the node has no memory left for it"
    }
}
