//! The fuzzer's entry for what the parts of an MPI job read outside of the containers: command lines of launchers,
//! frames of other hosts, marks among the lines of ranks, descriptions of jobs, and lists of hosts.

use std::collections::BTreeSet;

use crossdock_layout::text::clipped;
use crossdock_shim::arguments;
use crossdock_shim::message::Message;

use super::job::Job;
use super::report::Report;
use super::{GREETING, hosts, marks};
use crate::ssh;

/// The number of ranks of the job whose reports [`fuzz_mpi`] reads.
const RANKS: u32 = 3;

/// Reads bytes, and checks the result. The first byte chooses what the other bytes are:
///
/// - A command line by which a launcher calls ssh, with a zero byte between words. The host's ssh, if it is called at
///   all, gets the host, user and port of this command line. It gets no option by which it runs a program, reads or
///   writes a file, or opens another connection.
/// - The stream of another host: a greeting behind other text, then frames. The report of the front counts each rank
///   once, and no more ranks than the job has. The report's table is not much longer than the messages. The first rank
///   that itself reports a failure stays the first failure.
/// - A line that may have a mark. If a mark is found, it is written again as one short line, and this line is read as
///   the same mark.
/// - A job's description. It is the same after it was written and read again.
/// - A list of hosts and a list of counts. Both are short, and no host's name looks like an option or a command.
pub fn fuzz_mpi(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(body);
    match which % 5 {
        0 => command_line(body),
        1 => stream(body),
        2 => mark(&text),
        3 => job(&text),
        _ => lists(&text),
    }
}

fn command_line(body: &[u8]) {
    let line: Vec<String> = body.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let Ok(to) = arguments::parse(&line) else { return };
    let words = match ssh::words(&to) {
        Ok(words) => words,
        Err(what) => return assert!(what.contains("is not passed on"), "{what}"),
    };
    let read = arguments::parse(&words).expect("a command line of this library");
    assert_eq!((&read.host, &read.user, read.port, read.command.as_str()), (&to.host, &to.user, to.port, ""));
    let mut options = read.options.iter();
    while let Some(option) = options.next() {
        let value = if arguments::takes_value(option) { options.next().expect("a value").as_str() } else { "" };
        assert!(!value.contains(char::is_control) && (option == "-o" || !value.starts_with('-')), "{words:?}");
        let lower = value.to_ascii_lowercase();
        let dangerous = ["proxy", "command", "include", "match", "file", "forward", "path", "provider", "jump"];
        assert!(option != "-o" || !dangerous.iter().any(|word| lower.starts_with(word)), "{words:?}");
        assert!(["-T", "-o", "-c", "-m", "-4", "-6", "-C", "-a", "-v", "-x"].contains(&option.as_str()), "{words:?}");
    }
}

fn stream(body: &[u8]) {
    let mut rest = body;
    if !ssh::greeting(&mut rest, GREETING) {
        rest = body;
    }
    let mut report = Report::new(RANKS);
    let (mut started, mut own, mut beyond) = (BTreeSet::new(), None, false);
    while let Some(message) = Message::read_frame(&mut rest) {
        if let Message::RankStarted(rank) = &message {
            let key = (clipped(&rank.host, 8 << 10).to_owned(), rank.pid);
            let more = started.len() == RANKS as usize && !started.contains(&key);
            if !more {
                started.insert(key);
            }
            beyond |= more;
        }
        report.hear(message);
        assert!(!beyond || report.fatal.is_some(), "a rank too many ends the job");
        if report.knows_the_first() {
            let first = report.first.as_ref().map(|(failure, _)| failure.clone());
            assert_eq!(own.get_or_insert_with(|| first.clone()), &first, "the first failure stays");
        }
    }
    assert_eq!(report.count(), started.len());
    let table = report.table();
    let longest: usize = started.iter().map(|(host, _)| host.len().max(64) + 64).sum();
    assert!(table.len() <= body.len() + longest + 100, "{} bytes", table.len());
}

fn mark(text: &str) {
    let (before, found) = marks::find(text);
    assert!(text.starts_with(before));
    let Some(message) = found else { return };
    let line = marks::line(&message).expect("a message that marks can have");
    assert!(line.ends_with('\n') && line.matches('\n').count() == 1 && line.len() < 2000, "{line:?}");
    let (before, again) = marks::find(&line);
    let again = again.expect("a mark that was just written");
    assert!(before.is_empty() && marks::line(&again).as_ref() == Some(&line), "{message:?}: {again:?}");
}

fn job(text: &str) {
    if let Some(job) = Job::read(text) {
        assert!(!job.ssh.is_empty() && !job.id.contains(['/', '.']));
        let again = serde_json::to_string(&job).expect("a job");
        assert_eq!(Job::read(&again), Some(job));
    }
}

fn lists(text: &str) {
    // A pattern with a range of four digits can stand for thousands of hosts and takes long, so it is left out here.
    // The tests of `hosts` have such patterns.
    if text.contains('[') && text.as_bytes().windows(4).any(|four| four.iter().all(u8::is_ascii_digit)) {
        return;
    }
    if let Ok(found) = hosts::parse(text) {
        assert!(!found.is_empty() && found.len() <= 100_000);
        let names: BTreeSet<&str> = found.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names.len(), found.len(), "each host once");
        for host in &found {
            assert!(host.slots > 0 && !host.name.starts_with('-') && !host.name.contains([' ', ';', '$', '`', '/']));
        }
    }
    if let Some(counts) = hosts::counts(text) {
        assert!(counts.len() <= 100_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_the_fuzzer_do_no_harm() {
        crossdock_os::testing::run_corpus("mpi", fuzz_mpi);
    }

    /// A column of the table that is wider than 65 535 characters would end the front with a panic, so the column's
    /// width is limited.
    #[test]
    fn a_host_with_a_very_long_name_is_one_row_of_the_table() {
        let rank = crossdock_shim::message::Rank { host: "n".repeat(70_000), ..Default::default() };
        fuzz_mpi(&[&[1][..], &Message::RankStarted(rank).frame()].concat());
    }
}
