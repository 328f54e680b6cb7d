//! The front of an MPI job, `crossdock mpirun`: starts the launcher in the first host's container, watches it, and
//! reports how the job ended.

use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crossdock_os::{Deadline, child, event, spawn};
use crossdock_shim::detect::MpiInstallation;
use crossdock_shim::message::{End, Message, Order, ReceiveResult, receive, send};

use super::hosts::{self, Host};
use super::job::Job;
use super::launcher::{self, Plan};
use super::options::{Options, describe, failure, find_hosts, usage};
use super::report::{Failure, Report};
use super::session::Session;
use super::srun::{self, Srun};
use super::task::Step;
use crate::run::code;

/// How long a launcher may continue after a rank has failed.
const GRACE: Duration = Duration::from_secs(15);
/// How long the launcher may take to end after the front asked it to end.
const ENDING: Duration = Duration::from_secs(3);
/// How long the front waits for a rank's own failure report after the launcher has failed.
const SETTLING: Duration = Duration::from_millis(300);
/// How long the front waits for a rank's failure report if the ends of some ranks are not reported yet. This time is
/// longer than `SETTLING`, because reports take longer on a busy host.
const LATE: Duration = Duration::from_secs(3);
/// The numbers of the signals that are passed on to the launcher, except those that the front was started with ignored.
const PASSED: [i32; 9] = [1, 2, 3, 10, 12, 15, 18, 20, 28];

/// Runs an MPI job and returns the exit code.
pub fn mpirun(options: &Options) -> u8 {
    match run(options) {
        Ok(code) => code,
        Err((code, failure)) => {
            eprintln!("crossdock mpirun: {failure}");
            code
        }
    }
}

fn run(options: &Options) -> Result<u8, (u8, Failure)> {
    // The signals are blocked before anything is started, so that no signal can interrupt a start.
    let signals = event::signalfd(&child::not_ignored(&PASSED))
        .map_err(|e| (code::SYSTEM, failure(e.to_string(), "look at the limits")))?;
    if options.launcher == "srun" && !hosts::in_slurm() {
        return Err(usage(
            "--launcher srun starts ranks in an allocation of Slurm, and this is none",
            "get one first, as in: salloc -N 2 --ntasks-per-node 4 crossdock mpirun --launcher srun …",
        ));
    }
    let hosts = find_hosts(options)?;
    let slots: u32 = hosts.iter().map(|h| h.slots).sum();
    let ranks = options.ranks.unwrap_or(slots);
    if ranks > slots {
        return Err(usage(
            format!("{ranks} ranks are more than the {slots} that the hosts have"),
            "give more to hosts, as in --hosts n1:4,n2:4",
        ));
    }
    let job = describe(options, ranks)?;
    if options.launcher == "srun" {
        return by_srun(options, job, hosts, ranks, signals);
    }
    let source = MessageSource::Keeper(Box::new(join(&job)?));
    let mut front = Front { options, job, hosts, ranks, source, signals, report: Report::new(ranks) };
    let outcome = front.all();
    if let (MessageSource::Keeper(session), None, Err((code::SYSTEM, _))) =
        (&front.source, &front.report.fatal, &outcome)
    {
        session.clean();
    }
    if let MessageSource::Keeper(session) = front.source {
        session.end();
    }
    outcome
}

fn join(job: &Job) -> Result<Session, (u8, Failure)> {
    Session::join(job).map_err(|what| {
        (code::SYSTEM, failure(what, "do what it says; else look at /tmp: its space and who may write there"))
    })
}

