//! The folders of one managed directory on the host.
//!
//! ```text
//! ROOT/stage/       what producers see, writable
//! ROOT/published/   what consumers see, mounted read-only for them: links to finished files of `stage`
//! ROOT/for.N/       what the consumer N sees, where files go when all consumers have read them; else all see `published`
//! ROOT/events       why files were not published, and what was dropped: a line each
//! ROOT/spilled      where some files of `published` are moved to a disk: a link to the folder there (spill.rs)
//! ROOT/fetched/     a file of another host is filled here, before its rename into `published` (service/fetch.rs)
//! ROOT/new/         a link waits here for its rename into `published`, so that a file takes its name in one step
//! NOTICE            one page, mapped read-only by consumers (layout/files.rs); it may lie elsewhere
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crossdock_core::fault_point;
use crossdock_core::files::NoticeWriter;
use crossdock_layout::files::Phase;
use crossdock_os::lease::{self, Proof};
use crossdock_os::{clock, file, futex, mount};

/// Most bytes of a store's list of events.
const EVENTS_MAX: u64 = 1 << 20;

/// Where a checked build can kill the service; "files.copied" is only reached where consumers have folders of their own.
#[cfg(feature = "fault-points")]
pub const FAULT_POINTS: &[&str] =
    &["files.leased", "files.final", "files.linked", "files.copied", "files.shown", "files.renamed", "files.told"];

/// Where the parts of a store are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What producers see.
    pub stage: PathBuf,
    /// What consumers see, or, where each has a folder of its own, what is in all of these.
    pub published: PathBuf,
    /// Published files that were moved to a disk, if there are some.
    pub spilled: PathBuf,
    new: PathBuf,
    fetched: PathBuf,
    /// The folders of single consumers.
    single: Vec<PathBuf>,
    root: PathBuf,
}

/// The folders of one managed directory, and its notice mapped for writing.
#[derive(Debug)]
pub struct Store {
    /// Where its parts are.
    pub layout: Layout,
    notice: NoticeWriter,
    links: u64,
    /// Its memory has a limit of its own.
    pub(crate) is_limited: bool,
}

/// What an attempt to publish a file came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// Consumers see it now.
    Done,
    /// Consumers saw this very file already.
    Already,
    /// A process has it open or mapped for writing.
    Written,
    /// Its writer was killed while it had the file open.
    Torn,
    /// The directory's memory is used up, so the file may lack its end.
    Full,
    /// It is gone, or is no ordinary file.
    Nothing,
}

impl Layout {
    /// The parts of the store in this folder.
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

    /// What the consumer with this number sees.
    #[must_use]
    pub fn for_consumer(&self, number: usize) -> &Path {
        self.single.get(number).unwrap_or(&self.published)
    }

    /// The folders of single consumers.
    pub(crate) fn singles(&self) -> &[PathBuf] {
        &self.single
    }

    /// Where the service writes why files were not published.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.root.join("events")
    }
}

