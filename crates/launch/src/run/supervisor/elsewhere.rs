//! The run's parts on other hosts: takes their messages, notices lost hosts, and ends the parts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_os::{Deadline, event};

use super::{RankProcess, Run, Stop};
use crate::engine::Engine;
use crate::run::code;
use crate::run::messages::{FromPart, ToPart, bytes_of};
use crate::run::rank::End;
use crate::run::ranked::JobHosts;
use crate::run::remote_part::{Event, Phase, RemotePart, sweep};
use crate::run::summary::Figures;
use crate::ssh;

/// How long parts may take to end their daemons and to remove what they made.
const LEAVING: Duration = Duration::from_secs(40);
/// How long the supervisor reads messages of other hosts at most, before it does its other work.
const ROUND: Duration = Duration::from_millis(50);

impl Run {
    /// Tells whether `host` is this host, whose tasks are children of this process.
    pub(super) fn is_here(&self, host: usize) -> bool {
        self.remote_parts.is_empty() || self.here == Some(host)
    }

    /// Gives the name of a host; `None` in a run on one host.
    pub(super) fn host_name(&self, host: usize) -> Option<&str> {
        self.options.hosts.as_ref().and_then(|hosts| hosts.names.get(host)).map(String::as_str)
    }

    /// Gives the engine of a host, once the engine is known.
    pub(super) fn engine(&self, host: usize) -> Option<&Arc<dyn Engine>> {
        match self.remote_parts.get(host) {
            Some(Some(remote)) => remote.engine(),
            _ => Some(&self.part.engine),
        }
    }

    /// Describes the engines of all hosts with tasks: names, versions, and what tasks share with their host.
    pub(super) fn engines(&self) -> (String, String, Option<String>) {
        let mut all: Vec<(String, String, Option<String>)> = Vec::new();
        for host in 0..self.remote_parts.len().max(1) {
            let one = match self.remote_parts.get(host) {
                Some(Some(RemotePart { phase: Phase::Ready(engine, version), shared, .. })) => {
                    (engine.name().to_owned(), version.clone(), shared.clone())
                }
                Some(Some(_)) => continue,
                _ if self.part.workflow.tasks.is_empty() => continue,
                _ => {
                    let engine = &self.part.engine;
                    (engine.name().to_owned(), self.part.version.clone(), engine.isolation().shared())
                }
            };
            if !all.contains(&one) {
                all.push(one);
            }
        }
        let names: Vec<&str> = all.iter().map(|(name, _, _)| name.as_str()).collect();
        let versions: Vec<&str> = all.iter().map(|(_, version, _)| version.as_str()).collect();
        (names.join(", "), versions.join(", "), all.iter().find_map(|(_, _, shared)| shared.clone()))
    }

    /// Tells whether every host is ready for the first task.
    pub(super) fn hosts_are_ready(&self) -> bool {
        self.remote_parts.iter().flatten().all(|remote| matches!(remote.phase, Phase::Ready(..)))
    }

    /// Gives the hosts of an MPI task, if it has ranks on several hosts. The supervisor calls this function only after
    /// every host is ready.
    pub(super) fn job_hosts(&self, task: &str) -> Option<JobHosts> {
        let hosts = self.options.hosts.as_ref()?;
        let own = self.part.endpoints_of_jobs();
        let on = |number: usize| {
            let there = match &self.remote_parts[number] {
                Some(remote) => &remote.endpoints,
                None if self.here == Some(number) => &own,
                None => return None,
            };
            Some((hosts.names[number].as_str(), there.iter().find(|(name, _)| name == task)?.1.clone()))
        };
        let found: Vec<_> = (0..self.remote_parts.len()).filter_map(on).collect();
        let ranks = self.workflow.tasks.iter().find(|t| t.name == task)?.ranks;
        (found.len() > 1).then(|| JobHosts::new(&found, ranks, hosts))
    }

