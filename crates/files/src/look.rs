//! Reports what is in a managed directory without asking the directory's service, which may be dead. The report comes
//! from the directory's folders, and from the kernel's lists of open files and sleeping threads.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crossdock_core::files::NoticeReader;
use crossdock_layout::files::Phase;
use crossdock_os::fs;
use crossdock_os::mount;
use crossdock_os::seccomp::MemoryReader;
use serde::{Deserialize, Serialize};

use crate::refusals::{self, Refused};
use crate::stage::StagedPath;
use crate::store::Layout;

/// The most names in the list of one directory. If there are more names, the list has the names that are not published
/// or are in use, before other names.
const LINES: usize = 10_000;

/// The state of one file name in a managed directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FileState {
    /// Consumers see the file.
    Published,
    /// The file is published, and was moved from memory to a disk.
    Spilled,
    /// A producer has the file open for writing.
    Written,
    /// The file is closed and not published. Either it is hidden, or the event that publishes it has not come yet: its
    /// rename, the close of its marker file, or the end of the producers.
    Unpublished,
    /// The file is not published because its writer was killed.
    Torn,
    /// The file is not published because the quota was used up when it was closed.
    Cut,
    /// The file was published, and was then dropped, as the key `keep` of the workflow file says.
    Dropped,
    /// Another host has published the file, and this host fetches the file as soon as its store has enough free space.
    NoRoom,
    /// Another host published the file, and is lost now. This host has not fetched the file.
    Lost,
    /// This host gave up fetching the file, for example because its store was full for too long. The log says why.
    NotFetched,
    /// A consumer waits for a file of this name.
    Awaited,
}

impl FileState {
    /// The word that `crossdock ls --files` prints for the state.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Spilled => "on disk",
            Self::Written => "written",
            Self::Unpublished => "unpublished",
            Self::Torn => "torn",
            Self::Cut => "beyond quota",
            Self::Dropped => "dropped",
            Self::NoRoom => "waits for room",
            Self::Lost => "lost",
            Self::NotFetched => "not fetched",
            Self::Awaited => "awaited",
        }
    }
}

/// A process that uses a file, with the task that its environment names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUser {
    /// The process id.
    pub pid: i32,
    /// The name of the process's task. If the process belongs to no task, this is the name of its program.
    pub task: String,
}

/// A file's name, its state, and the processes that wait for the file or have it open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileLine {
    /// The path of the file, relative to the managed directory.
    pub name: PathBuf,
    /// The state of the file name.
    pub state: FileState,
    /// The size of the file in bytes; `None` if there is no file.
    pub bytes: Option<u64>,
    /// Processes that have the file open for writing.
    pub writers: Vec<FileUser>,
    /// Processes that have the file open for reading.
    pub readers: Vec<FileUser>,
    /// Processes that wait for the file.
    pub waiters: Vec<FileUser>,
}

impl FileLine {
    /// Says why the file is not published, or why writing it fails; `None` if the state alone says enough. `is_full`
    /// tells whether the directory has no room left.
    #[must_use]
    pub fn reason(&self, is_full: bool) -> Option<&'static str> {
        match self.state {
            FileState::Written if is_full => Some("no room left: its writers get ENOSPC"),
            FileState::Awaited if is_full => Some("no room left: producers get ENOSPC"),
            FileState::Cut => Some("closed while no room was left, so its end may be missing; write it again"),
            FileState::Torn => Some("its writer was killed"),
            FileState::NoRoom => Some("this host has no room for it; it is fetched when there is room"),
            FileState::Lost => Some("the host that published it is lost"),
            FileState::NotFetched => Some("this host gave up fetching it; the log says why"),
            FileState::Dropped => Some("the rule `keep` dropped it"),
            _ => None,
        }
    }
}

