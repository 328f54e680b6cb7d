//! The shim's role as the start of one rank.
//!
//! `rank [--cpus LIST] [--bind HOW] [--source FILE]… -- COMMAND…` stands between the launcher and the program. It binds
//! the rank to CPUs, tells the keeper that the rank starts, passes signals on, and reports how the rank ended. Then it
//! ends in the same way as the rank. If the keeper is gone, the job has ended, so the rank is killed.
//!
//! **Ranks that are alone by mistake.** An MPI library that does not understand its launcher runs as a job of one rank,
//! with exit code 0. So the shim finds out from the rank's memory map which MPI library the rank has, and whether this
//! library understands what the launcher offers (PMI or PMIx).

use std::env;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crossdock_os::{Deadline, event, spawn};

use crate::message::{End, Message, Rank, ReceiveResult, connect, receive, send};
use crate::{FAILED, binding, place};

/// The environment variable with the number of ranks. It is set for all ranks of a job.
pub const RANKS_VARIABLE: &str = "CROSSDOCK_MPI_RANKS";

/// The numbers of the signals that are passed on: all signals that a launcher or a user may send and that can be
/// caught.
const PASSED: [i32; 12] = [1, 2, 3, 10, 12, 14, 15, 18, 20, 23, 24, 28];
const CHILD: i32 = 17;

/// Runs one rank and returns the exit code.
pub fn run(words: &[String]) -> i32 {
    let (mut binding, mut cpus) = ("none".to_owned(), None);
    let mut sources = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--" => break,
            "--bind" => binding = rest.next().cloned().unwrap_or_default(),
            "--cpus" => cpus = rest.next().and_then(|list| binding::parse(list)),
            "--source" => sources.extend(rest.next().cloned()),
            _ => return complain(&format!("unknown word `{word}`")),
        }
    }
    let command: Vec<String> = rest.cloned().collect();
    if command.is_empty() {
        return complain("there is no command");
    }
    if let Some(cpus) = cpus {
        // The rank starts with the CPUs of init, which are those of the Slurm task that started init. The batch system
        // may have given this rank other CPUs. If the kernel refuses to set the other CPUs, the rank keeps the CPUs of
        // init, and the table of bindings shows the CPUs of init.
        let _ = spawn::use_cpus(&cpus);
    }
    match Supervised::start(&binding, &sources, &command) {
        Ok(mut rank) => rank.until_end(),
        Err(code) => code,
    }
}

fn complain(what: &str) -> i32 {
    eprintln!("crossdock mpirun: {what}");
    FAILED
}

fn number(names: &[&str]) -> Option<i32> {
    names.iter().find_map(|name| env::var(name).ok()?.parse().ok())
}

/// Gives three numbers from the launcher's environment variables: the rank, the number of ranks, and the rank's number
/// on this host.
fn numbers() -> (i32, i32, u32) {
    let rank = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];
    let size = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS", RANKS_VARIABLE];
    let local = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"];
    let rank = number(&rank).unwrap_or(-1);
    let local = number(&local).unwrap_or(rank);
    (rank, number(&size).unwrap_or(-1), u32::try_from(local).unwrap_or(0))
}

struct Supervised {
    rank: Rank,
    keeper: OwnedFd,
    signals: OwnedFd,
    child: Child,
    check: LibraryCheck,
}

impl Supervised {
    fn start(binding: &str, sources: &[String], command: &[String]) -> Result<Self, i32> {
        let (rank, size, local) = numbers();
        let text = command.join(" ");
        let mut rank = Rank { rank, size, pid: 0, host: String::new(), command: text.clone(), cpus: String::new() };
        let mut list = PASSED.to_vec();
        list.push(CHILD);
        let signals = event::signalfd(&list).map_err(|e| complain(&e.to_string()))?;
        let keeper = connect(&place()).map_err(|e| complain(&format!("the job's keeper does not answer: {e}")))?;
        let tell = |message: &Message| {
            let _ = send(&keeper, message, &[]);
        };
        rank.cpus = binding::bind(binding, local).map_err(|what| {
            let hint = "choose --bind none, core, socket or a list of CPUs that the container may use";
            tell(&Message::RankTrouble(rank.clone(), format!("cannot bind: {what}"), hint.into()));
            FAILED
        })?;
        let mut starter = with_sources(sources, command);
        // The rank gets its own process group. A signal that the launcher sends to the group of this process then
        // reaches the rank only through this process, and so only one time.
        starter.process_group(0);
        spawn::default_signals(&mut starter);
        spawn::die_with_parent(&mut starter);
        let child = spawn::start(&mut starter).map_err(|e| {
            let hint = "look whether the container has this program, and its interpreter and libraries";
            tell(&Message::RankTrouble(rank.clone(), format!("cannot start `{text}`: {e}"), hint.into()));
            127
        })?;
        rank.pid = child.id() as i32;
        tell(&Message::RankStarted(rank.clone()));
        Ok(Self { rank, keeper, signals, child, check: LibraryCheck::new() })
    }

