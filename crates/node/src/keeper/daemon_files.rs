//! The files of a daemon: a folder that belongs to its user, with the socket, the lock, the journal and the roll (the file
//! whose locks show which members live).

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_os::fs::{self, File, OpenOptions};
use crossdock_os::{Deadline, OsResult, file, process, socket};

use super::Registry;
use crate::ServeError;
use crate::journal::Journal;

/// The files of a daemon, together with their lock, which the daemon holds as long as this value exists.
///
/// When a daemon that has served is told to end, [`DaemonFiles::leave`] removes all files. Every other end of a daemon
/// calls [`DaemonFiles::give_up`], because members of a former daemon may be alive: their objects belong to them, and
/// only the journal and the roll tell the next daemon so.
#[derive(Debug)]
pub(crate) struct DaemonFiles {
    pub socket: PathBuf,
    pub journal: PathBuf,
    pub roll: PathBuf,
    folder: PathBuf,
    lock_path: PathBuf,
    lock: Option<File>,
    made_folder: bool,
    /// True if a former daemon left its journal.
    found_journal: bool,
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
            if !fs::has_name(&lock, &lock_path).unwrap_or(false) {
                continue;
            }
            lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).ok();
            let found = fs::symlink_metadata(&journal);
            let found_journal = !found.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            let (lock, passed) = (Some(lock), None);
            return Ok(Self { socket, journal, roll, folder, lock_path, lock, made_folder, found_journal, passed });
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
    pub fn leave(self, private: bool) {
        if !self.are_ours() {
            return;
        }
        for path in [&self.journal, &self.journal.with_extension("new"), &self.roll] {
            let _ = fs::remove_file(path);
        }
        self.leave_state(private);
    }

    /// Removes the files of a daemon that could not start or could not continue. The journal and the roll stay for the
    /// next daemon if a former daemon left them, or if a member may be alive.
    pub fn give_up(self, private: bool) {
        if self.found_journal || self.may_have_members() {
            self.leave_state(private);
        } else {
            self.leave(private);
        }
    }

    /// Tells whether the files at these paths belong to this daemon. They do not if they were removed while the daemon ran;
    /// another daemon may have begun at the same paths since.
    pub fn are_ours(&self) -> bool {
        // If the kernel does not answer for lack of memory, nothing shows that another daemon has begun.
        self.lock.as_ref().is_none_or(|lock| fs::has_name(lock, &self.lock_path).unwrap_or(true))
    }

    /// Tells whether the journal names a member that is not proved dead.
    fn may_have_members(&self) -> bool {
        let lasting = match Journal::peek(&self.journal) {
            Ok(lasting) => lasting,
            Err(error) => return error.kind() != ErrorKind::NotFound,
        };
        let mut members = lasting.members.keys().chain(lasting.ghosts.keys()).peekable();
        if members.peek().is_none() {
            return false;
        }
        // The number of this keeper's lock on the roll; no keeper has the incarnation 0.
        match Registry::open(self, 0) {
            Ok(roll) => members.any(|member| !roll.reader.has_left(member.0)),
            Err(_) => true,
        }
    }

    /// Removes the files that a later daemon does not need, and the folder if nothing else is in it.
    fn leave_state(mut self, private: bool) {
        if !self.are_ours() {
            return;
        }
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let own = self.made_folder || private && name.starts_with("crossdock");
        if self.passed.is_none() {
            let _ = fs::remove_file(&self.socket);
        }
        let _ = fs::remove_file(&self.lock_path);
        self.lock = None;
        if own {
            // The folder stays if it has other files.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}
