//! `crossdock ps`, `logs`, `stop` and `attach`: show and control the user's runs of `crossdock run`, from any terminal.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crossdock_launch::file::{nearest, units};
use crossdock_launch::run::state::{Phase, RankState, State, now_ms};
use crossdock_launch::run::usage::{self, RankKey, Usage};
use crossdock_launch::run::{self, LivingRun, Stopped, code};
use crossdock_os::file::open_ordinary;
use crossdock_web::find;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::args::{Attach, Logs, Ps, StopRun};
use crate::output::{age, progress, wait};
use crate::series::StopSignal;
use crate::table::{columns, complain, is_read, say};

pub fn ps(options: &Ps) -> u8 {
    options.output.show(|| {
        let runs = match &options.run {
            Some(name) => vec![run::find(name).map_err(|e| (code::UNAVAILABLE, e.to_string()))?],
            None => run::living(),
        };
        let usage = usage::all();
        let seen = |run: &LivingRun| Some((State::read(&run.folder)?, find::progress(run)));
        let states: Vec<(State, Reports)> = runs.iter().filter_map(seen).collect();
        let value = json!({ "runs": states.iter().map(|(s, p)| as_json(s, p, &usage)).collect::<Vec<_>>() });
        if states.is_empty() {
            return Ok((value, "no run of yours lives (`crossdock run FILE` starts one)".to_owned()));
        }
        Ok((value, as_text(&states, &usage, options.output.wide())))
    })
}

/// The progress that tasks report. The key is the name of the task and the number of the rank. The value is the number
/// of steps done and the number of all steps.
type Reports = BTreeMap<(String, u32), (u64, u64)>;

fn usage_of<'a>(state: &State, rank: &RankState, all: &'a BTreeMap<RankKey, Usage>) -> Option<&'a Usage> {
    all.get(&(state.id.clone(), rank.task.clone(), rank.rank))
}

fn as_json(state: &State, reports: &Reports, all: &BTreeMap<RankKey, Usage>) -> Value {
    let rank = |rank: &RankState| {
        let mut value = json!({ "task": rank.task, "rank": rank.rank, "name": rank.name, "log": rank.log });
        if let (Value::Object(into), Some(host)) = (&mut value, &rank.host) {
            into.insert("host".into(), host.clone().into());
        }
        if let (Value::Object(into), Ok(Value::Object(phase))) = (&mut value, serde_json::to_value(&rank.phase)) {
            into.extend(phase);
            into.insert("state".into(), rank.phase.word().into());
            into.insert("progress".into(), json!(reports.get(&(rank.task.clone(), rank.rank))));
            if let Some(used) = usage_of(state, rank, all) {
                into.insert("processes".into(), used.processes.clone().into());
                into.insert("cpu_seconds".into(), used.cpu_seconds.into());
                into.insert("memory".into(), used.memory.into());
                into.insert("shared".into(), used.shared.into());
            }
        }
        value
    };
    json!({
        "id": state.id, "workflow": state.workflow, "file": state.file, "engine": state.engine,
        "engine_version": state.engine_version, "since_ms": state.since_ms, "pid": state.front.pid, "logs": state.logs,
        "stopping": state.stopping, "tasks": state.ranks.iter().map(rank).collect::<Vec<_>>(),
    })
}

fn as_text(states: &[(State, Reports)], all: &BTreeMap<RankKey, Usage>, wide: bool) -> String {
    let now = now_ms();
    let with_hosts = states.iter().flat_map(|(state, _)| &state.ranks).any(|rank| rank.host.is_some());
    let mut rows = Vec::new();
    for (state, reports) in states {
        for rank in &state.ranks {
            let (used, since) = (usage_of(state, rank, all), rank.phase.since_ms());
            let end = match rank.phase {
                Phase::Ended { ended_ms, .. } => ended_ms,
                _ => now,
            };
            let seconds = since.map(|since| end.saturating_sub(since) as f64 / 1e3);
            let word = match (&rank.phase, &state.stopping) {
                (Phase::Runs { .. }, Some(_)) => "is stopped".to_owned(),
                (Phase::Ended { code, .. }, _) if *code != 0 => format!("failed ({code})"),
                (phase, _) => phase.word().to_owned(),
            };
            let pid = match rank.phase {
                Phase::Runs { pid, .. } => pid.to_string(),
                _ => "-".into(),
            };
            let or = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            let mut row = vec![
                state.id.clone(),
                rank.name.clone(),
                word,
                pid,
                state.engine.clone(),
                or(seconds.map(age)),
                progress(reports.get(&(rank.task.clone(), rank.rank)).copied()),
                or(used.map(|u| format!("{:.1} s", u.cpu_seconds))),
                or(used.map(|u| units::show(u.memory))),
                or(used.map(|u| units::show(u.shared))),
            ];
            if with_hosts {
                row.insert(2, or(rank.host.clone()));
            }
            if wide {
                row.push(or(used.map(|u| u.processes.len().to_string())));
                row.push(rank.log.display().to_string());
            }
            rows.push(row);
        }
    }
    let mut head = vec!["RUN", "TASK", "STATE", "PID", "ENGINE", "AGE", "PROGRESS", "CPU", "MEMORY", "SHARED"];
    if with_hosts {
        head.insert(2, "HOST");
    }
    if wide {
        head.extend(["PROCESSES", "LOG"]);
    }
    let mut text = columns(&head, &rows);
    for (state, _) in states {
        if let Some(why) = &state.stopping {
            text += &format!("\n{}: {why}", state.id);
        }
    }
    text
}

