//! What the front learns from all hosts: which ranks have started, on which host and processors they run, and the first
//! failure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crossdock_layout::text::clipped;
use crossdock_shim::message::{End, Message, Rank};

/// The most bytes that the front keeps of each text in a rank's report. This is enough for the list of the CPUs of a
/// large host.
const TEXT_MAX: usize = 8 << 10;

/// A failure, as it is printed in the one error message of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of the host; empty if the failure is not about one host.
    pub host: String,
    /// The number of the rank, if the failure is about one rank.
    pub rank: Option<i32>,
    /// The command of the rank, if there is one.
    pub command: String,
    /// What went wrong, as a sentence.
    pub what: String,
    /// What the user can do, as a sentence.
    pub hint: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.host.is_empty() {
            write!(f, "host {}: ", self.host)?;
        }
        if let Some(rank) = self.rank.filter(|r| *r >= 0) {
            write!(f, "rank {rank}: ")?;
        }
        if !self.command.is_empty() {
            write!(f, "`{}`: ", self.command)?;
        }
        write!(f, "{}\n  hint: {}", self.what, self.hint)
    }
}

/// The state of all ranks. Its memory is bounded by the number of ranks, however many reports arrive.
#[derive(Default)]
pub struct Report {
    /// The number of ranks of the job.
    most: usize,
    /// The ranks that have started. The key is the host and the process id. The rank's MPI number cannot be the key,
    /// because ranks that do not find each other may all have the same number.
    ranks: BTreeMap<(String, i32), Rank>,
    /// The started ranks whose end was reported. Each entry is the host and the process id of a rank.
    ended: BTreeSet<(String, i32)>,
    /// The failure that ends the job.
    pub fatal: Option<Failure>,
    /// The first rank that ended badly, and when. From that time, the launcher has a limited time to end the other
    /// ranks.
    pub first: Option<(Failure, Instant)>,
    /// True if it is only a guess that the rank of `first` failed first, because this rank was killed together with its
    /// shim. The launcher may have killed this rank after another rank failed, and the report of the other rank may
    /// still be in flight.
    guessed: bool,
}

impl Report {
    /// Makes the report of a job with this number of ranks.
    pub fn new(ranks: u32) -> Self {
        Self { most: ranks as usize, ..Self::default() }
    }

    /// Notes a message about a rank or a failure in the report. Gives any other message back to the caller.
    pub fn hear(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::RankStarted(rank) => self.started(short(rank)),
            Message::RankEnded(rank, end) => self.ended(&short(rank), end),
            Message::RankLost(rank) => self.lost(&short(rank)),
            Message::RankTrouble(rank, what, hint) => {
                let Rank { rank, host, command, .. } = short(rank);
                self.fail(Failure { host, rank: Some(rank), command, what: cut(what), hint: cut(hint) });
            }
            Message::Failed(host, what, hint) => {
                let (host, what, hint) = (cut(host), cut(what), cut(hint));
                self.fail(Failure { host, rank: None, command: String::new(), what, hint });
            }
            other => return Some(other),
        }
        None
    }

    /// Notes that a rank has started. If more ranks report than the job was started with, the job ends with a failure.
    fn started(&mut self, rank: Rank) {
        let key = (rank.host.clone(), rank.pid);
        if self.ranks.len() < self.most || self.ranks.contains_key(&key) {
            self.ranks.insert(key, rank);
            return;
        }
        self.fail(Failure {
            host: rank.host,
            rank: Some(rank.rank),
            command: rank.command,
            what: format!("it reports its start, but all {} ranks of the job have started already", self.most),
            hint: "a program of the job sends false reports, or the launcher was told another number of ranks".into(),
        });
    }

    /// The number of ranks that have started.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// Tells whether any started rank has not been reported as ended yet.
    pub fn awaits_ends(&self) -> bool {
        self.ranks.keys().any(|key| !self.ended.contains(key))
    }

    /// Notes that a rank has ended.
    fn ended(&mut self, rank: &Rank, end: End) {
        let key = (rank.host.clone(), rank.pid);
        if self.ranks.contains_key(&key) {
            self.ended.insert(key);
        }
        if end.code == 0 && end.signal == 0 || self.knows_the_first() {
            return;
        }
        self.guessed = false;
        self.note(rank, end);
    }

    /// Notes that a rank was killed together with the shim that reports its end. If another rank later reports a bad
    /// end itself, that other rank counts as the first rank that failed.
    fn lost(&mut self, rank: &Rank) {
        if self.first.is_none() {
            self.guessed = true;
            self.note(rank, End { code: 0, signal: 9 });
        }
    }

    /// Tells whether the first rank that ended badly has reported its end itself. In that case the front need not wait
    /// for reports of other ranks.
    pub fn knows_the_first(&self) -> bool {
        self.first.is_some() && !self.guessed
    }

    fn note(&mut self, rank: &Rank, end: End) {
        let (what, hint) = match end.signal {
            0 => (format!("it ended with exit code {}", end.code), "look at what it wrote last"),
            9 => {
                ("it was killed (signal 9)".to_owned(), "the kernel does that when memory runs out; see `dmesg` there")
            }
            11 | 7 => (format!("it crashed (signal {})", end.signal), "run it under a debugger, or look at its core"),
            signal => (format!("it was ended by signal {signal}"), "look at what it wrote last"),
        };
        let failure = Failure {
            host: rank.host.clone(),
            rank: Some(rank.rank),
            command: rank.command.clone(),
            what,
            hint: hint.into(),
        };
        let since = self.first.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        self.first = Some((failure, since));
    }

    /// Notes a failure that ends the job. If such a failure was noted before, the earlier failure stays.
    pub fn fail(&mut self, failure: Failure) {
        self.fatal.get_or_insert(failure);
    }

    /// Gives the hosts in `hosts` on which no rank has started.
    pub fn without_ranks<'a>(&self, hosts: impl Iterator<Item = &'a str>) -> Vec<String> {
        let short = |n: &str| n.split('.').next().unwrap_or_default().to_owned();
        hosts.filter(|h| !self.ranks.keys().any(|(host, _)| short(host) == short(h))).map(str::to_owned).collect()
    }

    /// Gives the table of bindings as text: which rank runs on which host and CPUs.
    pub fn table(&self) -> String {
        let mut ranks: Vec<&Rank> = self.ranks.values().collect();
        ranks.sort_by_key(|r| r.rank);
        // The column has at most 64 characters, because names of hosts on Linux are not longer.
        let width = ranks.iter().map(|r| r.host.len()).max().unwrap_or(4).clamp(4, 64);
        let mut text = format!("rank  {:width$}  CPUs\n", "host");
        for rank in ranks {
            text.push_str(&format!("{:>4}  {:width$}  {}\n", rank.rank, rank.host, rank.cpus));
        }
        text
    }
}

