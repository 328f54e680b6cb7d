//! The folders of one managed directory on the host.
//!
//! ```text
//! ROOT/stage/       what producers see, writable
//! ROOT/published/   what consumers see, mounted read-only for them: links to finished files of `stage`
//! ROOT/for.N/       what consumer N sees if a file is dropped after all consumers read it; else all see `published`
//! ROOT/events       why files were not published or not fetched, and what was dropped: a line each
//! ROOT.events       the same list, if ROOT is memory with a limit, because ROOT may be full when a line must be written
//! ROOT.refusals   which tasks tried in vain to change files (refusals.rs)
//! ROOT/spilled      if files of `published` move to a disk: a link to the folder on the disk (spill.rs)
//! ROOT/fetched/     a file of another host is filled here, before its rename into `published` (service/fetch.rs)
//! ROOT/new/         a link waits here for its rename into `published`, so that a file takes its name in one step
//! NOTICE            one page, mapped read-only by consumers (layout/files.rs); it may lie elsewhere
//! ```

use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crossdock_core::fault_point;
use crossdock_core::files::NoticeWriter;
use crossdock_layout::files::{LossReason, Phase, SilentHost};
use crossdock_os::fs::{self, DirBuilder, File, OpenOptions};
use crossdock_os::lease::{self, Proof};
use crossdock_os::{clock, file, futex, mount};

/// The greatest size of a store's list of events, in bytes.
const EVENTS_MAX: u64 = 1 << 20;

/// The points at which a checked build can kill the service. The point "files.copied" is only reached if consumers have
/// folders of their own.
#[cfg(feature = "fault-points")]
pub const FAULT_POINTS: &[&str] =
    &["files.linked", "files.leased", "files.final", "files.copied", "files.shown", "files.renamed", "files.told"];

/// The paths of a store's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The folder in which producers write files.
    pub stage: PathBuf,
    /// The folder that consumers see. If each consumer has a folder of its own, this folder has the files that are in
    /// all of them.
    pub published: PathBuf,
    /// The folder on a disk for published files that were moved out of memory.
    pub spilled: PathBuf,
    new: PathBuf,
    fetched: PathBuf,
    /// The folders of single consumers; empty if all consumers share `published`.
    single: Vec<PathBuf>,
    root: PathBuf,
}

/// The folders of one managed directory, and its notice mapped for writing.
#[derive(Debug)]
pub struct Store {
    /// The paths of the store's parts.
    pub layout: Layout,
    notice: NoticeWriter,
    links: u64,
    /// True if the store's memory has a limit of its own.
    pub(crate) is_limited: bool,
}

/// The result of an attempt to publish a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PublishOutcome {
    /// Consumers see the file now.
    Done,
    /// Consumers saw this very file already.
    Already,
    /// A process has the file open or mapped for writing.
    Written,
    /// The file's writer was killed while it had the file open.
    Torn,
    /// The directory's memory is used up, so the end of the file may be missing.
    Full,
    /// The file was removed, or is not an ordinary file.
    Nothing,
}

impl Layout {
    /// Gives the paths for a store in the folder `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let at = |name: &str| root.join(name);
        Self {
            stage: at("stage"),
            published: at("published"),
            spilled: at("spilled"),
            new: at("new"),
            fetched: at("fetched"),
            single: Vec::new(),
            root: root.to_owned(),
        }
    }

    /// The folder that the consumer with this number sees.
    #[must_use]
    pub fn for_consumer(&self, number: usize) -> &Path {
        self.single.get(number).unwrap_or(&self.published)
    }

    /// The folders of single consumers, if each consumer has a folder of its own.
    pub(crate) fn singles(&self) -> &[PathBuf] {
        &self.single
    }

    /// The two paths at which the list of the service's events may be. The list is inside the store, or, if the store
    /// has a limit, beside the store, because the store may be full.
    #[must_use]
    pub fn events(&self) -> [PathBuf; 2] {
        [self.root.join("events"), self.beside(".events")]
    }

    /// The path of the list of refusals. It lies beside the store, because the store may be full.
    #[must_use]
    pub fn refusals(&self) -> PathBuf {
        self.beside(".refusals")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.root.clone().into_os_string();
        path.push(ending);
        path.into()
    }
}