    fn until_end(&mut self) -> i32 {
        let epoll = event::Epoll::new().and_then(|epoll| {
            epoll.add(&self.keeper, 0, false)?;
            epoll.add(&self.signals, 1, false)?;
            Ok(epoll)
        });
        let epoll = match epoll {
            Ok(epoll) => epoll,
            Err(e) => return complain(&e.to_string()),
        };
        loop {
            let _ = epoll.wait(Deadline::after(self.check.pause()));
            while let Some(signal) = event::next_signal(&self.signals) {
                if signal != CHILD {
                    spawn::signal_group(self.child.id() as i32, signal);
                }
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return self.ended(status);
            }
            self.check.look(self.child.id(), false);
            self.report_trouble();
            if matches!(receive(&self.keeper), ReceiveResult::End) {
                spawn::signal_group(self.child.id() as i32, 9);
                let _ = self.child.wait();
                return FAILED;
            }
        }
    }

    fn report_trouble(&mut self) {
        if let Some((what, hint)) = self.check.trouble() {
            let _ = send(&self.keeper, &Message::RankTrouble(self.rank.clone(), what, hint), &[]);
        }
    }

    fn ended(&mut self, status: ExitStatus) -> i32 {
        self.check.look(self.child.id(), true);
        self.report_trouble();
        let end = End { code: status.code().unwrap_or(0), signal: status.signal().unwrap_or(0) };
        let _ = send(&self.keeper, &Message::RankEnded(self.rank.clone(), end), &[]);
        if end.signal != 0 {
            spawn::end_by_signal(end.signal);
        }
        end.code
    }
}

/// Gives the command that starts the rank's program. If there are files `sources`, the command is a shell that reads
/// these files first and then becomes the program.
fn with_sources(sources: &[String], command: &[String]) -> Command {
    let (program, rest) = command.split_first().expect("checked by the caller");
    if sources.is_empty() {
        let mut direct = Command::new(program);
        direct.args(rest);
        return direct;
    }
    // The scripts of module systems and of vendors are written for bash, so bash is preferred.
    let shell = if std::path::Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let mut words = Command::new(shell);
    let script = r#"n=$1; shift; while [ "$n" -gt 0 ]; do . "$1" || exit 126; shift; n=$((n - 1)); done; exec "$@""#;
    words.args(["-c", script, "crossdock", &sources.len().to_string()]).args(sources).args(command);
    words
}

/// Checks whether the rank's MPI library understands what its launcher offers.
struct LibraryCheck {
    began: Instant,
    looks: u32,
    /// The time at which the check first found that the MPI library does not fit the launcher, and the name of this
    /// library; `None` as long as the library seems to fit.
    suspicious: Option<(Instant, &'static str)>,
    settled: bool,
    reported: bool,
    ended: bool,
}

/// How long the check waits until a rank's MPI library has loaded its part that talks to the launcher (PMI or PMIx).
const GRACE: Duration = Duration::from_millis(1500);

impl LibraryCheck {
    fn new() -> Self {
        let alone = number(&[RANKS_VARIABLE]).unwrap_or(1) <= 1;
        Self { began: Instant::now(), looks: 0, suspicious: None, settled: alone, reported: false, ended: false }
    }

    /// The pause until the next look at the rank's memory map. The pauses are short at first, because a program may end
    /// soon. After ten seconds there are no further looks.
    fn pause(&self) -> Duration {
        if self.settled || self.began.elapsed() > Duration::from_secs(10) {
            return Duration::from_secs(3600);
        }
        Duration::from_millis(4 << self.looks.min(8))
    }

