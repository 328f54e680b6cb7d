//! `crossdock audit`: shows which processes can access which segments, as the kernel reports it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crossdock_client::{Listing, MemberInfo};
use crossdock_launch::run::code;
use serde::Serialize;

use crate::args::Audit;
use crate::items;
use crate::names::{self, NamedObject};
use crate::table::{columns, complain, say};
use crossdock_web::find;

/// The beginning of a segment's path in `/proc`. The whole path is `/memfd:crossdock:WORKFLOW:KIND:NAME`.
const MARK: &str = "/memfd:crossdock:";
/// The kind that the report shows for the file of an item.
const ITEM: &str = "item";

/// What one process can do to one segment.
#[derive(Clone, Debug, Default, Serialize)]
struct Access {
    segment: String,
    /// The kind: `region`, `port`, `series`, `item`, `pin` for a page of pins that observers write, or `table` for the
    /// daemon's liveness table.
    kind: String,
    /// What the process has mapped now: `rw`, `r`, `w` or nothing.
    mapped: String,
    /// How many bytes of its address space the process has mapped to the segment.
    mapped_bytes: u64,
    /// What the process's open descriptors allow: `rw`, `r`, `w` or nothing.
    descriptor: String,
}

/// One process that can touch at least one segment.
#[derive(Clone, Debug, Serialize)]
struct Process {
    pid: u32,
    uid: u32,
    program: String,
    /// For a member, its task's name. For processes of crossdock itself, `daemon` or `launcher`. For other processes,
    /// `None`.
    task: Option<String>,
    workflow: Option<String>,
    rank: Option<u32>,
    /// The container: `docker 1234…`, `podman 1234…`, `pod 1234…`, or the namespaces that the process does not share
    /// with this command. It is `None` for a plain process of the host.
    container: Option<String>,
    access: Vec<Access>,
}

#[derive(Debug, Serialize)]
struct Report {
    processes: Vec<Process>,
    /// The number of processes that could not be inspected, because they belong to other users and the caller is not
    /// root.
    hidden: u32,
}

pub fn audit(options: &Audit) -> u8 {
    let listings = listings();
    let members: Vec<MemberInfo> = listings.iter().flat_map(|l| l.members.clone()).collect();
    let mut report = look(&members);
    name_items(&mut report, &items::by_file(listings.iter()));
    if let Some(name) = &options.name {
        let workflows: Vec<&str> = listings.iter().flat_map(|l| &l.workflows).map(|w| w.name.as_str()).collect();
        keep_only(&mut report, name, &workflows);
        let known: Vec<NamedObject> = listings.iter().flat_map(names::all).collect();
        let exists = workflows.contains(&name.as_str()) || known.iter().any(|n| n.is_called(name));
        if report.processes.is_empty() && !exists {
            let hint = names::hint(name, &known);
            complain(&format!("there is no workflow, region, port, series or item `{name}`{hint}"));
            return code::UNAVAILABLE;
        }
    }
    if options.json {
        crate::table::json(&report);
    } else {
        say(&text(&report, options.name.as_deref()));
    }
    code::OK
}

/// Keeps only the segments to which `name` applies. `name` is a workflow, a WORKFLOW/NAME, or the NAME of an object in
/// one of the workflows `workflows`.
fn keep_only(report: &mut Report, name: &str, workflows: &[&str]) {
    let below = |segment: &str, workflow: &str, rest: Option<&str>| {
        let inner = segment.strip_prefix(workflow).and_then(|inner| inner.strip_prefix('/'));
        inner.is_some_and(|inner| rest.is_none_or(|rest| rest == inner))
    };
    let wanted = |segment: &str| {
        segment == name
            || below(segment, name, None)
            || workflows.iter().any(|workflow| below(segment, workflow, Some(name)))
    };
    for process in &mut report.processes {
        process.access.retain(|a| wanted(&a.segment));
    }
    report.processes.retain(|p| !p.access.is_empty());
}

