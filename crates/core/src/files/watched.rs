//! The managed directories in which a process's opens for writing are watched, but in which no open waits for a file.
//! These are the directories into which the process writes as a producer, and those that it sees through a view as a
//! consumer. The launcher lists them in the environment.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crossdock_os::file;
use crossdock_os::fork::PerProcess;

/// The environment variable that lists the directories in which a process's opens for writing are watched, one per
/// line. The fields of a line are separated by tabs: the path of the directory, the path of the socket that takes
/// reports of refusals, and the producers' names if this process only reads the directory.
pub const WATCHED: &str = "CROSSDOCK_WATCHED";

/// All directories in which this process's opens for writing are watched.
#[derive(Debug, Default)]
pub struct Watched(Vec<Directory>);

#[derive(Debug)]
pub(super) struct Directory {
    /// The path at which this process sees the directory: absolute, without a slash at its end.
    pub path: String,
    /// The path of the socket on which the directory's service takes reports of refused writes.
    pub socket: PathBuf,
    /// The producers' names if this process only reads the directory; `None` if it writes the directory's files.
    pub producers: Option<String>,
}

impl Watched {
    /// Reads the text of [`WATCHED`].
    ///
    /// # Errors
    /// If a line cannot be read: a message that names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let line = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            let (path, socket, producers) = match fields[..] {
                [path, socket] => (path, socket, None),
                [path, socket, producers] => (path, socket, Some(producers.to_owned())),
                _ => return Err(format!("{WATCHED}: '{line}' has {} fields, not 2 or 3", fields.len())),
            };
            if !path.starts_with('/') || path.len() < 2 {
                return Err(format!("{WATCHED}: '{path}' is no absolute path of a folder"));
            }
            Ok(Directory { path: path.trim_end_matches('/').to_owned(), socket: socket.into(), producers })
        };
        text.lines().filter(|l| !l.is_empty()).map(line).collect::<Result<_, _>>().map(Self)
    }

    /// Writes one line of [`WATCHED`], in the form that [`Watched::parse`] reads. `producers` has the producers' names
    /// if the process only reads the directory.
    #[must_use]
    pub fn line(path: &str, socket: &Path, producers: Option<&str>) -> String {
        let producers = producers.map(|names| format!("\t{names}")).unwrap_or_default();
        format!("{path}\t{}{producers}", socket.display())
    }

    /// The directories of this process, read from its environment at the first call. If the variable's text is not
    /// valid, there are no directories.
    pub fn of_process() -> &'static Self {
        static OWN: PerProcess<Watched> = PerProcess::new();
        let read = || std::env::var(WATCHED).ok().and_then(|text| Self::parse(&text).ok()).unwrap_or_default();
        OWN.get_or_make(|| Some(read())).expect("the closure always makes one")
    }

    /// Tells whether there is no directory in which this process's opens for writing are watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the watched directory that an absolute, normalised path lies in.
    pub(super) fn find(&self, path: &[u8]) -> Option<&Directory> {
        let is_in = |folder: &str| {
            path.strip_prefix(folder.as_bytes()).is_some_and(|rest| rest.len() > 1 && rest.starts_with(b"/"))
        };
        self.0.iter().find(|directory| is_in(&directory.path))
    }
}

/// Tells for how long the file at this path of a producer's folder has been published. `None` if it is not published;
/// `Some(None)` if the clock was set back after it was published.
///
/// When the service publishes a file, it makes the file read-only and gives it a second name. So a file that is
/// read-only and has a second name counts as published.
pub(super) fn published(path: &CString) -> Option<Option<Duration>> {
    let seen = file::look(path).ok()?;
    let is_final = seen.is_ordinary && seen.mode & 0o222 == 0 && seen.links > 1;
    is_final.then(|| SystemTime::now().duration_since(seen.changed).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_directory_that_it_lies_in() {
        let lines = [Watched::line("/f", Path::new("/s"), None), Watched::line("/g/", Path::new("/t"), Some("a, b"))];
        let watched = Watched::parse(&lines.join("\n")).unwrap();
        let found = |path: &[u8]| watched.find(path).map(|d| (d.socket.to_str().unwrap(), d.producers.as_deref()));
        assert_eq!(found(b"/g/a/b"), Some(("/t", Some("a, b"))));
        assert_eq!(found(b"/f/a"), Some(("/s", None)));
        for other in [&b"/f"[..], b"/f/", b"/fa", b"/x"] {
            assert_eq!(found(other), None, "{other:?}");
        }
        assert!(Watched::parse("").unwrap().is_empty() && !watched.is_empty());
        for bad in ["/f", "f\t/s", "/\t/s", "/f\t/s\ta\tb"] {
            assert!(Watched::parse(bad).unwrap_err().contains(WATCHED), "{bad}");
        }
    }
}
