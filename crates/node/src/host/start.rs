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
        journal_is_new,
        table,
        words,
        incarnation,
        detached,
        folder,
        roll,
        memory,
        served,
    } = held;
    let has_served = served > 0;
    let FileIdentity { device, inode, born } = roll.roll.identity();
    let era = ProofScope { device, inode, born, processes: process::number_space(), first: 0 };
    // After the daemon's lock was removed by hand, the file with the journal's name may be the next daemon's. It has the
    // same era if that daemon uses the same roll.
    let of_this_daemon = |lasting: &Lasting| place.are_ours() && lasting.era.is_some_and(|of| of.is_same(&era));
    let found = Journal::latest(journal, &place.journal, of_this_daemon);
    let (journal, is_held) = found.map_err(|e| format!("the journal: {e}"))?;
    let (mut journal, lasting) = Journal::read(journal, &place.journal).map_err(|e| format!("the journal: {e}"))?;
    if !is_held {
        let copy = journal.copy().map_err(|e| format!("the journal: {e}"))?;
        post.hold_journal(copy.as_fd()).map_err(text)?;
    }
    let lasting = if has_served || journal_is_new {
        cut(&mut journal)?;
        lasting
    } else {
        begin_file(&mut journal, lasting, &era, place, &post)?
    };
    for (file, opened) in folder.as_ref().map_or(Ok(Vec::new()), |f| items::open_unheld(f, &segments)).map_err(text)? {
        post.hold_segment(file, opened.as_fd()).map_err(text)?;
        segments.insert(file, opened);
    }
    let mut limits = limits(options, memory, incarnation, has_served, era);
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
        newcomer: None,
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

/// Writes the state that a former daemon left into a new file, which has the journal's name from then on. The found file
/// is not changed: if the files of the former daemon were removed by hand, this daemon may still write to its journal.
/// Returns the state.
///
/// If the journal was written under another roll, the new journal is empty, because the broker can no longer check whether
/// the members that the journal names are alive. The segments of these members are given to no new member, and the
/// segments' names become free.
fn begin_file(
    journal: &mut Journal,
    lasting: Lasting,
    era: &ProofScope,
    place: &DaemonFiles,
    post: &KeeperSocket,
) -> Result<Lasting, String> {
    let is_same_era = lasting.era.is_none_or(|former| former.is_same(era));
    if !place.are_ours() {
        // The daemon's files were removed while it started, so the journal's name is not its own any more.
        let why = "the journal cannot be begun anew: the daemon's files were removed while it started";
        return if is_same_era { cut(journal).map(|()| lasting) } else { Err(why.into()) };
    }
    let lasting = if is_same_era { lasting } else { Lasting::default() };
    match journal.compact(&lasting) {
        Ok(copy) => post.hold_journal(copy.as_fd()).map_err(|error| error.to_string())?,
        Err(error) if !is_same_era => return Err(format!("the journal cannot be begun anew: {error}")),
        // Without room on the disk, the daemon goes on with the file that it has found.
        Err(_) => cut(journal)?,
    }
    if !is_same_era {
        eprintln!(
            "crossdock broker: the file that a former daemon's members were proved alive by is gone; what they have stays \
             theirs, this daemon begins anew"
        );
    }
    Ok(lasting)
}

fn cut(journal: &mut Journal) -> Result<(), String> {
    journal.cut_tail().map_err(|error| format!("the journal: {error}"))
}

fn limits(options: &ServeOptions, memory: u64, incarnation: u64, has_served: bool, era: ProofScope) -> Limits {
    // A segment takes one descriptor, a connection takes one, and a member takes one more. The limits leave a part of
    // the process's descriptors free, because some are needed for a short time.
    let descriptors = child::raise_descriptor_limit();
    Limits {
        uid: child::user(),
        memory,
        segments: (descriptors / 4).max(16),
        connections: (options.connections as u64).min(descriptors / 2).max(16) as usize,
        incarnation,
        start: if has_served { crate::id_base() } else { incarnation },
        era,
        began_ms: clock::since_1970_ns() / 1_000_000,
        ..Limits::default()
    }
}
