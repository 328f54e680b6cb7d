//! One task of a Slurm step: `srun` starts this process for each rank, on the rank's host.
//!
//! The task is a client of its host's keeper, which the first task of the host starts. It runs the rank in the job's
//! container with the PMI that Slurm gave to the task: PMI2's descriptor is passed to the rank, PMIx's folder is
//! mounted. What the rank's shim reports goes to the front as marks on standard error.

use std::env;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossdock_os::{Deadline, event, spawn};
use crossdock_shim::binding;
use crossdock_shim::detect::{MpiInstallation, MpiKind};
use crossdock_shim::message::{End, Message, Order, ReceiveResult, receive, send};
use serde::{Deserialize, Serialize};

use super::job::{Bind, Job};
use super::session::{self, Session};
use super::{launcher, marks};
use crate::run::code;

/// The environment variable in which each task of a Slurm step finds the [`Step`].
pub const VARIABLE: &str = "CROSSDOCK_MPI_TASK";
/// The beginnings of the names of Slurm's and PMI's variables, which differ for each rank.
const STEP_VARIABLES: [&str; 4] = ["SLURM", "PMI_", "PMI2_", "PMIX_"];
/// The number of PMI2's descriptor in the rank. No other descriptor in the container has this number.
const PMI_DESCRIPTOR: i32 = 200;
/// The signal, SIGUSR2, that asks a step's tasks and keepers to end; srun passes it on to them. After SIGTERM, srun
/// would kill all processes of the step at once, and a killed keeper does not remove its folder.
pub const END: i32 = 12;
/// The numbers of the signals that are passed on to the rank.
const PASSED: [i32; 6] = [1, 2, 3, 15, 18, 20];
/// How long a rank may take to end after it was asked to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a keeper may take to clean up after its last client has disconnected.
const LEAVING: Duration = Duration::from_secs(10);
/// How long the task waits for the rank's own report of its end, after the keeper has reported that the rank's command
/// ended.
const LATE: Duration = Duration::from_millis(500);

/// The settings that are the same for all tasks of a Slurm step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    pub job: Job,
    pub bind: String,
    pub sources: Vec<String>,
    pub command: Vec<String>,
    /// True if the task must start no rank, and must only remove what a killed step of this job has left on the host.
    pub clean: bool,
}

/// A failure on this host: what failed, and a hint.
type StepFailure = (String, String);

/// Runs one task of a Slurm step (the hidden command `mpi-task`) and returns its exit code.
pub fn task() -> u8 {
    let Some(step) = env::var(VARIABLE).ok().and_then(|text| serde_json::from_str::<Step>(&text).ok()) else {
        eprintln!("this command is a part of `crossdock mpirun --launcher srun`");
        return 2;
    };
    if step.clean {
        session::clean_soon(&step.job, LEAVING);
        return 0;
    }
    match run(step) {
        Ok(end) => u8::try_from(end.as_code()).unwrap_or(u8::MAX),
        Err((what, hint)) => {
            tell(&Message::Failed(spawn::host_name(), what, hint));
            code::SYSTEM
        }
    }
}