/// Lets Slurm start the ranks.
fn by_srun(
    options: &Options,
    mut job: Job,
    hosts: Vec<Host>,
    ranks: u32,
    signals: std::os::fd::OwnedFd,
) -> Result<u8, (u8, Failure)> {
    let pmi = if options.pmi == "auto" {
        // The option `--mpi` of srun depends on the MPI of the image. To find out the MPI, the job's container is first
        // started on this host.
        let source = MessageSource::Keeper(Box::new(join(&job)?));
        let (own, signals) = (hosts.clone(), signals.try_clone());
        let signals = signals.map_err(|e| (code::SYSTEM, failure(e.to_string(), "look at the limits")))?;
        let mut probe =
            Front { options, job: job.clone(), hosts: own, ranks, source, signals, report: Report::new(ranks) };
        let found = probe.epoll().and_then(|epoll| {
            probe.say(&Message::Environment(Vec::new()));
            probe.container(&epoll)
        });
        if let MessageSource::Keeper(session) = probe.source {
            session.end();
        }
        let found = match found? {
            Ok(found) => found,
            Err(signal) => return Ok(128 + signal as u8),
        };
        // A first keeper was started only to find out which MPI the image has, and may still be ending. So the job gets
        // a new id.
        job.id.push('r');
        job.expected = Some(found.describe());
        srun::pmi_of(&found)
    } else {
        &options.pmi
    };
    let named = options.hosts.is_some() || options.hosts_file.is_some();
    let plan = srun::Plan {
        pmi,
        ranks,
        hosts: named.then_some(&hosts[..]),
        keep_going: options.keep_going,
        arguments: &options.arguments,
        starter: &job.starter,
    };
    let words = srun::words(&plan);
    let (bind, sources, command) = (options.bind.clone(), options.sources.clone(), options.command.clone());
    let step = Step { job: job.clone(), bind, sources, command, clean: false };
    let source = MessageSource::Srun(Srun::start(&words, &step).map_err(|what| {
        let hint = "install Slurm's srun on this host, or use --launcher ssh";
        (code::UNAVAILABLE, failure(what, hint))
    })?);
    let mut front = Front { options, job, hosts, ranks, source, signals, report: Report::new(ranks) };
    let outcome = front.epoll().and_then(|epoll| front.until_end(&epoll));
    if let MessageSource::Srun(srun) = front.source {
        srun.end(&step);
    }
    outcome
}

/// The sender of messages about the job: a keeper or Slurm.
enum MessageSource {
    /// The job's keeper on this host, reached through this session.
    Keeper(Box<Session>),
    /// The tasks of a Slurm step, which report through srun.
    Srun(Srun),
}

impl MessageSource {
    fn link(&self) -> &std::os::fd::OwnedFd {
        match self {
            Self::Keeper(session) => &session.keeper,
            Self::Srun(srun) => &srun.link,
        }
    }
}

struct Front<'a> {
    options: &'a Options,
    job: Job,
    hosts: Vec<Host>,
    ranks: u32,
    source: MessageSource,
    signals: std::os::fd::OwnedFd,
    report: Report,
}

/// The result of one wait for a message or signal.
enum FrontEvent {
    Ready(MpiInstallation),
    Ended(End),
    Signal(i32),
    Lost,
    /// A message that was noted in the report and needs no other action.
    Reported,
    /// Nothing came before the deadline.
    Nothing,
}

