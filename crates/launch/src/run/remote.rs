//! A part of a run on another host than the host where the user started the run. The run's supervisor starts the part
//! by ssh or srun.
//!
//! Two processes run the part and watch each other, as the front and the supervisor do on their host (README.md). The
//! first process passes on what comes through the connection, and the second process has the tasks as children. When
//! the connection ends, both processes end, with everything that they started.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossdock_link::NodeCredentials;
use crossdock_os::orphans::{self, Reaper};
use crossdock_os::spawn::{self, host_name};
use crossdock_os::{Deadline, child, event};

use super::daemon::{self, DaemonChoice, Site};
use super::directory_reports;
use super::folder::{self, RunFolder};
use super::host_exchange::{self, OtherHosts, OwnHost};
use super::hosts::{PART_SUPERVISOR, node_name};
use super::messages::{
    FromPart, GREETING, OrderedProtection, PULSE_S, PartOrder, SILENCE_S, SiteOrder, ToPart, line, looked, next,
    text_of,
};
use super::part::{Part, PartConnections, PartRefusal};
use super::rank::{End, Running};
use super::ranked::JobHosts;
use super::site::{Protection, own_address};
use super::supervisor::outlive_signals;
use super::{code, processes};
use crate::file::parse_on;

/// The number of bytes of messages that may wait for the connection. While more bytes wait, the outputs of tasks are
/// not read and stay in their pipes.
const BEHIND: usize = 8 << 20;
/// How long it may take until the processes of a killed part are gone.
const SWEEPING: Duration = Duration::from_secs(20);

/// Reads the first line that is not a pulse. A supervisor that takes long to prepare its own host sends pulses before
/// its first message.
fn first_order(input: &mut impl BufRead) -> Option<String> {
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).is_err() || !line.ends_with('\n') {
            return None;
        }
        if !matches!(serde_json::from_str(&line), Ok(ToPart::Pulse)) {
            return Some(line);
        }
    }
}

/// Runs the hidden command `run-part` and returns the exit code. The calling process must not wait for children of its
/// own, because this function reaps all children.
pub fn part() -> u8 {
    let mut output = std::io::stdout();
    if output.write_all(GREETING).and_then(|()| output.flush()).is_err() {
        return code::SYSTEM;
    }
    let mut input = BufReader::new(std::io::stdin());
    // The run's supervisor has ended before it sent its first message. Nothing is made yet, so nothing must be removed.
    let Some(first) = first_order(&mut input) else { return code::SYSTEM };
    let first_word = serde_json::from_str::<ToPart>(&first);
    if let Ok(ToPart::Sweep(id)) = first_word {
        return sweep(&id);
    }
    let Ok(ToPart::Part(order)) = first_word else {
        let reason = "crossdock is of another version there than on the runner's host";
        let _ = output.write_all(line(&FromPart::from(PartRefusal::new(code::UNAVAILABLE, reason))).as_bytes());
        return code::UNAVAILABLE;
    };
    match serve(&order, first, input) {
        Ok(code) => code,
        Err(reason) => {
            let _ = output.write_all(line(&FromPart::from(PartRefusal::new(code::SYSTEM, reason))).as_bytes());
            code::SYSTEM
        }
    }
}

/// Removes what is left of a part, as soon as no process of the part holds the lock of the part's folder.
fn sweep(id: &str) -> u8 {
    let end = Instant::now() + SWEEPING;
    while folder::is_left(id) {
        if Instant::now() > end {
            return code::SYSTEM;
        }
        folder::clean_dead_saying(&|_| ());
        thread::sleep(Duration::from_millis(20));
    }
    code::OK
}

