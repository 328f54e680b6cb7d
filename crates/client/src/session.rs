//! A session: one member of the node daemon, with all requests that the member may send to the daemon.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossdock_core::liveness::Liveness;
use crossdock_layout::wire::{Answer, GRANTS_PER_MESSAGE, Grant, InUse, MemberState, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status, name};
use crossdock_os::{Deadline, OwnFile, child, socket};

use crate::connection::{Answered, Connection, StillOpen};
use crate::discovery::{self, variable};
use crate::handshake::ClientIdentity;
use crate::segment::{OpenRequest, OpenedSegment, SegmentOpening};
use crate::session_objects::SessionObjects;
use crate::{Error, Listing, Reason, Result, listing};

/// How to reach the daemon, and as which task to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The path of the endpoint's socket. If it is `None`, the library looks for a socket (`CROSSDOCK_SOCKET`,
    /// `/run/crossdock`, the user's runtime folder).
    pub socket: Option<PathBuf>,
    /// The name of the task. An endpoint that was made for one task accepts no other name.
    pub task: Option<String>,
    /// The rank of this process in the task. If it is `None`, the rank is the value of the variable `CROSSDOCK_RANK`,
    /// or 0 if the variable is not set.
    pub rank: Option<u32>,
    /// The name of the workflow. An endpoint that was made for one workflow accepts no other name.
    pub workflow: Option<String>,
    /// The deadline for connecting, and for each answer of the daemon.
    pub timeout: Duration,
    /// True if a private daemon is started when no other daemon is found.
    pub private_daemon: bool,
    /// True if this session only looks at what exists, as `crossdock ls` does. Such a session does not begin a run, and
    /// does not keep a run from ending.
    pub visitor: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            socket: None,
            task: None,
            rank: None,
            workflow: None,
            timeout: Duration::from_secs(5),
            private_daemon: true,
            visitor: false,
        }
    }
}

/// One member of the node daemon. Clones share the same session, and threads may share a clone.
///
/// The member lives until the last clone is dropped; each region and port holds a clone. A forked child cannot use its
/// parent's session; it must make its own.
#[derive(Clone, Debug)]
pub struct Session {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connection: Arc<Connection>,
    member: MemberId,
    admin: bool,
    run: u64,
    /// True if the program named no task and did not connect through a task's endpoint.
    nameless: bool,
    rank: u32,
    task: String,
    workflow: String,
    timeout: Duration,
    items: crate::item::CooperativeItems,
    objects: Arc<SessionObjects>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.connection.end();
    }
}

/// How long a call waits for the daemon's answer after the deadline that the daemon itself has for this answer.
const LATE: Duration = Duration::from_millis(500);
/// How long a call that has failed waits for the daemon's description of a member, which becomes part of the error's
/// text. The deadline of the call itself may have passed already.
const DESCRIPTION: Duration = Duration::from_millis(200);

