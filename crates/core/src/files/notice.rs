//! The mapping of a notice: the page in which the service of a managed directory reports changes. A consumer maps it
//! for reading and checks it once. The service maps it for writing.

use std::os::fd::AsFd;
use std::path::Path;

use crossdock_layout::files::Notice;
use crossdock_os::{Access, Mapping, OsResult, file};

/// A consumer's mapping of a managed directory's notice. It lasts as long as this value.
#[derive(Debug)]
pub struct NoticeReader(Mapping);

impl NoticeReader {
    /// Maps the notice at this path; `None` if the file is not a notice of this build's layout.
    ///
    /// # Errors
    /// The system call that failed, if the file cannot be opened or mapped.
    pub fn map(path: impl AsRef<Path>) -> OsResult<Option<Self>> {
        let file = file::open_read_only(path.as_ref())?;
        let (size, _) = file::sizes(&file)?;
        if size < size_of::<Notice>() as u64 {
            return Ok(None);
        }
        let notice = Self(Mapping::new(file, size_of::<Notice>(), Access::Read)?);
        Ok(notice.is_valid().then_some(notice))
    }
}

/// The mapping through which the service of a managed directory writes the directory's notice.
#[derive(Debug)]
pub struct NoticeWriter(Mapping);

impl NoticeWriter {
    /// Maps a file for writing. The file must have at least the size of a notice.
    ///
    /// # Errors
    /// The system call that failed, if the file cannot be mapped.
    pub fn map(file: impl AsFd) -> OsResult<Self> {
        Mapping::new(file, size_of::<Notice>(), Access::ReadWrite).map(Self)
    }
}

impl std::ops::Deref for NoticeReader {
    type Target = Notice;

    fn deref(&self) -> &Notice {
        view(&self.0)
    }
}

impl std::ops::Deref for NoticeWriter {
    type Target = Notice;

    fn deref(&self) -> &Notice {
        view(&self.0)
    }
}

fn view(mapping: &Mapping) -> &Notice {
    // SAFETY: both kinds of mapping are as long as a notice and page-aligned, and the reference lives no longer than
    // the mapping; a notice is made of atomics, for which every bit pattern is a value, and of padding that is not
    // read.
    unsafe { mapping.start().cast::<Notice>().as_ref() }
}