fn serve(order: &PartOrder, first: String, mut input: BufReader<std::io::Stdin>) -> Result<u8, String> {
    child::adopt_orphans().map_err(|e| format!("cannot become the reaper of the run's processes: {e}"))?;
    // Signals must not end this process, because its child, the part's supervisor, must remove everything before this
    // process ends.
    let _ = outlive_signals(&Arc::default());
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program in the file system: {e}"))?;
    let mut child = spawn::start(
        Command::new(&program)
            .arg(PART_SUPERVISOR)
            .envs(order.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped()),
    )
    .map_err(|e| format!("cannot start {}: {e}", program.display()))?;
    let mut pipe = child.stdin.take().ok_or("the part has no standard input")?;
    let passing_on = crossdock_os::thread::start(move || {
        // When this thread ends, it closes the pipe. The part's supervisor then reads the end of the pipe, and so
        // notices that the connection has ended.
        let _ = pipe.write_all(first.as_bytes()).and_then(|()| std::io::copy(&mut input, &mut pipe).map(drop));
    });
    // If the thread could not be started, the pipe is closed already, so the part's supervisor ends.
    let status = child.wait().map_err(|e| format!("cannot wait for the part: {e}"))?;
    // If the part's supervisor was killed, the processes that it had started are now children of this process, and this
    // call kills them.
    processes::kill_descendants(&[], Duration::from_secs(10));
    if folder::is_left(&order.id) {
        folder::clean_up_after(&order.id);
        processes::kill_descendants(&[], Duration::from_secs(5));
    }
    passing_on.map_err(no_thread)?;
    match status.code() {
        Some(code) => Ok(u8::try_from(code).unwrap_or(code::SYSTEM)),
        None => Err("its supervisor was killed; its tasks were stopped".into()),
    }
}

fn no_thread(reason: io::Error) -> String {
    format!("cannot start a thread: {reason}")
}

/// Sends the part's messages to the run's supervisor. A thread writes them, so that a slow connection does not stop the
/// part.
struct MessageSender {
    queue: Sender<String>,
    behind: Arc<AtomicUsize>,
    writer: JoinHandle<()>,
    /// True after the run's supervisor has given this part up. From that time, messages about the part's tasks are not
    /// sent.
    is_mute: AtomicBool,
}

impl MessageSender {
    fn new() -> Result<Self, String> {
        let (queue, texts) = channel::<String>();
        let behind = Arc::new(AtomicUsize::new(0));
        let waiting = behind.clone();
        let writer = crossdock_os::thread::start(move || {
            let mut output = std::io::stdout();
            loop {
                let (text, counted) = match texts.recv_timeout(Duration::from_secs(PULSE_S)) {
                    Ok(text) => {
                        let length = text.len();
                        (text, length)
                    }
                    Err(RecvTimeoutError::Timeout) => (line(&FromPart::Pulse), 0),
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                // If the connection is gone, the thread that reads from it notices that, so an error of this write is
                // ignored.
                let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
                waiting.fetch_sub(counted, Ordering::Relaxed);
            }
        });
        Ok(Self { queue, behind, writer: writer.map_err(no_thread)?, is_mute: AtomicBool::new(false) })
    }

    fn say(&self, up: &FromPart) {
        if self.is_mute.load(Ordering::Relaxed) {
            return;
        }
        let text = line(up);
        self.behind.fetch_add(text.len(), Ordering::Relaxed);
        let _ = self.queue.send(text);
    }

    fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed) > BEHIND
    }

    /// Waits until all messages are written, but at most `SILENCE_S` seconds.
    fn finish(self) {
        let Self { queue, writer, .. } = self;
        drop(queue);
        let end = Instant::now() + Duration::from_secs(SILENCE_S);
        while !writer.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Receives the messages that the run's supervisor sends to this part. A thread reads them from the connection and puts
/// them into the queue.
struct OrderReceiver {
    queue: Receiver<ToPart>,
    wake: Arc<OwnedFd>,
    /// True if the connection has ended, or if this process was asked to end.
    ended: Arc<AtomicBool>,
    heard: Arc<Mutex<Instant>>,
}

impl OrderReceiver {
    fn new() -> Result<Self, String> {
        let (sender, queue) = channel();
        let wake = Arc::new(event::eventfd().map_err(|e| e.to_string())?);
        let (ended, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Instant::now())));
        let (ring, over, now) = (wake.clone(), ended.clone(), heard.clone());
        let reader = crossdock_os::thread::start(move || {
            let mut input = BufReader::new(std::io::stdin());
            while let Some(down) = next::<ToPart>(&mut input) {
                *now.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Instant::now();
                if !matches!(down, ToPart::Pulse) && sender.send(down).is_err() {
                    return;
                }
                event::signal(&*ring);
            }
            over.store(true, Ordering::Relaxed);
            event::signal(&*ring);
        });
        reader.map_err(no_thread)?;
        Ok(Self { queue, wake, ended, heard })
    }

    /// Tells whether the run's supervisor is gone, or counts as lost after a long silence.
    fn is_lost(&self) -> bool {
        let heard = *self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.ended.load(Ordering::Relaxed) || heard.elapsed() > Duration::from_secs(SILENCE_S)
    }
}

