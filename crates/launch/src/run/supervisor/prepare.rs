//! Prepares everything before the first task starts, so that a mistake is found before any task runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_os::file::try_lock;
use crossdock_os::fs::{self, File};
use crossdock_os::spawn::host_name;

use super::{Rank, Run, Stop};
use crate::file::{self, Places, Workflow};
use crate::run::daemon::{self, DaemonChoice};
use crate::run::directory_reports::Questions;
use crate::run::folder::RunFolder;
use crate::run::host_exchange::{self, OtherHosts, OwnHost};
use crate::run::hosts::Hosts;
use crate::run::log::Log;
use crate::run::messages::{PartOrder, ToPart};
use crate::run::part::{Part, PartConnections};
use crate::run::remote_part::{Events, RemotePart};
use crate::run::site::RunSite;
use crate::run::state::{Phase, Process, RankState, State, links, now_ms};
use crate::run::view::View;
use crate::run::{Order, RunOptions, caller, code};

impl Run {
    pub(super) fn prepare(order: &Order, text: &str, folder: RunFolder) -> Result<Self, Stop> {
        let options = &order.options;
        let (workflow, places) =
            read(options, text).map_err(|problems| Stop::failed(code::FILE, problems.to_string()))?;
        let wanted = options.engine.as_deref().or(workflow.engine).unwrap_or("auto").to_owned();
        let system = |e: String| Stop::failed(code::SYSTEM, e);
        let (logs, lock) = logs_folder(options, &workflow, &folder.id).map_err(system)?;
        let lock = Arc::new(lock);
        let limit = if options.log_limit == 0 { 64 << 20 } else { options.log_limit };
        let mut ranks = Vec::new();
        for (index, task) in workflow.tasks.iter().enumerate() {
            for rank in 0..task.processes() {
                let name = task.rank_name(rank);
                let path = logs.join(format!("{name}.log"));
                let log = Log::make(&lock, path.clone(), limit)
                    .map_err(|e| system(format!("cannot make the log {}: {e}", path.display())))?;
                let host = places.host(index, rank);
                ranks.push(Rank { task: index, rank, name, host, running: None, end: None, log, wall: Duration::ZERO });
            }
        }
        let names: Vec<String> = ranks.iter().map(|r| r.name.clone()).collect();
        let view = View::new(options.show, &names);
        crate::file::circles(&workflow).iter().for_each(|line| view.note(line));
        let here = options.hosts.as_ref().map_or(Some(0), |hosts| hosts.here);
        // The connections to the other hosts are made while this host prepares itself.
        let events = options.hosts.as_ref().map(|_| Events::new()).transpose().map_err(system)?;
        let remote_parts = match (&options.hosts, &events) {
            (Some(hosts), Some(events)) => connect(hosts, &workflow, &places, events).map_err(system)?,
            _ => Vec::new(),
        };
        let is_needed = daemon::needed(&workflow);
        let are_files = host_exchange::needed(&workflow, &places);
        let site = match &options.hosts {
            Some(hosts) if is_needed || are_files => Some(RunSite::make(hosts, &folder).map_err(system)?),
            _ => None,
        };
        let kept = match &site {
            Some(site) if !is_needed => Some(site.keep(&folder).map_err(system)?),
            _ => None,
        };
        let which = is_needed.then(|| match &site {
            Some(site) => DaemonChoice::Site(site.own()),
            None => DaemonChoice::Here(options.daemon.clone()),
        });
        // If tasks may not run on this host, the host gets a number that belongs to no host of the run.
        let number = here.unwrap_or(usize::MAX);
        let neighbours = match (&options.hosts, &site) {
            (Some(hosts), Some(site)) if are_files && here.is_some() => {
                let nodes = (0..hosts.names.len()).map(|n| (hosts.names[n].clone(), hosts.node(n)));
                let address = site.address().unwrap_or_else(host_name);
                let own = OwnHost {
                    site: site.name().to_owned(),
                    catalog: site.catalog(),
                    node: hosts.own_node(),
                    address,
                    protection: site.protection().clone(),
                    transport: hosts.transport,
                };
                Some(OtherHosts::of((&workflow, &places), &nodes.collect::<Vec<_>>(), number, own))
            }
            _ => None,
        };
        let part = places.part(&workflow, number);
        let reach = PartConnections { which: which.as_ref(), neighbours: neighbours.as_ref() };
        let part =
            Part::prepare(part, &places.counts(&workflow, number), &wanted, folder, reach, &|text| view.note(text))?;
        if let Some(hosts) = &options.hosts {
            let file = std::path::absolute(&options.file).unwrap_or_else(|_| options.file.clone());
            let environment = caller::variables();
            for (number, remote) in remote_parts.iter().enumerate() {
                let Some(remote) = remote else { continue };
                remote.say(&ToPart::Part(Box::new(PartOrder {
                    id: format!("{}-{number}", part.folder.id),
                    hosts: hosts.names.clone(),
                    number,
                    file: file.clone(),
                    text: text.to_owned(),
                    engine: wanted.clone(),
                    environment: environment.clone(),
                    site: site.as_ref().map(|site| site.order(number)).transpose().map_err(system)?,
                })));
            }
        }
        let is_asked = options.hosts.is_some() && !workflow.directories.is_empty();
        // If this process cannot get a client of the catalog, the run goes on. But then `crossdock ls --files` cannot
        // look into the catalog: if a host does not answer, the command cannot show what the host has announced there.
        let of_files = site.as_ref().filter(|_| are_files).and_then(|site| site.of_files(&workflow.name).ok());
        // If the socket for `crossdock ls --files` cannot be made, the run goes on without it. The socket's path may be
        // too long, because a socket's path may have only 107 bytes.
        let questions = is_asked.then(|| Questions::make(&part.folder.path, of_files)).and_then(|made| {
            made.map_err(|e| view.note(&format!("note: `crossdock ls --files` will not show other hosts: {e}"))).ok()
        });
        let mut run = Self {
            options: options.clone(),
            state: State::default(),
            workflow,
            here,
            remote_parts,
            events,
            questions,
            kept,
            logs,
            _logs_lock: lock,
            ranks,
            part,
            view,
            begin: Instant::now(),
            stop: None,
            rates: super::rates::Rates::default(),
            heard: Vec::new(),
            kill_at: None,
            killed: false,
            helpers: Vec::new(),
        };
        run.state = run.first_state(order);
        run.state.write(&run.part.folder.path);
        Ok(run)
    }