/// Gets the listings of all daemons that answer. If no daemon answers, the report has no names of tasks and items, but
/// is complete otherwise.
fn listings() -> Vec<Listing> {
    find::daemons(None).unwrap_or_default().iter().filter_map(|d| d.session.list().ok()).collect()
}

/// Replaces the numbers of items' files in the report by the items' names. `/proc` shows only the number of a file; the
/// daemon knows to which item the file belongs. If a file belongs to no item any more, a former user of an item still
/// has this file mapped, and the item's owner has a copy.
fn name_items(report: &mut Report, names: &BTreeMap<u64, String>) {
    for access in report.processes.iter_mut().flat_map(|p| &mut p.access).filter(|a| a.kind == ITEM) {
        let name = access.segment.parse().ok().and_then(|file: u64| names.get(&file));
        match name {
            Some(name) => access.segment.clone_from(name),
            None => access.segment = format!("file {} of no item that a daemon names", access.segment),
        }
    }
}

fn look(members: &[MemberInfo]) -> Report {
    let mut report = Report { processes: Vec::new(), hidden: 0 };
    let me = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> =
        entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(|p| *p != me).collect();
    pids.sort_unstable();
    for pid in pids {
        let folder = Path::new("/proc").join(pid.to_string());
        let (maps, descriptors) = (fs::read_to_string(folder.join("maps")), fs::read_dir(folder.join("fd")));
        // A process that has ended since it was listed does not count as hidden.
        let denied = |e: &std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
        if maps.as_ref().is_err_and(denied) || descriptors.as_ref().is_err_and(denied) {
            report.hidden += 1;
            continue;
        }
        let mut access: BTreeMap<(String, String), Access> = BTreeMap::new();
        for line in maps.unwrap_or_default().lines() {
            add_mapping(line, &mut access);
        }
        for entry in descriptors.into_iter().flatten().flatten() {
            add_descriptor(&folder, &entry, &mut access);
        }
        if access.is_empty() {
            continue;
        }
        let access = access.into_iter().map(|((segment, kind), a)| Access { segment, kind, ..a }).collect();
        report.processes.push(process(pid, &folder, members, access));
    }
    report
}

/// Finds the segment's name and kind in a path of `/proc`; `None` if the path is not a segment's.
fn segment(path: &str) -> Option<(String, String)> {
    if let Some(file) = path.strip_prefix(items::MARK) {
        let file = file.trim_end().trim_end_matches(" (deleted)");
        return file.parse::<u64>().ok().map(|file| (file.to_string(), ITEM.to_owned()));
    }
    let label = path.strip_prefix(MARK)?.trim_end();
    let label = label.strip_suffix(" (deleted)").unwrap_or(label);
    let mut parts = label.splitn(3, ':');
    Some(match (parts.next(), parts.next(), parts.next()) {
        (Some(workflow), Some(kind), Some(name)) => (format!("{workflow}/{name}"), kind.to_owned()),
        _ => (label.to_owned(), "table".to_owned()),
    })
}

/// Adds to `have` the letters `r` and `w` that `more` has and `have` lacks.
fn add_ways(have: &mut String, more: &str) {
    *have = ['r', 'w'].into_iter().filter(|way| have.contains(*way) || more.contains(*way)).collect();
}

/// Reads a line of `/proc/PID/maps`, such as `7f12…-7f13… rw-s 00000000 00:01 1234
/// /memfd:crossdock:melt:region:frames (deleted)`.
fn add_mapping(line: &str, access: &mut BTreeMap<(String, String), Access>) {
    let Some(at) = line.find(MARK).or_else(|| line.find(items::MARK)) else { return };
    let Some(name) = segment(&line[at..]) else { return };
    let mut fields = line.split_whitespace();
    let (Some(range), Some(mode)) = (fields.next(), fields.next()) else { return };
    let bytes = range
        .split_once('-')
        .and_then(|(a, b)| Some(u64::from_str_radix(b, 16).ok()? - u64::from_str_radix(a, 16).ok()?));
    let entry = access.entry(name).or_default();
    // What a process writes through a private mapping stays in that process, so such a mapping counts as read-only.
    let ways = if mode.ends_with('s') { mode } else { mode.get(..1).unwrap_or_default() };
    add_ways(&mut entry.mapped, ways);
    entry.mapped_bytes += bytes.unwrap_or(0);
}

