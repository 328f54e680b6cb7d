//! A sample: the state of daemons and runs at one moment. Rates are computed from two samples.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use crossdock_client::{Listing, SegmentInfo, SegmentKind, SeriesReport, Session};
use crossdock_launch::run;
use crossdock_launch::run::state::{Link, Phase, State, now_ms};
use crossdock_launch::run::usage::{self, RankKey, Usage};
use serde::Serialize;

use crate::find::{self, FoundDaemon};

/// How many events are kept, to be shown in pages that are opened later.
const EVENTS: usize = 200;

/// Which daemons and runs a sample covers.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The socket of the daemon, if only one daemon is sampled; `None` if all daemons are sampled.
    pub socket: Option<PathBuf>,
    /// If this process id is given, the samples cover only the run whose front process (the one that the user started)
    /// has this id. `crossdock run --web` gives its own id, before it starts the run.
    pub front: Option<u32>,
}

/// The state of daemons and runs at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// The time of the sample, in milliseconds since 1970.
    pub time_ms: u64,
    /// The runs of `crossdock run`.
    pub runs: Vec<RunRow>,
    /// The daemons that were asked for this sample.
    pub daemons: Vec<Daemon>,
    /// Recent events: deaths, ends of runs and series, withheld versions. The newest is the last.
    pub events: Vec<Event>,
}

/// A run in the sample.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    pub id: String,
    pub workflow: String,
    pub engine: String,
    pub since_ms: u64,
    pub stopping: Option<String>,
    pub ranks: Vec<RankRow>,
    pub links: Vec<Link>,
    /// The `place` of the daemon that the run uses, which is the daemon's name in the sample. `None` if the run uses no
    /// daemon.
    pub place: Option<String>,
}

/// A rank of a run's task.
#[derive(Clone, Debug, Serialize)]
pub struct RankRow {
    pub name: String,
    pub task: String,
    pub rank: u32,
    /// The state of the rank: `waits`, `runs`, `ended` or `failed`.
    pub state: &'static str,
    pub code: Option<u8>,
    pub how: Option<String>,
    pub pid: Option<u32>,
    pub seconds: Option<f64>,
    /// Steps done, and the number of all steps, if the task reports them.
    pub progress: Option<(u64, u64)>,
    pub cpu_seconds: f64,
    /// The number of CPUs that the rank used, on average since the previous sample.
    pub cpus: f64,
    pub memory: u64,
    pub shared: u64,
    pub processes: usize,
}

/// A daemon in the sample.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Daemon {
    /// The daemon's name in `crossdock ls`: its socket, `the node's daemon`, or the run that it belongs to.
    pub place: String,
    /// Why the daemon gave no answer; `None` if it gave one.
    pub trouble: Option<String>,
    pub workflows: Vec<WorkflowRow>,
    pub members: Vec<MemberRow>,
    pub ports: Vec<PortRow>,
    pub series: Vec<SeriesRow>,
    pub regions: Vec<RegionRow>,
    pub items: Vec<ItemRow>,
}

/// A workflow in the sample.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowRow {
    pub name: String,
    pub run: u64,
    pub reserved: u64,
    /// The quota of the workflow in bytes; 0 means that only the node's memory is the limit.
    pub quota: u64,
}

/// A member in the sample.
#[derive(Clone, Debug, Serialize)]
pub struct MemberRow {
    pub id: u64,
    pub workflow: String,
    pub task: String,
    pub rank: u32,
    pub pid: u32,
    pub connected: bool,
    /// Steps done, and the number of all steps, if the task reports them.
    pub progress: Option<(u64, u64)>,
    pub cpu_seconds: f64,
    pub cpus: f64,
    pub memory: u64,
}

/// A port in the sample.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortRow {
    pub id: u64,
    pub workflow: String,
    pub name: String,
    pub since_ms: u64,
    pub pattern: String,
    pub capacity: u32,
    pub messages: u64,
    pub received: u64,
    pub in_flight: u64,
    pub bytes_handed_over: u64,
    pub bytes_copied: u64,
    pub producer_wait_seconds: f64,
    pub consumer_wait_seconds: f64,
    pub redelivered: u64,
    /// Messages per second since the previous sample. The next field has bytes per second.
    pub rate: f64,
    pub byte_rate: f64,
    pub ends: Vec<PortEndRow>,
}

/// One end of a port.
#[derive(Clone, Debug, Serialize)]
pub struct PortEndRow {
    pub end: String,
    pub task: String,
    pub member: u64,
    pub alive: bool,
    pub waiting: bool,
    pub messages: u64,
    pub wait_seconds: f64,
}