impl Store {
    /// Makes the store in the folder `root` and the notice at `notice_path`, or takes over those that exist. `single`
    /// is the number of consumers with a folder of their own.
    ///
    /// # Errors
    /// A folder or the notice cannot be made; the error names the path.
    pub fn open(root: &Path, notice_path: &Path, producers: &str, single: usize) -> io::Result<Self> {
        let mut layout = Layout::of(root);
        layout.single = (0..single).map(|n| root.join(format!("for.{n}"))).collect();
        let named =
            |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let own = [
            (root, 0o711),
            (&layout.stage, 0o777),
            (&layout.published, 0o755),
            (&layout.new, 0o700),
            (&layout.fetched, 0o700),
        ];
        for (path, mode) in own.into_iter().chain(layout.single.iter().map(|path| (path.as_path(), 0o755))) {
            match fs::make_folder(DirBuilder::new().mode(mode), path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(named(path, error)),
                _ => fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| named(path, e))?,
            }
        }
        let mut how = OpenOptions::new();
        let notice = fs::open(how.read(true).write(true).create(true).truncate(false).mode(0o644), notice_path);
        let page = notice.and_then(|notice| {
            fs::set_len(&notice, 4096)?;
            NoticeWriter::map(&notice).map_err(|e| e.reason())
        });
        let store = Self { notice: page.map_err(|e| named(notice_path, e))?, layout, links: 0, is_limited: false };
        if !store.notice.is_valid() {
            store.notice.format(producers);
        }
        store.clear_new()?;
        Ok(store)
    }

    /// Removes links and partly fetched files that a killed service left.
    fn clear_new(&self) -> io::Result<()> {
        for left in fs::read_dir(&self.layout.new)?.chain(fs::read_dir(&self.layout.fetched)?) {
            fs::remove_file(left?.path())?;
        }
        Ok(())
    }

    /// Gives an unused path for a file of another host that is being fetched.
    pub(crate) fn fetched(&mut self) -> PathBuf {
        self.links += 1;
        self.layout.fetched.join(self.links.to_string())
    }

    /// Publishes a file of `stage` under the same name in the consumers' folder, if no process writes the file. `rest`
    /// is the file's path relative to each of the two folders. `is_torn` is called after the lease has proved that no
    /// writer is left, and `before` is called just before consumers see the file.
    ///
    /// The file is first linked into the folder `new` and opened there, because an open in `stage` would wait for the
    /// thread that answers opens (`writers.rs`), and consumers would get the file later. If `was_written` is true, a
    /// process had the file open for writing at the previous attempt, and may still write the file. In that case this
    /// function checks for writers before it links the file, so that the service's repeated attempts do not change the
    /// file's status time: each link changes this time.
    pub(crate) fn publish(
        &mut self,
        rest: &Path,
        was_written: bool,
        is_torn: &mut dyn FnMut() -> io::Result<bool>,
        before: &mut dyn FnMut(&Self),
    ) -> io::Result<PublishOutcome> {
        let to = self.layout.published.join(rest);
        let Some(from) = self.layout.staged(rest)? else { return Ok(PublishOutcome::Nothing) };
        let Some(meta) = present(fs::symlink_metadata(&*from))?.filter(fs::Metadata::is_file) else {
            return Ok(PublishOutcome::Nothing);
        };
        if same(&to, &meta)? {
            return Ok(PublishOutcome::Already);
        }
        if was_written {
            let Some(file) = ordinary(&from)? else { return Ok(PublishOutcome::Nothing) };
            if !lease::prove(&file, Proof::NoWriter).map_err(|e| e.reason())? {
                return Ok(PublishOutcome::Written);
            }
        }
        self.links += 1;
        let waiting = self.layout.new.join(self.links.to_string());
        if present(fs::hard_link(&*from, &waiting))?.is_none() {
            return Ok(PublishOutcome::Nothing);
        }
        fault_point!("files.linked");
        let tried = self.publish_link(rest, &waiting, &meta, is_torn, before);
        if !matches!(tried, Ok(PublishOutcome::Done)) {
            present(fs::remove_file(&waiting))?;
        }
        tried
    }

    /// Tells whether a process has this file of `stage` open or mapped for writing.
    pub(crate) fn is_written(&self, rest: &Path) -> io::Result<bool> {
        let Some(place) = self.layout.staged(rest)? else { return Ok(false) };
        let Some(file) = ordinary(&place)? else { return Ok(false) };
        lease::prove(&file, Proof::NoWriter).map(|none| !none).map_err(|e| e.reason())
    }

    /// Publishes a file of the producers, which has the path `rest` in `stage`. The path `waiting` is a hard link to
    /// this file in the folder `new`. `meta` is the metadata that the file had before the link was made.
    fn publish_link(
        &self,
        rest: &Path,
        waiting: &Path,
        meta: &fs::Metadata,
        is_torn: &mut dyn FnMut() -> io::Result<bool>,
        before: &mut dyn FnMut(&Self),
    ) -> io::Result<PublishOutcome> {
        // If another file took the name `rest` before the link was made, the link leads to that file, and not to the
        // one that `meta` describes.
        let is_same = same(waiting, meta)?;
        let Some(file) = ordinary(waiting)?.filter(|_| is_same) else { return Ok(PublishOutcome::Written) };
        let Some(held) = lease::hold(&file, Proof::NoWriter).map_err(|e| e.reason())? else {
            return Ok(PublishOutcome::Written);
        };
        if is_torn()? {
            return Ok(PublishOutcome::Torn);
        }
        if self.is_limited && mount::is_full(&self.layout.stage) {
            return Ok(PublishOutcome::Full);
        }
        // The next step makes the file read-only. After this step, a program that opens the file for writing gets
        // EACCES.
        fault_point!("files.leased");
        let mode = file.metadata()?.mode() & 0o7777;
        fs::set_mode(&file, mode & 0o7555 | 0o444)?;
        fault_point!("files.final");
        // A process opened the file for writing before the file's mode changed, or another file has taken the name, or a
        // failed call hides whether one has. So the file is not published now.
        let is_staged = self.layout.is_staged(rest, meta);
        if held.is_being_broken() || !matches!(is_staged, Ok(true)) {
            fs::set_mode(&file, mode)?;
            return is_staged.map(|_| PublishOutcome::Written);
        }
        before(self);
        match self.show_everywhere(waiting, rest) {
            Ok(()) => Ok(PublishOutcome::Done),
            Err((error, was_shown)) => {
                // If a consumer may have opened the file, it stays read-only. Otherwise the producer may write it until
                // the next attempt.
                if !was_shown {
                    let _ = fs::set_mode(&file, mode);
                }
                Err(error)
            }
        }
    }

    /// Gives the finished file at the path `waiting` its name `rest` in all folders that consumers see.
    ///
    /// # Errors
    /// A call failed. The name is removed from the consumers' folders that had it already: until the next attempt, a
    /// consumer could read the file there, and this read would not count, because the reads of a name are counted anew
    /// when all consumers see the file. Gives the error, and whether a consumer may have seen the file.
    pub(crate) fn show_everywhere(&self, waiting: &Path, rest: &Path) -> Result<(), (io::Error, bool)> {
        let to = self.layout.published.join(rest);
        let shown = self.layout.single.iter().try_for_each(|folder| self.show(waiting, &folder.join(rest)));
        fault_point!("files.shown");
        let renamed = || match (fs::rename(waiting, &to), to.parent()) {
            // The folder that will contain the file does not exist yet in `published`.
            (Err(error), Some(folder)) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(folder).and_then(|()| fs::rename(waiting, &to))
            }
            (renamed, _) => renamed,
        };
        let shown = shown.and_then(|()| renamed());
        fault_point!("files.renamed");
        shown.map_err(|error| {
            let was_shown = self.take_back(waiting, rest);
            let _ = fs::remove_file(waiting);
            (error, was_shown)
        })
    }

    /// Removes the name `rest` from the consumers' own folders in which it belongs to the file at the path `waiting`.
    /// Tells whether there may have been such a folder.
    fn take_back(&self, waiting: &Path, rest: &Path) -> bool {
        let Ok(meta) = fs::symlink_metadata(waiting) else { return true };
        let mut was_shown = false;
        for path in self.layout.single.iter().map(|folder| folder.join(rest)) {
            let is_same = same(&path, &meta);
            was_shown |= !matches!(is_same, Ok(false));
            if let Ok(true) = is_same {
                let _ = fs::remove_file(path);
            }
        }
        was_shown
    }

    /// Links a file into one consumer's folder. The file appears there in one step.
    fn show(&self, file: &Path, to: &Path) -> io::Result<()> {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let copy = file.with_extension("single");
        fs::hard_link(file, &copy)?;
        fault_point!("files.copied");
        let renamed = fs::rename(&copy, to);
        // If `to` is a link of the same file already, the rename does nothing and leaves the link `copy`. So `copy` is
        // removed here.
        let _ = fs::remove_file(&copy);
        renamed
    }

    /// The folders in which consumers see files.
    fn faces(&self) -> impl Iterator<Item = &PathBuf> {
        self.layout.single.iter().chain([&self.layout.published])
    }

    /// Measures how many bytes of the store's own memory are in use.
    pub(crate) fn used(&self) -> u64 {
        mount::used(&self.layout.stage)
    }

    /// Removes a name from the folders that consumers see. A process that has the file open keeps it.
    pub(crate) fn withdraw(&self, rest: &Path) -> io::Result<()> {
        // A view shows the file as long as any of these folders has it. The copy on a disk is removed last.
        for folder in self.faces().chain([&self.layout.spilled]) {
            let path = folder.join(rest);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path)?,
                Ok(_) => fs::remove_file(&path)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes a published file from the folders of producers and consumers. Errors are ignored here: the service
    /// removes the file once more when it notes that the file was dropped, and reports an error then.
    pub(crate) fn drop_file(&self, rest: &Path) {
        let _ = self.remove_staged(rest);
        let _ = self.withdraw(rest);
    }

    /// Removes a file from the producers' folder. This is the first step of a drop: if the service is killed after it,
    /// the next service cannot publish the file again.
    pub(crate) fn remove_staged(&self, rest: &Path) -> io::Result<()> {
        if let Some(place) = self.layout.staged(rest)? {
            present(fs::remove_file(&*place))?;
        }
        Ok(())
    }

    /// Tells whether no process has this published file open or mapped.
    pub(crate) fn is_unused(&self, rest: &Path) -> io::Result<bool> {
        // A file that is only on a disk may be dropped at any time, because a process that has it open keeps its data.
        let Some(file) = ordinary(&self.layout.published.join(rest))? else {
            return Ok(self.layout.spilled.join(rest).exists());
        };
        lease::prove(&file, Proof::Alone).map_err(|e| e.reason())
    }

    /// Writes a line for `crossdock ls --files`: what happened to a name. The folders alone do not show it.
    /// A name with a line end is left out, because its second line would count as the event of another name.
    pub(crate) fn note(&self, word: &str, rest: &Path) {
        if rest.as_os_str().as_bytes().contains(&b'\n') {
            return;
        }
        let [inside, beside] = self.layout.events();
        let path = if self.is_limited { beside } else { inside };
        let short = fs::metadata(&path).map_or(true, |meta| meta.len() < EVENTS_MAX);
        let file = fs::open(OpenOptions::new().append(true).create(true).mode(0o644), &path);
        if let (true, Ok(file)) = (short, file) {
            // The line is one write, so that no reader sees a part of it. If the host's file system is full, the line
            // is lost.
            let _ = fs::write_all(&file, format!("{word}\t{}\n", rest.display()).as_bytes());
        }
    }

    /// Shows consumers a folder that a producer made.
    pub(crate) fn show_folder(&self, rest: &Path) -> io::Result<()> {
        self.faces().try_for_each(|folder| fs::create_dir_all(folder.join(rest)))
    }

    /// Removes a folder and the folders below it from the folders that consumers see. A folder that contains a file
    /// stays.
    pub(crate) fn remove_empty(&self, rest: &Path) {
        fn remove(folder: &Path) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove(&entry.path());
                }
            }
            let _ = fs::remove_dir(folder);
        }
        self.faces().for_each(|face| remove(&face.join(rest)));
    }

    /// Tells consumers that a file was published.
    pub(crate) fn tell_published(&self, rest: &Path) {
        let notice = &self.notice;
        notice.find(rest.as_os_str().as_bytes());
        notice.published.fetch_add(1, Ordering::Relaxed);
        notice.last_ns.store(clock::now_ns(), Ordering::Relaxed);
        self.tell();
        fault_point!("files.told");
    }

    /// Tells consumers that a file of another host will not come.
    pub(crate) fn tell_lost(&self, rest: &Path, why: LossReason) {
        self.notice.lose(rest.as_os_str().as_bytes(), why);
        self.tell();
    }

    /// Tells consumers that a file may come after all, because its lost host is back.
    pub(crate) fn tell_found(&self, rest: &Path) {
        self.notice.find_with_host(rest.as_os_str().as_bytes());
    }

    /// Tells consumers which host with producers does not answer.
    pub(crate) fn tell_silent(&self, silent: Option<&SilentHost>) {
        self.notice.tell_silent(silent);
    }

    pub(crate) fn tell_torn(&self) {
        self.notice.torn.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells consumers how many files of all hosts were not published because their writer was killed.
    pub(crate) fn set_torn(&self, torn: u64) {
        self.notice.torn.store(torn, Ordering::Relaxed);
    }

    /// Tells consumers whether the producers have started, have ended or have failed.
    pub(crate) fn tell_phase(&self, phase: Phase) {
        self.notice.phase.store(phase as u32, Ordering::Release);
        self.tell();
    }

    fn tell(&self) {
        let news = &self.notice.news;
        news.fetch_add(1, Ordering::Release);
        futex::wake_all(news);
    }
}

/// Opens an ordinary file for reading without following a link at the path's end. Returns `None` if there is no such
/// file.
pub(crate) fn ordinary(path: &Path) -> io::Result<Option<File>> {
    match file::open_ordinary(path) {
        Ok(file) => Ok(file.map(File::from)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives `None` if the operation failed because a file or folder does not exist.
pub(crate) fn present<T>(tried: io::Result<T>) -> io::Result<Option<T>> {
    match tried {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        tried => tried.map(Some),
    }
}

/// Tells whether `path` names the very file that `meta` describes (same device and inode).
pub(crate) fn same(path: &Path, meta: &fs::Metadata) -> io::Result<bool> {
    let there = present(fs::symlink_metadata(path))?;
    Ok(there.is_some_and(|there| (there.dev(), there.ino()) == (meta.dev(), meta.ino())))
}
