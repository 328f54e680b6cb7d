//! From what the keeper holds and the journal says to a broker that serves.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::Instant;

use crossdock_layout::{MemberId, SegmentId};
use crossdock_os::event::{Epoll, signalfd};
use crossdock_os::tmpfs::Folder;
use crossdock_os::{child, file, process};

use super::{Host, LISTENER, PROCESS, SIGNALS};
use crate::ServeOptions;
use crate::broker::{Broker, Event, Limits, Peer};
use crate::journal::Journal;
use crate::keeper::{Held, Place, Post};

const SIGTERM: i32 = 15;

pub(super) fn start<'a>(
    options: &'a ServeOptions,
    place: &Place,
    held: Held,
    post: Post,
    keeper: i32,
) -> Result<(Host<'a>, OwnedFd), String> {
    let text = |error: crossdock_os::OsError| error.to_string();
    // A broker without a keeper could not keep its promises, so it goes with it.
    process::set_parent_death_signal(child::Signal::KILL).map_err(text)?;
    if child::parent() != keeper {
        return Err("the keeper is gone already".into());
    }
    let signals = signalfd(&[SIGTERM]).map_err(text)?;
    let began = Instant::now();
    let Held { listeners, segments, doors, journal, table, words, incarnation, detached, served, folder } = held;
    let (journal, lasting) = Journal::recover(journal, &place.journal).map_err(|e| format!("the journal: {e}"))?;
    let limits = limits(options, incarnation);
    let kept: BTreeSet<_> = segments.keys().map(|id| SegmentId(*id)).collect();
    let listening: BTreeSet<_> = listeners.keys().copied().collect();
    let (broker, effects) = Broker::new(limits, lasting, incarnation, &kept, &listening, 0);
    let kept: Vec<_> = kept.into_iter().map(|id| id.0).collect();
    let mut host = Host {
        options,
        table,
        words,
        post,
        epoll: Epoll::new().map_err(text)?,
        journal,
        broker,
        listeners,
        segments: segments.into_iter().collect(),
        files: super::items::Files::new(folder, doors, kept.into_iter()).map_err(text)?,
        links: HashMap::new(),
        processes: HashMap::new(),
        next_link: 1,
        spare: file::spare().ok(),
        began,
        free_since: None,
        log: super::log::Log::new(options.private),
        journal_fails: false,
        journal_retry: began,
        idle_since: began,
    };
    for (id, fd) in &host.listeners {
        host.epoll.add(fd, LISTENER | id, false).map_err(text)?;
    }
    host.epoll.add(&signals, SIGNALS, false).map_err(text)?;
    host.epoll.add(&host.files.done, super::COPIES, false).map_err(text)?;
    if let Some(gate) = host.files.folder.as_ref().and_then(Folder::gate) {
        host.epoll.add(gate, super::GATE, false).map_err(text)?;
    }
    host.drop_nameless_files();
    host.journal.check_name();
    host.look_at_journal();
    host.perform(effects, Vec::new());
    host.watch_survivors(served);
    let living = &host.broker.lasting().members;
    crate::table::bury_all_but(&host.words, |member| living.contains_key(&member));
    host.compact_if_wanted();
    host.post.ready().map_err(text)?;
    if detached {
        child::leave_stream(2);
    }
    Ok((host, signals))
}

fn limits(options: &ServeOptions, incarnation: u64) -> Limits {
    // A segment takes one descriptor, a connection one, a member one more; the rest is for what passes through.
    let descriptors = child::raise_descriptor_limit();
    let memory = process::total_memory();
    Limits {
        uid: child::user(),
        memory: if options.memory == 0 { memory } else { options.memory.min(memory) },
        segments: (descriptors / 4).max(16),
        connections: (options.connections as u64).min(descriptors / 2).max(16) as usize,
        grace_ms: options.grace.as_millis() as u64,
        incarnation,
        ..Limits::default()
    }
}

impl Host<'_> {
    /// Members that the journal knows: those that died meanwhile are dead now, the others are watched again.
    fn watch_survivors(&mut self, served: bool) {
        let members: Vec<_> = self.broker.lasting().members.iter().map(|(id, m)| (*id, m.peer)).collect();
        for (member, peer) in members {
            // A new keeper has a new table; in an old one, whoever is not in it was found dead, or had not been told
            // yet that it lives, when the former broker was killed.
            let buried = served && !crate::table::is_alive(&self.words, member);
            match if buried { Survivor::Dead } else { survivor(peer) } {
                Survivor::Dead => self.feed(Event::ProcessDied { member }),
                Survivor::Watched(pidfd) => {
                    crate::table::set_alive(&self.words, member);
                    let watched = self.epoll.add(&pidfd, PROCESS | number(member), false);
                    if watched.is_ok() {
                        self.processes.insert(number(member), (member, pidfd));
                    }
                }
                // The broker gives it its time of grace.
                Survivor::Unknown => crate::table::set_alive(&self.words, member),
            }
        }
    }
}

/// A member's number in the epoll set: its slot, which is its own for as long as it is watched.
pub(super) fn number(member: MemberId) -> u64 {
    member.slot() as u64
}

enum Survivor {
    Dead,
    Watched(OwnedFd),
    Unknown,
}

fn survivor(peer: Peer) -> Survivor {
    if peer.started == 0 {
        return Survivor::Unknown;
    }
    let pid = peer.pid as i32;
    match process::open_pidfd(pid) {
        // The number may be another process's by now; its start tells.
        Ok(Some(pidfd)) if process::start_time(pid) == Some(peer.started) && !process::is_dead(&pidfd) => {
            Survivor::Watched(pidfd)
        }
        Ok(_) => Survivor::Dead,
        Err(_) => Survivor::Unknown,
    }
}