fn short(rank: Rank) -> Rank {
    Rank { host: cut(rank.host), command: cut(rank.command), cpus: cut(rank.cpus), ..rank }
}

/// Cuts a text that another process sent to at most `TEXT_MAX` bytes.
fn cut(text: String) -> String {
    if text.len() > TEXT_MAX { clipped(&text, TEXT_MAX).to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_reports_takes_no_more_memory_than_the_jobs_ranks_and_is_an_error_with_host_and_rank() {
        let mut report = Report::new(4);
        let text = "x".repeat(100_000);
        for pid in 0..100_000 {
            let (command, cpus) = if pid < 8 { (text.clone(), text.clone()) } else { Default::default() };
            let rank = Rank { rank: pid, pid, host: "n7".into(), command, cpus, ..Rank::default() };
            assert_eq!(report.hear(Message::RankStarted(rank.clone())), None);
            assert_eq!(report.hear(Message::RankEnded(rank, End { code: 0, signal: 0 })), None);
        }
        assert_eq!((report.count(), report.ended.len()), (4, 4));
        let kept: usize = report.ranks.values().map(|r| r.command.capacity() + r.cpus.capacity()).sum();
        assert!(kept <= 8 * TEXT_MAX, "{kept} bytes");
        let fatal = report.fatal.unwrap();
        assert_eq!((fatal.host.as_str(), fatal.rank, fatal.command.len()), ("n7", Some(4), TEXT_MAX));
        assert!(fatal.what.contains("all 4 ranks of the job have started already"), "{}", fatal.what);
    }

    #[test]
    fn a_rank_that_reports_its_start_again_is_the_same_rank() {
        let mut report = Report::new(1);
        for command in ["a", "b"] {
            let rank = Rank { pid: 5, host: "n1".into(), command: command.into(), ..Rank::default() };
            report.hear(Message::RankStarted(rank));
        }
        assert!(report.count() == 1 && report.fatal.is_none());
        assert_eq!(report.hear(Message::Idle), Some(Message::Idle));
    }

    #[test]
    fn the_first_bad_end_is_the_one_that_is_told() {
        let mut report = Report::new(2);
        let rank = |rank, host: &str| Rank {
            rank,
            host: host.into(),
            pid: rank + 2,
            command: "./solver".into(),
            ..Rank::default()
        };
        report.started(rank(0, "n1"));
        report.started(rank(1, "n2"));
        assert_eq!(report.without_ranks(["n1", "n2", "n3"].into_iter()), ["n3"]);
        // The rank on n2 fails first, and the launcher then kills the rank on n1. But the report of the rank on n1
        // arrives first.
        report.lost(&rank(0, "n1"));
        assert!(report.first.is_some() && !report.knows_the_first());
        report.ended(&rank(1, "n2"), End { code: 0, signal: 11 });
        assert!(report.awaits_ends());
        report.ended(&rank(0, "n1"), End { code: 0, signal: 15 });
        assert!(!report.awaits_ends());
        let text = report.first.unwrap().0.to_string();
        assert!(text.starts_with("host n2: rank 1: `./solver`: it crashed (signal 11)\n  hint: "), "{text}");
    }
}