impl Session {
    /// Connects to the node daemon. If no daemon listens and the options allow it, starts a private daemon.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no daemon, or no workflow of this name. `DENIED` if the daemon does not serve this user,
    /// or if the endpoint belongs to another task or workflow. `INCOMPATIBLE` if the daemon speaks another version of
    /// the protocol (the text names both). `TIMED_OUT` if the daemon does not answer in time. `NO_SPACE` if the daemon
    /// has no room for another member. `INVALID` if a name is not allowed, or if `CROSSDOCK_RANK` is no number.
    pub fn connect(options: &ConnectOptions) -> Result<Self> {
        let task = options.task.clone().or_else(|| variable("CROSSDOCK_TASK"));
        let workflow = options.workflow.clone().or_else(|| variable("CROSSDOCK_WORKFLOW"));
        for (what, given) in [("task", &task), ("workflow", &workflow)] {
            if let Some(given) = given {
                check_name(what, given)?;
            }
        }
        let rank = match (options.rank, variable("CROSSDOCK_RANK")) {
            (Some(rank), _) => rank,
            (None, None) => 0,
            (None, Some(text)) => text.parse().map_err(|_| {
                Error::new(Status::Invalid, format!("CROSSDOCK_RANK is '{text}'; it has to be a number from 0"))
            })?,
        };
        let token = child::random().map_err(|e| Error::new(Status::System, e.to_string()))?;
        let nameless = task.is_none();
        let (member, visitor) = (MemberId::NONE, options.visitor);
        let who = ClientIdentity { token, member, rank, task, workflow, visitor, server: None };
        let found = discovery::find(options, &who, Deadline::after(options.timeout))?;
        let (member, admin, rank) = (found.welcome.member, found.welcome.admin, found.welcome.rank);
        let (run, nameless) = (found.welcome.run, nameless && admin);
        let (task, workflow) = (found.welcome.task.clone(), found.welcome.workflow.clone());
        let connection = Connection::new(found.path, found.private, who, found.welcome)?;
        let (timeout, objects) = (options.timeout, Arc::<SessionObjects>::default());
        let items = crate::item::CooperativeItems::default();
        crate::at_exit::keep_session(&objects, &connection);
        connection.prepare_to_watch();
        let shared = Shared { connection, member, admin, run, nameless, rank, task, workflow, timeout, items, objects };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// This session's member id.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.shared.member
    }

