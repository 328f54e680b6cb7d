//! Raw TCP, the fastest way to get bytes from another node. Its time is the floor with which all other ways are
//! compared. A request of 16 bytes names the offset and the length, and `send` and `recv` carry the data.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// The connections of a client. Each of them transfers a part of the bytes of a pull.
#[derive(Debug)]
pub struct Streams(Vec<TcpStream>);

impl Streams {
    /// Connects `count` streams to a process that runs [`serve`].
    ///
    /// # Panics
    /// Panics if the process does not listen.
    #[must_use]
    pub fn connect(address: &str, count: usize) -> Self {
        let one = |_| {
            let stream = TcpStream::connect(address).expect("the peer listens");
            stream.set_nodelay(true).expect("TCP_NODELAY");
            stream
        };
        Self((0..count).map(one).collect())
    }

    /// Fills the memory with the first bytes that the peer serves. Each stream transfers a part.
    ///
    /// # Panics
    /// Panics if a connection ends.
    pub fn pull(&mut self, memory: &mut [u8]) {
        if let [stream] = &mut self.0[..] {
            return pull(stream, 0, memory);
        }
        let part = memory.len().div_ceil(self.0.len());
        std::thread::scope(|scope| {
            for (n, (stream, memory)) in self.0.iter_mut().zip(memory.chunks_mut(part)).enumerate() {
                scope.spawn(move || pull(stream, n * part, memory));
            }
        });
    }
}

fn pull(stream: &mut TcpStream, offset: usize, memory: &mut [u8]) {
    let mut asked = [0; 16];
    asked[..8].copy_from_slice(&(offset as u64).to_le_bytes());
    asked[8..].copy_from_slice(&(memory.len() as u64).to_le_bytes());
    stream.write_all(&asked).expect("asked");
    stream.read_exact(memory).expect("the bytes");
}

/// Serves each connection in a thread of its own, until the process ends.
///
/// # Panics
/// Panics if no connection can be accepted.
pub fn serve(listener: TcpListener, bytes: Arc<Vec<u8>>) {
    for stream in listener.incoming() {
        let (mut stream, bytes) = (stream.expect("a connection"), bytes.clone());
        stream.set_nodelay(true).expect("TCP_NODELAY");
        std::thread::spawn(move || {
            let mut asked = [0; 16];
            while stream.read_exact(&mut asked).is_ok() {
                let word = |at: usize| u64::from_le_bytes(asked[at..at + 8].try_into().expect("eight bytes")) as usize;
                let (offset, length) = (word(0), word(8));
                if stream.write_all(&bytes[offset..offset + length]).is_err() {
                    return;
                }
            }
        });
    }
}
