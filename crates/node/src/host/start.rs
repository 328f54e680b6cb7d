//! Starts a broker from the keeper's descriptors and from the journal.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crossdock_layout::SegmentId;
use crossdock_os::event::{Epoll, signalfd};
use crossdock_os::roll::FileIdentity;
use crossdock_os::tmpfs::Folder;
use crossdock_os::{child, clock, file, process};

use super::items::{self, ItemFiles};
use super::{Host, LISTENER, SIGNALS};
use crate::ServeOptions;
use crate::broker::{Broker, Lasting, Limits, ProofScope};
use crate::journal::Journal;
use crate::keeper::{BrokerInheritance, DaemonFiles, KeeperSocket};

const SIGTERM: i32 = 15;

pub(super) fn start<'a>(
    options: &'a ServeOptions,
    place: &'a DaemonFiles,
    held: BrokerInheritance,
    post: KeeperSocket,
    keeper: i32,
) -> Result<(Host<'a>, OwnedFd), String> {
    let text = |error: crossdock_os::OsError| error.to_string();
    // The broker needs the keeper for everything that it promises to clients. So the kernel kills the broker when the
    // keeper dies.
    process::set_parent_death_signal(child::Signal::KILL).map_err(text)?;
    if child::parent() != keeper {
        return Err("the keeper is gone already".into());
    }
    let signals = signalfd(&[SIGTERM]).map_err(text)?;
    let began = Instant::now();
    let BrokerInheritance {
        listeners,
        mut segments,
        doors,
        lost_doors,
        journal,
        table,
        words,
        incarnation,
        detached,
        folder,
        roll,
        served,
    } = held;
    let has_served = served > 0;
    let FileIdentity { device, inode, born } = roll.roll.identity();
    let era = ProofScope { device, inode, born, processes: process::number_space(), first: 0 };
    let of_this_daemon = |lasting: &Lasting| lasting.era.is_some_and(|of| of.is_same(&era));
    let found = Journal::latest(journal, &place.journal, of_this_daemon);
    let (journal, is_held) = found.map_err(|e| format!("the journal: {e}"))?;
    let (journal, lasting) = Journal::recover(journal, &place.journal).map_err(|e| format!("the journal: {e}"))?;
    if !is_held {
        let copy = journal.copy().map_err(|e| format!("the journal: {e}"))?;
        post.hold_journal(copy.as_fd()).map_err(text)?;
    }
    let (journal, lasting) = same_era(journal, lasting, &era)?;
    for (file, opened) in folder.as_ref().map_or(Ok(Vec::new()), |f| items::open_unheld(f, &segments)).map_err(text)? {
        post.hold_segment(file, opened.as_fd()).map_err(text)?;
        segments.insert(file, opened);
    }
    let mut limits = limits(options, incarnation, has_served, era);
    let membership = match &options.site {
        Some(site) => {
            Some(super::site::join(site, incarnation, (&place.journal, &place.socket), lasting.next_segment)?)
        }
        None => None,
    };
    limits.site = membership.as_ref().map(|membership| membership.limits.clone());
    let kept: BTreeSet<_> = segments.keys().map(|id| SegmentId(*id)).collect();
    let listening: BTreeSet<_> = listeners.keys().copied().collect();
    let (broker, effects) = Broker::new(limits, lasting, crate::id_base(), &kept, &listening, 0);
    let kept: Vec<_> = kept.into_iter().map(|id| id.0).collect();
    let mut host = Host {
        options,
        place,
        table,
        words,
        post,
        epoll: Epoll::new().map_err(text)?,
        journal,
        broker,
        listeners,
        unwatched: BTreeSet::new(),
        watch_retry: began,
        segments: segments.into_iter().collect(),
        files: ItemFiles::new(folder, doors, lost_doors, kept.into_iter()).map_err(text)?,
        links: HashMap::new(),
        hung_up: VecDeque::new(),
        roll,
        looks: super::deaths::DeathChecks::default(),
        processes: HashMap::new(),
        next_link: 1,
        spare: file::spare().ok(),
        began,
        free_since: None,
        log: super::log::Log::new(options.private),
        journal_fails: false,
        journal_retry: began,
        compact_retry: began,
        idle_since: began,
        membership,
    };
    for (id, fd) in &host.listeners {
        host.epoll.add(fd, LISTENER | id, false).map_err(text)?;
    }
    host.epoll.add(&signals, SIGNALS, false).map_err(text)?;
    host.epoll.add(&host.files.done, super::COPIES, false).map_err(text)?;
    if let Some(gate) = host.files.folder.as_ref().and_then(Folder::gate) {
        host.epoll.add(gate, super::GATE, false).map_err(text)?;
    }
    if let Some(membership) = &host.membership {
        host.epoll.add(membership.gateway.bell(), super::SITE, false).map_err(text)?;
        host.epoll.add(&membership.reach.queues.bell, super::NODES, false).map_err(text)?;
    }
    host.drop_nameless_files();
    host.journal.check_name();
    host.look_at_journal();
    host.perform(effects, Vec::new());
    host.watch_survivors();
    host.compact_if_wanted();
    host.site_news();
    host.post.ready().map_err(text)?;
    if detached {
        child::leave_stream(2);
    }
    Ok((host, signals))
}

/// If the journal was written under another roll, begins an empty journal, because the broker can no longer check
/// whether the members that the journal names are alive. The segments of these members are given to no new member, and
/// the segments' names become free.
fn same_era(mut journal: Journal, lasting: Lasting, era: &ProofScope) -> Result<(Journal, Lasting), String> {
    if lasting.era.is_none_or(|former| former.is_same(era)) {
        return Ok((journal, lasting));
    }
    eprintln!(
        "crossdock broker: the file that a former daemon's members were proved alive by is gone; what they have stays \
         theirs, this daemon begins anew"
    );
    journal.begin_anew().map_err(|error| format!("the journal cannot be begun anew: {error}"))?;
    Ok((journal, Lasting::default()))
}

fn limits(options: &ServeOptions, incarnation: u64, has_served: bool, era: ProofScope) -> Limits {
    // A segment takes one descriptor, a connection takes one, and a member takes one more. The limits leave a part of
    // the process's descriptors free, because some are needed for a short time.
    let descriptors = child::raise_descriptor_limit();
    let memory = process::total_memory();
    Limits {
        uid: child::user(),
        memory: if options.memory == 0 { memory } else { options.memory.min(memory) },
        segments: (descriptors / 4).max(16),
        connections: (options.connections as u64).min(descriptors / 2).max(16) as usize,
        incarnation,
        start: if has_served { crate::id_base() } else { incarnation },
        era,
        began_ms: clock::since_1970_ns() / 1_000_000,
        ..Limits::default()
    }
}