/// Runs the hidden command `supervise-part` and returns the exit code.
pub fn part_supervisor() -> u8 {
    // The process gets its own session, so that it receives no signal that is sent to the group of ssh or srun, and
    // obeys only the messages of the run's supervisor.
    child::leave_session();
    child::raise_own_descriptor_limit();
    orphans::note_children();
    let _ = child::adopt_orphans();
    let (receiver, sender) = match (OrderReceiver::new(), MessageSender::new()) {
        (Ok(receiver), Ok(sender)) => (receiver, sender),
        (Err(reason), _) | (_, Err(reason)) => {
            super::folder::complain(&reason.to_string());
            return code::SYSTEM;
        }
    };
    // When Slurm ends a job step, it sends a signal to each process of the step. Such a signal sets `receiver.ended`,
    // so this process stops the tasks of this host and removes the files that were made for them.
    let _ = outlive_signals(&receiver.ended);
    let first = receiver.queue.recv_timeout(Duration::from_secs(SILENCE_S));
    let Ok(ToPart::Part(order)) = first else {
        // The part's first process was killed before it passed on the first message of the run's supervisor. Nothing is
        // made yet, so nothing must be removed.
        return code::SYSTEM;
    };
    let alarm = |text: &str| sender.say(&FromPart::Alarm(text.to_owned()));
    // An engine may take long to answer. The messages have begun before, so the run's supervisor gets pulses meanwhile.
    folder::clean_dead_saying(&alarm);
    let refuse = |refused: PartRefusal| {
        let code = refused.code;
        sender.say(&FromPart::from(refused));
        code
    };
    let code = match RunFolder::make(&order.id) {
        Err(reason) => refuse(PartRefusal::new(code::SYSTEM, reason)),
        Ok(folder) => {
            // The lock is held until the folder is removed, so that a run that starts meanwhile does not take this one
            // for dead.
            let (path, _lock) = (folder.path.clone(), folder.lock());
            match prepare(&order, folder, &sender) {
                Ok((part, grace)) => ServingPart::new(part, grace, &receiver, &sender).go(),
                Err(refused) => {
                    // Everything is removed before the run's supervisor learns of the failure.
                    folder::clean_saying(&order.id, &path, &alarm);
                    refuse(refused)
                }
            }
        }
    };
    processes::kill_descendants(&[], Duration::from_secs(5));
    sender.finish();
    code
}

fn prepare(order: &PartOrder, folder: RunFolder, sender: &MessageSender) -> Result<(Part, Duration), PartRefusal> {
    let (workflow, places) = parse_on(&order.file, &order.text, &order.hosts, Some(order.number))
        .map_err(|problems| PartRefusal::new(code::FILE, problems.to_string()))?;
    let site = order.site.as_ref().map(|site| join(site, &folder)).transpose();
    let site = site.map_err(|reason| PartRefusal::new(code::SYSTEM, reason))?;
    let neighbours =
        site.as_ref().filter(|_| host_exchange::needed(&workflow, &places)).map(|site| -> Result<_, String> {
            let nodes: Vec<_> = order.hosts.iter().map(|host| (host.clone(), node_name(host))).collect();
            let to_runner = order.site.as_ref().and_then(|site| site.address.clone()).or_else(runner);
            let address = to_runner.and_then(|host| own_address(&host)).unwrap_or_else(host_name);
            let own = OwnHost {
                site: site.name.clone(),
                catalog: site.catalog.parse()?,
                node: site.node.clone(),
                address,
                protection: site.protection.clone(),
                transport: site.transport,
            };
            Ok(OtherHosts::of((&workflow, &places), &nodes, order.number, own))
        });
    let neighbours = neighbours.transpose().map_err(|reason| PartRefusal::new(code::SYSTEM, reason))?;
    let which = site.filter(|_| daemon::needed(&workflow)).map(DaemonChoice::Site);
    let note = |text: &str| sender.say(&FromPart::Note(text.to_owned()));
    let grace = Duration::from_secs(u64::from(workflow.grace_s));
    let here = places.part(&workflow, order.number);
    let reach = PartConnections { which: which.as_ref(), neighbours: neighbours.as_ref() };
    let part = Part::prepare(here, &places.counts(&workflow, order.number), &order.engine, folder, reach, &note)?;
    let (engine, version) = (part.engine.name().to_owned(), part.version.clone());
    let (shared, endpoints) = (part.engine.isolation().shared(), part.endpoints_of_jobs());
    sender.say(&FromPart::Ready { engine, version, shared, endpoints });
    Ok((part, grace))
}