impl Front<'_> {
    fn say(&self, message: &Message) {
        match (&self.source, message) {
            // If the keeper has ended, the next read notices that, so an error of this send is ignored.
            (MessageSource::Keeper(session), _) => drop(send(&session.keeper, message, &[])),
            (MessageSource::Srun(srun), Message::Signal(_, signal)) => srun.signal(*signal),
            (MessageSource::Srun(_), _) => {}
        }
    }

    fn epoll(&self) -> Result<event::Epoll, (u8, Failure)> {
        event::Epoll::new()
            .and_then(|epoll| {
                epoll.add(self.source.link(), 0, false)?;
                epoll.add(&self.signals, 1, false)?;
                Ok(epoll)
            })
            .map_err(|e| (code::SYSTEM, failure(e.to_string(), "look at the limits")))
    }

    /// Waits for one message or signal, until `until` at the latest.
    fn news(&mut self, epoll: &event::Epoll, until: Instant) -> FrontEvent {
        let pause = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(500));
        if !matches!(epoll.wait(Deadline::after(pause)), Ok(ready) if !ready.is_empty()) {
            return FrontEvent::Nothing;
        }
        if let Some(signal) = event::next_signal(&self.signals) {
            return FrontEvent::Signal(signal);
        }
        match receive(self.source.link()) {
            ReceiveResult::Message(Message::Ready(found), _) => return FrontEvent::Ready(found),
            ReceiveResult::Message(Message::Ended(_, end), _) => return FrontEvent::Ended(end),
            ReceiveResult::Message(message, _) => drop(self.report.hear(message)),
            ReceiveResult::End => return FrontEvent::Lost,
            ReceiveResult::Nothing => {}
        }
        FrontEvent::Reported
    }

    fn all(&mut self) -> Result<u8, (u8, Failure)> {
        let epoll = self.epoll()?;
        // This message has an empty list of variables, so it changes nothing in the keeper.
        self.say(&Message::Environment(Vec::new()));
        let found = match self.container(&epoll)? {
            Ok(found) => found,
            Err(signal) => return Ok(128 + signal as u8),
        };
        self.launch(&found)?;
        self.until_end(&epoll)
    }

    /// Waits until the container is ready, or until a signal ends the wait.
    fn container(&mut self, epoll: &event::Epoll) -> Result<Result<MpiInstallation, i32>, (u8, Failure)> {
        let end = Instant::now() + Duration::from_secs(self.job.patience_s + 5);
        loop {
            let news = self.news(epoll, end);
            if let Some(failure) = self.report.fatal.clone() {
                return Err((code::UNAVAILABLE, failure));
            }
            match news {
                FrontEvent::Ready(found) => return Ok(Ok(found)),
                FrontEvent::Signal(signal) if matches!(signal, 1 | 2 | 3 | 15) => return Ok(Err(signal)),
                FrontEvent::Lost => {
                    return Err((
                        code::SYSTEM,
                        failure(
                            "the job's keeper on this host has ended or was killed",
                            "try again; look at limits and memory",
                        ),
                    ));
                }
                _ if Instant::now() > end => {
                    return Err((
                        code::UNAVAILABLE,
                        failure("the container did not come up", "--patience gives it more time"),
                    ));
                }
                _ => {}
            }
        }
    }

    /// Starts the launcher in the container.
    fn launch(&mut self, found: &MpiInstallation) -> Result<(), (u8, Failure)> {
        let MessageSource::Keeper(session) = &self.source else { return Ok(()) };
        if let Some(why) = launcher::misfit(found, &self.options.command) {
            return Err((code::UNAVAILABLE, failure(why, "put that MPI into the image, or choose it with --mpi")));
        }
        let place = session.place_of(&self.job);
        let hosts = session.place.inside().join(launcher::HOSTS_FILE);
        fs::write(&hosts, launcher::hosts_file(&self.hosts)).map_err(|e| {
            (code::SYSTEM, failure(format!("cannot write {}: {e}", hosts.display()), "look at the space in /tmp"))
        })?;
        let environment = launcher::job_environment(found, &self.job, &place);
        let plan = Plan {
            place: &place,
            hosts: &self.hosts,
            ranks: self.ranks,
            workdir: &self.job.workdir,
            bind: &self.options.bind,
            sources: &self.options.sources,
            arguments: &self.options.arguments,
            root: spawn::user_and_group().0 == 0,
            command: &self.options.command,
        };
        let words = launcher::words(found, &plan).map_err(|what| {
            (
                code::UNAVAILABLE,
                failure(
                    what,
                    "install Open MPI, MPICH or Intel MPI in it, or say where it is: --mpi /opt/mpi/bin/mpirun",
                ),
            )
        })?;
        self.say(&Message::Job(found.describe()));
        self.say(&Message::Environment(environment));
        let order = Order { words, workdir: self.job.workdir.clone(), descriptor: -1, ..Order::default() };
        let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        send(&session.keeper, &Message::Run(order), &[input.as_fd(), output.as_fd(), errors.as_fd()]).map_err(|what| {
            (code::SYSTEM, failure(format!("the launcher cannot be started: {what}"), "shorten its command line"))
        })
    }

    /// Waits for the launcher's end. Ends the launcher if a deadline or a signal asks for it.
    fn until_end(&mut self, epoll: &event::Epoll) -> Result<u8, (u8, Failure)> {
        let began = Instant::now();
        let mut asked: Option<Instant> = None;
        let mut shown = !self.options.show_binding;
        let mut interrupted = 0;
        loop {
            let news = self.news(epoll, Instant::now() + Duration::from_millis(500));
            if !shown && self.report.count() >= self.ranks as usize {
                eprint!("{}", self.report.table());
                shown = true;
            }
            match news {
                FrontEvent::Ended(end) => return self.verdict(end, epoll),
                FrontEvent::Signal(signal) => {
                    self.say(&Message::Signal(0, signal));
                    interrupted += u32::from(matches!(signal, 2 | 15));
                    if interrupted > 1 {
                        return Ok(128 + signal as u8);
                    }
                }
                FrontEvent::Lost => {
                    let what = "the job's keeper on this host has ended or was killed";
                    let lost = self
                        .report
                        .fatal
                        .clone()
                        .unwrap_or_else(|| failure(what, "try again; look at limits and memory"));
                    return Err((code::SYSTEM, lost));
                }
                FrontEvent::Ready(_) | FrontEvent::Reported | FrontEvent::Nothing => {}
            }
            self.watch(began);
            if self.report.fatal.is_some() {
                match asked {
                    None => {
                        self.say(&Message::Signal(0, 15));
                        asked = Some(Instant::now());
                    }
                    Some(since) if since.elapsed() > ENDING => {
                        let failure = self.report.fatal.clone().expect("looked at just now");
                        return Err((code::UNAVAILABLE, failure));
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Checks three deadlines: for the start of all ranks, for a launcher that continues after a rank has failed, and
    /// for the whole job.
    fn watch(&mut self, began: Instant) {
        let started = self.report.count();
        if started < self.ranks as usize && began.elapsed() > Duration::from_secs(self.options.start_s) {
            let without = self.report.without_ranks(self.hosts.iter().map(|h| h.name.as_str()));
            let where_ = if without.is_empty() { String::new() } else { format!("; none on {}", without.join(", ")) };
            let what =
                format!("{started} of {} ranks have started within {} s{where_}", self.ranks, self.options.start_s);
            self.report.fail(failure(what, "look at those hosts' load and network; --start gives them more time"));
        }
        if let Some((first, since)) = &self.report.first {
            // A launcher ends the job by itself when a rank is killed. But MPICH's launcher continues when a rank exits
            // early with an error, so the front ends the job after the time `grace`.
            let grace = if matches!(self.source, MessageSource::Srun(_)) { ENDING } else { GRACE };
            if since.elapsed() > grace && !self.options.keep_going {
                let first = first.clone();
                self.report.fail(first);
            }
        }
        if let Some(limit) = self.options.deadline_s {
            if began.elapsed() > Duration::from_secs(limit) {
                self.report.fail(failure(
                    format!("the job's deadline of {limit} s has passed"),
                    "--deadline gives it more time",
                ));
            }
        }
    }

    /// Chooses the job's exit code and its failure message, after the launcher has ended with `end`.
    fn verdict(&mut self, end: End, epoll: &event::Epoll) -> Result<u8, (u8, Failure)> {
        // The last messages of ranks, also of ranks on other hosts, may still be in flight. After a failure the front
        // waits for the message that tells the cause of the failure.
        if end.as_code() != 0 {
            let began = Instant::now();
            while !self.report.knows_the_first() && self.report.fatal.is_none() {
                let until = began + if self.report.awaits_ends() { LATE } else { SETTLING };
                if Instant::now() > until || matches!(self.news(epoll, until), FrontEvent::Lost) {
                    break;
                }
            }
        } else {
            while !matches!(self.news(epoll, Instant::now()), FrontEvent::Nothing | FrontEvent::Lost) {}
        }
        let code = u8::try_from(end.as_code()).unwrap_or(u8::MAX);
        if let Some(fatal) = self.report.fatal.take() {
            self.report.fatal = Some(fatal.clone());
            return Err((if code == 0 { code::UNAVAILABLE } else { code }, fatal));
        }
        match self.report.first.take() {
            Some((failure, _)) if code != 0 => Err((code, failure)),
            _ if end.signal != 0 && matches!(self.source, MessageSource::Srun(_)) => {
                let what = format!("srun was ended by signal {}", end.signal);
                Err((code, failure(what, "look for what ends processes on this host")))
            }
            _ => Ok(code),
        }
    }
}
