//! Pipes, and plain `read` and `write` on descriptors that are no regular files, such as pipes and sockets.

use crate::error::{Context, OsError, OsResult};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

/// Makes a pipe and gives its reading end and its writing end. Reads never block; writes may block.
pub fn pipe() -> OsResult<(OwnedFd, OwnedFd)> {
    let (read, write) = sys::pipe::pipe_with(PipeFlags::CLOEXEC).context("pipe2", || "a pipe".into())?;
    rustix::io::ioctl_fionbio(&read, true).context("FIONBIO", || "a pipe".into())?;
    Ok((read, write))
}

/// Reads the bytes that are available. 0 bytes mean the end of the stream; `None` means that no bytes are available
/// yet.
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> OsResult<Option<usize>> {
    loop {
        match sys::io::read(&fd, &mut *buffer) {
            Ok(length) => return Ok(Some(length)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(OsError::new("read", "a pipe", errno)),
        }
    }
}

/// Writes some of these bytes and gives their number.
pub fn write(fd: impl AsFd, bytes: &[u8]) -> OsResult<usize> {
    loop {
        match sys::io::write(&fd, bytes) {
            Err(Errno::INTR) => {}
            other => return other.context("write", || "a pipe".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_yet_is_not_the_end() {
        let (from, to) = pipe().unwrap();
        let mut buffer = [0; 4];
        assert_eq!(read(&from, &mut buffer).unwrap(), None);
        assert_eq!(write(&to, b"ab").unwrap(), 2);
        assert_eq!(read(&from, &mut buffer).unwrap(), Some(2));
        drop(to);
        assert_eq!(read(&from, &mut buffer).unwrap(), Some(0));
    }
}