/// A series in the sample.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SeriesRow {
    pub id: u64,
    pub workflow: String,
    pub name: String,
    /// The state of the series: `live`, `ended`, `died` or `former`.
    pub state: &'static str,
    pub publisher: String,
    pub since_ms: u64,
    pub newest: u64,
    pub kept: usize,
    pub observers: u32,
    pub variables: Vec<VariableRow>,
    pub withheld: u64,
    pub no_space: u64,
    pub taken_back: u64,
    pub bytes_copied: u64,
    pub bytes_shared: u64,
    /// The bytes of the series' pool that are in use. The next field is the number of bytes that the pool has reserved.
    pub used: u64,
    pub reserved: u64,
    pub last_publish_seconds: f64,
    pub longest_publish_seconds: f64,
    /// The number of versions per second since the previous sample. The next field is the number of copied bytes per
    /// second.
    pub rate: f64,
    pub byte_rate: f64,
}

/// A variable of a series.
#[derive(Clone, Debug, Serialize)]
pub struct VariableRow {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
    pub shape: Vec<u64>,
}

/// A region in the sample.
#[derive(Clone, Debug, Serialize)]
pub struct RegionRow {
    pub id: u64,
    pub workflow: String,
    pub name: String,
    pub since_ms: u64,
    pub size: u64,
    pub reserved: u64,
    pub members: u32,
}

/// An item in the sample.
#[derive(Clone, Debug, Serialize)]
pub struct ItemRow {
    pub id: u64,
    pub workflow: String,
    pub name: String,
    pub size: u64,
    pub level: String,
    pub owner: String,
    pub since_seconds: f64,
    pub transfers: u64,
    pub copies: u64,
    pub waiting: u32,
    pub readers: u32,
    pub rate: f64,
}

/// An event, for the page's list of events.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub time_ms: u64,
    /// The kind of the event: `good`, `note` or `bad`.
    pub kind: &'static str,
    pub text: String,
}

/// Makes samples, and remembers the previous sample.
pub struct Sampler {
    scope: Scope,
    before: Option<(Instant, Sample)>,
    /// Sessions inside workflows. The key is the daemon's name and the workflow.
    inside: HashMap<(String, String), Session>,
    events: VecDeque<Event>,
}

impl Sampler {
    /// Makes a sampler that has made no sample yet.
    pub fn new(scope: Scope) -> Self {
        Self { scope, before: None, inside: HashMap::new(), events: VecDeque::new() }
    }

    /// Asks the daemons, reads the states of the runs, and makes a sample of both.
    pub fn look(&mut self) -> Sample {
        let now = Instant::now();
        let usage = usage::all();
        let states = self.states();
        let mut sample = Sample { time_ms: now_ms(), ..Sample::default() };
        sample.runs = states.iter().map(|(state, place)| run_row(state, place, &usage)).collect();
        match find::daemons(self.scope.socket.as_deref()) {
            Ok(found) => {
                let ours = |f: &FoundDaemon| {
                    self.scope.front.is_none() || states.iter().any(|(_, place)| place.as_ref() == Some(&f.place))
                };
                let found: Vec<FoundDaemon> = found.into_iter().filter(ours).collect();
                sample.daemons = found.iter().map(|f| self.daemon(f, &states)).collect();
            }
            Err(trouble) => sample.daemons.push(Daemon {
                place: self.scope.socket.as_ref().map(|s| s.display().to_string()).unwrap_or_default(),
                trouble: Some(trouble),
                ..Daemon::default()
            }),
        }
        reported(&mut sample);
        // A daemon may outlive many workflows, so the sessions in workflows that have ended are closed.
        let lasts = |place: &str, workflow: &str| {
            let daemon = sample.daemons.iter().find(|d| d.place == place);
            daemon.is_some_and(|d| d.workflows.iter().any(|w| w.name == workflow))
        };
        self.inside.retain(|(place, workflow), _| lasts(place, workflow));
        if let Some((then, before)) = self.before.take() {
            rates(&mut sample, &before, now.duration_since(then).as_secs_f64().max(1e-3));
            self.note(&before, &sample);
        }
        sample.events = self.events.iter().cloned().collect();
        self.before = Some((now, sample.clone()));
        sample
    }