    fn look(&mut self, pid: u32, ended: bool) {
        self.looks += 1;
        self.ended = ended;
        if self.settled || ended {
            return;
        }
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let offered = LauncherInterfaces::by_environment();
        match verdict(&maps, offered) {
            LibraryVerdict::Unknown => {}
            LibraryVerdict::Fits => self.settled = true,
            LibraryVerdict::Alone(library) => {
                self.suspicious.get_or_insert((Instant::now(), library));
            }
        }
    }

    fn trouble(&mut self) -> Option<(String, String)> {
        let (since, library) = self.suspicious.filter(|_| !self.settled && !self.reported)?;
        if !self.ended && since.elapsed() < GRACE {
            return None;
        }
        self.reported = true;
        let offers = LauncherInterfaces::by_environment().name();
        Some((
            format!(
                "its MPI library ({library}) does not understand this launcher, which offers {offers}: each rank runs alone"
            ),
            "use the MPI that the program was built with (--mpi openmpi or mpich); with --launcher srun Open MPI needs --pmi pmix, and MPICH \
             and Intel MPI need --pmi pmi2"
                .into(),
        ))
    }
}

/// The interfaces that the launcher offers to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LauncherInterfaces {
    pmi: bool,
    pmix: bool,
}

impl LauncherInterfaces {
    fn by_environment() -> Self {
        let has = |name: &str| env::var_os(name).is_some();
        Self { pmi: has("PMI_FD") || has("PMI_PORT") || has("PMI_RANK"), pmix: has("PMIX_NAMESPACE") }
    }

    fn name(self) -> &'static str {
        match (self.pmi, self.pmix) {
            (true, true) => "PMI and PMIx",
            (true, false) => "PMI",
            (false, true) => "PMIx",
            (false, false) => "neither PMI nor PMIx",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum LibraryVerdict {
    /// The rank has not mapped any MPI library yet.
    Unknown,
    Fits,
    Alone(&'static str),
}

fn verdict(maps: &str, offered: LauncherInterfaces) -> LibraryVerdict {
    let has = |name: &str| maps.contains(&format!("/{name}"));
    if has("libmpi.so.40") || has("libopen-pal.so") {
        let fits = offered.pmix || offered.pmi && (has("libpmi.so") || has("libpmi2.so"));
        return if fits { LibraryVerdict::Fits } else { LibraryVerdict::Alone("Open MPI's libmpi.so.40") };
    }
    let mpich = ["libmpich.so", "libmpi.so.12"].into_iter().find(|name| has(name));
    let Some(mpich) = mpich else { return LibraryVerdict::Unknown };
    let fits = offered.pmi || offered.pmix && has("libpmix.so");
    if fits {
        LibraryVerdict::Fits
    } else {
        LibraryVerdict::Alone(if mpich == "libmpich.so" {
            "MPICH's libmpich.so.12"
        } else {
            "libmpi.so.12 of the MPICH family"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PMI: LauncherInterfaces = LauncherInterfaces { pmi: true, pmix: false };
    const PMIX: LauncherInterfaces = LauncherInterfaces { pmi: false, pmix: true };

    #[test]
    fn a_library_that_does_not_take_what_is_offered_is_alone() {
        let open_mpi = "7f00 r-xp /usr/lib/x86_64-linux-gnu/openmpi/lib/libmpi.so.40.30.4\n";
        let mpich = "7f00 r-xp /usr/lib/x86_64-linux-gnu/libmpich.so.12.2.2\n";
        assert_eq!(verdict(open_mpi, PMIX), LibraryVerdict::Fits);
        assert_eq!(verdict(open_mpi, PMI), LibraryVerdict::Alone("Open MPI's libmpi.so.40"));
        assert_eq!(verdict(mpich, PMI), LibraryVerdict::Fits);
        assert_eq!(verdict(mpich, PMIX), LibraryVerdict::Alone("MPICH's libmpich.so.12"));
        assert_eq!(verdict(&format!("{mpich} /usr/lib/libpmix.so.2\n"), PMIX), LibraryVerdict::Fits);
        assert_eq!(verdict("7f00 /usr/bin/python3.11\n", PMI), LibraryVerdict::Unknown);
    }
}
