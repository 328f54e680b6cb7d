//! The files of a daemon: a folder that belongs to its user, with the socket, the lock, the journal and the roll (the file
//! whose locks show which members live).

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_os::fs::{self, File, OpenOptions};
use crossdock_os::{Deadline, OsResult, file, process, socket};

use crate::ServeError;

/// The files of a daemon, together with their lock, which the daemon holds as long as this value exists.
/// [`DaemonFiles::leave`] removes the files.
#[derive(Debug)]
pub(crate) struct DaemonFiles {
    pub socket: PathBuf,
    pub journal: PathBuf,
    pub roll: PathBuf,
    folder: PathBuf,
    lock_path: PathBuf,
    lock: Option<File>,
    made_folder: bool,
    /// A listening socket that the service manager made. The daemon neither makes nor removes the socket's file.
    passed: Option<OwnedFd>,
}

impl DaemonFiles {
    /// Takes the lock, after making the folder if it does not exist.
    ///
    /// # Errors
    /// Another daemon has the lock, or the folder belongs to another user.
    pub fn take(socket: PathBuf) -> Result<Self, ServeError> {
        let folder =
            socket.parent().filter(|p| !p.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_owned);
        if let Some(above) = folder.parent().filter(|p| !p.as_os_str().is_empty() && !p.exists()) {
            fs::create_dir_all(above).map_err(|e| ServeError(format!("{} cannot be made: {e}", above.display())))?;
        }
        let made_folder = file::private_folder(&folder).map_err(|error| {
            ServeError(format!("the folder of the socket cannot be used: {error}; name another one with --socket"))
        })?;
        let beside = |end: &str| {
            let mut name = socket.file_name().unwrap_or_default().to_owned();
            name.push(end);
            folder.join(name)
        };
        let (lock_path, journal, roll) = (beside(".lock"), beside(".journal"), beside(".roll"));
        // The lock may be free in a moment, in two cases. A daemon that is just ending removes the lock's file while
        // this process opens it; then the next attempt makes a new file. Or a keeper was killed, and its broker, which
        // shares the lock, dies a moment later. On a busy node the broker's death can take long.
        let patience = Deadline::after(Duration::from_secs(10));
        while !patience.passed() {
            let mut how = OpenOptions::new();
            how.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut lock =
                fs::open(&how, &lock_path).map_err(|e| ServeError(format!("{}: {e}", lock_path.display())))?;
            if !file::try_lock(&lock).map_err(|e| ServeError(e.to_string()))? {
                let mut holder = String::new();
                lock.read_to_string(&mut holder).ok();
                let keeper = holder.trim().parse().ok().map(process::open_pidfd);
                let dead = match keeper {
                    Some(Ok(None)) => true,
                    Some(Ok(Some(pidfd))) => process::is_dead(pidfd),
                    _ => false,
                };
                if dead {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                let text = format!(
                    "another node daemon (process {}) serves {}; use it, end it, or name another --socket",
                    holder.trim(),
                    socket.display()
                );
                return Err(ServeError(text));
            }
            if !is_at(&lock, &lock_path) {
                continue;
            }
            lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).ok();
            return Ok(Self { socket, journal, roll, folder, lock_path, lock: Some(lock), made_folder, passed: None });
        }
        Err(ServeError(format!("the lock {} is not to be had", lock_path.display())))
    }

    /// Serves the socket that the service manager made, instead of a new one.
    pub fn with_listener(self, listener: OwnedFd) -> Self {
        Self { passed: Some(listener), ..self }
    }

    /// Listens at the socket. A dead daemon's socket file is removed first, which only the holder of the lock may do.
    pub fn listen(&self) -> OsResult<OwnedFd> {
        if let Some(passed) = &self.passed {
            return file::duplicate(passed);
        }
        let _ = fs::remove_file(&self.socket);
        socket::listen(&self.socket)
    }

    /// Removes all files of the daemon. For a private daemon it also removes the folder that the client library made.
    pub fn leave(mut self, private: bool) {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let own = self.made_folder || private && name.starts_with("crossdock");
        if self.passed.is_none() {
            let _ = fs::remove_file(&self.socket);
        }
        for path in [&self.journal, &self.journal.with_extension("new"), &self.roll, &self.lock_path] {
            let _ = fs::remove_file(path);
        }
        self.lock = None;
        if own {
            // The folder stays if another program has put something into it.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Tells whether the file `open` is the file that has the name `path`.
fn is_at(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (open.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}