    /// Gives the states of the runs in scope, each with the name of its daemon.
    fn states(&self) -> Vec<(State, Option<String>)> {
        if self.scope.socket.is_some() && self.scope.front.is_none() {
            return Vec::new();
        }
        let living = run::living().into_iter().filter_map(|run| {
            let state = State::read(&run.folder)?;
            let own = run.attach.as_ref().is_some_and(|(socket, _)| socket.starts_with(&run.folder));
            let place = match run.attach {
                Some(_) if own => Some(format!("run {}", run.id)),
                Some(_) => Some("the node's daemon".to_owned()),
                None => None,
            };
            Some((state, place))
        });
        living.filter(|(state, _)| self.scope.front.is_none_or(|front| state.front.pid == front)).collect()
    }

    fn daemon(&mut self, found: &FoundDaemon, states: &[(State, Option<String>)]) -> Daemon {
        let mut daemon = Daemon { place: found.place.clone(), ..Daemon::default() };
        let listing = match found.session.list() {
            Ok(listing) => listing,
            Err(e) => return Daemon { trouble: Some(e.to_string()), ..daemon },
        };
        // A run that uses a shared daemon shows only its own workflow.
        let only = self.scope.front.and_then(|_| states.first()).map(|(state, _)| state.workflow.clone());
        let wanted = |workflow: &str| only.as_ref().is_none_or(|w| w == workflow);
        let own = std::process::id();
        for w in listing.workflows.iter().filter(|w| wanted(&w.name)) {
            let (name, run, reserved, quota) = (w.name.clone(), w.run, w.reserved, w.quota);
            daemon.workflows.push(WorkflowRow { name, run, reserved, quota });
        }
        for m in listing.members.iter().filter(|m| m.pid != own && wanted(&m.workflow)) {
            let used = usage::of_process(m.pid);
            daemon.members.push(MemberRow {
                id: m.id.0,
                workflow: m.workflow.clone(),
                task: m.task.clone(),
                rank: m.rank,
                pid: m.pid,
                connected: m.connected,
                progress: m.progress,
                cpu_seconds: used.cpu_seconds,
                cpus: 0.0,
                memory: used.memory,
            });
        }
        for segment in listing.segments.iter().filter(|s| !s.removed && wanted(&s.workflow)) {
            // If no session inside the workflow can be opened now, this sample leaves the object out, and the next
            // sample tries again. A port that no task has opened yet gets a row without figures, and a series that is
            // about to end gets no row.
            let Some(inside) = self.inside(found, &segment.workflow) else { continue };
            match segment.kind {
                SegmentKind::Port => daemon.ports.push(port_row(&inside, segment)),
                SegmentKind::Series => daemon.series.extend(series_row(&inside, segment, &listing)),
                SegmentKind::Region => daemon.regions.push(RegionRow {
                    id: segment.id.0,
                    workflow: segment.workflow.clone(),
                    name: segment.name.clone(),
                    since_ms: segment.since_ms,
                    size: segment.size,
                    reserved: segment.reserved,
                    members: segment.members,
                }),
                SegmentKind::Item => {}
            }
        }
        daemon.items = listing.items.iter().filter(|i| wanted(&i.workflow)).map(item_row).collect();
        daemon
    }

    fn inside(&mut self, found: &FoundDaemon, workflow: &str) -> Option<Session> {
        let key = (found.place.clone(), workflow.to_owned());
        if let Some(session) = self.inside.get(&key) {
            return Some(session.clone());
        }
        let session = found.inside(workflow, self.scope.socket.as_deref()).ok()?;
        self.inside.insert(key, session.clone());
        Some(session)
    }

    /// Gives a session inside a workflow of the last sample.
    pub(crate) fn session(&self, place: &str, workflow: &str) -> Option<Session> {
        self.inside.get(&(place.to_owned(), workflow.to_owned())).cloned()
    }

    /// Gives the path of a rank's log.
    pub(crate) fn log(&self, run: &str, name: &str) -> Option<PathBuf> {
        let states = self.states();
        let (state, _) = states.iter().find(|(state, _)| state.id == run)?;
        Some(state.ranks.iter().find(|rank| rank.name == name)?.log.clone())
    }

