//! A view shows the published files of a managed directory as a file system of its own (FUSE). It is for programs that
//! a user starts on the host outside the workflow, and for tasks whose files may lie on a disk.
//!
//! If a process opens a name that does not exist yet, the view shows an empty file, and the open waits for the
//! publication. `readdir` lists only published files. The kernel reads and maps the very file that was published
//! (passthrough), so the view makes the open slower, but not the reading.
//!
//! The view waits in `open` and `getattr`, never in `lookup`, because a lookup that waits holds the kernel's lock of
//! the name's folder.
//!
//! What if the server is killed? Opens that wait fail with ECONNABORTED, and new opens with ENOTCONN. Descriptors that
//! are open still work. A shell that outlives the server then unmounts the view.

mod nodes;
mod server;

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_core::files::Views;
use crossdock_os::fs::{self, File};
use crossdock_os::mount::{self, MountRoot};
use crossdock_os::{file, spawn};
use fuser::{BackgroundSession, Config, Session, SessionACL};

pub use server::ViewCallbacks;
use server::{Server, Shared};

/// What a view shows, and how it waits for files.
#[derive(Debug)]
pub struct ViewOptions {
    /// The folders with the files. If a name is in several folders, the first of these folders counts. A wait looks
    /// only at the first folder of the list.
    pub faces: Vec<PathBuf>,
    /// The path at which programs see the view, for messages.
    pub seen_at: PathBuf,
    /// The path of the directory's notice.
    pub notice: PathBuf,
    /// How long an open waits at most for its file.
    pub wait: Duration,
    /// Patterns of the names that opens wait for; an empty list stands for all names.
    pub awaits: Vec<String>,
    /// The files that were moved from memory to a disk, each with the device and inode that the file had in memory.
    pub moved: MovedFiles,
}

/// Maps device and inode of a copy on disk to the device and inode that the file had in memory.
pub type MovedFiles = Arc<Mutex<std::collections::HashMap<(u64, u64), (u64, u64)>>>;

/// A mounted view. Dropping it removes the mount. Processes that have files of the view open keep them.
#[derive(Debug)]
pub struct View {
    at: PathBuf,
    /// True if the view made the folder `at`. In this case the view removes the folder when it ends.
    made: bool,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    /// The root of the mounted view. All calls that remove the mount name it by this descriptor and not by its path,
    /// because another process may have put a link to another mount into the path.
    root: MountRoot,
    guard: Child,
    /// The folder below the mount, locked for as long as this value lives, so that only one view is mounted on it.
    _folder: File,
}