    pub(super) fn say_to_hosts(&self, message: &ToPart) {
        self.remote_parts.iter().flatten().for_each(|remote| remote.say(message));
    }

    /// Passes the questions of `crossdock ls --files` on to the other hosts, and answers the questions to which these
    /// hosts have sent their answers.
    pub(super) fn answer_looks(&mut self) {
        let Some(mut questions) = self.questions.take() else { return };
        let is_ready = |remote: &&RemotePart| matches!(remote.phase, Phase::Ready(..));
        let hosts: Vec<String> =
            self.remote_parts.iter().flatten().filter(is_ready).map(|remote| remote.host.clone()).collect();
        while let Some(number) = questions.next(&hosts) {
            self.remote_parts.iter().flatten().filter(is_ready).for_each(|remote| remote.say(&ToPart::Look(number)));
        }
        questions.answer();
        self.questions = Some(questions);
    }

    /// Takes the messages of the other hosts, and notices lost hosts.
    pub(super) fn hear_hosts(&mut self) {
        let Some(events) = self.events.take() else { return };
        events.each(ROUND, |event| self.take_event(event, &mut Vec::new()));
        self.events = Some(events);
        for number in 0..self.remote_parts.len() {
            let why = self.remote_parts[number].as_ref().and_then(RemotePart::lost);
            if let Some(why) = why {
                let hint = "look whether the host and its network are up";
                self.host_is_gone(number, code::UNAVAILABLE, &why, hint);
            }
        }
    }

    fn take_event(&mut self, event: Event, figures: &mut Vec<Figures>) {
        let (Event::Greeted(number) | Event::Said(number, _) | Event::Closed(number, ..)) = event;
        let Some(Some(remote)) = self.remote_parts.get_mut(number) else { return };
        remote.heard();
        let host = remote.host.clone();
        match event {
            Event::Greeted(_) => {
                if matches!(remote.phase, Phase::Connecting) {
                    remote.phase = Phase::Preparing;
                }
            }
            Event::Said(_, FromPart::Ready { engine, version, shared, endpoints }) => {
                if remote.is_there() {
                    let note = format!("host {host}: ready, engine {engine} {version}");
                    remote.ready(&engine, version, shared, endpoints);
                    self.view.note(note.trim_end());
                }
            }
            Event::Said(_, FromPart::Refused { code, reason, hint }) => {
                remote.phase = Phase::Left;
                remote.close();
                self.host_is_gone(number, code, &reason, &hint);
            }
            Event::Said(_, FromPart::Note(text)) => self.view.note(&format!("{host}: {text}")),
            Event::Said(_, FromPart::Alarm(text)) => self.view.alarm(&format!("{host}: {text}")),
            Event::Said(_, FromPart::Begun { index, pid, words, note }) => {
                if self.runs_on(index, number) {
                    self.begun(index, pid, &words, note.as_deref());
                }
            }
            Event::Said(_, FromPart::Output { index, text }) => {
                if self.runs_on(index, number) {
                    let rank = &mut self.ranks[index];
                    for line in rank.log.add(&bytes_of(&text)) {
                        self.view.line(index, &rank.name, &line);
                    }
                }
            }
            Event::Said(_, FromPart::Ended { index, end, seconds }) => {
                if self.runs_on(index, number) {
                    self.ranks[index].wall = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                    self.ended(index, end);
                }
            }
            Event::Said(_, FromPart::Left(part_figures)) => {
                remote.phase = Phase::Left;
                remote.close();
                figures.push(*part_figures);
            }
            Event::Said(_, FromPart::Looked { number, found }) => {
                if let Some(questions) = &mut self.questions {
                    questions.heard(number, &host, found);
                }
            }
            Event::Said(_, FromPart::Pulse) => {}
            Event::Closed(_, greeted, status, words) => {
                if remote.is_there() {
                    let (what, hint) = match &self.options.hosts {
                        Some(hosts) => ssh::explain((&hosts.called(), &hosts.starter), &host, greeted, status, &words),
                        None => (words, String::new()),
                    };
                    self.host_is_gone(number, code::UNAVAILABLE, &what, &hint);
                }
            }
        }
    }

