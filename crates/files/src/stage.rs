//! Paths in the producers' folder, by which the service reaches files without following a symbolic link.
//!
//! A producer can replace a folder by a symbolic link at any moment, also between two calls of the service. A plain
//! path would then lead to files outside of the managed directory, where the service may have rights that the producer
//! lacks. So the service opens one folder after the other, never through a link, and reaches a file from the folder
//! that it has open. The service opens the folders with `O_PATH`, because the kernel does not report such an open to
//! the thread that answers opens. So the service need not wait for that thread.

use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crossdock_os::file;
use crossdock_os::fs;

use crate::store::{Layout, same};

/// A path to a name or a folder below the producers' folder. The path is valid as long as this value exists.
#[derive(Debug)]
pub(crate) struct StagedPath {
    /// The open folder to which the path refers; `None` if the path begins with `stage` itself, which no producer can
    /// replace.
    _folder: Option<OwnedFd>,
    path: PathBuf,
}

impl Deref for StagedPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl StagedPath {
    /// Wraps a path. No producer can replace the folders of this path, so no folder needs to be held open.
    fn of(path: PathBuf) -> Self {
        Self { _folder: None, path }
    }

    /// Gives the path of `name` in the folder `rest` below the folder `top`; `None` if there is no such folder, or if a
    /// part of `rest` is a symbolic link.
    fn below(top: &Path, rest: &Path, name: &Path) -> io::Result<Option<Self>> {
        let folder = match file::folder_below(top, rest) {
            Ok(folder) => folder,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let path = fs::path_of(&folder).join(name);
        Ok(Some(Self { _folder: Some(folder), path }))
    }

    /// Gives the path of the folder `rest` below the folder `top`; `None` if there is no such folder, or if a part of
    /// `rest` is a symbolic link.
    pub(crate) fn folder(top: &Path, rest: &Path) -> io::Result<Option<Self>> {
        if rest.as_os_str().is_empty() {
            return Ok(Some(Self::of(top.to_owned())));
        }
        Self::below(top, rest, Path::new("."))
    }
}

impl Layout {
    /// Gives the path of the name `rest` in the producers' folder; `None` if the folder above the name does not exist
    /// or is reached through a symbolic link. The last part of `rest` may be a symbolic link, so calls that use the
    /// path must not follow links.
    pub(crate) fn staged(&self, rest: &Path) -> io::Result<Option<StagedPath>> {
        match (rest.parent().filter(|folder| !folder.as_os_str().is_empty()), rest.file_name()) {
            (Some(folder), Some(name)) => StagedPath::below(&self.stage, folder, Path::new(name)),
            _ => Ok(Some(StagedPath::of(self.stage.join(rest)))),
        }
    }

    /// Gives the path of the folder `rest` in the producers' folder; `None` if there is no such folder.
    pub(crate) fn staged_folder(&self, rest: &Path) -> io::Result<Option<StagedPath>> {
        StagedPath::folder(&self.stage, rest)
    }

    /// Tells whether the name `rest` in the producers' folder belongs to the file that `meta` describes.
    ///
    /// # Errors
    /// A call failed, for example because descriptors are short, so it is not known whose the name is.
    pub(crate) fn is_staged(&self, rest: &Path, meta: &fs::Metadata) -> io::Result<bool> {
        self.staged(rest)?.map_or(Ok(false), |place| same(&place, meta))
    }
}
