//! The managed directories whose files this process consumes. The launcher lists them in the environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_layout::refusal;
use crossdock_os::fork::PerProcess;

use super::notice::NoticeReader;

/// The environment variable that lists the managed directories of a process, one per line. The fields of a line are
/// separated by tabs: path, notice, deadline in milliseconds, and patterns of names, which are separated by spaces.
pub const VARIABLE: &str = "CROSSDOCK_FILES";

/// A managed directory whose files this process consumes.
#[derive(Debug)]
pub struct View {
    /// The path at which this process sees the published files: absolute, without a slash at its end.
    pub path: String,
    /// The path at which this process finds the directory's notice, the page that reports changes.
    notice: String,
    /// The longest time that a call waits for a file.
    pub deadline: Duration,
    /// The patterns of the file names that calls wait for; see [`View::awaits`].
    patterns: Vec<String>,
    /// The mapped notice. Each process maps the notice for itself, and so does a forked child. A `OnceLock` could not
    /// be used here: if another thread of the parent had locked the `OnceLock` during the fork, the child's copy would
    /// stay locked for ever.
    mapped: PerProcess<Option<NoticeReader>>,
}

/// All managed directories that this process consumes.
#[derive(Debug, Default)]
pub struct Views(Vec<View>);

impl Views {
    /// Reads the text of [`VARIABLE`].
    ///
    /// # Errors
    /// If a line cannot be read: a message that names the line and the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let line = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [path, notice, deadline, patterns] = fields[..] else {
                return Err(format!("{VARIABLE}: '{line}' has {} fields, not 4", fields.len()));
            };
            let ms: u64 = deadline.parse().map_err(|_| format!("{VARIABLE}: '{deadline}' is no number of ms"))?;
            if !path.starts_with('/') || path.len() < 2 {
                return Err(format!("{VARIABLE}: '{path}' is no absolute path of a folder"));
            }
            Ok(View {
                path: path.trim_end_matches('/').to_owned(),
                notice: notice.to_owned(),
                deadline: Duration::from_millis(ms),
                patterns: patterns.split(' ').filter(|p| !p.is_empty()).map(str::to_owned).collect(),
                mapped: PerProcess::new(),
            })
        };
        text.lines().filter(|l| !l.is_empty()).map(line).collect::<Result<_, _>>().map(Self)
    }

    /// Writes one line of [`VARIABLE`], in the form that [`Views::parse`] reads.
    #[must_use]
    pub fn line(path: &str, notice: &str, deadline: Duration, patterns: &[String]) -> String {
        format!("{path}\t{notice}\t{}\t{}", deadline.as_millis(), patterns.join(" "))
    }

    /// The managed directories of this process, read from its environment at the first call. The launcher has written
    /// the variable. If the variable's text is not valid, there are no directories.
    pub fn of_process() -> &'static Self {
        static OWN: PerProcess<Views> = PerProcess::new();
        let read = || std::env::var(VARIABLE).ok().and_then(|text| Self::parse(&text).ok()).unwrap_or_default();
        OWN.get_or_make(|| Some(read())).expect("the closure always makes one")
    }

    /// Tells whether this process consumes no managed directory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// If a directory's notice cannot be mapped, or has the layout of another version, says why calls cannot wait for
    /// files of this directory. The result is `None` if all notices can be used.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let view = self.0.iter().find(|view| view.notice().is_none())?;
        let View { path, notice, .. } = view;
        Some(format!("files of {path} are not awaited: {notice} is not there, or is of another version of crossdock"))
    }

    /// Finds the managed directory that contains an absolute, normalised path. Also returns the part of the path below
    /// that directory.
    #[must_use]
    pub fn find<'p>(&self, path: &'p [u8]) -> Option<(&View, &'p [u8])> {
        self.0.iter().find_map(|view| {
            let rest = path.strip_prefix(view.path.as_bytes())?.strip_prefix(b"/")?;
            (!rest.is_empty()).then_some((view, rest))
        })
    }
}

impl View {
    /// Tells whether a program's call waits for a file of this name, which is relative to the managed directory. No
    /// part of the name may begin with a dot. If there are patterns, the last part must match one of them. `*` stands
    /// for any characters, `?` for one.
    #[must_use]
    pub fn awaits(&self, rest: &[u8]) -> bool {
        let hidden = rest.split(|b| *b == b'/').any(|part| part.is_empty() || part[0] == b'.');
        let last = rest.rsplit(|b| *b == b'/').next().unwrap_or(rest);
        !hidden && (self.patterns.is_empty() || self.patterns.iter().any(|p| matches(p.as_bytes(), last)))
    }

    /// The path of the socket on which the service takes reports of refused writes. It lies in the same folder as the
    /// notice.
    pub(super) fn refusals(&self) -> PathBuf {
        Path::new(&self.notice).with_file_name(refusal::SOCKET)
    }

    /// The directory's notice, mapped at the first call; `None` if it cannot be mapped.
    pub(super) fn notice(&self) -> Option<&NoticeReader> {
        self.mapped.get_or_make(|| Some(NoticeReader::map(&self.notice).ok().flatten()))?.as_ref()
    }
}

/// Tells whether the name matches the pattern, in which `*` stands for any characters and `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // This is the usual algorithm for `*`, with one position in the pattern and one in the name: on a mismatch, the
    // last star takes one character more than before.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(patterns: &[&str]) -> Views {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        Views::parse(&Views::line("/data/frames/", "/run/n", Duration::from_secs(3), &patterns)).unwrap()
    }

    #[test]
    fn a_path_belongs_to_the_directory_that_it_lies_in() {
        let views = views(&[]);
        let (view, rest) = views.find(b"/data/frames/a/b.h5").unwrap();
        assert_eq!((view.path.as_str(), rest, view.deadline), ("/data/frames", &b"a/b.h5"[..], Duration::from_secs(3)));
        for other in [&b"/data/frames"[..], b"/data/frames/", b"/data/frames2/x", b"/data/x", b"/"] {
            assert!(views.find(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn hidden_names_and_names_without_a_pattern_are_not_awaited() {
        let all = views(&[]);
        let (view, _) = all.find(b"/data/frames/x").unwrap();
        assert!(view.awaits(b"a/b.h5"));
        assert!(!view.awaits(b".git/x") && !view.awaits(b"a/.tmp"));
        let some = views(&["*.h5", "step-??"]);
        let (view, _) = some.find(b"/data/frames/x").unwrap();
        for (name, awaited) in
            [("a.h5", true), ("a/b.h5", true), ("step-07", true), ("step-7", false), ("a.h5x", false)]
        {
            assert_eq!(view.awaits(name.as_bytes()), awaited, "{name}");
        }
        assert!(matches(b"a*b*c", b"aXXbYbZc") && !matches(b"a*b*c", b"aXXbYbZ") && matches(b"*", b""));
    }

    #[test]
    fn a_notice_that_is_not_there_is_told() {
        assert!(views(&[]).trouble().unwrap().contains("files of /data/frames are not awaited: /run/n is not there"));
        assert_eq!(Views::default().trouble(), None);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for bad in ["/data", "relative\t/n\t5\t", "/data\t/n\tsoon\t"] {
            assert!(Views::parse(bad).unwrap_err().contains(VARIABLE), "{bad}");
        }
        assert!(Views::parse("").unwrap().is_empty());
    }
}