    /// The name of the task that this session acts as.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.shared.task
    }

    /// Gives the text by which other members' error messages name this member: the name of the task or, for a program
    /// that is no task, its command and its process id.
    pub(crate) fn label(&self) -> String {
        if self.shared.nameless { format!("{}@{}", command(), std::process::id()) } else { self.task().to_owned() }
    }

    /// The rank of this session in its task.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// The number of the workflow's run that this session takes part in, counted from 1. Ports end with the run.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.shared.run
    }

    /// The name of the workflow that this session takes part in.
    #[must_use]
    pub fn workflow(&self) -> &str {
        &self.shared.workflow
    }

    /// Tells whether this session may make workflows and see everything on this node.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.shared.admin
    }

    /// Reports the progress of this task: `done` steps of `of` steps are done. The task decides what a step is.
    /// `crossdock ps`, `crossdock top`, the live view of `crossdock run`, the web page and the metrics show the report;
    /// no other task waits for it. An `of` of 0 withdraws the report.
    ///
    /// The call never waits for the daemon, so it can be made in every iteration. If there are several calls within 20
    /// ms, only the numbers of the last call are sent.
    ///
    /// # Errors
    /// `INVALID` if `done` is more than `of`, `CLOSED` after the session was closed, `DISCONNECTED` in a forked child.
    pub fn progress(&self, done: u64, of: u64) -> Result<()> {
        if done > of {
            let text =
                format!("task '{}' cannot have done {done} of {of} steps; give the steps done first", self.task());
            return Err(Error::new(Status::Invalid, text));
        }
        self.shared.connection.progress(done, of)
    }

    /// Lists everything that this session may see: everything in its own workflow or, for the daemon's own user,
    /// everything on the node.
    ///
    /// # Errors
    /// `DISCONNECTED` or `TIMED_OUT` if the daemon does not answer.
    pub fn list(&self) -> Result<Listing> {
        listing::list(&self.shared.connection, None, self.deadline())
    }

    /// Asks for the nodes of the daemon's site, including this node. The list is empty if the daemon is in no site.
    ///
    /// # Errors
    /// `DISCONNECTED` or `TIMED_OUT` if the daemon does not answer.
    pub fn nodes(&self) -> Result<Vec<listing::NodeInfo>> {
        listing::nodes(&self.shared.connection, self.deadline())
    }

    /// Makes a workflow. The workflow ends when this session ends, or earlier by `end_workflow`. `quota` is in bytes; 0
    /// means no limit other than that of the node.
    ///
    /// # Errors
    /// `EXISTS` if there is a workflow of this name. `DENIED` if this session connected through a task's endpoint.
    /// `INVALID` if the name is not allowed.
    pub fn make_workflow(&self, name: &str, quota: u64) -> Result<()> {
        check_name("workflow", name)?;
        self.ask(Request::MakeWorkflow { quota, name: name.to_owned() }).map(drop)
    }

    /// Gives a listening SOCK_SEQPACKET socket to the daemon. Each process that connects to this socket acts as the
    /// task `task` of `workflow`, with these grants. After an error, no process becomes a task through this socket.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such workflow. `INVALID` if a name or a grant's pattern is not allowed, or if the
    /// descriptor is no listening socket. `DENIED` if this session connected through a task's endpoint. `NO_SPACE` if
    /// there are too many grants.
    pub fn make_endpoint(&self, workflow: &str, task: &str, listener: OwnedFd, grants: &[Grant]) -> Result<()> {
        self.shared.connection.check_process()?;
        check_name("workflow", workflow)?;
        check_name("task", task)?;
        for grant in grants {
            if !crossdock_layout::wire::is_pattern(&grant.pattern) {
                let text = format!(
                    "'{}' in the grants of task '{task}' is neither a name nor a beginning of names with a * behind it",
                    grant.pattern
                );
                return Err(Error::new(Status::Invalid, text));
            }
        }
        let listener = OwnFile::from(listener);
        self.give_endpoint(workflow, task, &listener, grants).inspect_err(|_| {
            // Although the call failed, the daemon may have made the endpoint, or may still make it. The socket is shut
            // down, so that no process can reach the endpoint.
            socket::shut_down(&listener);
            self.shared.connection.forget_endpoint(&listener);
        })
    }

    fn give_endpoint(&self, workflow: &str, task: &str, listener: &OwnFile, grants: &[Grant]) -> Result<()> {
        let mut parts = grants.chunks(GRANTS_PER_MESSAGE);
        let first = parts.next().unwrap_or_default().to_vec();
        let (workflow, task) = (workflow.to_owned(), task.to_owned());
        let request = Request::MakeEndpoint { workflow, task, grants: first };
        let connection = &self.shared.connection;
        let answer = connection.ask(request, Some(listener.clone()), None, self.deadline())?;
        let Answer::Done { value: endpoint } = answer.0 else { return Err(unexpected()) };
        connection.keep_made()?;
        for part in parts {
            self.ask(Request::AddGrants { endpoint, grants: part.to_vec() })?;
        }
        Ok(())
    }

    /// Ends a workflow, and with it all its segments, endpoints and members.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no workflow of this name. `DENIED` if this session connected through a task's endpoint.
    /// `INVALID` for the default workflow.
    pub fn end_workflow(&self, name: &str) -> Result<()> {
        check_name("workflow", name)?;
        self.ask(Request::EndWorkflow { name: name.to_owned() }).map(drop)
    }

    /// Lists what a workflow has at present.
    ///
    /// # Errors
    /// `NOT_FOUND` if this session may see no workflow of this name.
    pub fn workflow_report(&self, name: &str) -> Result<Listing> {
        check_name("workflow", name)?;
        listing::list(&self.shared.connection, Some(name), self.deadline())
    }

    /// Leaves properly: the ports are closed, the member ends, and the workflows that this session made end.
    ///
    /// # Errors
    /// `BUSY` while this session has items, regions, publishers, observers or versions open. The caller must drop them
    /// first. Until then these objects still work; the session ends when the last of them is dropped. If another thread
    /// waits for a cooperative item or for an end of a port, its call fails with `CLOSED`.
    pub fn close(self) -> Result<()> {
        self.shared.connection.check_process()?;
        let Err(open) = self.shared.connection.leave(|| self.session_objects().close_ports()) else { return Ok(()) };
        let task = self.task();
        let text = match open {
            // If a member left while it publishes, its observers would take the publisher for dead. If a member left
            // while it observes, the publisher would no longer respect the member's pins. So the session must not leave
            // while the program still has publishers, observers or versions.
            StillOpen::Series => format!(
                "series of task '{task}' are still published or observed; end publishers, drop observers and versions, then close"
            ),
            StillOpen::Items(items) => {
                format!("{items} items of task '{task}' are still open; drop or transfer them, then close")
            }
            StillOpen::Regions(regions) => {
                format!("{regions} regions of task '{task}' are still open; drop them, then close")
            }
            StillOpen::Call => format!("a thread of task '{task}' is still opening a port or an item; close again"),
        };
        Err(Error::new(Status::Busy, text))
    }

    /// Gives up the session without leaving. The daemon and all other members then treat this member as a dead member,
    /// also at its ends of ports. The call is meant for a process that acts for members of other nodes. No thread may
    /// use a region or a port of this session any more, except threads that wait at a port that `End::abandon` gave up.
    pub fn abandon(&self) {
        for port in self.session_objects().ports() {
            port.abandon();
        }
        self.shared.connection.abandon();
    }

    /// The regions and ports that this session has open.
    pub(crate) fn session_objects(&self) -> &SessionObjects {
        &self.shared.objects
    }

    /// Opens or makes a segment by name.
    pub(crate) fn open_segment(&self, request: &OpenRequest<'_>) -> Result<OpenedSegment> {
        check_name(request.kind.word(), request.name)?;
        let message = Request::Open {
            kind: request.kind,
            mode: request.mode,
            access: request.access,
            size: request.size,
            reserve: request.reserve,
            attribute: request.attribute,
            wait_ms: request.timeout.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
            persistent: request.persistent,
            name: request.name.to_owned(),
        };
        let deadline = self.late(request.timeout);
        let opened = self.opened(self.shared.connection.ask(message, None, request.timeout, deadline)?)?;
        if opened.writable && request.reserve > 0 {
            // This process allocates the pages, so that they are charged to the memory cgroup of the task and not to
            // that of the daemon.
            crossdock_os::memfd::reserve(&opened.descriptor, 0, request.reserve.min(opened.size)).map_err(|error| {
                let what = format!("{} '{}'", opened.kind.word(), opened.name);
                Error::new(Status::NoSpace, format!("there is no memory left for {what}: {error}"))
            })?;
        }
        Ok(opened)
    }

    /// Opens a segment by its id, with the rights that the task's grants give on the segment's name. Only an admin may
    /// open a segment of another workflow.
    pub(crate) fn attach_segment(&self, id: SegmentId) -> Result<OpenedSegment> {
        let message = Request::Attach { segment: id, access: Rights::ALL };
        self.opened(self.shared.connection.ask(message, None, None, self.deadline())?)
    }

    fn opened(&self, (answer, descriptor): Answered) -> Result<OpenedSegment> {
        let (Answer::Segment { segment, size, attribute, kind, writable, name, .. }, Some(descriptor)) =
            (answer, descriptor)
        else {
            return Err(unexpected());
        };
        let opening = SegmentOpening::new(self.shared.connection.clone(), segment);
        // The memory may come from another member, which cannot be trusted. So this process checks the memory.
        crossdock_os::memfd::check(&descriptor, size).map_err(|error| {
            Error::new(Status::Corrupt, format!("{} '{name}' cannot be used: {error}", kind.word()))
        })?;
        Ok(OpenedSegment { id: segment, kind, name, descriptor, size, attribute, writable, opening })
    }

    /// Removes the name of an object. The object's memory is freed when the last member has unmapped it.
    pub(crate) fn remove_segment(&self, kind: SegmentKind, name: &str) -> Result<()> {
        check_name(kind.word(), name)?;
        self.ask(Request::Remove { kind, in_use: InUse::Keep, name: name.to_owned() }).map(drop)
    }

    /// Removes the name of a region, port, series or item. `in_use` says what happens if members have the object open:
    /// either the call fails, or only the name is removed and the members keep the object. Only [`InUse::Force`]
    /// removes the name of a series that is being published. The memory is freed when the last member has unmapped it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such object. `DENIED` without a grant to remove it. `BUSY` if members have the object
    /// open (the text names them) and `in_use` forbids to remove it. In a site: `DISCONNECTED` if the node that has the
    /// object does not answer; then the caller does not know whether the object was removed.
    pub fn remove(&self, kind: SegmentKind, name: &str, in_use: InUse) -> Result<()> {
        check_name(kind.word(), name)?;
        self.ask(Request::Remove { kind, in_use, name: name.to_owned() }).map(drop)
    }

    /// The object that tells which members are dead. It learns by one load from shared memory which members the daemon
    /// has declared dead. To ask the kernel about a member, it needs one or two system calls.
    pub(crate) fn liveness(&self) -> &Liveness {
        self.shared.connection.liveness()
    }

    /// Describes a present or former member for error messages ("task simulate, rank 0, process 17, last seen 3.2 s
    /// ago"). If the daemon does not answer at once, gives only the member's id.
    pub(crate) fn describe_member(&self, member: MemberId) -> String {
        let deadline = self.deadline().at_most(DESCRIPTION);
        let asked = self.shared.connection.ask(Request::Describe { member }, None, None, deadline);
        let Ok((Answer::Member(found), _)) = asked else { return member.to_string() };
        let state = match found.state {
            MemberState::Connected => "connected",
            MemberState::Away => "alive",
            MemberState::Left => "left",
            MemberState::Dead => "dead",
        };
        let seen = found.silent_ms as f64 / 1000.0;
        if found.task == "program" {
            return format!(
                "a program outside of a run, process {}, {state}, last heard of {seen:.1} s ago",
                found.pid
            );
        }
        format!(
            "task {}, rank {}, process {}, {state}, last heard of {seen:.1} s ago",
            found.task, found.rank, found.pid
        )
    }

    /// Gives the name of a member's task; `None` if the daemon does not know the member any more.
    #[must_use]
    pub fn task_of(&self, member: MemberId) -> Option<String> {
        match self.ask(Request::Describe { member }) {
            Ok((Answer::Member(found), _)) => Some(found.task),
            _ => None,
        }
    }

    /// The cooperative items that this session knows.
    pub(crate) fn items(&self) -> &crate::item::CooperativeItems {
        &self.shared.items
    }

    fn ask(&self, request: Request) -> Result<Answered> {
        self.shared.connection.ask(request, None, None, self.deadline())
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.shared.connection
    }

    /// The time until which this process waits for the answer to a request. `wait` is how long the daemon itself may
    /// wait before it answers this request.
    pub(crate) fn late(&self, wait: Option<Duration>) -> Deadline {
        match wait {
            Some(wait) if wait > self.shared.timeout => Deadline::after(wait.saturating_add(LATE)),
            _ => self.deadline(),
        }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout())
    }

    /// The time in which the daemon must answer a request that it can answer without a wait.
    pub(crate) fn timeout(&self) -> Duration {
        self.shared.timeout
    }
}

pub(crate) fn check_name(what: &str, given: &str) -> Result<()> {
    name::check(given).map_err(|bad| Error::bad_name(what.to_owned(), given, bad))
}

pub(crate) fn unexpected() -> Error {
    Error::because(Status::Incompatible, Reason::UnexpectedAnswer)
}

/// Gives the name of this process's program. If the program is an interpreter that runs a script, gives the name of the
/// script.
fn command() -> String {
    let base = |text: String| text.rsplit('/').next().unwrap_or_default().to_owned();
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().map(base).unwrap_or_default();
    let script = words.next().filter(|word| program.starts_with("python") && !word.starts_with('-')).map(base);
    // The entry for an end of a port has 40 bytes for the command and the process id. The process id takes up to 8
    // bytes, so the command is shortened.
    let text = script.unwrap_or(program);
    text.chars().filter(char::is_ascii_graphic).filter(|c| *c != '@').take(30).collect()
}