fn found(name: &str) -> Result<(LivingRun, State), String> {
    let run = run::find(name).map_err(|e| e.to_string())?;
    let state = State::read(&run.folder).ok_or_else(|| format!("run `{}` has just begun or just ended", run.id))?;
    Ok((run, state))
}

pub fn stop(options: &StopRun) -> u8 {
    let mut outcome = code::OK;
    for name in &options.runs {
        let stopped = found(name).and_then(|(run, state)| {
            // The default deadline of `stop`: the time that the workflow file gives the tasks to end, plus 20 s for the
            // engine and the cleanup.
            let grace = Duration::from_secs(u64::from(state.grace_s) + 20);
            Ok((run.id.clone(), run::stop(&run, options.deadline.unwrap_or(grace))?))
        });
        match stopped {
            Ok((id, Stopped::InOrder)) => say(&format!("stopped {id}")),
            Ok((id, Stopped::Killed)) => say(&format!("stopped {id}; its tasks had to be killed")),
            Ok((id, Stopped::Forced)) => {
                say(&format!("stopped {id}; it had to be killed, and what it left was removed"))
            }
            Err(why) => {
                complain(&why);
                outcome = code::UNAVAILABLE;
            }
        }
    }
    outcome
}

pub fn attach(options: &Attach) -> u8 {
    let place = run::find(&options.run).and_then(|run| run.place());
    let (socket, workflow) = match place {
        Ok(place) => place,
        Err(e) => {
            complain(&e.to_string());
            return code::UNAVAILABLE;
        }
    };
    let (program, arguments) = match options.command.split_first() {
        Some((program, arguments)) => (program.clone(), arguments.to_vec()),
        None => (std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into()), Vec::new()),
    };
    let mut command = Command::new(&program);
    command.args(arguments).env("CROSSDOCK_SOCKET", socket).env("CROSSDOCK_WORKFLOW", workflow);
    // The attached command is no task of the run, so it gets none of a task's variables. Without CROSSDOCK_RUN, a
    // cleanup after the run does not kill the command.
    for name in ["CROSSDOCK_TASK", "CROSSDOCK_RANK", "CROSSDOCK_RANKS", "CROSSDOCK_RUN"] {
        command.env_remove(name);
    }
    let error = command.exec();
    complain(&format!("cannot start `{program}`: {error}"));
    code::NO_PROGRAM
}

pub fn logs(options: &Logs) -> u8 {
    match show_logs(options) {
        Ok(()) => code::OK,
        Err(why) => {
            complain(&why);
            code::UNAVAILABLE
        }
    }
}