/// Describes this host's node in the run's site. Certificates are written into the run's folder, which only this user
/// can read.
fn join(order: &SiteOrder, folder: &RunFolder) -> Result<Site, String> {
    let protection = match order.protection.clone() {
        OrderedProtection::Certificates { authority, certificate, key } => {
            let credentials = NodeCredentials { authority, certificate, key };
            credentials.save(&folder.path).map_err(|e| e.to_string())?;
            Protection::Certificates(folder.path.clone())
        }
        OrderedProtection::TrustedNetwork => Protection::TrustedNetwork,
    };
    let host = order.address.clone().or_else(runner).ok_or(
        "cannot tell the address of the runner's host: neither SSH_CONNECTION nor SLURM_LAUNCH_NODE_IPADDR is set; \
         give it with --address",
    )?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(Site {
        name: order.name.clone(),
        node: order.node.clone(),
        catalog: format!("embedded:{}@{host}:{}", order.keeper, order.port),
        catalog_socket: None,
        listen: None,
        protection,
        transport: order.transport,
    })
}

/// Gives the address of the run's supervisor, from which the connection came.
fn runner() -> Option<String> {
    let ssh = std::env::var("SSH_CONNECTION").ok();
    let first = ssh.as_ref().and_then(|text| text.split_whitespace().next().map(str::to_owned));
    first.or_else(|| std::env::var("SLURM_LAUNCH_NODE_IPADDR").ok())
}

struct RunningRank {
    task: String,
    running: Running,
}

/// The thread that looks into this host's managed directories. A look may take long, and the part must notice the ends
/// of ranks meanwhile.
struct Looks {
    /// The numbers of the questions for the thread.
    questions: Sender<u64>,
    answers: Receiver<FromPart>,
}

impl Looks {
    /// Starts the thread. It signals `wake` after each look, and ends when the questions are dropped.
    fn start(run: PathBuf, wake: Arc<OwnedFd>) -> Self {
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        let answer = move || {
            while let Ok(first) = asked.recv() {
                // All questions that wait now are answered by one look.
                let numbers: Vec<u64> = std::iter::once(first).chain(asked.try_iter()).collect();
                let found = directory_reports::here(&run);
                for number in numbers {
                    let _ = sender.send(looked(number, found.clone()));
                }
                event::signal(&*wake);
            }
        };
        let _ = crossdock_os::thread::start(answer);
        Self { questions, answers }
    }
}

/// A part that is ready to run tasks.
struct ServingPart<'a> {
    part: Part,
    grace: Duration,
    receiver: &'a OrderReceiver,
    sender: &'a MessageSender,
    looks: Looks,
    ranks: BTreeMap<usize, RunningRank>,
    /// For each rank that has started: the name of its task, and its number in the run. This list says into the logs of
    /// which ranks a problem with the files of a task is written.
    producers: Vec<(String, usize)>,
    helpers: Vec<JoinHandle<()>>,
    kill_at: Option<Instant>,
    killed: bool,
}

impl<'a> ServingPart<'a> {
    fn new(part: Part, grace: Duration, receiver: &'a OrderReceiver, sender: &'a MessageSender) -> Self {
        let (ranks, producers, helpers) = (BTreeMap::new(), Vec::new(), Vec::new());
        let looks = Looks::start(part.folder.path.clone(), receiver.wake.clone());
        Self { part, grace, receiver, sender, looks, ranks, producers, helpers, kill_at: None, killed: false }
    }