fn add_descriptor(folder: &Path, entry: &fs::DirEntry, access: &mut BTreeMap<(String, String), Access>) {
    let Some((name, info)) = settled_descriptor(folder, entry) else { return };
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).and_then(|f| u32::from_str_radix(f.trim(), 8).ok());
    // If the access mode is unknown, the descriptor counts as open for reading and writing, because the audit must
    // never show less than is possible.
    let mode = flags.map_or(2, |f| f & 3);
    let writable = mode != 0 && !(name.1 == "series" && is_sealed(&entry.path()));
    let entry = access.entry(name).or_default();
    let ways = match (mode, writable) {
        (1, true) => "w",
        (1, false) => "",
        (_, true) => "rw",
        (_, false) => "r",
    };
    add_ways(&mut entry.descriptor, ways);
}

/// Tells whether the kernel's seals prevent every write to the file, through any descriptor. The file's name alone
/// would prove nothing.
fn is_sealed(descriptor: &Path) -> bool {
    let Ok(file) = fs::File::open(descriptor) else { return false };
    crossdock_os::memfd::is_sealed_for_writing(&file)
}

/// Gives the segment behind a descriptor, and the kernel's flags of the same descriptor. The process may close or reuse
/// the descriptor at any time, so the function reads the link before and after the flags. If the descriptor was closed,
/// the result is `None`. If its number now belongs to another file, the function looks again.
fn settled_descriptor(folder: &Path, entry: &fs::DirEntry) -> Option<((String, String), String)> {
    for _ in 0..16 {
        let target = fs::read_link(entry.path()).ok()?;
        let name = target.to_str().and_then(segment)?;
        let info = match fs::read_to_string(folder.join("fdinfo").join(entry.file_name())) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            info => info.unwrap_or_default(),
        };
        if fs::read_link(entry.path()).is_ok_and(|again| again == target) {
            return Some((name, info));
        }
    }
    None
}

fn process(pid: u32, folder: &Path, members: &[MemberInfo], access: Vec<Access>) -> Process {
    let program = fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned();
    let uid = fs::metadata(folder).map_or(u32::MAX, |m| m.uid());
    let member = members.iter().find(|m| m.pid == pid);
    let words = fs::read(folder.join("cmdline")).unwrap_or_default();
    let second = words.split(|b| *b == 0).nth(1).unwrap_or_default();
    let ours = match second {
        b"serve" => Some("daemon"),
        w if w == crate::args::SUPERVISE.as_bytes() => Some("launcher"),
        _ => None,
    };
    Process {
        pid,
        uid,
        task: ours.map(str::to_owned).or_else(|| member.map(|m| m.task.clone())),
        workflow: member.map(|m| m.workflow.clone()),
        rank: member.map(|m| m.rank),
        container: container(folder),
        program,
        access,
    }
}

/// Finds the container of a process by the process's control group. If the control group belongs to no container, gives
/// the namespaces that the process does not share with this command.
fn container(folder: &Path) -> Option<String> {
    let groups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
    for path in groups.lines().filter_map(|l| l.splitn(3, ':').nth(2)) {
        let last = path.rsplit('/').find(|p| !p.is_empty()).unwrap_or_default();
        let id = |text: &str| text.trim_end_matches(".scope").chars().take(12).collect::<String>();
        if let Some(rest) = last.strip_prefix("libpod-") {
            return Some(format!("podman {}", id(rest)));
        }
        if let Some(rest) = last.strip_prefix("docker-").or_else(|| path.contains("/docker/").then_some(last)) {
            return Some(format!("docker {}", id(rest)));
        }
        if path.contains("kubepods") {
            return Some(format!("pod {}", id(last)));
        }
    }
    let differs = |name: &&str| {
        let of = |base: &Path| fs::read_link(base.join("ns").join(name)).ok();
        of(folder).is_some_and(|theirs| of(Path::new("/proc/self")).is_some_and(|mine| mine != theirs))
    };
    let own: Vec<&str> = ["mnt", "ipc", "pid", "net"].iter().filter(|n| differs(n)).copied().collect();
    (!own.is_empty()).then(|| format!("own {}", own.join(" ")))
}

