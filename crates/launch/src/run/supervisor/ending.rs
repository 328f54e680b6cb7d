//! Stops the tasks of a run. When the last task has ended, reports the figures, removes what the run made, and ends the
//! run.

use std::time::{Duration, Instant};

use super::{RankProcess, Run, Stop};
use crate::run::messages::ToPart;
use crate::run::rank::End;
use crate::run::state::{Phase, now_ms};
use crate::run::summary::{Summary, TaskLine};
use crate::run::{Show, code, folder, processes};

/// How long an engine may take to report the end of a process after SIGKILL.
const AFTER_KILL: Duration = Duration::from_secs(15);

impl Run {
    pub(super) fn begin_stop(&mut self, stop: Stop) {
        if self.stop.is_some() {
            return;
        }
        let others = self.still_running();
        self.state.stopping = Some(stop.reason.clone());
        if !others.is_empty() {
            self.view.note(&format!("{}; stopping {others}", stop.reason));
        }
        self.stop = Some(stop);
        self.kill_at = Some(Instant::now() + Duration::from_secs(u64::from(self.workflow.grace_s)));
        for (rank, state) in self.ranks.iter_mut().zip(&mut self.state.ranks) {
            match &rank.running {
                Some(RankProcess::Here(running)) => self.helpers.extend(running.ask(&self.part.engine)),
                // Nothing is done here, because the part on the rank's host asks all ranks of that host to end.
                Some(RankProcess::There(_)) => {}
                None if rank.end.is_none() => {
                    rank.end = Some(End::Skipped);
                    let how = End::Skipped.words(false);
                    state.phase = Phase::Ended { since_ms: None, ended_ms: now_ms(), code: 0, how };
                }
                None => {}
            }
        }
        self.say_to_hosts(&ToPart::Ask);
        self.state.write(&self.part.folder.path);
    }

    pub(super) fn kill_when_due(&mut self) {
        let Some(at) = self.kill_at else { return };
        if self.killed || Instant::now() < at {
            if self.killed && Instant::now() > at + AFTER_KILL {
                // The engines did not report the ends of these ranks in time. The ranks' processes are killed later, in
                // `finish`, with all descendants of this process.
                for rank in self.ranks.iter_mut().filter(|r| r.running.is_some()) {
                    rank.running = None;
                    rank.end = Some(End::Signal(9));
                }
            }
            return;
        }
        self.killed = true;
        for running in self.ranks.iter().filter_map(|r| r.running.as_ref()?.here()) {
            self.helpers.extend(running.kill(&self.part.engine));
        }
        self.say_to_hosts(&ToPart::Kill);
    }

    /// Reports the figures, removes everything that the run made, and returns the exit code.
    pub(super) fn finish(mut self) -> u8 {
        self.view.finish();
        let seconds = self.begin.elapsed().as_secs_f64();
        let mut keep = self.part.helpers();
        keep.extend(self.remote_parts.iter().flatten().map(|remote| remote.pid));
        // Processes that tasks left behind are killed before the figures are collected, so that the figures no longer
        // change.
        processes::kill_descendants(&keep, Duration::from_secs(5));
        let mut summary = self.summary(seconds);
        // The daemons of the other hosts leave the site before this host's daemon, because this host's daemon keeps the
        // catalog.
        let others = self.end_hosts();
        let view = &self.view;
        summary.figures = self.part.end(&|text| view.alarm(text));
        for figures in others {
            summary.figures.add(figures);
        }
        self.kept = None;
        folder::clean_at_end(&self.part.folder.id, &self.part.folder.path, &|text| self.view.alarm(text));
        if self.options.json {
            say(&summary.json());
        } else if summary.reason.is_some() || self.options.show != Show::Quiet {
            say(summary.text().trim_end());
        }
        self.view.end();
        summary.code
    }

    fn summary(&self, seconds: f64) -> Summary {
        let tasks = self.ranks.iter().map(|r| {
            let in_container = self.engine(r.host).is_some_and(|engine| engine.in_container());
            let end = r.end.clone().unwrap_or(End::Skipped);
            TaskLine {
                task: self.workflow.tasks[r.task].name.clone(),
                rank: r.rank,
                host: self.host_name(r.host).map(str::to_owned),
                ended: end.words(in_container),
                code: end.code(),
                seconds: r.wall.as_secs_f64(),
                log: r.log.path.clone(),
            }
        });
        let (engine, engine_version, shared_with_host) = self.engines();
        Summary {
            workflow: self.workflow.name.clone(),
            run: self.part.folder.id.clone(),
            engine,
            engine_version,
            shared_with_host,
            result: self.stop.as_ref().map_or("ok", |s| s.result).to_owned(),
            code: self.stop.as_ref().map_or(code::OK, |s| s.code),
            reason: self.stop.as_ref().map(Stop::to_string),
            seconds,
            tasks: tasks.collect(),
            logs: self.logs.clone(),
            ..Summary::default()
        }
    }
}

/// Prints a text on standard output. An error is ignored, because a closed pipe must not end the cleanup.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}