    fn first_state(&self, order: &Order) -> State {
        let (workflow, logs, part) = (&self.workflow, &self.logs, &self.part);
        State {
            id: part.folder.id.clone(),
            workflow: workflow.name.clone(),
            file: workflow.file.canonicalize().unwrap_or_else(|_| workflow.file.clone()),
            engine: part.engine.name().to_owned(),
            engine_version: part.version.clone(),
            since_ms: now_ms(),
            logs: logs.canonicalize().unwrap_or_else(|_| logs.clone()),
            grace_s: workflow.grace_s,
            stopping: None,
            front: Process::living(order.front),
            supervisor: Process::living(std::process::id()),
            ranks: self.ranks.iter().map(|rank| self.rank_state(rank)).collect(),
            links: workflow.tasks.iter().flat_map(links).collect(),
        }
    }

    fn rank_state(&self, rank: &Rank) -> RankState {
        RankState {
            name: rank.name.clone(),
            task: self.workflow.tasks[rank.task].name.clone(),
            rank: rank.rank,
            host: self.host_name(rank.host).map(str::to_owned),
            log: rank.log.path.canonicalize().unwrap_or_else(|_| rank.log.path.clone()),
            phase: Phase::Waits,
        }
    }
}

/// Reads the workflow, and finds the host of each rank.
pub(in crate::run) fn read(options: &RunOptions, text: &str) -> Result<(Workflow, Places), file::Problems> {
    match &options.hosts {
        Some(hosts) => file::parse_on(&options.file, text, &hosts.names, hosts.here),
        None => {
            let workflow = file::parse(&options.file, text)?;
            let places = Places::one_host(&workflow);
            Ok((workflow, places))
        }
    }
}

/// Begins to connect to every other host on which a rank will run.
fn connect(
    hosts: &Hosts,
    workflow: &Workflow,
    places: &Places,
    events: &Events,
) -> Result<Vec<Option<RemotePart>>, String> {
    let one = |number: usize| {
        let is_far = hosts.here != Some(number) && !places.tasks(workflow, number).is_empty();
        is_far.then(|| RemotePart::start(hosts, number, events)).transpose()
    };
    (0..hosts.names.len()).map(one).collect()
}

/// Makes and locks the folder for logs. A second run of the same workflow at the same time gets a folder of its own.
fn logs_folder(options: &RunOptions, workflow: &Workflow, id: &str) -> Result<(PathBuf, File), String> {
    let wanted = match &options.logs {
        Some(folder) => folder.clone(),
        None => crate::run::default_logs(&workflow.name),
    };
    let open = |folder: &Path| -> Result<File, String> {
        let trouble = |e: std::io::Error| {
            format!("cannot write logs to {}: {e}; choose another folder with --logs", folder.display())
        };
        // A task that can write to a folder of this path can put a link there. So a link of another user is not followed.
        fs::make_and_open_folder(folder).map_err(trouble)
    };
    let lock = open(&wanted)?;
    if try_lock(&lock).unwrap_or(false) {
        return Ok((wanted, lock));
    }
    let mut other = wanted.into_os_string();
    other.push(format!("-{id}"));
    let other = PathBuf::from(other);
    let lock = open(&other)?;
    let _ = try_lock(&lock);
    Ok((other, lock))
}
