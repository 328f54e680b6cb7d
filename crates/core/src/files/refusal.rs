//! Explains why a program cannot change a file of a managed directory: a consumer only reads the directory's files,
//! and a producer cannot change a file that it has published.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossdock_layout::refusal;
use crossdock_os::{datagram, file};

use super::{Views, Watched};

/// What a program tried to do with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// The program tried to open the file for writing, or to truncate it.
    Write,
    /// The program tried to make a file, a folder or a link.
    Make,
    /// The program tried to remove a file or a folder.
    Remove,
    /// The program tried to rename a file or a folder from this path or to this path.
    Rename,
}

/// The reason why a program cannot change a file, for the log of the task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteRefusal {
    path: Vec<u8>,
    deed: Deed,
    cause: Cause,
    /// The path of the socket on which the directory's service takes reports of refused changes.
    socket: PathBuf,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Cause {
    /// The task only reads the files of `directory`. `producers` is `None` if the directory's notice cannot be read.
    OnlyReads { directory: String, producers: Option<String> },
    /// The file is published, so it is final. `ago` is the time since it was published, if that time is known.
    Published { ago: Option<Duration> },
}

impl Views {
    /// Gives the reason why this process cannot change the file at an absolute, normalised path. `None` if the file
    /// lies in no directory whose files this process reads.
    #[must_use]
    pub fn refuse(&self, deed: Deed, path: &[u8]) -> Option<WriteRefusal> {
        let (view, _) = self.find(path)?;
        let producers = view.notice().map(|notice| notice.producers());
        let cause = Cause::OnlyReads { directory: view.path.clone(), producers };
        Some(WriteRefusal { path: path.to_owned(), deed, cause, socket: view.refusals() })
    }
}

impl Watched {
    /// Gives the reason why this process cannot open the file at an absolute, normalised path for writing. `None` if
    /// the file lies in no watched directory, or if this process writes the directory's files and this file is not
    /// published. If this process only reads the directory, the path alone gives the reason. The function then does not
    /// look at the file, because this process sees the file through a view, where looking up a file may wait.
    #[must_use]
    pub fn refuse_writing(&self, path: &[u8]) -> Option<WriteRefusal> {
        let directory = self.find(path)?;
        let cause = match &directory.producers {
            Some(_) => Cause::OnlyReads { directory: directory.path.clone(), producers: directory.producers.clone() },
            None => {
                let name = CString::new(path).ok()?;
                let ago = super::watched::published(&name)?;
                if file::may_write(&name) {
                    return None;
                }
                Cause::Published { ago }
            }
        };
        Some(WriteRefusal { path: path.to_owned(), deed: Deed::Write, cause, socket: directory.socket.clone() })
    }
}

impl WriteRefusal {
    /// Reports the refusal to the service of the directory, for `crossdock ls --files`. This call never waits. If the
    /// service has no room for the message, the next message of this process includes this refusal in its count.
    pub fn report(&self) {
        static UNSENT: AtomicU64 = AtomicU64::new(0);
        let count = UNSENT.swap(0, Ordering::Relaxed).saturating_add(1);
        let message = refusal::write(count, &self.path);
        let is_sent = message.is_some_and(|message| datagram::send(&self.socket, &message).unwrap_or(false));
        if !is_sent {
            UNSENT.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for WriteRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        let what = match self.deed {
            Deed::Write => "opened for writing",
            Deed::Make => "made",
            Deed::Remove => "removed",
            Deed::Rename => "renamed",
        };
        write!(f, "{path} cannot be {what}: ")?;
        match &self.cause {
            Cause::OnlyReads { directory, producers } => {
                write!(f, "this task only reads the files of {directory}")?;
                if let Some(producers) = producers {
                    write!(f, " (written by {producers})")?;
                }
                let hint = match self.deed {
                    Deed::Write => "open it for reading only, or write to another folder",
                    _ => "change files of another folder",
                };
                write!(f, "; hint: {hint}")
            }
            Cause::Published { ago } => {
                write!(f, "it was published")?;
                if let Some(ago) = ago {
                    write!(f, " {:.1} s ago", ago.as_secs_f64())?;
                }
                let name = Path::new(OsStr::from_bytes(&self.path)).file_name().unwrap_or_default().to_string_lossy();
                write!(
                    f,
                    ", and a published file is final; hint: write a new name, or write `.{name}` and rename it to "
                )?;
                write!(f, "`{name}`; with `publish: rename` files are final only when they are renamed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_of_a_consumed_directory_may_not_be_written_and_other_files_may() {
        let views = Views::parse(&Views::line("/data/frames", "/no/notice", Duration::ZERO, &[])).unwrap();
        let refusal = views.refuse(Deed::Write, b"/data/frames/a/7.txt").unwrap();
        let wanted = "/data/frames/a/7.txt cannot be opened for writing: this task only reads the files of /data/frames; \
                      hint: open it for reading only, or write to another folder";
        assert_eq!(refusal.to_string(), wanted);
        assert_eq!(refusal.socket, Path::new("/no/refusals"));
        let removed = views.refuse(Deed::Remove, b"/data/frames/7.txt").unwrap().to_string();
        assert!(removed.starts_with("/data/frames/7.txt cannot be removed: this task only reads"), "{removed}");
        assert_eq!(views.refuse(Deed::Write, b"/data/other/7.txt"), None);
        assert_eq!(views.refuse(Deed::Write, b"/data/frames"), None);
    }

    #[test]
    fn only_a_published_file_of_a_producer_is_final_and_each_refusal_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (file, link) = (at("7.txt"), at("link"));
        let watched = Watched::parse(&Watched::line(folder.path().to_str().unwrap(), &at("socket"), None)).unwrap();
        let path = file.as_os_str().as_bytes();
        let published = || super::super::watched::published(&CString::new(path).unwrap());
        assert_eq!(published(), None, "there is no file");
        std::fs::write(&file, "whole").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o444)).unwrap();
        assert_eq!(published(), None, "the program itself made the file read-only");
        std::fs::hard_link(&file, &link).unwrap();
        let ago = published().unwrap();
        // The kernel lets root write any file, so nothing is refused to root.
        let is_root = crossdock_os::child::user() == 0;
        assert_eq!(watched.refuse_writing(path).is_none(), is_root);
        let refusal = WriteRefusal {
            path: path.to_owned(),
            deed: Deed::Write,
            cause: Cause::Published { ago },
            socket: at("socket"),
        };
        let text = refusal.to_string();
        let begin = format!("{} cannot be opened for writing: it was published 0.", file.display());
        assert!(text.starts_with(&begin) && text.contains("write `.7.txt` and rename it to `7.txt`"), "{text}");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(published(), None, "the file may be written");

        refusal.report();
        let socket = datagram::receiver(folder.path(), "socket").unwrap();
        refusal.report();
        let mut message = [0; refusal::MESSAGE_BYTES];
        let length = datagram::receive(&socket, &mut message).unwrap().unwrap();
        let (count, seen) = refusal::read(&message[..length]).unwrap();
        assert_eq!((count.unchecked_for_display(), seen), (2, path), "the first one counts, too");
    }

    #[test]
    fn a_consumer_behind_a_view_gets_the_same_reason() {
        let line = Watched::line("/data/frames", Path::new("/s"), Some("simulate"));
        let refusal = Watched::parse(&line).unwrap().refuse_writing(b"/data/frames/7.txt").unwrap().to_string();
        assert!(refusal.contains("this task only reads the files of /data/frames (written by simulate)"), "{refusal}");
    }
}
