//! A session: one member of the node daemon, and everything that it may ask the daemon.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossdock_core::liveness::Liveness;
use crossdock_layout::wire::{Answer, GRANTS_PER_MESSAGE, Grant, InUse, MemberState, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status, name};
use crossdock_os::{Deadline, child};

use crate::connection::{Answered, Connection};
use crate::discovery::{self, variable};
use crate::handshake::Who;
use crate::owned::Owned;
use crate::segment::{Lease, OpenRequest, OpenedSegment};
use crate::{Error, Listing, Reason, Result, listing};

/// How to reach the daemon, and as which task.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The endpoint's socket; `None` looks for one (`CROSSDOCK_SOCKET`, `/run/crossdock`, the user's runtime folder).
    pub socket: Option<PathBuf>,
    /// The task's name. An endpoint that was made for one task knows that task and accepts no other.
    pub task: Option<String>,
    /// The task's rank; else `CROSSDOCK_RANK`, else 0.
    pub rank: Option<u32>,
    /// The workflow. An endpoint that was made for one workflow knows it and accepts no other.
    pub workflow: Option<String>,
    /// The deadline for connecting, and for each answer of the daemon.
    pub timeout: Duration,
    /// Start a private daemon if there is none.
    pub private_daemon: bool,
    /// Only look, as `crossdock ls` does: this session neither begins a run nor keeps one from ending.
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

/// One member of the node daemon. Clones are the same session, and threads may share it.
///
/// The member lives until the last clone is dropped; each region and port holds one. A forked child must connect anew.
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
    /// The program named no task and did not connect through a task's endpoint.
    nameless: bool,
    rank: u32,
    task: String,
    workflow: String,
    timeout: Duration,
    items: crate::item::Local,
    owned: Arc<Owned>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.connection.end();
    }
}

/// How much later than the daemon's own deadline an answer may arrive.
const LATE: Duration = Duration::from_millis(500);

