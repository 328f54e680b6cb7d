//! The daemon that a run uses: one that the run starts, or one that the user named. In this daemon, the run's workflow,
//! endpoints and grants are made.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_client::runs::note_attach;
use crossdock_client::{ConnectOptions, Grant, Mode, PortOptions, Region, Rights, SegmentKind, Session, Status};
use crossdock_layout::name::MIRROR;
use crossdock_link::Choice;
use crossdock_os::fs;
use crossdock_os::process::Signal;
use crossdock_os::{Deadline, event, socket, spawn};

use super::site::Protection;
use super::summary::{Figures, ItemLine, PortLine, ProgressLine, RegionLine, SeriesLine};
use super::{folder::RunFolder, processes};
use crate::engine::tool::reason_in;
use crate::file::{Task, Workflow};

/// How long the daemon may take to start, and to answer a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a daemon may take to become a node of its site. The daemon waits up to 20 s for its catalog, and then for
/// the time of one lease.
const JOINING: Duration = Duration::from_secs(40);
/// The name of the task as which the launcher itself makes regions and reads statistics.
const LAUNCHER: &str = "launcher";
/// The number of the descriptor by which the daemon inherits the socket of the catalog.
const CATALOG_SOCKET: i32 = 42;

/// The daemon that a run uses.
pub enum DaemonChoice {
    /// The daemon at this socket; `own` stands for a new daemon that the run starts. With `None`, CROSSDOCK_SOCKET
    /// names the daemon, and without that variable the run starts its own.
    Here(Option<String>),
    /// A daemon that the run starts, as a node of the run's site.
    Site(Site),
}

/// Options of a daemon that is one node of a site: the group of daemons of a run on several hosts.
#[derive(Clone, Debug)]
pub struct Site {
    /// The name of the site.
    pub name: String,
    /// The name of the daemon's node in the site.
    pub node: String,
    /// The address of the catalog, in the form that `serve --catalog` takes.
    pub catalog: String,
    /// A socket that listens at the address of the catalog which the daemon keeps; `None` if another node keeps it.
    pub catalog_socket: Option<Arc<OwnedFd>>,
    /// The address where the daemon listens to the other nodes. With `None`, the daemon listens at the address from
    /// which this host reaches the catalog.
    pub listen: Option<String>,
    /// What protects the daemon's connections to the other nodes.
    pub protection: Protection,
    /// The choice of transports that carry bytes to and from the other nodes.
    pub transport: Choice,
}

impl Site {
    fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> =
            ["--site", &self.name, "--node", &self.node, "--catalog", &self.catalog].map(OsString::from).into();
        if self.catalog_socket.is_some() {
            options.extend(["--catalog-socket".into(), CATALOG_SOCKET.to_string().into()]);
        }
        options.extend(self.listen.iter().flat_map(|at| ["--listen".into(), at.into()]));
        options.extend(self.protection.options());
        options.extend(["--transport".into(), self.transport.to_string().into()]);
        options
    }
}

/// The workflow of a run as it exists in a daemon.
pub struct HostedWorkflow {
    own: Option<Child>,
    workflow: String,
    control: Session,
    inside: Session,
    /// Regions that no task creates. The launcher holds them open, so that they live as long as the run.
    _regions: Vec<Region>,
    /// Which daemon is used and why, in words for the user.
    pub how: String,
}

/// Tells whether any task needs a daemon at all.
pub fn needed(workflow: &Workflow) -> bool {
    let uses = |t: &Task| !(t.regions.is_empty() && t.ports.is_empty() && t.series.is_empty() && t.items.is_empty());
    // An MPI job over several hosts finds its managed directories beside the endpoint that the host's daemon serves, so
    // such a job needs a daemon.
    let in_job = |t: &Task| t.is_over_hosts() && workflow.directories.iter().any(|d| d.names(&t.name));
    workflow.tasks.iter().any(|t| uses(t) || in_job(t))
}

/// Gives the folder on the host that a task finds at `/run/crossdock`. The folder's name is a short number, because a
/// socket's path may have only 107 bytes.
pub fn endpoint(folder: &RunFolder, index: usize) -> PathBuf {
    folder.path.join("e").join(index.to_string())
}