    fn go(mut self) -> u8 {
        let mut asked = false;
        let mut reaper = Reaper::new();
        loop {
            self.wait();
            reaper.look();
            event::clear(&*self.receiver.wake);
            loop {
                match self.receiver.queue.try_recv() {
                    Ok(ToPart::Start { index, task, rank, job }) => self.start(index, task, rank, job.as_deref()),
                    Ok(ToPart::JobBegan(task)) => self.part.began(&task),
                    Ok(ToPart::JobEnded(task, well)) => self.part.ended(&task, well),
                    Ok(ToPart::Look(number)) => {
                        // If the thread could not be started, the question gets no answer.
                        let _ = self.looks.questions.send(number);
                    }
                    Ok(ToPart::Ask) => self.ask(),
                    Ok(ToPart::Kill) => self.kill(),
                    Ok(ToPart::End) => {
                        self.kill();
                        return self.finish(code::OK);
                    }
                    Ok(ToPart::Part(_) | ToPart::Sweep(_) | ToPart::Pulse) => {}
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            if self.receiver.is_lost() && !asked {
                asked = true;
                self.sender.is_mute.store(true, Ordering::Relaxed);
                self.ask();
                self.kill_at = Some(Instant::now() + self.grace);
            }
            self.look();
            self.tell_of_files();
            self.looks.answers.try_iter().for_each(|answer| self.sender.say(&answer));
            if asked {
                if self.ranks.is_empty() {
                    return self.finish(code::UNAVAILABLE);
                }
                if !self.killed && self.kill_at.is_some_and(|at| Instant::now() > at) {
                    self.kill();
                    // A rank that its engine cannot kill is killed after 15 s, with all descendants of this process.
                    self.kill_at = Some(Instant::now() + Duration::from_secs(15));
                } else if self.killed && self.kill_at.is_some_and(|at| Instant::now() > at) {
                    return self.finish(code::UNAVAILABLE);
                }
            }
        }
    }

    /// Waits for output, for the end of a rank, for a message of the run's supervisor, or for a deadline. While too many
    /// messages wait for the connection, [`Self::look`] does nothing, so this call does not wait for ranks.
    fn wait(&self) {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.receiver.wake.as_fd()];
        for there in self.ranks.values().filter(|_| !self.sender.is_behind()) {
            fds.push(there.running.pidfd.as_fd());
            fds.extend(there.running.output.as_ref().map(OwnedFd::as_fd));
        }
        let _ = event::wait_any(&fds, Some(Deadline::after(Duration::from_millis(100))));
    }

    fn start(&mut self, index: usize, task: String, rank: u32, job: Option<&JobHosts>) {
        match self.part.start(&task, rank, job) {
            Ok(begun) => {
                let (pid, words, note) = (begun.running.pid(), begun.words, begun.note);
                self.sender.say(&FromPart::Begun { index, pid, words, note });
                self.producers.push((task.clone(), index));
                self.ranks.insert(index, RunningRank { task, running: begun.running });
            }
            Err(end) => self.ended(index, &task, end, 0.0),
        }
    }

    fn ended(&mut self, index: usize, task: &str, end: End, seconds: f64) {
        self.part.ended(task, end.good());
        self.sender.say(&FromPart::Ended { index, end, seconds });
    }

    fn look(&mut self) {
        if self.sender.is_behind() && !self.receiver.is_lost() {
            return;
        }
        let sender = self.sender;
        let mut ended = Vec::new();
        for (index, there) in &mut self.ranks {
            let say = |bytes: &[u8]| sender.say(&FromPart::Output { index: *index, text: text_of(bytes) });
            if let Some(end) = there.running.look(say) {
                ended.push((*index, there.task.clone(), end, there.running.since.elapsed().as_secs_f64()));
            }
        }
        for (index, task, end, seconds) in ended {
            self.ranks.remove(&index);
            self.ended(index, &task, end, seconds);
        }
    }

    fn tell_of_files(&mut self) {
        for (tasks, text) in self.part.files.news() {
            let of = self.producers.iter().filter(|(task, _)| tasks.contains(task));
            for (_, index) in of {
                let text = text_of(format!("crossdock: {text}\n").as_bytes());
                self.sender.say(&FromPart::Output { index: *index, text });
            }
        }
    }

    fn ask(&mut self) {
        for there in self.ranks.values() {
            self.helpers.extend(there.running.ask(&self.part.engine));
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        for there in self.ranks.values() {
            self.helpers.extend(there.running.kill(&self.part.engine));
        }
    }

    fn finish(mut self, code: u8) -> u8 {
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
        // Processes that tasks left behind are killed before the figures are collected, so that the figures no longer
        // change.
        processes::kill_descendants(&self.part.helpers(), Duration::from_secs(5));
        let sender = self.sender;
        let alarm = |text: &str| sender.say(&FromPart::Alarm(text.to_owned()));
        let figures = self.part.end(&alarm);
        folder::clean_at_end(&self.part.folder.id, &self.part.folder.path, &alarm);
        sender.say(&FromPart::Left(Box::new(figures)));
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulses_before_the_first_order_are_passed_over() {
        let pulse = line(&ToPart::Pulse);
        let order = line(&ToPart::Sweep("run-1".into()));
        let said = format!("{pulse}{pulse}{order}{pulse}");
        assert_eq!(first_order(&mut said.as_bytes()), Some(order));
        assert_eq!(first_order(&mut pulse.as_bytes()), None);
        assert_eq!(first_order(&mut "half a line".as_bytes()), None);
    }
}
