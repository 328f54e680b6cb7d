//! Answers the kernel's FUSE requests for a view.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crossdock_core::files::{FileWaitOutcome, Views, WaitFailure};
use crossdock_os::fs::{self, File, Metadata, OpenOptions};
use crossdock_os::process;
use fuser::{
    BackingId, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, Request,
};

use super::MovedFiles;
use super::nodes::{Identity, ROOT, ViewNodes};
use crate::rules::is_hidden;
use crate::store::present;

/// The functions that a view calls to report what its readers did.
pub struct ViewCallbacks {
    /// Called when a process has closed a file that it had opened for reading; the path is relative to the directory.
    pub read: Box<dyn Fn(&Path) + Send + Sync>,
    /// Called when a wait ended without a file, with the thread that waited and the reason.
    pub story: Box<dyn Fn(u32, String) + Send + Sync>,
}

impl std::fmt::Debug for ViewCallbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ViewCallbacks")
    }
}

/// The kernel may cache nothing, because a name can be published, replaced or removed at any time.
const NO_TIME: Duration = Duration::ZERO;

#[derive(Debug)]
pub(super) struct Shared {
    faces: Vec<PathBuf>,
    /// The path at which programs see the view.
    seen_at: PathBuf,
    views: Views,
    moved: MovedFiles,
    callbacks: ViewCallbacks,
    state: Mutex<State>,
    over: AtomicBool,
}

#[derive(Debug)]
struct State {
    nodes: ViewNodes,
    handles: HashMap<u64, Handle>,
    folders: HashMap<u64, Vec<(u64, FileType, OsString)>>,
    last: u64,
}

/// A file that a process has open in the view.
#[derive(Debug)]
struct Handle {
    rest: PathBuf,
    /// The file that the kernel reads without asking this server. This value must live as long as any open of the inode
    /// number.
    _backing: Option<Arc<BackingId>>,
    /// The file from which this server reads, if the kernel asks it for bytes.
    file: Option<Arc<File>>,
}

/// The view as a file system, which the library `fuser` serves.
#[derive(Debug)]
pub(super) struct Server(pub Arc<Shared>);

/// The error code with which the server answers a request that it cannot fulfil.
type Refused = Errno;

impl Shared {
    pub fn new(
        faces: Vec<PathBuf>,
        seen_at: PathBuf,
        views: Views,
        moved: MovedFiles,
        callbacks: ViewCallbacks,
    ) -> Self {
        let state = State { nodes: ViewNodes::new(), handles: HashMap::new(), folders: HashMap::new(), last: 0 };
        Self { faces, seen_at, views, moved, callbacks, state: Mutex::new(state), over: AtomicBool::new(false) }
    }

    /// Ends the waits of all requests that wait for a file in this view.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the file that is published under a name. A file that moves to the disk is for a moment both in the folder
    /// in which it was published and in the folder on the disk, and is always in at least one of them.
    fn find(&self, rest: &Path) -> Option<(PathBuf, Metadata)> {
        let look = |face: &PathBuf| {
            let path = face.join(rest);
            let meta = fs::symlink_metadata(&path).ok()?;
            (meta.is_file() || meta.is_dir()).then_some((path, meta))
        };
        // The first folder is the one in which files are published; a folder after it is on the disk. The file may have
        // moved to the disk during the search. So the folders after the first one are searched a second time.
        self.faces.iter().find_map(look).or_else(|| self.faces.iter().skip(1).find_map(look))
    }