    /// Tells whether the rank with this index runs on the host with this number. A part that runs another version of
    /// crossdock may name a wrong rank.
    fn runs_on(&self, index: usize, host: usize) -> bool {
        self.ranks
            .get(index)
            .is_some_and(|rank| rank.host == host && matches!(rank.running, Some(RankProcess::There(_))))
    }

    /// Handles a host that was lost, or that has refused its part of the run: the host's ranks count as lost, and the
    /// run is stopped.
    fn host_is_gone(&mut self, number: usize, code: u8, why: &str, hint: &str) {
        let Some(Some(remote)) = self.remote_parts.get_mut(number) else { return };
        remote.give_up();
        let host = remote.host.clone();
        // The stop begins before the ranks are marked as lost, so that the run names the lost host, and not a lost
        // rank, as the reason of the stop.
        self.begin_stop(Stop { hint: hint.to_owned(), ..Stop::failed(code, format!("host {host}: {why}")) });
        for index in 0..self.ranks.len() {
            if self.runs_on(index, number) {
                if let Some(RankProcess::There(since)) = self.ranks[index].running {
                    self.ranks[index].wall = since.elapsed();
                }
                self.ended(index, End::Lost(host.clone()));
            }
        }
    }

    /// Ends the parts on the other hosts. Returns the figures of the objects that their tasks shared.
    pub(super) fn end_hosts(&mut self) -> Vec<Figures> {
        let mut figures = Vec::new();
        for remote in self.remote_parts.iter_mut().flatten() {
            match remote.phase {
                // The part has not sent its greeting, so it has made nothing that must be removed.
                Phase::Connecting => remote.close(),
                _ => remote.say(&ToPart::End),
            }
        }
        let Some(events) = self.events.take() else { return figures };
        let end = Instant::now() + LEAVING;
        let waits = |remote: &RemotePart| matches!(remote.phase, Phase::Preparing | Phase::Ready(..));
        let awaited: Vec<bool> = self.remote_parts.iter().map(|remote| remote.as_ref().is_some_and(waits)).collect();
        while self.remote_parts.iter().flatten().any(|remote| waits(remote) && remote.lost().is_none())
            && Instant::now() < end
        {
            let by = Deadline::after(Duration::from_millis(100));
            let _ = event::wait_readable(&*events.bell, by);
            events.each(ROUND, |event| self.take_event(event, &mut figures));
        }
        // All lost hosts are swept at the same time, because each sweep may take long.
        let mut sweeps = Vec::new();
        for (number, remote) in self.remote_parts.iter_mut().enumerate() {
            let Some(remote) = remote else { continue };
            if remote.lost().is_some() {
                remote.give_up();
            }
            remote.close();
            let is_needed = remote.is_broken && !matches!(remote.phase, Phase::Left);
            let hosts = self.options.hosts.clone().filter(|_| is_needed);
            let id = format!("{}-{number}", self.part.folder.id);
            let swept = hosts.map(|hosts| crossdock_os::thread::start(move || sweep(&hosts, number, &id)));
            sweeps.push((number, swept));
        }
        for (number, swept) in sweeps {
            // If no thread could be started, the host counts as not swept.
            let swept = swept.and_then(std::io::Result::ok).is_some_and(|thread| thread.join().unwrap_or(false));
            let Some(remote) = &self.remote_parts[number] else { continue };
            let is_swept = matches!(remote.phase, Phase::Left) || swept;
            if (awaited[number] || remote.is_broken) && !is_swept {
                let text = "its part of the run did not say that it has ended; look whether something is left there";
                self.view.alarm(&format!("crossdock: host {}: {text}", remote.host));
            }
        }
        figures
    }
}
