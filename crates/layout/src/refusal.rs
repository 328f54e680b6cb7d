//! The message by which a task reports that it could not write to a managed directory: the number of refusals (8
//! bytes, little-endian), and the absolute path of the last refused name.
//!
//! The task sends the message to the datagram socket [`SOCKET`] in the folder of its endpoint. Each task has a socket
//! of its own, so the receiver knows which task has sent the message. The receiver checks everything else.

use crate::Wild;

/// The name of the socket, in the folder of a task's endpoint, to which the task sends the message.
pub const SOCKET: &str = "refusals";
/// The greatest length of the message about refused writes, in bytes.
pub const MESSAGE_BYTES: usize = 8 + 4096;

/// Encodes the message. `count` is the number of refusals since the last message that the task sent. Gives `None` if
/// the path is longer than the kernel accepts.
pub fn write(count: u64, path: &[u8]) -> Option<Vec<u8>> {
    let message = [&count.to_le_bytes(), path].concat();
    (message.len() <= MESSAGE_BYTES).then_some(message)
}

/// Decodes a message that [`write`] made: the number of refusals, and the path. Gives `None` if the bytes have another
/// form.
pub fn read(bytes: &[u8]) -> Option<(Wild<u64>, &[u8])> {
    let (count, path) = bytes.split_first_chunk::<8>()?;
    let is_path = path.first() == Some(&b'/') && !path.contains(&0) && bytes.len() <= MESSAGE_BYTES;
    is_path.then(|| (Wild::new(u64::from_le_bytes(*count)), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_other_bytes_are_refused() {
        let message = write(3, b"/data/frames/7.txt").unwrap();
        assert_eq!(&message[..9], b"\x03\0\0\0\0\0\0\0/");
        let (count, path) = read(&message).unwrap();
        assert_eq!((count.unchecked_for_display(), path), (3, &b"/data/frames/7.txt"[..]));
        for bad in [&message[..8], &message[..7], b"", b"12345678relative", b"12345678/a\0b"] {
            assert!(read(bad).is_none(), "{bad:?}");
        }
        let long = [&b"/"[..], &[b'x'; 4096]].concat();
        assert!(write(1, &long).is_none() && read(&[&message[..8], &long].concat()).is_none());
        assert!(read(&write(1, &long[..4096]).unwrap()).is_some());
    }
}