fn show_logs(options: &Logs) -> Result<(), String> {
    let (run, state) = found(&options.run).map_err(|why| {
        // The run may have ended, so the error names the folder with the run's logs. The user may have given the name
        // of the workflow, or the id of the run, which begins with the name of the workflow. So both the given text and
        // its beginning are tried as the name of the workflow.
        let workflows = [Some(options.run.as_str()), options.run.rsplit_once('-').map(|(workflow, _)| workflow)];
        let folder = workflows.into_iter().flatten().map(run::default_logs).find(|folder| folder.is_dir());
        let hint = folder.map(|folder| format!("; the logs of its last run from here are in {}", folder.display()));
        why + &hint.unwrap_or_default()
    })?;
    let ranks: Vec<&RankState> = match &options.task {
        None => state.ranks.iter().collect(),
        Some(name) => state.ranks.iter().filter(|r| r.name == *name || r.task == *name).collect(),
    };
    if ranks.is_empty() {
        let name = options.task.clone().unwrap_or_default();
        let all: Vec<&str> = state.ranks.iter().map(|r| r.name.as_str()).collect();
        return Err(match nearest(&name, all.iter().copied()) {
            Some(near) => format!("run `{}` has no task `{name}`; did you mean `{near}`?", run.id),
            None => format!("run `{}` has no task `{name}`; there are: {}", run.id, all.join(", ")),
        });
    }
    let width = ranks.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
    let prefix = |rank: &RankState| if ranks.len() > 1 { format!("{:width$} | ", rank.name) } else { String::new() };
    let mut tails: Vec<Tail> = ranks.iter().map(|r| Tail::new(&r.log, prefix(r))).collect();
    for tail in &mut tails {
        tail.skip_to_last(options.lines);
        if !tail.print() {
            return Ok(());
        }
    }
    let stop = StopSignal::on_signals()?;
    // The loop first looks whether the run has ended, and then prints what is new in the logs. So the last round prints
    // everything that was written before the run's end.
    let mut over = !options.follow;
    while !over {
        over = State::read(&run.folder).is_none() || wait(Duration::from_millis(200), &stop);
        if !tails.iter_mut().all(Tail::print) {
            return Ok(());
        }
    }
    tails.iter_mut().for_each(Tail::finish);
    Ok(())
}

/// Opens a log file. A task may have put a link, a pipe or a device in the place of its log, which is not opened.
fn open(path: &Path) -> Option<File> {
    open_ordinary(path).ok().flatten().map(File::from)
}

/// Follows a log file. If the log reaches its limit and a new file is begun, `Tail` continues in the new file.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    prefix: String,
    partial: Vec<u8>,
}

impl Tail {
    fn new(path: &Path, prefix: String) -> Self {
        Self { path: path.to_owned(), file: open(path), prefix, partial: Vec::new() }
    }

    /// Skips all lines of the log except the last `lines`. A log has a limited size, so the function reads the log
    /// whole.
    fn skip_to_last(&mut self, lines: Option<usize>) {
        let (Some(lines), Some(file)) = (lines, &mut self.file) else { return };
        let mut text = Vec::new();
        let _ = file.read_to_end(&mut text);
        let ends: Vec<usize> = text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
        let whole = ends.len() + usize::from(text.last().is_some_and(|b| *b != b'\n'));
        let at = match whole.checked_sub(lines) {
            None | Some(0) => 0,
            Some(skipped) => ends[skipped - 1],
        };
        let _ = file.seek(SeekFrom::Start(at as u64));
    }

    /// Prints what is new in the log. Returns false if the reader of the output has closed the pipe.
    fn print(&mut self) -> bool {
        let mut has_reader = self.read();
        if self.was_replaced() {
            has_reader &= self.read();
            self.file = open(&self.path);
            has_reader &= self.read();
        }
        has_reader
    }

    fn read(&mut self) -> bool {
        let Some(file) = &mut self.file else {
            self.file = open(&self.path);
            return true;
        };
        let _ = file.read_to_end(&mut self.partial);
        let Some(end) = self.partial.iter().rposition(|b| *b == b'\n') else { return true };
        let whole: Vec<u8> = self.partial.drain(..=end).collect();
        self.out(&whole)
    }

    fn was_replaced(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let here = self.file.as_ref().and_then(|f| f.metadata().ok()).map(|m| m.ino());
        let there = std::fs::symlink_metadata(&self.path).ok().map(|m| m.ino());
        here.is_some() && there.is_some() && here != there
    }

    fn finish(&mut self) {
        if !self.partial.is_empty() {
            let mut rest = std::mem::take(&mut self.partial);
            rest.push(b'\n');
            self.out(&rest);
        }
    }

    /// Prints these lines of the log. Returns false if the reader of the output has closed the pipe.
    fn out(&self, lines: &[u8]) -> bool {
        let mut out = std::io::stdout().lock();
        let mut text = Vec::new();
        for line in lines.split_inclusive(|b| *b == b'\n') {
            text.extend_from_slice(self.prefix.as_bytes());
            text.extend_from_slice(line);
        }
        is_read(&out.write_all(&text).and_then(|()| out.flush()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_or_a_pipe_in_place_of_a_log_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, link, pipe) = (folder.path().join("secret"), folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&secret, "secret\n").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(Tail::new(&secret, String::new()).file.is_some());
        assert!(Tail::new(&link, String::new()).file.is_none());
        assert!(Tail::new(&pipe, String::new()).file.is_none());
    }
}