    fn note(&mut self, before: &Sample, now: &Sample) {
        let time_ms = now.time_ms;
        let mut add = |kind, text| {
            self.events.push_back(Event { time_ms, kind, text });
            if self.events.len() > EVENTS {
                self.events.pop_front();
            }
        };
        for run in &now.runs {
            let Some(earlier) = before.runs.iter().find(|r| r.id == run.id) else {
                add("note", format!("run {} began", run.id));
                continue;
            };
            for (was, is) in earlier.ranks.iter().zip(&run.ranks).filter(|(was, is)| was.state != is.state) {
                let kind = if is.state == "failed" { "bad" } else { "good" };
                let how = is.how.clone().unwrap_or_else(|| format!("{} → {}", was.state, is.state));
                add(kind, format!("{} {how}", is.name));
            }
        }
        for run in before.runs.iter().filter(|r| now.runs.iter().all(|n| n.id != r.id)) {
            add("note", format!("run {} ended", run.id));
        }
        for daemon in &now.daemons {
            let Some(earlier) = before.daemons.iter().find(|d| d.place == daemon.place) else { continue };
            for gone in earlier.members.iter().filter(|m| daemon.members.iter().all(|n| n.id != m.id)) {
                let text =
                    format!("{}/{} rank {} left or died (process {})", gone.workflow, gone.task, gone.rank, gone.pid);
                add("note", text);
            }
            for series in &daemon.series {
                let Some(was) = earlier.series.iter().find(|s| s.id == series.id) else { continue };
                let name = format!("{}/{}", series.workflow, series.name);
                if series.state == "died" && was.state != "died" {
                    add("bad", format!("the publisher of {name} died"));
                }
                if series.withheld > was.withheld {
                    add(
                        "bad",
                        format!(
                            "{name}: {} versions withheld: observers hold all the memory",
                            series.withheld - was.withheld
                        ),
                    );
                }
            }
            for port in &daemon.ports {
                let Some(was) = earlier.ports.iter().find(|p| p.id == port.id) else { continue };
                for end in port.ends.iter().filter(|e| !e.alive) {
                    if was.ends.iter().any(|w| w.member == end.member && w.end == end.end && w.alive) {
                        add(
                            "bad",
                            format!("{} of {}/{} is dead or gone: {}", end.end, port.workflow, port.name, end.task),
                        );
                    }
                }
            }
        }
    }
}

fn run_row(state: &State, place: &Option<String>, all: &BTreeMap<RankKey, Usage>) -> RunRow {
    let now = now_ms();
    let ranks = state.ranks.iter().map(|rank| {
        let used = all.get(&(state.id.clone(), rank.task.clone(), rank.rank)).cloned().unwrap_or_default();
        let (code, how, pid, end) = match &rank.phase {
            Phase::Waits => (None, None, None, now),
            Phase::Runs { pid, .. } => (None, None, Some(*pid), now),
            Phase::Ended { code, how, ended_ms, .. } => (Some(*code), Some(how.clone()), None, *ended_ms),
        };
        RankRow {
            name: rank.name.clone(),
            task: rank.task.clone(),
            rank: rank.rank,
            state: rank.phase.word(),
            code,
            how,
            pid,
            progress: None,
            seconds: rank.phase.since_ms().map(|since| end.saturating_sub(since) as f64 / 1e3),
            cpu_seconds: used.cpu_seconds,
            cpus: 0.0,
            memory: used.memory,
            shared: used.shared,
            processes: used.processes.len(),
        }
    });
    RunRow {
        id: state.id.clone(),
        workflow: state.workflow.clone(),
        engine: state.engine.clone(),
        since_ms: state.since_ms,
        stopping: state.stopping.clone(),
        ranks: ranks.collect(),
        links: state.links.clone(),
        place: place.clone(),
    }
}

/// Sets the progress of each rank in the sample to what the rank's member has reported to the run's daemon.
fn reported(sample: &mut Sample) {
    let Sample { runs, daemons, .. } = sample;
    for run in runs {
        let Some(daemon) = daemons.iter().find(|d| Some(&d.place) == run.place.as_ref()) else { continue };
        for rank in &mut run.ranks {
            let of_rank = |m: &&MemberRow| m.workflow == run.workflow && m.task == rank.task && m.rank == rank.rank;
            rank.progress = daemon.members.iter().filter(of_rank).find_map(|m| m.progress);
        }
    }
}

fn port_row(inside: &Session, segment: &SegmentInfo) -> PortRow {
    let (workflow, name) = (segment.workflow.clone(), segment.name.clone());
    let row = PortRow { id: segment.id.0, workflow, name, since_ms: segment.since_ms, ..PortRow::default() };
    let Ok(report) = inside.port_report(segment.id) else { return row };
    let (s, seconds) = (&report.statistics, |ns: u64| ns as f64 * 1e-9);
    let ends = report.ends.iter().map(|e| PortEndRow {
        end: format!("{:?}", e.end).to_lowercase(),
        task: e.task.clone(),
        member: e.member.0,
        alive: e.alive,
        waiting: e.waiting,
        messages: e.messages,
        wait_seconds: seconds(e.wait_ns),
    });
    PortRow {
        pattern: report.shape.pattern.word().to_owned(),
        capacity: report.shape.capacity,
        messages: s.messages,
        received: s.received,
        in_flight: s.under_way,
        bytes_handed_over: s.bytes_handed_over,
        bytes_copied: s.bytes_copied,
        producer_wait_seconds: seconds(s.producer_wait_ns),
        consumer_wait_seconds: seconds(s.consumer_wait_ns),
        redelivered: s.redelivered,
        ends: ends.collect(),
        ..row
    }
}