/// The state of a managed directory at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectorySnapshot {
    /// The names of the producers, as messages show them.
    pub producers: String,
    /// Whether the producers have not started yet, run, have ended or have failed.
    #[serde(with = "number")]
    pub phase: Phase,
    /// How many files were published.
    pub published: u64,
    /// How many bytes are in use in the file system of the store. If the directory has a quota, it has a file system of
    /// its own. Then this number counts the bytes of this directory alone.
    pub used: u64,
    /// True if no room is left: writing more fails with ENOSPC.
    pub is_full: bool,
    /// A line for each name, sorted by name; at most 10 000 lines.
    pub lines: Vec<FileLine>,
    /// How many names have no line, because there are too many of them.
    #[serde(default)]
    pub more: u64,
    /// The tasks that tried in vain to change files of the directory.
    pub refused: Vec<Refused>,
}

/// Writes the producers' phase to JSON and similar formats as a number. This module is needed because the crate that
/// defines [`Phase`] does not depend on `serde`.
mod number {
    use super::Phase;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(phase: &Phase, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(*phase as u32)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Phase, D::Error> {
        u32::deserialize(from).map(Phase::from_number)
    }
}

/// Looks at the store in the folder `root`, with the notice at the path `notice`. `path` is where consumers see the
/// directory.
///
/// # Errors
/// The folders cannot be read, because they belong to another user or do not exist any more.
pub fn look(root: &Path, notice: &Path, path: &str) -> io::Result<DirectorySnapshot> {
    let page = NoticeReader::map(notice)?;
    let page = page.ok_or_else(|| io::Error::other(format!("{} is no notice of this version", notice.display())))?;
    let layout = Layout::of(root);
    let mut lines: BTreeMap<PathBuf, FileLine> = BTreeMap::new();
    let mut inodes: HashMap<(u64, u64), PathBuf> = HashMap::new();
    for events in layout.events() {
        take_in(&fs::read_to_string(events).unwrap_or_default(), &mut lines);
    }
    let seen = [
        (&layout.stage, FileState::Unpublished),
        (&layout.spilled, FileState::Spilled),
        (&layout.published, FileState::Published),
    ];
    for (folder, state) in seen {
        if state == FileState::Spilled && !folder.exists() {
            continue;
        }
        walk(folder, Path::new(""), &mut |name, meta| {
            let known = lines.entry(name.clone()).or_insert_with(|| line_of(name.clone(), state));
            if state != FileState::Unpublished
                || matches!(
                    known.state,
                    FileState::Dropped | FileState::NoRoom | FileState::NotFetched | FileState::Lost
                )
            {
                known.state = state;
            }
            known.bytes = Some(meta.len());
            inodes.insert((meta.dev(), meta.ino()), name);
        })?;
    }
    let notice = fs::metadata(notice)?;
    for pid in numbers(Path::new("/proc")) {
        for (file, writes) in open_files(pid) {
            let Some(line) = inodes.get(&file).and_then(|name| lines.get_mut(name)) else { continue };
            if writes {
                if line.state == FileState::Unpublished {
                    line.state = FileState::Written;
                }
                add(&mut line.writers, pid);
            } else {
                add(&mut line.readers, pid);
            }
        }
        for name in awaited(pid, notice.ino(), &[path]) {
            let line = lines.entry(name.clone()).or_insert_with(|| line_of(name.clone(), FileState::Awaited));
            if line.state == FileState::Dropped {
                line.state = FileState::Awaited;
            }
            add(&mut line.waiters, pid);
        }
    }
    let (lines, more) = shortened(lines.into_values().collect(), LINES);
    // The lists of writers and readers never contain this process, because it opens only folders. The lists may contain
    // the service, because the service sometimes has a file open for a moment.
    Ok(DirectorySnapshot {
        producers: page.producers(),
        phase: page.phase(),
        published: page.published.load(std::sync::atomic::Ordering::Relaxed),
        used: mount::used(&layout.stage),
        is_full: mount::is_full(&layout.stage),
        lines,
        more,
        refused: refusals::read(&layout.refusals()),
    })
}

/// Leaves out names if there are more than `most`, and tells how many. Names that are not published or are in use stay
/// in the list before other names.
fn shortened(mut lines: Vec<FileLine>, most: usize) -> (Vec<FileLine>, u64) {
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        let is_quiet = |line: &FileLine| {
            matches!(line.state, FileState::Published | FileState::Spilled | FileState::Dropped)
                && [&line.writers, &line.readers, &line.waiters].iter().all(|users| users.is_empty())
        };
        lines.sort_by_key(is_quiet);
        lines.truncate(most);
        lines.sort_by(|a, b| a.name.cmp(&b.name));
    }
    (lines, more as u64)
}

