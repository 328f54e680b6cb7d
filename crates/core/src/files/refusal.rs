//! Refusing to write: a consumer only reads the files of a managed directory.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use super::Views;

/// The reason why a consumer cannot open a file for writing, for the log of the task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteRefusal {
    path: String,
    directory: String,
    /// The producers' names; `None` if the directory's notice cannot be read.
    producers: Option<String>,
}

impl Views {
    /// Gives the reason why this process cannot write the file at an absolute, normalised path. `None` if the file lies
    /// in no directory whose files this process reads.
    #[must_use]
    pub fn refuse_writing(&self, path: &[u8]) -> Option<WriteRefusal> {
        let (view, _) = self.find(path)?;
        Some(WriteRefusal {
            path: OsStr::from_bytes(path).to_string_lossy().into_owned(),
            directory: view.path.clone(),
            producers: view.notice().map(|notice| notice.producers()),
        })
    }
}

impl fmt::Display for WriteRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, directory, producers } = self;
        write!(f, "{path} cannot be opened for writing: this task only reads the files of {directory}")?;
        if let Some(producers) = producers {
            write!(f, " (written by {producers})")?;
        }
        write!(f, "; hint: open it for reading only, or write to another folder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_of_a_consumed_directory_may_not_be_written_and_other_files_may() {
        let views = Views::parse(&Views::line("/data/frames", "/no/notice", Duration::ZERO, &[])).unwrap();
        let refusal = views.refuse_writing(b"/data/frames/a/7.txt").unwrap().to_string();
        let wanted = "/data/frames/a/7.txt cannot be opened for writing: this task only reads the files of /data/frames; \
                      hint: open it for reading only, or write to another folder";
        assert_eq!(refusal, wanted);
        assert_eq!(views.refuse_writing(b"/data/other/7.txt"), None);
        assert_eq!(views.refuse_writing(b"/data/frames"), None);
    }
}