/// Sends a message to the front: writes it to standard error as a marked line, which the front recognises.
fn tell(message: &Message) {
    if let Some(line) = marks::line(message) {
        // The line is written in one call, so that no other output gets between its bytes. An error means that the
        // front is gone, so it is ignored.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

fn system(hint: &'static str) -> impl Fn(String) -> StepFailure {
    move |what| (what, hint.to_owned())
}

fn run(mut step: Step) -> Result<End, StepFailure> {
    let limits = system("look at the limits of that host");
    let signals = event::signalfd(&[&PASSED[..], &[END]].concat()).map_err(|e| limits(e.to_string()))?;
    let variable = |name: &str| env::var(name).unwrap_or_default();
    tell(&Message::Step(format!("{}.{}", variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"))));
    if let Some(folder) = env::var_os("PMIX_SERVER_TMPDIR").map(PathBuf::from).filter(|f| f.is_dir()) {
        let inside = folder.to_string_lossy().trim_end_matches('/').to_owned();
        step.job.mounts.push(Bind { host: inside.clone().into(), inside, write: true });
    }
    let (session, found) = reach(&step.job)?;
    let outcome = start(&step, &session, &found).and_then(|()| until_end(&session, &signals));
    match &outcome {
        Ok(_) => session.end_with_last(),
        Err(_) => session.end(),
    }
    outcome
}

/// Connects to this host's keeper, and learns which MPI the keeper's container has. A keeper whose last client has just
/// left may end while this task connects; in that case a new keeper is started.
fn reach(job: &Job) -> Result<(Session, MpiInstallation), StepFailure> {
    for _ in 0..3 {
        let session = Session::join(job).map_err(system("do what it says; else look at /tmp on that host"))?;
        // The keeper changes nothing when it gets this message, because the list of variables is empty.
        let _ = send(&session.keeper, &Message::Environment(Vec::new()), &[]);
        if let Some(expected) = &job.expected {
            let _ = send(&session.keeper, &Message::Job(expected.clone()), &[]);
        }
        let deadline = Deadline::after(Duration::from_secs(job.patience_s + 5));
        loop {
            match receive(&session.keeper) {
                ReceiveResult::Message(Message::Ready(found), _) => return Ok((session, found)),
                ReceiveResult::Message(Message::Failed(_, what, hint), _) => {
                    session.end();
                    return Err((what, hint));
                }
                ReceiveResult::Message(..) => {}
                ReceiveResult::End => break,
                ReceiveResult::Nothing if deadline.passed() => {
                    session.end();
                    return Err(("the container did not come up".into(), "--patience gives it more time".into()));
                }
                ReceiveResult::Nothing => {
                    let _ = event::wait_readable(&session.keeper, deadline);
                }
            }
        }
        session.end();
    }
    Err(("the job's keeper ends before it answers".into(), "look there for what ends processes".into()))
}

fn start(step: &Step, session: &Session, found: &MpiInstallation) -> Result<(), StepFailure> {
    if let Some(why) = launcher::misfit(found, &step.command) {
        return Err((why, "put that MPI into the image, or choose it with --mpi".into()));
    }
    let place = session.place_of(&step.job);
    let mut environment = launcher::job_environment(found, &step.job, &place);
    environment.extend(env::vars().filter(|(n, _)| n != VARIABLE && STEP_VARIABLES.iter().any(|b| n.starts_with(b))));
    let pmi = env::var("PMI_FD").ok().and_then(|n| n.parse().ok());
    let pmi: Option<OwnedFd> = pmi
        .map(spawn::inherited)
        .transpose()
        .map_err(|e| (format!("PMI_FD is no open descriptor: {e}"), "start crossdock by srun --mpi=pmi2".to_owned()))?;
    if pmi.is_some() {
        environment.retain(|(n, _)| n != "PMI_FD");
        environment.push(("PMI_FD".into(), PMI_DESCRIPTOR.to_string()));
        if found.kind == MpiKind::Intel && !environment.iter().any(|(n, _)| n == "I_MPI_PMI_LIBRARY") {
            environment.extend(intel_pmi(&step.job)?);
        }
    }
    let cpus = binding::show(&spawn::allowed_cpus());
    let mut words = launcher::rank_words(&place, Some(&cpus), &step.bind, &step.sources);
    words.extend(step.command.iter().cloned());
    let order = Order {
        words,
        workdir: step.job.workdir.clone(),
        environment,
        descriptor: if pmi.is_some() { PMI_DESCRIPTOR } else { -1 },
        ..Order::default()
    };
    let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let mut descriptors = vec![input.as_fd(), output.as_fd(), errors.as_fd()];
    descriptors.extend(pmi.as_ref().map(AsFd::as_fd));
    send(&session.keeper, &Message::Run(order), &descriptors)
        .map_err(|what| (format!("the rank cannot be started: {what}"), "shorten its command line".into()))
}

/// Gives the variable that tells Intel MPI where Slurm's PMI2 library is, because Intel MPI does not search for it.
fn intel_pmi(job: &Job) -> Result<Option<(String, String)>, StepFailure> {
    const FOLDERS: [&str; 4] =
        ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib64/slurmpmi", "usr/lib/x86_64-linux-gnu/slurm-wlm"];
    if job.image.is_some() {
        return Ok(None);
    }
    let root = job.root.as_deref().unwrap_or(Path::new("/"));
    let names = FOLDERS.iter().flat_map(|f| ["libpmi2.so.0", "libpmi2.so"].map(|name| format!("{f}/{name}")));
    match names.into_iter().find(|name| root.join(name).exists()) {
        Some(name) => Ok(Some(("I_MPI_PMI_LIBRARY".into(), format!("/{name}")))),
        None => Err((
            format!("Intel MPI needs Slurm's libpmi2.so, which is not in {}", root.display()),
            "install it there (Debian: libpmi2-0), or name it: --env I_MPI_PMI_LIBRARY=PATH".into(),
        )),
    }
}

fn until_end(session: &Session, signals: &OwnedFd) -> Result<End, StepFailure> {
    let own = env::var("SLURM_PROCID").ok().and_then(|n| n.parse::<i32>().ok()).unwrap_or(-1);
    let text = |e: crossdock_os::OsError| (e.to_string(), "look at the limits of that host".to_owned());
    let epoll = event::Epoll::new().map_err(text)?;
    epoll.add(&session.keeper, 0, false).map_err(text)?;
    epoll.add(signals, 1, false).map_err(text)?;
    let mut ended: Option<(End, Instant)> = None;
    let mut asked: Option<Instant> = None;
    let mut reported = false;
    let say = |signal| {
        // If the keeper is gone, the next read notices that, so an error of this send is ignored.
        let _ = send(&session.keeper, &Message::Signal(0, signal), &[]);
    };
    loop {
        if let Some((end, since)) = ended {
            // If the rank ended badly, the report of the rank's shim may come a moment later than the end of the
            // command. So the task waits for the report, for the time `LATE` at most.
            if reported || end.as_code() == 0 || since.elapsed() > LATE {
                return Ok(end);
            }
        }
        let pause = match (ended, asked) {
            (Some(_), _) => LATE,
            (None, Some(_)) => PATIENCE,
            (None, None) => Duration::from_secs(3600),
        };
        epoll.wait(Deadline::after(pause)).map_err(text)?;
        while let Some(signal) = event::next_signal(signals) {
            if matches!(signal, END | 15) {
                asked.get_or_insert_with(Instant::now);
            }
            say(if signal == END { 15 } else { signal });
        }
        if asked.is_some_and(|since| since.elapsed() >= PATIENCE) {
            say(9);
        }
        loop {
            match receive(&session.keeper) {
                ReceiveResult::Message(Message::Ended(_, end), _) => ended = Some((end, Instant::now())),
                ReceiveResult::Message(Message::Failed(_, what, hint), _) => return Err((what, hint)),
                // The keeper tells all its clients about all ranks. Each task passes on the messages about its own
                // rank, but not those about other ranks.
                ReceiveResult::Message(message, _) => match &message {
                    Message::RankStarted(rank) if rank.rank == own => tell(&message),
                    Message::RankTrouble(rank, ..) if rank.rank == own || rank.rank < 0 => tell(&message),
                    // The dead rank's own task may have been killed together with the rank. Then only the tasks of
                    // other ranks on the host, such as this task, can report the death.
                    Message::RankLost(rank) if rank.rank != own => tell(&message),
                    Message::RankEnded(rank, _) | Message::RankLost(rank) if rank.rank == own => {
                        tell(&message);
                        reported = true;
                    }
                    _ => {}
                },
                ReceiveResult::Nothing => break,
                ReceiveResult::End => {
                    session.clean();
                    if asked.is_some() {
                        // This task and the keeper were both asked to end, so the end of the keeper is no error.
                        return Ok(End { code: 0, signal: 15 });
                    }
                    return Err((
                        "its keeper has ended before the job, or was killed".into(),
                        "look there for what ends processes: limits, an out-of-memory killer".into(),
                    ));
                }
            }
        }
    }
}