impl Session {
    /// Connects to the node daemon. If there is none and the options allow it, starts a private one.
    ///
    /// # Errors
    /// `NOT_FOUND` without a daemon, `DENIED`, `INCOMPATIBLE` (names both versions), `TIMED_OUT`, `INVALID` (a name).
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
        let who = Who { token, member: MemberId::NOBODY, rank, task, workflow, visitor: options.visitor };
        let found = discovery::find(options, &who, Deadline::after(options.timeout))?;
        let (member, admin, rank) = (found.welcome.member, found.welcome.admin, found.welcome.rank);
        let (run, nameless) = (found.welcome.run, nameless && admin);
        let (task, workflow) = (found.welcome.task.clone(), found.welcome.workflow.clone());
        let connection = Connection::new(found.path, found.private, who, found.welcome)?;
        let (timeout, owned) = (options.timeout, Arc::<Owned>::default());
        let items = crate::item::Local::default();
        crate::leaving::keep_session(&owned, &connection);
        let shared = Shared { connection, member, admin, run, nameless, rank, task, workflow, timeout, items, owned };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// This session's member id.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.shared.member
    }

    /// The task that this session acts as.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.shared.task
    }

    /// The task's name, or the command and process id of a program that is no task. For error messages of other
    /// members.
    pub(crate) fn label(&self) -> String {
        if self.shared.nameless { format!("{}@{}", command(), std::process::id()) } else { self.task().to_owned() }
    }

    /// The rank in the task.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// The run of its workflow that this session takes part in, counted from 1. Ports end with it.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.shared.run
    }

    /// The workflow that this session takes part in.
    #[must_use]
    pub fn workflow(&self) -> &str {
        &self.shared.workflow
    }

    /// May this session make workflows and see everything on this node?
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.shared.admin
    }

    /// Reports how far this task is: `done` of `of` steps, whatever a step is for the task. `crossdock ps`, `top`, the
    /// live view of `run`, the web page and the metrics show it; nothing waits for it. An `of` of 0 withdraws the
    /// report.
    ///
    /// The call never waits for the daemon and may be made in every iteration. Calls within 20 ms of another one become
    /// one message, which has the numbers of the last call.
    ///
    /// # Errors
    /// `INVALID` if `done` is more than `of`, `CLOSED`, `DISCONNECTED` in a forked child.
    pub fn progress(&self, done: u64, of: u64) -> Result<()> {
        if done > of {
            let text =
                format!("task '{}' cannot have done {done} of {of} steps; give the steps done first", self.task());
            return Err(Error::new(Status::Invalid, text));
        }
        self.shared.connection.progress(done, of)
    }

    /// Everything that this session may see: its own workflow, or all of the node for the daemon's own user.
    ///
    /// # Errors
    /// `DISCONNECTED`, `TIMED_OUT`.
    pub fn list(&self) -> Result<Listing> {
        listing::list(&self.shared.connection, None, self.deadline())
    }

    /// The nodes of the daemon's site, this one included; none if the daemon is in no site.
    ///
    /// # Errors
    /// `DISCONNECTED`.
    pub fn nodes(&self) -> Result<Vec<listing::NodeInfo>> {
        listing::nodes(&self.shared.connection, self.deadline())
    }

    /// Makes a workflow that ends with this session, or by `end_workflow`. `quota` in bytes; 0 = the node's.
    ///
    /// # Errors
    /// `EXISTS`, `DENIED` for a task's endpoint, `INVALID` (name).
    pub fn make_workflow(&self, name: &str, quota: u64) -> Result<()> {
        check_name("workflow", name)?;
        self.ask(Request::MakeWorkflow { quota, name: name.to_owned() }).map(drop)
    }

    /// Gives a listening SOCK_SEQPACKET socket to the daemon. A process that connects to the socket acts as `task` of
    /// `workflow` with these grants.
    ///
    /// # Errors
    /// `NOT_FOUND` (workflow), `INVALID` (names, patterns, a descriptor of another kind), `DENIED`.
    pub fn make_endpoint(&self, workflow: &str, task: &str, listener: OwnedFd, grants: &[Grant]) -> Result<()> {
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
        let mut parts = grants.chunks(GRANTS_PER_MESSAGE);
        let first = parts.next().unwrap_or_default().to_vec();
        let (workflow, task) = (workflow.to_owned(), task.to_owned());
        let request = Request::MakeEndpoint { workflow, task, grants: first };
        let listener = Arc::new(listener);
        let connection = &self.shared.connection;
        let answer = connection.ask(request.clone(), Some(listener.clone()), None, self.deadline())?;
        let Answer::Done { value: endpoint } = answer.0 else { return Err(unexpected()) };
        connection.keep_endpoint(request, listener);
        for part in parts {
            self.ask(Request::AddGrants { endpoint, grants: part.to_vec() })?;
        }
        Ok(())
    }

    /// Ends a workflow with its segments, endpoints and members.
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED` for a task's endpoint, `INVALID` for the default workflow.
    pub fn end_workflow(&self, name: &str) -> Result<()> {
        check_name("workflow", name)?;
        self.shared.connection.forget_endpoints(name);
        self.ask(Request::EndWorkflow { name: name.to_owned() }).map(drop)
    }

    /// What a workflow has at present.
    ///
    /// # Errors
    /// `NOT_FOUND` if this session may see no workflow of this name.
    pub fn workflow_report(&self, name: &str) -> Result<Listing> {
        check_name("workflow", name)?;
        listing::list(&self.shared.connection, Some(name), self.deadline())
    }

    /// Leaves in order: the ports are closed, the member is gone, and the workflows that it made end.
    ///
    /// # Errors
    /// `BUSY` while items, regions, publishers, observers or versions of this session are open: drop them first. Until
    /// then they still work, and the session ends with the last of them.
    pub fn close(self) -> Result<()> {
        self.shared.connection.check_process()?;
        self.owned().close_ports();
        // When a publisher's member leaves, it is dead for its observers. When an observer's member leaves, the
        // publisher no longer respects its pins. Neither may happen while this program still holds them.
        if self.shared.connection.has_series() {
            let text = format!(
                "series of task '{}' are still published or observed; end publishers, drop observers and versions, then close",
                self.task()
            );
            return Err(Error::new(Status::Busy, text));
        }
        if self.shared.connection.items() > 0 {
            let (items, task) = (self.shared.connection.items(), self.task());
            let text = format!("{items} items of task '{task}' are still open; drop or transfer them, then close");
            return Err(Error::new(Status::Busy, text));
        }
        match self.shared.connection.regions() {
            0 => {
                self.shared.connection.end();
                Ok(())
            }
            open => {
                let text = format!("{open} regions of task '{}' are still open; drop them, then close", self.task());
                Err(Error::new(Status::Busy, text))
            }
        }
    }

    /// Gives the session up as a death would: the daemon hears no goodbye, ends of ports are not closed in order, and the
    /// member is dead for all others. No thread may work on a region or a port of this session any more, besides
    /// threads that wait at a port that was given up by `End::abandon`. For a process that acts for members of other nodes.
    pub fn abandon(&self) {
        for port in self.owned().ports() {
            port.abandon();
        }
        self.shared.connection.abandon();
    }

    /// The regions and ports that this session has open.
    pub(crate) fn owned(&self) -> &Owned {
        &self.shared.owned
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
            // The pages are charged to the memory cgroup of the task that uses them, and not to the daemon's.
            crossdock_os::memfd::reserve(&opened.descriptor, 0, request.reserve.min(opened.size)).map_err(|error| {
                let what = format!("{} '{}'", opened.kind.word(), opened.name);
                Error::new(Status::NoSpace, format!("there is no memory left for {what}: {error}"))
            })?;
        }
        Ok(opened)
    }

    /// Opens a segment by its id, with as many rights as are granted on its name. Only an admin may open one of another
    /// workflow.
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
        let lease = Lease::new(self.shared.connection.clone(), segment);
        // The daemon can be trusted, but not the member that offered this memory to it.
        crossdock_os::memfd::check(&descriptor, size).map_err(|error| {
            Error::new(Status::Corrupt, format!("{} '{name}' cannot be used: {error}", kind.word()))
        })?;
        Ok(OpenedSegment { id: segment, kind, name, descriptor, size, attribute, writable, lease })
    }

    /// Removes a name. The memory is freed with its last mapping.
    pub(crate) fn remove_segment(&self, kind: SegmentKind, name: &str) -> Result<()> {
        check_name(kind.word(), name)?;
        self.ask(Request::Remove { kind, in_use: InUse::Keep, name: name.to_owned() }).map(drop)
    }

    /// Removes the name of a region, port, series or item. If members have it open, the call refuses, lets them keep
    /// it, or removes it all the same, as `in_use` says. The memory is freed with its last mapping.
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED`, `BUSY` (names the members).
    pub fn remove(&self, kind: SegmentKind, name: &str, in_use: InUse) -> Result<()> {
        check_name(kind.word(), name)?;
        self.ask(Request::Remove { kind, in_use, name: name.to_owned() }).map(drop)
    }

    /// Which members are dead. One load tells what the daemon knows, and two system calls tell what the kernel knows.
    pub(crate) fn liveness(&self) -> &Liveness {
        self.shared.connection.liveness()
    }

    /// A description of a present or former member ("task simulate, rank 0, process 17, last seen 3.2 s ago"), for
    /// error messages.
    pub(crate) fn describe_member(&self, member: MemberId) -> String {
        let deadline = self.deadline().at_most(LATE);
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

    /// The task of a member; `None` if the daemon does not know the member any more.
    #[must_use]
    pub fn task_of(&self, member: MemberId) -> Option<String> {
        match self.ask(Request::Describe { member }) {
            Ok((Answer::Member(found), _)) => Some(found.task),
            _ => None,
        }
    }

    /// What this session knows of cooperative items.
    pub(crate) fn items(&self) -> &crate::item::Local {
        &self.shared.items
    }

    fn ask(&self, request: Request) -> Result<Answered> {
        self.shared.connection.ask(request, None, None, self.deadline())
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.shared.connection
    }

    /// The time by which an answer must arrive if the daemon itself may wait this long.
    pub(crate) fn late(&self, wait: Option<Duration>) -> Deadline {
        match wait {
            Some(wait) if wait > self.shared.timeout => Deadline::after(wait.saturating_add(LATE)),
            _ => self.deadline(),
        }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.shared.timeout)
    }
}

pub(crate) fn check_name(what: &str, given: &str) -> Result<()> {
    name::check(given).map_err(|bad| Error::bad_name(what.to_owned(), given, bad))
}

pub(crate) fn unexpected() -> Error {
    Error::because(Status::Incompatible, Reason::UnexpectedAnswer)
}

/// The program of this process: the script if an interpreter runs one, otherwise the program itself.
fn command() -> String {
    let base = |text: String| text.rsplit('/').next().unwrap_or_default().to_owned();
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().map(base).unwrap_or_default();
    let script = words.next().filter(|word| program.starts_with("python") && !word.starts_with('-')).map(base);
    // An end of a port keeps 40 bytes, and the process number takes up to 8 of them.
    let text = script.unwrap_or(program);
    text.chars().filter(char::is_ascii_graphic).filter(|c| *c != '@').take(30).collect()
}