/// Names the state of a series in one word.
pub fn series_state(report: &SeriesReport, segment: &SegmentInfo, listing: &Listing) -> &'static str {
    let living = listing.members.iter().any(|m| m.id == report.description.publisher);
    match (segment.former, report.ended, living) {
        (true, ..) => "former",
        (_, true, _) => "ended",
        (_, false, true) => "live",
        (_, false, false) => "died",
    }
}

fn series_row(inside: &Session, segment: &SegmentInfo, listing: &Listing) -> Option<SeriesRow> {
    let r = inside.series_report(segment.id).ok()?;
    let chunk = u64::from(r.description.chunk);
    let (_, reserved, used) = r.slots;
    let publisher = listing.members.iter().find(|m| m.id == r.description.publisher);
    Some(SeriesRow {
        id: segment.id.0,
        workflow: segment.workflow.clone(),
        name: segment.name.clone(),
        state: series_state(&r, segment, listing),
        publisher: publisher.map_or_else(String::new, |m| m.task.clone()),
        since_ms: segment.since_ms,
        newest: r.newest,
        kept: r.versions.len(),
        observers: segment.observers().unwrap_or_default().0,
        variables: r
            .description
            .variables
            .iter()
            .map(|v| VariableRow { name: v.name.clone(), ty: v.ty.clone(), shape: v.shape.clone() })
            .collect(),
        withheld: r.withheld.0,
        no_space: r.no_space,
        taken_back: r.taken_back,
        bytes_copied: r.copied.saturating_mul(chunk),
        bytes_shared: r.shared.saturating_mul(chunk),
        used: u64::from(used) * chunk,
        reserved: u64::from(reserved) * chunk,
        last_publish_seconds: r.last.as_secs_f64(),
        longest_publish_seconds: r.longest.as_secs_f64(),
        rate: 0.0,
        byte_rate: 0.0,
    })
}

fn item_row(i: &crossdock_client::ItemInfo) -> ItemRow {
    ItemRow {
        id: i.id.0,
        workflow: i.workflow.clone(),
        name: i.key.clone(),
        size: i.size,
        level: i.level.word().to_owned(),
        owner: i.owner.to_string(),
        since_seconds: i.since_ms as f64 / 1e3,
        transfers: i.transfers,
        copies: i.copies,
        waiting: i.waiting,
        readers: i.readers,
        rate: 0.0,
    }
}

/// Computes the rates, which need two samples. A counter that became smaller has started anew, so its rate is 0.
fn rates(now: &mut Sample, before: &Sample, seconds: f64) {
    let rate = |is: u64, was: u64| is.saturating_sub(was) as f64 / seconds;
    let cpus = |is: f64, was: f64| ((is - was) / seconds).max(0.0);
    for run in &mut now.runs {
        let Some(was) = before.runs.iter().find(|r| r.id == run.id) else { continue };
        for (rank, was) in run.ranks.iter_mut().zip(&was.ranks) {
            rank.cpus = cpus(rank.cpu_seconds, was.cpu_seconds);
        }
    }
    for daemon in &mut now.daemons {
        let Some(was) = before.daemons.iter().find(|d| d.place == daemon.place) else { continue };
        for member in &mut daemon.members {
            if let Some(was) = was.members.iter().find(|m| m.id == member.id) {
                member.cpus = cpus(member.cpu_seconds, was.cpu_seconds);
            }
        }
        for port in &mut daemon.ports {
            if let Some(was) = was.ports.iter().find(|p| p.id == port.id) {
                port.rate = rate(port.messages, was.messages);
                port.byte_rate = rate(port.bytes_handed_over, was.bytes_handed_over);
            }
        }
        for series in &mut daemon.series {
            if let Some(was) = was.series.iter().find(|s| s.id == series.id) {
                series.rate = rate(series.newest, was.newest);
                series.byte_rate = rate(series.bytes_copied, was.bytes_copied);
            }
        }
        for item in &mut daemon.items {
            if let Some(was) = was.items.iter().find(|i| i.id == item.id) {
                item.rate = rate(item.transfers, was.transfers);
            }
        }
    }
}