    fn identity(&self, meta: &Metadata) -> Identity {
        let own = (meta.dev(), meta.ino());
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).get(&own).copied().unwrap_or(own)
    }

    /// Gives the path that [`Self::wait`] watches: the file's path in the first folder, in which files are published.
    fn awaited(&self, rest: &Path) -> Vec<u8> {
        self.faces[0].join(rest).as_os_str().as_bytes().to_owned()
    }

    fn rest_of(&self, number: INodeNo) -> Result<PathBuf, Refused> {
        self.state().nodes.get(number.0).map(|node| node.rest.clone()).ok_or(Errno::ESTALE)
    }

    /// Waits until the name is published. `thread` is the thread whose request the kernel passed on; a signal to it
    /// ends the wait.
    fn wait(&self, rest: &Path, thread: u32) -> Result<(), Refused> {
        let is_wanted = || {
            // The wait also ends if `find` finds the file. `await_file_while` looks only into the first folder, in
            // which files are published, but `find` also finds a file that has moved to the disk.
            !self.over.load(Ordering::Acquire)
                && self.find(rest).is_none()
                && !i32::try_from(thread).is_ok_and(|thread| thread != 0 && process::has_signal(thread))
        };
        let tell = |story: WaitFailure| {
            let path = self.seen_at.join(rest);
            (self.callbacks.story)(thread, story.about(path.as_os_str().as_bytes()).to_string());
        };
        match self.views.await_file_while(&self.awaited(rest), Duration::ZERO, &is_wanted) {
            FileWaitOutcome::Published => Ok(()),
            FileWaitOutcome::Pass => Err(Errno::ENOENT),
            FileWaitOutcome::Interrupted if self.find(rest).is_some() => Ok(()),
            FileWaitOutcome::Interrupted => Err(Errno::EINTR),
            FileWaitOutcome::Gone(story) => {
                tell(story);
                Err(Errno::ENOENT)
            }
            FileWaitOutcome::TimedOut(story) => {
                tell(story);
                Err(Errno::ETIMEDOUT)
            }
        }
    }

    /// Gives the attributes of the entry that has this number; `None` if no file has been published under the entry's
    /// name yet.
    fn attributes(&self, number: u64) -> Result<Option<FileAttr>, Refused> {
        let rest = self.rest_of(INodeNo(number))?;
        let found = self.find(&rest).map(|(_, meta)| (self.identity(&meta), meta));
        let mut state = self.state();
        let node = state.nodes.get(number).ok_or(Errno::ESTALE)?;
        let (identity, meta) = match found {
            Some(found) if number == ROOT || node.identity.is_none_or(|known| known == found.0) => found,
            None if node.identity.is_none() => return Ok(None),
            // The name was removed, or belongs to another file now. Processes that have the old file open still ask for
            // its attributes.
            _ => return node.attributes.filter(|_| node.opens > 0).map(Some).ok_or(Errno::ESTALE),
        };
        // The view has shown this name as a file that is still to come, but then a folder of this name was made.
        if node.identity.is_none() && meta.is_dir() && number != ROOT {
            return Err(Errno::ESTALE);
        }
        if number != ROOT {
            node.identity = Some(identity);
        }
        let attributes = attributes(number, &meta);
        node.attributes = Some(attributes);
        Ok(Some(attributes))
    }

    /// Opens the file that is published under a name; `None` if there is no such file. The folders are searched in the
    /// same order as by [`Self::find`]. If no folder gives the file, and a call failed, the result is the first error: the
    /// file may be in the folder whose call failed.
    fn open_published(&self, rest: &Path) -> io::Result<Option<File>> {
        let mut result = Ok(None);
        for face in self.faces.iter().chain(self.faces.iter().skip(1)) {
            match present(fs::open(OpenOptions::new().read(true), face.join(rest))) {
                Ok(None) => {}
                Err(error) => result = result.and(Err(error)),
                file => return file,
            }
        }
        result
    }

    /// Opens the file of a name and answers the kernel. Returns `reply` if there is no file.
    fn open(&self, number: u64, rest: &Path, reply: ReplyOpen) -> Option<ReplyOpen> {
        let file = match self.open_published(rest) {
            Ok(Some(file)) => file,
            Ok(None) => return Some(reply),
            Err(error) => {
                reply.error(error.into());
                return None;
            }
        };
        let Ok(meta) = file.metadata() else {
            reply.error(Errno::EIO);
            return None;
        };
        let identity = self.identity(&meta);
        let mut state = self.state();
        state.last += 1;
        let handle = state.last;
        let node = match state.nodes.get(number) {
            Some(node) if meta.is_file() && node.identity.is_none_or(|known| known == identity) => node,
            // Another file has the name now. The error ESTALE makes the kernel look the name up anew.
            _ => {
                reply.error(Errno::ESTALE);
                return None;
            }
        };
        node.identity = Some(identity);
        node.attributes = Some(attributes(number, &meta));
        node.opens += 1;
        let backing = match node.backing.upgrade() {
            Some(backing) => Ok(backing),
            None => reply.open_backing(&file).map(Arc::new),
        };
        let rest = rest.to_owned();
        match backing {
            Ok(backing) => {
                node.backing = Arc::downgrade(&backing);
                state.handles.insert(handle, Handle { rest, _backing: Some(backing.clone()), file: None });
                reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &backing);
            }
            // A kernel without passthrough reads the bytes through this server.
            Err(_) => {
                state.handles.insert(handle, Handle { rest, _backing: None, file: Some(Arc::new(file)) });
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
        }
        None
    }

    /// Reads at most `size` bytes of an open file; fewer at the end of the file.
    fn read(&self, handle: FileHandle, offset: u64, size: usize) -> Result<Vec<u8>, Refused> {
        let file = self.state().handles.get(&handle.0).and_then(|handle| handle.file.clone()).ok_or(Errno::EBADF)?;
        let mut bytes = vec![0; size];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Lists the entries of a folder, sorted by name.
    fn list(&self, rest: &Path) -> io::Result<Vec<(u64, FileType, OsString)>> {
        let mut found = BTreeMap::new();
        let mut there = false;
        for face in &self.faces {
            let entries = match fs::read_dir(face.join(rest)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            there = true;
            for entry in entries {
                // A list that is short without an error would hide files from the consumer.
                let entry = entry?;
                let kind = entry.file_type().ok().and_then(FileType::from_std);
                let Some(kind @ (FileType::RegularFile | FileType::Directory)) = kind else { continue };
                use std::os::unix::fs::DirEntryExt;
                found.entry(entry.file_name()).or_insert((entry.ino().max(ROOT + 1), kind));
            }
        }
        if !there {
            return Err(io::ErrorKind::NotFound.into());
        }
        let own = [".", ".."].map(|name| (ROOT, FileType::Directory, OsString::from(name)));
        Ok(own.into_iter().chain(found.into_iter().map(|(name, (number, kind))| (number, kind, name))).collect())
    }
}

fn attributes(number: u64, meta: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanoseconds: i64| {
        let since = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
        SystemTime::UNIX_EPOCH + since
    };
    let (kind, perm) = if meta.is_dir() {
        (FileType::Directory, 0o555)
    } else {
        (FileType::RegularFile, (meta.mode() & 0o555 | 0o444) as u16)
    };
    FileAttr {
        ino: INodeNo(number),
        size: meta.len(),
        blocks: meta.blocks(),
        atime: time(meta.mtime(), meta.mtime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        // Links and the move to a disk change the real `ctime`, but do not matter to readers. So the view shows `mtime`
        // as `ctime`.
        ctime: time(meta.mtime(), meta.mtime_nsec()),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The attributes of a name without a file, which are those of an empty file. An `open` or `stat` of the name waits for
/// the file.
fn awaited(number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0o444,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Runs a wait in a separate thread. If no thread can be started, the request fails with EIO.
fn apart(work: impl FnOnce() + Send + 'static) {
    // If the thread cannot be started, `work` is dropped, and with `work` the reply object of the request. When a reply
    // object is dropped before an answer was sent, `fuser` answers the request with EIO.
    let _ = std::thread::Builder::new().name("crossdock-view".into()).stack_size(256 << 10).spawn(work);
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Kernels before 6.9 have no passthrough, and read through this server.
        if config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            let _ = config.set_max_stack_depth(2);
        }
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let shared = &self.0;
        let rest = match shared.rest_of(parent) {
            Ok(parent) => parent.join(name),
            Err(error) => return reply.error(error),
        };
        if is_hidden(&rest) {
            return reply.error(Errno::ENOENT);
        }
        let found = shared.find(&rest).map(|(_, meta)| (shared.identity(&meta), meta));
        match found {
            Some((identity, meta)) => {
                let number = shared.state().nodes.look_up(&rest, Some(identity));
                reply.entry(&NO_TIME, &attributes(number, &meta), Generation(0));
            }
            None if shared.views.is_coming(&shared.awaited(&rest)) => {
                let number = shared.state().nodes.look_up(&rest, None);
                reply.entry(&NO_TIME, &awaited(number), Generation(0));
            }
            // No producer can publish the name any more, so `wait` returns immediately. `wait` also reports the reason.
            None => {
                let _ = shared.wait(&rest, request.pid());
                reply.error(Errno::ENOENT);
            }
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.0.state().nodes.forget(number.0, lookups);
    }

    fn getattr(&self, request: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attributes(number.0) {
            Ok(Some(attributes)) => reply.attr(&NO_TIME, &attributes),
            Err(error) => reply.error(error),
            Ok(None) => {
                let (shared, thread) = (self.0.clone(), request.pid());
                apart(move || {
                    let waited = shared.rest_of(number).and_then(|rest| shared.wait(&rest, thread));
                    match waited.and_then(|()| shared.attributes(number.0)) {
                        Ok(Some(attributes)) => reply.attr(&NO_TIME, &attributes),
                        Ok(None) => reply.error(Errno::ENOENT),
                        Err(error) => reply.error(error),
                    }
                });
            }
        }
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let rest = match self.0.rest_of(number) {
            Ok(rest) => rest,
            Err(error) => return reply.error(error),
        };
        let Some(reply) = self.0.open(number.0, &rest, reply) else { return };
        let (shared, thread) = (self.0.clone(), request.pid());
        apart(move || match shared.wait(&rest, thread) {
            Err(error) => reply.error(error),
            Ok(()) => {
                if let Some(reply) = shared.open(number.0, &rest, reply) {
                    reply.error(Errno::ENOENT);
                }
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(handle, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let closed = {
            let mut state = self.0.state();
            if let Some(node) = state.nodes.get(number.0) {
                node.opens = node.opens.saturating_sub(1);
            }
            state.handles.remove(&handle.0)
        };
        reply.ok();
        if let Some(handle) = closed {
            (self.0.callbacks.read)(&handle.rest);
        }
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listed = self.0.rest_of(number).and_then(|rest| self.0.list(&rest).map_err(Errno::from));
        match listed {
            Ok(entries) => {
                let mut state = self.0.state();
                state.last += 1;
                let handle = state.last;
                state.folders.insert(handle, entries);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = self.0.state();
        let entries = state.folders.get(&handle.0).map_or(&[][..], Vec::as_slice);
        for (place, (number, kind, name)) in (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(INodeNo(*number), place, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.state().folders.remove(&handle.0);
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn shared(faces: Vec<PathBuf>) -> Shared {
        let callbacks = ViewCallbacks { read: Box::new(|_| ()), story: Box::new(|_, _| ()) };
        let line = Views::line("/nothing", "/nothing.notice", Duration::ZERO, &[]);
        Shared::new(faces, "/data".into(), Views::parse(&line).unwrap(), MovedFiles::default(), callbacks)
    }

    #[test]
    fn a_file_in_another_folder_is_opened_although_the_first_folder_gives_an_error() {
        let (memory, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let view = shared(vec![memory.path().to_owned(), disk.path().to_owned()]);
        std::os::unix::fs::symlink("f", memory.path().join("f")).unwrap();
        assert!(view.open_published(Path::new("f")).is_err(), "the link leads to itself");
        fs::write(disk.path().join("f"), "x").unwrap();
        assert!(view.open_published(Path::new("f")).unwrap().is_some());
        assert!(view.open_published(Path::new("g")).unwrap().is_none());
        assert!(
            view.open_published(Path::new("f/g")).is_err() && view.open_published(Path::new("g/f")).unwrap().is_none()
        );
    }

    /// The test runs itself again, in a process that can have few descriptors.
    #[test]
    fn without_free_descriptors_open_files_are_read_and_others_do_not_count_as_missing() {
        const INSIDE: &str = "CROSSDOCK_TEST_FEW_DESCRIPTORS";
        if std::env::var_os(INSIDE).is_none() {
            let name =
                "view::server::tests::without_free_descriptors_open_files_are_read_and_others_do_not_count_as_missing";
            let mut again = Command::new("/bin/sh");
            again.args(["-c", r#"ulimit -n 64 && exec "$0" "$@""#]).arg(std::env::current_exe().unwrap());
            let output = again.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            return assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let view = shared(vec![folder.path().to_owned()]);
        fs::write(folder.path().join("f"), "0123456789").unwrap();
        let file = view.open_published(Path::new("f")).unwrap().map(Arc::new);
        view.state().handles.insert(1, Handle { rest: "f".into(), _backing: None, file });
        let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        let opened = view.open_published(Path::new("f"));
        let read = view.read(FileHandle(1), 3, 100);
        drop(all);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(Errno::EMFILE.code()));
        assert_eq!(read.unwrap(), b"3456789");
    }
}