/// Reads the service's list of events. For each name, a later event replaces the earlier events.
fn take_in(events: &str, lines: &mut BTreeMap<PathBuf, FileLine>) {
    for line in events.lines() {
        let Some((word, name)) = line.split_once('\t') else { continue };
        let (word, bytes) = word.split_once(' ').map_or((word, None), |(word, bytes)| (word, bytes.parse().ok()));
        let state = match word {
            "torn" => FileState::Torn,
            "cut" => FileState::Cut,
            "room" => FileState::NoRoom,
            "unfetched" => FileState::NotFetched,
            "lost" => FileState::Lost,
            "done" => {
                lines.remove(Path::new(name));
                continue;
            }
            _ => FileState::Dropped,
        };
        lines.insert(name.into(), FileLine { bytes, ..line_of(name.into(), state) });
    }
}

fn line_of(name: PathBuf, state: FileState) -> FileLine {
    FileLine { name, state, bytes: None, writers: Vec::new(), readers: Vec::new(), waiters: Vec::new() }
}

fn add(users: &mut Vec<FileUser>, pid: i32) {
    if users.iter().all(|user| user.pid != pid) {
        users.push(FileUser { pid, task: task(pid) });
    }
}

/// Calls `see` for each file below the folder `rest` of the folder `top`. A producer can replace a folder by a symbolic
/// link at any moment, so the walk enters no folder through a link.
pub(crate) fn walk(top: &Path, rest: &Path, see: &mut dyn FnMut(PathBuf, fs::Metadata)) -> io::Result<()> {
    // The folder may have been removed meanwhile, or be a link now.
    let Some(folder) = StagedPath::folder(top, rest)? else { return Ok(()) };
    for entry in fs::read_dir(&*folder)? {
        let entry = entry?;
        let below = rest.join(entry.file_name());
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => walk(top, &below, see)?,
            Ok(meta) if meta.is_file() => see(below, meta),
            // The entry was removed meanwhile, or is a link or a socket.
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn numbers(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Lists the files that the process `pid` has open. For each file: its device and inode, and whether it is open for
/// writing.
fn open_files(pid: i32) -> Vec<((u64, u64), bool)> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let file = |number: i32| {
        let meta = fs::metadata(folder.join(number.to_string())).ok().filter(fs::Metadata::is_file)?;
        let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let writes = u32::from_str_radix(flags.trim(), 8).is_ok_and(|flags| flags & 3 != 0);
        Some(((meta.dev(), meta.ino()), writes))
    };
    numbers(&folder).into_iter().filter_map(file).collect()
}

/// Lists the names below one of `paths` that threads of the process `pid` wait for. Such a thread sleeps on the
/// notice's page, and the fifth argument of its futex call is the address of the whole name (os/futex.rs). The kernel
/// shows only the threads that this user may inspect.
pub(crate) fn awaited(pid: i32, notice: u64, paths: &[&str]) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let pages: Vec<(u64, u64)> = maps.lines().filter_map(|line| page_of(line, notice)).collect();
    if pages.is_empty() {
        return Vec::new();
    }
    let mut reader = MemoryReader::default();
    let name = |thread: i32| {
        let call = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).ok()?;
        let words: Vec<u64> = call.split_ascii_whitespace().skip(1).filter_map(hexadecimal).collect();
        let (sleeps_on, what) = (*words.first()?, *words.get(4)?);
        pages.iter().any(|(start, end)| (*start..*end).contains(&sleeps_on)).then_some(())?;
        let whole = String::from_utf8(reader.text(thread, what)?).ok()?;
        paths.iter().find_map(|path| Some(PathBuf::from(whole.strip_prefix(path)?.strip_prefix('/')?)))
    };
    numbers(Path::new(&format!("/proc/{pid}/task"))).into_iter().filter_map(name).collect()
}

