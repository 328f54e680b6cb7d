//! Decides what an event in a managed directory means, without system calls and without a clock. The service carries
//! out the decision.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crossdock_os::inotify::NameChange;

/// When a file counts as finished.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Publish {
    /// A file counts as finished when its last writer closes it, or when it is renamed into place. This is the default.
    #[default]
    Close,
    /// A file counts as finished only when it is renamed into place. Use this rule for programs that open and close a
    /// file several times while they write it.
    Rename,
    /// A file counts as finished when the producers have ended without an error.
    End,
    /// A file counts as finished when a marker is closed: another file that has the same name with this ending (for
    /// example `.done`). The marker itself is not published.
    Marker(String),
}

/// How long a published file stays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// Files stay until the run ends.
    #[default]
    All,
    /// Only the newest files stay, at most this number.
    Newest(usize),
    /// A file stays until each consumer has closed it after reading and no process has it open.
    Consumed {
        /// For each consumer: how often it reads each file, at least one time. The service only knows through which
        /// folder a file was read, and not which process of the consumer has read it. If one process opens the file
        /// twice, that counts as two reads, and two reads at the same moment can count as one read. Each rank that sees
        /// the directory in a folder of its own counts as a separate consumer.
        readers: Vec<u32>,
    },
}

/// What the service does about the name of a file or folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Publish the file if no process writes it.
    Publish,
    /// Publish the file unless its producer may still be inside the `open` that made it.
    PublishFound,
    /// Publish the file of this name. The event was about the marker of this file.
    PublishInstead(OsString),
    /// Remove the name from the folders that consumers see.
    Withdraw,
    /// Watch this new folder, show it to consumers, and look at the files that are already in it.
    Enter,
    Nothing,
}

impl Publish {
    /// Decides what the service does after the change `change` of the entry `name` in the folder `stage`.
    pub(crate) fn action(&self, change: NameChange, name: &OsStr, is_folder: bool) -> Action {
        match (change, is_folder) {
            (NameChange::Made | NameChange::Arrived, true) => Action::Enter,
            (NameChange::Removed | NameChange::Left, _) => Action::Withdraw,
            (NameChange::Closed, false) => match self {
                Self::Close => Action::Publish,
                Self::Marker(ending) => match name.as_bytes().strip_suffix(ending.as_bytes()) {
                    Some(finished) if !finished.is_empty() => {
                        Action::PublishInstead(OsStr::from_bytes(finished).to_owned())
                    }
                    _ => Action::Nothing,
                },
                Self::Rename | Self::End => Action::Nothing,
            },
            (NameChange::Arrived, false) => match self {
                Self::Close | Self::Rename => Action::Publish,
                Self::Marker(_) => self.action(NameChange::Closed, name, false),
                Self::End => Action::Nothing,
            },
            // A new name may be a hard link of a finished file. No close event follows in that case, so the service
            // looks at the file now.
            (NameChange::Made, false) if *self == Self::Close => Action::PublishFound,
            _ => Action::Nothing,
        }
    }

    /// Tells whether the service publishes a file that it finds without an event. The service finds such files at its
    /// start, and when the producers have ended well (then `at_end` is true). If a marker or a rename finishes a file,
    /// the file itself does not show whether it is finished: the service looks for the marker, or waits until the
    /// producers have ended.
    pub(crate) fn takes_found(&self, at_end: bool) -> bool {
        match self {
            Self::Close => true,
            Self::End => at_end,
            Self::Rename | Self::Marker(_) => false,
        }
    }
}

/// Tells whether a path has a hidden part, which is a name that begins with a dot. Editors, compilers and libraries
/// write hidden files beside the file that they make, and other programs do not read them.
pub(crate) fn is_hidden(rest: &Path) -> bool {
    rest.iter().any(|part| part.as_encoded_bytes().first() == Some(&b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_publish_takes_its_own_events() {
        let marker = Publish::Marker(".done".into());
        for (how, change, wanted) in [
            (&Publish::Close, NameChange::Closed, Action::Publish),
            (&Publish::Close, NameChange::Arrived, Action::Publish),
            (&Publish::Close, NameChange::Made, Action::PublishFound),
            (&Publish::Rename, NameChange::Closed, Action::Nothing),
            (&Publish::Rename, NameChange::Arrived, Action::Publish),
            (&Publish::Rename, NameChange::Made, Action::Nothing),
            (&Publish::End, NameChange::Closed, Action::Nothing),
            (&Publish::End, NameChange::Arrived, Action::Nothing),
            (&marker, NameChange::Closed, Action::Nothing),
        ] {
            assert_eq!(how.action(change, "a.h5".as_ref(), false), wanted, "{how:?} {change:?}");
        }
        let closed = |name: &[u8]| marker.action(NameChange::Closed, OsStr::from_bytes(name), false);
        assert_eq!(closed(b"a.h5.done"), Action::PublishInstead("a.h5".into()));
        assert_eq!(closed(b"\xe4.done"), Action::PublishInstead(OsStr::from_bytes(b"\xe4").to_owned()));
        assert_eq!(closed(b".done"), Action::Nothing);
        assert_eq!(marker.action(NameChange::Arrived, "a.done".as_ref(), false), Action::PublishInstead("a".into()));
        for how in [Publish::Close, Publish::Rename, Publish::End, marker] {
            assert_eq!(how.action(NameChange::Made, "d".as_ref(), true), Action::Enter);
            assert_eq!(how.action(NameChange::Removed, "a".as_ref(), false), Action::Withdraw);
            assert_eq!(how.action(NameChange::Left, "d".as_ref(), true), Action::Withdraw);
        }
    }

    #[test]
    fn hidden_names_are_not_published() {
        assert!(is_hidden(Path::new(".a")) && is_hidden(Path::new("a/.git/b")));
        assert!(!is_hidden(Path::new("a/b.c")));
    }
}