/// Makes the endpoint folders, empty.
pub fn make_folders(folder: &RunFolder, tasks: usize) -> Result<(), String> {
    for index in 0..=tasks {
        let path = endpoint(folder, index);
        // A task may have another user id in its container, so every user may enter this folder. Other users of the
        // host still cannot reach it, because the run's folder above it is private.
        let made =
            fs::create_dir_all(&path).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
        made.map_err(|e| format!("cannot make the folder {}: {e}", path.display()))?;
    }
    Ok(())
}

fn listener(path: &Path) -> Result<OwnedFd, String> {
    let socket = socket::listen(path).map_err(|e| format!("cannot make the socket {}: {e}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
        .map_err(|e| format!("cannot open the socket {} to the task: {e}", path.display()))?;
    Ok(socket)
}

fn connect(socket: Option<PathBuf>, task: Option<&str>, workflow: Option<&str>) -> Result<Session, String> {
    let options = ConnectOptions {
        socket,
        task: task.map(str::to_owned),
        rank: Some(0),
        workflow: workflow.map(str::to_owned),
        timeout: PATIENCE,
        private_daemon: false,
        visitor: false,
    };
    Session::connect(&options).map_err(|e| e.to_string())
}

/// Starts the run's own daemon: this program's `serve`.
fn start_own(folder: &RunFolder, site: Option<&Site>) -> Result<(Child, PathBuf), String> {
    let socket = folder.path.join("daemon.sock");
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let log = fs::open(fs::OpenOptions::new().write(true).create(true).truncate(true), folder.path.join("daemon.log"))
        .map_err(|e| format!("cannot make the daemon's log: {e}"))?;
    let mut command = Command::new(program);
    if let Some(socket) = site.and_then(|site| site.catalog_socket.as_ref()) {
        let socket = socket.try_clone().map_err(|e| format!("cannot pass the catalog's socket to the daemon: {e}"))?;
        spawn::inherit(&mut command, socket, CATALOG_SOCKET);
    }
    let mut child = spawn::start(
        command
            .args(["serve", "--private", "--ready", "--socket"])
            .arg(&socket)
            .args(site.map(Site::options).unwrap_or_default())
            // This variable has the run's id as its value. A cleanup finds the daemon by this variable, even after all
            // other processes of the run were killed.
            .env(processes::MARK, &folder.id)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0),
    )
    .map_err(|e| format!("cannot start the daemon: {e}"))?;
    match wait_until_ready(&mut child, if site.is_some() { JOINING } else { PATIENCE }) {
        Ok(()) => Ok((child, socket)),
        Err(what) => {
            stop_own(&mut child);
            let log = fs::read_to_string(folder.path.join("daemon.log")).unwrap_or_default();
            Err(match reason_in(&log) {
                Some(reason) => format!("{what}: {reason}"),
                None => format!("{what}, and its log names no reason; hint: is this machine overloaded?"),
            })
        }
    }
}

/// Waits until the daemon has written a byte to its standard output, which says that the daemon is ready. Otherwise the
/// error says whether the daemon has ended or still runs.
fn wait_until_ready(child: &mut Child, patience: Duration) -> Result<(), String> {
    let mut output = child.stdout.take().ok_or("the daemon has no standard output")?;
    match event::wait_readable(&output, Deadline::after(patience)) {
        // A daemon that ends closes its standard output, which then has no byte.
        Ok(true) => match output.read(&mut [0]) {
            Ok(1) => Ok(()),
            _ => Err("the daemon ended before it was ready".into()),
        },
        Ok(false) => Err(format!("the daemon was not ready within {} s", patience.as_secs_f32())),
        Err(e) => Err(format!("cannot wait for the daemon: {e}")),
    }
}

fn stop_own(child: &mut Child) {
    processes::signal(child.id() as i32, Signal::TERM);
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    processes::signal_group(child.id() as i32, Signal::KILL);
    let _ = child.wait();
}

impl HostedWorkflow {
    /// Starts or reaches a daemon, and makes the workflow in it.
    pub fn make(workflow: &Workflow, folder: &RunFolder, which: &DaemonChoice) -> Result<Self, String> {
        let mut own = None;
        let result = Self::make_in(workflow, folder, which, &mut own);
        if result.is_err() {
            if let Some(child) = &mut own {
                stop_own(child);
            }
        }
        result
    }

    fn make_in(
        workflow: &Workflow,
        folder: &RunFolder,
        which: &DaemonChoice,
        own: &mut Option<Child>,
    ) -> Result<Self, String> {
        // The run does not use a daemon that happens to run on the node: two runs of one workflow would then share that
        // daemon, and so their objects, by accident.
        let (named, site) = match which {
            DaemonChoice::Here(wanted) => {
                let from_environment = || std::env::var("CROSSDOCK_SOCKET").ok().filter(|s| !s.is_empty());
                (wanted.clone().or_else(from_environment), None)
            }
            DaemonChoice::Site(site) => (None, Some(site)),
        };
        let (socket, control, how) = match named.filter(|socket| socket != "own") {
            Some(socket) => {
                let control = connect(Some(PathBuf::from(&socket)), None, None)?;
                let socket = PathBuf::from(socket);
                let how = format!("the daemon at {}", socket.display());
                (socket.canonicalize().unwrap_or(socket), control, how)
            }
            None => {
                let (child, socket) = start_own(folder, site)?;
                *own = Some(child);
                let how = match site {
                    None => "a daemon of the run's own".to_owned(),
                    Some(site) => format!("a daemon of the run's own, node {} of its site", site.node),
                };
                (socket.clone(), connect(Some(socket), None, None)?, how)
            }
        };
        let name = &workflow.name;
        control.make_workflow(name, workflow.memory.unwrap_or(0)).map_err(|e| e.to_string())?;
        for (index, task) in workflow.tasks.iter().enumerate() {
            let socket = listener(&endpoint(folder, index).join("endpoint.sock"))?;
            control
                .make_endpoint(name, &task.name, socket, &crate::file::grants::of(task))
                .map_err(|e| e.to_string())?;
        }
        // The launcher's own endpoint grants everything. It lies in the run's folder, which no task sees.
        let path = endpoint(folder, workflow.tasks.len()).join("endpoint.sock");
        let all = |kind| Grant { pattern: "*".into(), kind, rights: Rights::ALL };
        let everything =
            [all(SegmentKind::Region), all(SegmentKind::Port), all(SegmentKind::Series), all(SegmentKind::Item)];
        let task = free_name(workflow);
        control.make_endpoint(name, &task, listener(&path)?, &everything).map_err(|e| e.to_string())?;
        let inside = connect(Some(path), Some(&task), Some(name))?;
        let regions = make_regions(workflow, &inside)?;
        make_ports(workflow, &inside)?;
        // This call writes a file by which other commands find the run's daemon. These commands may use the daemon as
        // soon as the file exists, so the file is written last, when everything is ready.
        note_attach(&folder.path, &socket, name)
            .map_err(|e| format!("cannot write to {}: {e}", folder.path.display()))?;
        Ok(Self { own: own.take(), workflow: name.clone(), control, inside, _regions: regions, how })
    }

    /// Tells whether the run's own daemon has died. After its death all requests fail, so waiting for an answer is
    /// useless.
    pub fn dead(&mut self) -> bool {
        self.own.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Collects the present figures of ports, series, items and regions.
    pub fn report(&self, workflow: &Workflow) -> Result<Figures, String> {
        let listing = self.control.workflow_report(&self.workflow).map_err(|e| e.to_string())?;
        let mut figures = Figures::default();
        for member in listing.members {
            if let Some((done, of)) = member.progress {
                figures.progress.push(ProgressLine { task: member.task, rank: member.rank, done, of });
            }
        }
        // Mirrors are left out, because the host of the original object reports the object.
        for segment in listing.segments.into_iter().filter(|segment| !segment.name.starts_with(MIRROR)) {
            match segment.kind {
                SegmentKind::Port => {
                    let s = match self.inside.port_report(segment.id) {
                        Ok(report) => report.statistics,
                        // No task has opened the port yet, so there are no figures of it.
                        Err(error) if error.status == Status::NotYet => continue,
                        Err(error) => return Err(error.to_string()),
                    };
                    figures.ports.push(PortLine {
                        port: segment.name,
                        messages: s.messages,
                        received: s.received,
                        bytes_handed_over: s.bytes_handed_over,
                        bytes_copied: s.bytes_copied,
                        producer_wait_seconds: s.producer_wait_ns as f64 * 1e-9,
                        consumer_wait_seconds: s.consumer_wait_ns as f64 * 1e-9,
                    });
                }
                SegmentKind::Region => {
                    let (size, reserved) = (segment.size, segment.reserved);
                    figures.regions.push(RegionLine { region: segment.name, size, reserved });
                }
                SegmentKind::Series => {
                    let report = self.inside.series_report(segment.id).map_err(|e| e.to_string())?;
                    let bytes = |chunks: u64| chunks.saturating_mul(u64::from(report.description.chunk));
                    figures.series.push(SeriesLine {
                        series: segment.name,
                        versions: report.newest,
                        bytes_copied: bytes(report.copied),
                        bytes_shared: bytes(report.shared),
                        withheld: report.withheld.0,
                        no_space: report.no_space,
                        taken_back: report.taken_back,
                    });
                }
                // Items are not reported here, because another request lists them.
                SegmentKind::Item => {}
            }
        }
        figures.items.extend(listing.items.into_iter().map(|i| ItemLine {
            item: i.key,
            size: i.size,
            owner: i.owner.to_string(),
            transfers: i.transfers,
            copies: i.copies,
        }));
        let place = |name: &str| workflow.ports.iter().position(|p| p.name == name).unwrap_or(usize::MAX);
        figures.ports.sort_by_key(|p| place(&p.port));
        figures.series.sort_by(|a, b| numbered(&a.series).cmp(&numbered(&b.series)));
        figures.items.sort_by(|a, b| numbered(&a.item).cmp(&numbered(&b.item)));
        Ok(figures)
    }

    /// Ends the workflow. If the daemon is the run's own, stops the daemon too.
    pub fn end(mut self) -> Result<(), String> {
        if self.dead() {
            // The daemon is dead, and its segments are gone. The sessions are not dropped, because a dropped session
            // sends a last request to the daemon, and a dead daemon does not answer.
            std::mem::forget(self);
            return Ok(());
        }
        let Self { own, workflow, control, inside, _regions, .. } = self;
        drop(_regions);
        let _ = inside.close();
        let ended = control.end_workflow(&workflow).map_err(|e| e.to_string());
        let _ = control.close();
        if let Some(mut child) = own {
            stop_own(&mut child);
        }
        ended
    }

    /// The process id of the run's own daemon. This process must survive when all other processes of the run are
    /// killed.
    pub fn pid(&self) -> Option<i32> {
        self.own.as_ref().map(|c| c.id() as i32)
    }
}

/// Splits a name into its text and the number at its end, for sorting, so that `field/10` comes after `field/9`.
fn numbered(name: &str) -> (&str, u64) {
    let text = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (text, name[text.len()..].parse().unwrap_or(0))
}

/// Finds a name for the launcher's task that no task of the workflow has.
fn free_name(workflow: &Workflow) -> String {
    let mut name = LAUNCHER.to_owned();
    while workflow.tasks.iter().any(|t| t.name == name) {
        name.push('-');
    }
    name
}

/// Makes the regions that have a size in the workflow file and that no task may create.
fn make_regions(workflow: &Workflow, inside: &Session) -> Result<Vec<Region>, String> {
    let mut made = Vec::new();
    for region in &workflow.regions {
        let creates = |t: &Task| t.regions.iter().any(|r| r.may(Rights::CREATE) && r.fits(&region.name));
        if let (Some(size), false) = (region.size, workflow.tasks.iter().any(creates)) {
            made.push(inside.region(&region.name, Mode::CreateOnly, size, None).map_err(|e| e.to_string())?);
        }
    }
    Ok(made)
}

/// Makes the ports that have settings in the workflow file. No task has opened these ports yet. A task that later
/// leaves an option open gets the value of the file, and a task that asks for another value gets an error.
fn make_ports(workflow: &Workflow, inside: &Session) -> Result<(), String> {
    for port in workflow.ports.iter().filter(|port| port.declared.is_some() && !port.name.ends_with('*')) {
        let options = PortOptions { pattern: Some(port.pattern), capacity: port.capacity, persistent: false };
        inside.make_port(&port.name, &options).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_within(script: &str, patience: Duration) -> Result<(), String> {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let result = wait_until_ready(&mut child, patience);
        let _ = child.kill();
        child.wait().unwrap();
        result
    }

    #[test]
    fn the_error_about_a_daemon_that_is_not_ready_says_whether_the_daemon_has_ended() {
        assert_eq!(ready_within("printf r; exec sleep 60", Duration::from_secs(30)), Ok(()));
        let ended = ready_within("exit 1", Duration::from_secs(30)).unwrap_err();
        assert_eq!(ended, "the daemon ended before it was ready");
        let late = ready_within("exec sleep 60", Duration::from_millis(200)).unwrap_err();
        assert_eq!(late, "the daemon was not ready within 0.2 s");
    }
}