/// Gives the addresses of the mapping in this `line` of `/proc/PID/maps`, if it maps the file with the inode number
/// `inode`.
fn page_of(line: &str, inode: u64) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let found: u64 = words.nth(3)?.parse().ok()?;
    (found == inode).then_some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

fn task(pid: i32) -> String {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let of = |name: &str| {
        let mut texts = environment.split(|b| *b == 0).map(String::from_utf8_lossy);
        texts.find_map(|text| Some(text.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    };
    match (of("CROSSDOCK_TASK"), of("CROSSDOCK_RANKS"), of("CROSSDOCK_RANK")) {
        (Some(task), Some(ranks), Some(rank)) if ranks != "1" => format!("{task}.{rank}"),
        (Some(task), ..) => task,
        _ => fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_becomes_a_symbolic_link_leads_the_list_to_no_file_outside() {
        let folder = std::env::temp_dir().join(format!("crossdock-look-{}", std::process::id()));
        let (stage, outside) = (folder.join("stage"), folder.join("outside"));
        for (path, text) in [(stage.join("a/b/file"), "1"), (outside.join("b/secret"), "2")] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let seen = |rest: &str| {
            let mut names = Vec::new();
            walk(&stage, Path::new(rest), &mut |name, _| names.push(name)).unwrap();
            names
        };
        assert_eq!((seen(""), seen("a/b")), (vec![PathBuf::from("a/b/file")], vec![PathBuf::from("a/b/file")]));
        // A producer replaces the folder `a` by a link. A walk that found `a` and `a/b` before the replacement would
        // now try to enter these folders. The calls with `a` and `a/b` below stand for this walk.
        fs::rename(stage.join("a"), folder.join("gone")).unwrap();
        std::os::unix::fs::symlink(&outside, stage.join("a")).unwrap();
        for rest in ["", "a", "a/b", "none"] {
            assert_eq!(seen(rest), Vec::<PathBuf>::new(), "{rest:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_list_that_is_too_long_keeps_the_names_that_are_not_published_or_in_use() {
        let state = |i| if i % 10 == 7 { FileState::Torn } else { FileState::Published };
        let mut lines: Vec<_> = (100..200).map(|i| line_of(i.to_string().into(), state(i))).collect();
        lines[55].waiters.push(FileUser { pid: 1, task: "a".into() });
        let (all, none) = shortened(lines.clone(), 100);
        assert_eq!((all.len(), none), (100, 0));
        let (few, more) = shortened(lines, 13);
        let names: Vec<_> = few.iter().map(|line| line.name.to_str().unwrap()).collect();
        let wanted = ["100", "101", "107", "117", "127", "137", "147", "155", "157", "167", "177", "187", "197"];
        assert_eq!((&names[..], more), (&wanted[..], 87));
    }

    #[test]
    fn the_last_event_of_a_name_counts_and_a_wait_for_room_has_an_end() {
        let mut lines = BTreeMap::new();
        take_in("cut\ta\nroom 4096\tb\nroom 7\tc\ndone\tc\nunfetched\td\ndropped\te\nno line\n", &mut lines);
        let seen: Vec<_> = lines.values().map(|l| (l.name.to_str().unwrap(), l.state, l.bytes)).collect();
        let wanted = [
            ("a", FileState::Cut, None),
            ("b", FileState::NoRoom, Some(4096)),
            ("d", FileState::NotFetched, None),
            ("e", FileState::Dropped, None),
        ];
        assert_eq!(seen, wanted);
        assert!(lines.values().all(|line| line.reason(false).is_some()));
        let written = line_of("f".into(), FileState::Written);
        assert_eq!(written.reason(false), None);
        assert!(written.reason(true).unwrap().contains("ENOSPC"));
    }
}