fn text(report: &Report, name: Option<&str>) -> String {
    let mut segments: BTreeMap<(&str, &str), Vec<(&Process, &Access)>> = BTreeMap::new();
    for process in &report.processes {
        for access in &process.access {
            segments.entry((&access.segment, &access.kind)).or_default().push((process, access));
        }
    }
    let mut parts = Vec::new();
    for ((name, kind), list) in &segments {
        let row = |(p, a): &(&Process, &Access)| {
            let mut how = Vec::new();
            if !a.mapped.is_empty() {
                how.push(format!("map {}", a.mapped));
            }
            if !a.descriptor.is_empty() {
                how.push(format!("fd {}", a.descriptor));
            }
            let task = match (&p.task, p.rank) {
                (Some(task), Some(rank)) if rank > 0 => format!("{task}.{rank}"),
                (Some(task), _) => task.clone(),
                (None, _) => "—".into(),
            };
            let container = p.container.clone().unwrap_or_else(|| "—".into());
            vec![format!("  {}", p.pid), p.program.clone(), p.uid.to_string(), task, container, how.join(", ")]
        };
        let rows: Vec<_> = list.iter().map(row).collect();
        parts.push(format!(
            "{kind} {name}\n{}",
            columns(&["  PROCESS", "PROGRAM", "USER", "TASK", "CONTAINER", "ACCESS"], &rows)
        ));
    }
    if parts.is_empty() {
        let what = name.map_or_else(|| "any segment".to_owned(), |name| format!("a segment of `{name}`"));
        parts.push(format!("no process that can be looked into touches {what}"));
    }
    if report.hidden > 0 {
        let noun = if report.hidden == 1 { "process" } else { "processes" };
        parts.push(format!("{} {noun} could not be looked into (other users' need root)", report.hidden));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_segments_are_told_from_others_and_added_up() {
        let mut access = BTreeMap::new();
        add_mapping(
            "7f0000000000-7f0000001000 r--s 00000000 00:01 7   /memfd:crossdock:melt:region:frames (deleted)",
            &mut access,
        );
        add_mapping(
            "7f0000001000-7f0000003000 rw-s 00001000 00:01 7   /memfd:crossdock:melt:region:frames (deleted)",
            &mut access,
        );
        add_mapping("7f0000004000-7f0000005000 rw-p 00000000 00:00 0   [heap]", &mut access);
        add_mapping("7f0000004000-7f0000005000 rw-s 00000000 00:01 9   /memfd:other (deleted)", &mut access);
        assert_eq!(access.len(), 1);
        let frames = &access[&("melt/frames".to_owned(), "region".to_owned())];
        assert_eq!((frames.mapped.as_str(), frames.mapped_bytes), ("rw", 0x3000));
    }

    /// Makes a report of one process that has this access.
    fn report_of(access: Vec<Access>) -> Report {
        let process = Process {
            pid: 1,
            uid: 0,
            program: String::new(),
            task: None,
            workflow: None,
            rank: None,
            container: None,
            access,
        };
        Report { processes: vec![process], hidden: 0 }
    }

    #[test]
    fn an_items_file_is_found_by_its_number_and_named_by_the_daemons_word() {
        let mut access = BTreeMap::new();
        add_mapping("7f0000000000-7f0000002000 rw-s 00000000 00:01 7   /crossdock-item-12", &mut access);
        add_mapping("7f0000002000-7f0000004000 r--s 00000000 00:01 7   /crossdock-item-13 (deleted)", &mut access);
        add_mapping("7f0000004000-7f0000006000 r--s 00000000 00:01 7   /crossdock-item-x", &mut access);
        let access: Vec<_> = access.into_iter().map(|((segment, kind), a)| Access { segment, kind, ..a }).collect();
        let mut report = report_of(access);
        name_items(&mut report, &BTreeMap::from([(12, "w/frame".to_owned())]));
        let found: Vec<_> =
            report.processes[0].access.iter().map(|a| (a.segment.as_str(), a.mapped.as_str())).collect();
        assert_eq!(found, [("w/frame", "rw"), ("file 13 of no item that a daemon names", "r")]);
    }

    #[test]
    fn a_name_is_taken_alone_with_its_workflow_and_as_a_workflow() {
        let kept = |name: &str| {
            let access = ["melt/frames", "melt/a/frames", "other/frames"]
                .map(|segment| Access { segment: segment.into(), ..Access::default() })
                .to_vec();
            let mut report = report_of(access);
            keep_only(&mut report, name, &["melt", "default"]);
            report.processes.iter().flat_map(|p| &p.access).map(|a| a.segment.clone()).collect::<Vec<_>>()
        };
        assert_eq!(kept("melt"), ["melt/frames", "melt/a/frames"]);
        assert_eq!(kept("frames"), ["melt/frames"]);
        assert_eq!(kept("a/frames"), ["melt/a/frames"]);
        // No daemon knows the workflow `other`, so its object is found only by a name that contains the workflow.
        assert_eq!(kept("other/frames"), ["other/frames"]);
        assert_eq!(kept("fram"), [""; 0]);
    }

    #[test]
    fn a_memfd_of_this_process_is_found_with_its_modes() {
        let name = format!("crossdock:audit-test:port:{}", std::process::id());
        let fd = crossdock_os::memfd::create(&name, 4096).unwrap();
        let folder = Path::new("/proc/self");
        let mut access = BTreeMap::new();
        for entry in fs::read_dir(folder.join("fd")).unwrap().flatten() {
            add_descriptor(folder, &entry, &mut access);
        }
        let port = (format!("audit-test/{}", std::process::id()), "port".to_owned());
        assert_eq!(access[&port].descriptor, "rw");
        drop(fd);
    }

    /// A descriptor that is open only for reading must not be shown as writable if the process closes it while the
    /// audit reads its flags.
    #[test]
    fn a_descriptor_that_is_opened_and_closed_all_the_time_is_never_taken_for_a_writable_one() {
        use std::os::fd::AsRawFd;
        use std::sync::atomic::{AtomicBool, Ordering};

        let name = format!("crossdock:audit-churn:region:{}", std::process::id());
        let memory = crossdock_os::memfd::create(&name, 4096).unwrap();
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        // The number of a descriptor that no other thread of the tests gets, because it is far above the numbers of all
        // other descriptors. `fcntl` duplicates a descriptor to this number.
        let churned = 700;
        let (over, mut seen, mut writable) = (AtomicBool::new(false), 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // In each round, another time passes between the opening and the closing of the descriptor. So sooner
                // or later, the descriptor is closed at each step of the audit.
                for turn in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let reader = fs::File::open(&path).unwrap();
                    let high = crossdock_os::file::duplicate_from(&reader, churned).unwrap();
                    assert_eq!(high.as_raw_fd(), churned);
                    std::thread::sleep(std::time::Duration::from_micros(turn % 8));
                }
            });
            for _ in 0..20_000 {
                let found = fs::read_dir("/proc/self/fd").unwrap().flatten();
                let Some(entry) = found.into_iter().find(|e| e.file_name() == "700") else { continue };
                let mut access = BTreeMap::new();
                add_descriptor(Path::new("/proc/self"), &entry, &mut access);
                seen += access.len();
                writable += access.values().filter(|a| a.descriptor != "r").count();
                if seen > 4000 {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(seen > 0, "the descriptor was never seen");
        assert_eq!(writable, 0, "of {seen} looks");
    }
}