impl View {
    /// Mounts a view on the empty folder `at`, which is made if it does not exist. The view reports each read, and each
    /// wait that ends without a file, to `callbacks`. The mount needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// The folder is not empty or cannot be made, another view is mounted on it, or the kernel has no FUSE or refuses
    /// the mount.
    pub fn mount(at: &Path, show: ViewOptions, callbacks: ViewCallbacks) -> io::Result<Self> {
        let named =
            |what: &str, error: &io::Error| io::Error::new(error.kind(), format!("{what} {}: {error}", at.display()));
        let taken = || {
            let message = format!("another view is mounted on {}; hint: name another folder", at.display());
            Err(io::Error::new(ErrorKind::ResourceBusy, message))
        };
        // A mount whose server was killed is removed first, because it would block the new mount.
        Self::unmount_dead(at);
        if mounted(at).is_some() {
            return taken();
        }
        let first = show.faces.first().ok_or_else(|| io::Error::other("a view of no folder"))?;
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| io::Error::other("a path is no UTF-8"));
        let line = Views::line(&text(first)?, &text(&show.notice)?, show.wait, &show.awaits);
        let views = Views::parse(&line).map_err(io::Error::other)?;
        if let Some(trouble) = views.trouble() {
            return Err(io::Error::other(trouble));
        }
        let shared = Arc::new(Shared::new(show.faces, show.seen_at, views, show.moved, callbacks));
        let made = match fs::create_dir(at) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(named("cannot make", &error)),
        };
        let folder = fs::make_and_open_folder(at).map_err(|e| named("cannot open", &e))?;
        if !made && fs::read_dir(fs::path_of(&folder)).map_err(|e| named("cannot read", &e))?.next().is_some() {
            return Err(io::Error::new(ErrorKind::DirectoryNotEmpty, format!("{} is not empty", at.display())));
        }
        // Another process may have mounted its view since the look above, so `folder` may be in this view. Some file
        // systems have no locks. On these, two views that are mounted at the same moment can cover each other.
        let in_view = MountRoot::of(&folder).is_ok_and(|root| is_view(&root));
        if in_view || matches!(file::try_lock(&folder), Ok(false)) {
            return taken();
        }
        match serve(&folder, shared.clone()) {
            Ok((session, root, guard)) => {
                Ok(Self { at: at.to_owned(), made, shared, session: Some(session), root, guard, _folder: folder })
            }
            Err(error) => {
                if made {
                    let _ = fs::remove_dir(at);
                }
                Err(named("cannot mount a view on", &error))
            }
        }
    }

    /// The id of the process that removes the mount if this process is killed.
    #[must_use]
    pub fn guard(&self) -> i32 {
        i32::try_from(self.guard.id()).unwrap_or(0)
    }

    /// Removes the mount on the folder `at`, if a view has made this mount and the view's server is dead.
    pub fn unmount_dead(at: &Path) {
        if let Some(root) = mounted(at).filter(MountRoot::is_dead) {
            root.unmount();
        }
    }
}

/// The source of a view's mount, as the kernel names it.
const SOURCE: &str = "crossdock";

/// Opens the mount on the folder `at`, if a view has made this mount. Another process may have changed the path since
/// then, and the path may lead to another mount.
fn mounted(at: &Path) -> Option<MountRoot> {
    MountRoot::open(at).ok().filter(is_view)
}

/// Tells whether a view has made this mount.
fn is_view(root: &MountRoot) -> bool {
    root.file_system().is_some_and(|(kind, source)| kind.starts_with("fuse") && source == SOURCE)
}

/// Makes a file system, serves it, and mounts it on an open folder.
fn serve(folder: &File, shared: Arc<Shared>) -> io::Result<(BackgroundSession, MountRoot, Child)> {
    let (requests, root) = mount::served(SOURCE, SOURCE)?;
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(2);
    config.clone_fd = true;
    let session = Session::spawn(Session::from_fd(Server(shared), requests, SessionACL::All, config)?)?;
    // The guard is started before the mount, so that a kill between these two steps cannot leave a mount behind.
    let mut guard = guard(&root)?;
    if let Err(error) = root.attach(folder) {
        let _ = guard.kill().and_then(|()| guard.wait());
        return Err(error.into());
    }
    Ok((session, root, guard))
}

/// Starts a shell that removes the mount when this process has ended in any way: the shell reads from a pipe that ends
/// with this process. Signals to this process's group do not reach the shell.
fn guard(root: &MountRoot) -> io::Result<Child> {
    // Descriptor 3 is the root of the mount. Without `-c`, umount of util-linux looks for the mount of the path itself:
    // if the view is gone, it removes the mount of /proc. Other programs of this name do not know `-c`, and end with 1.
    const SCRIPT: &str =
        "cat; umount -i -n -l -c -- /proc/self/fd/3; [ $? -ne 1 ] || umount -i -n -l -- /proc/self/fd/3";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]);
    spawn::inherit(&mut command, root.as_fd().try_clone_to_owned()?, 3);
    spawn::start(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0))
}

impl Drop for View {
    fn drop(&mut self) {
        self.shared.end();
        self.root.unmount();
        let _ = self.guard.kill().and_then(|()| self.guard.wait());
        // This call does not wait for the session's threads. The threads live until the last process has closed the
        // view's files, and a program outside the workflow may keep a file open for a long time.
        drop(self.session.take());
        if self.made {
            let _ = fs::remove_dir(&self.at);
        }
    }
}