impl Store {
    /// Makes the store in this folder and the notice at that path, or takes over those that are there.
    ///
    /// # Errors
    /// A folder or the notice cannot be made; the error names it.
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
            match DirBuilder::new().mode(mode).create(path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(named(path, error)),
                _ => fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| named(path, e))?,
            }
        }
        let mut how = OpenOptions::new();
        let notice = how.read(true).write(true).create(true).truncate(false).mode(0o644).open(notice_path);
        let page = notice.and_then(|notice| {
            notice.set_len(4096)?;
            NoticeWriter::map(&notice).map_err(|e| e.reason())
        });
        let store = Self { notice: page.map_err(|e| named(notice_path, e))?, layout, links: 0, is_limited: false };
        if !store.notice.is_valid() {
            store.notice.format(producers);
        }
        store.clear_new()?;
        Ok(store)
    }

    /// Links and half-fetched files that a killed service left.
    fn clear_new(&self) -> io::Result<()> {
        for left in fs::read_dir(&self.layout.new)?.chain(fs::read_dir(&self.layout.fetched)?) {
            fs::remove_file(left?.path())?;
        }
        Ok(())
    }

    /// A free path in the folder where files of other hosts are filled.
    pub(crate) fn fetched(&mut self) -> PathBuf {
        self.links += 1;
        self.layout.fetched.join(self.links.to_string())
    }

    /// Publishes a file of `stage` under the same name if no process writes it. `rest` is relative to both folders.
    /// `is_torn` is asked once the lease has proved that no writer is left.
    pub(crate) fn publish(&mut self, rest: &Path, is_torn: &mut dyn FnMut() -> bool) -> io::Result<Attempt> {
        let (from, to) = (self.layout.stage.join(rest), self.layout.published.join(rest));
        let Some(file) = ordinary(&from)? else { return Ok(Attempt::Nothing) };
        let meta = file.metadata()?;
        if same(&to, &meta) {
            return Ok(Attempt::Already);
        }
        let file = OwnedFd::from(file);
        let Some(held) = lease::hold(&file, Proof::NoWriter).map_err(|e| e.reason())? else {
            return Ok(Attempt::Written);
        };
        if is_torn() {
            return Ok(Attempt::Torn);
        }
        if self.is_limited && mount::is_full(&self.layout.stage) {
            return Ok(Attempt::Full);
        }
        // No process may write what was published: an open for writing fails with EACCES from now on.
        fault_point!("files.leased");
        let mode = meta.mode() & 0o7555;
        fs::set_permissions(&from, fs::Permissions::from_mode(mode | 0o444))?;
        fault_point!("files.final");
        self.links += 1;
        let waiting = self.layout.new.join(self.links.to_string());
        let linked = fs::hard_link(&from, &waiting).and_then(|()| {
            let same_file = fs::symlink_metadata(&waiting)?.ino() == meta.ino();
            Ok(same_file && !held.is_being_broken())
        });
        fault_point!("files.linked");
        match linked {
            Ok(true) => {}
            // A process opened it for writing before its mode changed, or another file has taken the name.
            Ok(false) => {
                fs::remove_file(&waiting)?;
                fs::set_permissions(&from, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
                return Ok(Attempt::Written);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Attempt::Nothing),
            Err(error) => return Err(error),
        }
        self.show_everywhere(&waiting, rest).map(|()| Attempt::Done)
    }

    /// Gives a finished file that waits at `waiting` its name in all folders that consumers see.
    pub(crate) fn show_everywhere(&self, waiting: &Path, rest: &Path) -> io::Result<()> {
        let to = self.layout.published.join(rest);
        let shown = self.layout.single.iter().try_for_each(|folder| self.show(waiting, &folder.join(rest)));
        let shown = shown.and_then(|()| to.parent().map_or(Ok(()), fs::create_dir_all));
        fault_point!("files.shown");
        let shown = shown.and_then(|()| fs::rename(waiting, &to));
        fault_point!("files.renamed");
        if shown.is_err() {
            let _ = fs::remove_file(waiting);
        }
        shown
    }

    /// Links a file into one consumer's folder, in one step.
    fn show(&self, file: &Path, to: &Path) -> io::Result<()> {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let copy = file.with_extension("single");
        fs::hard_link(file, &copy)?;
        fault_point!("files.copied");
        let renamed = fs::rename(&copy, to);
        // A rename between two links of one file does nothing, and leaves both.
        let _ = fs::remove_file(&copy);
        renamed
    }

    /// The folders in which consumers see files.
    fn faces(&self) -> impl Iterator<Item = &PathBuf> {
        self.layout.single.iter().chain([&self.layout.published])
    }

    /// How many bytes of the store's own memory are in use.
    pub(crate) fn used(&self) -> u64 {
        mount::used(&self.layout.stage)
    }

    /// Takes a name away from consumers; those that have the file open keep it.
    pub(crate) fn withdraw(&self, rest: &Path) -> io::Result<()> {
        // The copy on a disk goes last: a view shows the file as long as it is anywhere.
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

    /// No process has this published file open or mapped.
    pub(crate) fn is_unused(&self, rest: &Path) -> io::Result<bool> {
        // A file on a disk is held by those that have it open, also without its name.
        let Some(file) = ordinary(&self.layout.published.join(rest))? else {
            return Ok(self.layout.spilled.join(rest).exists());
        };
        lease::prove(&file, Proof::Alone).map_err(|e| e.reason())
    }

    /// Writes a line for `crossdock ls --files`: what happened to a name, which is not seen from the folders.
    pub(crate) fn note(&self, word: &str, rest: &Path) {
        use std::io::Write;
        let path = self.layout.events();
        let short = fs::metadata(&path).map_or(true, |meta| meta.len() < EVENTS_MAX);
        let file = OpenOptions::new().append(true).create(true).mode(0o644).open(&path);
        if let (true, Ok(mut file)) = (short, file) {
            // One write, so that no reader sees half a line. A full file system loses it; the report has it too.
            let _ = file.write_all(format!("{word}\t{}\n", rest.display()).as_bytes());
        }
    }

    /// Shows consumers a folder that a producer made.
    pub(crate) fn show_folder(&self, rest: &Path) -> io::Result<()> {
        self.faces().try_for_each(|folder| fs::create_dir_all(folder.join(rest)))
    }

    /// Takes a folder away from consumers, with the folders below it, as far as no file is in them.
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
    pub(crate) fn tell_published(&self) {
        let notice = &self.notice;
        notice.published.fetch_add(1, Ordering::Relaxed);
        notice.last_ns.store(clock::now_ns(), Ordering::Relaxed);
        self.tell();
        fault_point!("files.told");
    }

    pub(crate) fn tell_torn(&self) {
        self.notice.torn.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells consumers how many files of all hosts were not published because their writer was killed.
    pub(crate) fn set_torn(&self, torn: u64) {
        self.notice.torn.store(torn, Ordering::Relaxed);
    }

    /// Tells consumers what the producers do.
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

/// An ordinary file, opened for reading without following a link at its end; `None` if there is none.
pub(crate) fn ordinary(path: &Path) -> io::Result<Option<File>> {
    match file::open_ordinary(path) {
        Ok(file) => Ok(file.map(File::from)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(io::Error::new(error.reason().kind(), error.to_string())),
    }
}

pub(crate) fn same(path: &Path, meta: &fs::Metadata) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (meta.dev(), meta.ino()))
}
