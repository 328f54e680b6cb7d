//! A TCP connection inside TLS 1.3, through the unbuffered interface of rustls. Bytes from the peer are read in large
//! pieces and decrypted in place. Bytes for the peer are encrypted into one buffer and sent with one call.
//!
//! The connection's TLS state is one object behind one lock. No thread waits for the network while it holds this
//! lock. Two rules keep the TLS records in order. First, a thread sends records only while it holds the one [`Turn`]
//! of `writers`. Second, records that the TLS state itself wants to send (`pending`) are sent before any that are
//! encrypted later.

use crate::certificates::{Certificates, HTTP2};
use crate::connection::{Plain, TCP};
use crate::{Error, Result, Stream};
use crossdock_layout::Status;
use crossdock_os::Deadline;
use crossdock_os::turns::{Turn, Turns};
use rustls::client::{UnbufferedClientConnection, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ParsedCertificate, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The size of the buffer for encrypted bytes from the peer. It has room for about sixteen TLS records, so that one
/// system call can read several of them.
const INCOMING: usize = 256 << 10;
/// The maximum number of bytes of plain text that are encrypted and sent with one call.
const AT_ONCE: usize = 256 << 10;
/// The number of bytes of plain text in a full TLS record.
const RECORD: usize = 16 << 10;
/// The maximum time for sending the notice that the stream ends, when a connection is closed.
const FAREWELL: Duration = Duration::from_millis(200);

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What a connection inside TLS carries. The dialing side asks for HTTP/2 in the TLS handshake (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The messages between nodes.
    Messages,
    /// HTTP/2. Its calls carry the messages.
    #[cfg(feature = "grpc")]
    Http2,
}

/// The TLS state, and the bytes that have arrived but are not processed yet.
struct State {
    side: Side,
    incoming: Vec<u8>,
    start: usize,
    end: usize,
    /// Decrypted bytes for which the reader's buffer had no room.
    left: Vec<u8>,
    left_from: usize,
    /// TLS records that rustls made by itself, such as those of the handshake, and that are not sent yet.
    pending: Vec<u8>,
    /// True if the peer has said that it sends no more bytes.
    ended: bool,
    /// The reason why TLS refused the peer, if it did. After a refusal `side` must not be used again.
    refused: Option<String>,
}

/// Where decrypted bytes go: into `buffer`, and into `left` when `buffer` is full.
struct Sink<'a> {
    buffer: &'a mut [u8],
    filled: usize,
    left: &'a mut Vec<u8>,
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(self.buffer.len() - self.filled);
        self.buffer[self.filled..self.filled + fits].copy_from_slice(&bytes[..fits]);
        self.filled += fits;
        self.left.extend_from_slice(&bytes[fits..]);
    }

    fn is_full(&self) -> bool {
        self.filled == self.buffer.len()
    }
}

/// What the caller wants to do as soon as the TLS state allows sending.
enum PendingSend<'a> {
    Nothing,
    Encrypt(&'a [u8], &'a mut Vec<u8>),
    Farewell(&'a mut Vec<u8>),
}

/// Why TLS refuses the peer, and whether an alert for the peer is to be sent.
type Refused = (String, bool);

/// The outcome of processing the bytes that have arrived.
#[derive(PartialEq, Eq)]
enum TlsProgress {
    /// One step is done, and the next step can follow immediately.
    On,
    /// More bytes from the peer are needed.
    Dry,
    /// Nothing more can be done. Either the bytes that the caller wants to send are encrypted, or the connection has
    /// ended in both directions. If the connection has ended, nothing was encrypted.
    Done,
    /// The peer has said that it sends no more bytes. This side can still send bytes.
    Ended,
}

/// Calls `write` with `guess` bytes of room at the end of `out`, and keeps the bytes that `write` wrote there. If
/// `write` asks for more room, it is called a second time, with as much room as it asked for.
fn append(
    out: &mut Vec<u8>,
    guess: usize,
    mut write: impl FnMut(&mut [u8]) -> std::result::Result<usize, Option<usize>>,
) -> std::result::Result<(), &'static str> {
    let from = out.len();
    let mut room = guess;
    loop {
        out.resize(from + room, 0);
        match write(&mut out[from..]) {
            Ok(written) => {
                out.truncate(from + written);
                return Ok(());
            }
            Err(Some(more)) if more > room => room = more,
            Err(_) => {
                out.truncate(from);
                return Err("the key of this connection is used up");
            }
        }
    }
}

const fn encrypt_room(error: &EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
        EncryptError::EncryptExhausted => None,
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    sink: &mut Sink<'_>,
    pending: &mut Vec<u8>,
    want: &mut PendingSend<'_>,
) -> std::result::Result<(usize, TlsProgress), Refused> {
    let UnbufferedStatus { mut discard, state } = status;
    let refused = |error: rustls::Error| {
        let speaks = matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented);
        (error.to_string(), speaks)
    };
    let silent = |reason: &str| (reason.to_owned(), false);
    let came = match state.map_err(refused)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(refused)?;
                discard += record.discard;
                sink.put(record.payload);
            }
            TlsProgress::On
        }
        ConnectionState::EncodeTlsData(mut data) => {
            append(pending, 1024, |room| {
                data.encode(room).map_err(|error| match error {
                    EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => Some(required_size),
                    EncodeError::AlreadyEncoded => None,
                })
            })
            .map_err(silent)?;
            TlsProgress::On
        }
        ConnectionState::TransmitTlsData(data) => {
            // The records that rustls wants to send are in `pending` already. They are sent before any record that is
            // encrypted later.
            data.done();
            TlsProgress::On
        }
        ConnectionState::BlockedHandshake => TlsProgress::Dry,
        ConnectionState::WriteTraffic(mut traffic) => match want {
            PendingSend::Nothing => TlsProgress::Dry,
            PendingSend::Encrypt(plain, out) => {
                out.append(pending);
                let guess = plain.len() + (plain.len() / RECORD + 1) * 64;
                append(out, guess, |room| traffic.encrypt(plain, room).map_err(|error| encrypt_room(&error)))
                    .map_err(silent)?;
                TlsProgress::Done
            }
            PendingSend::Farewell(out) => {
                out.append(pending);
                append(out, 64, |room| traffic.queue_close_notify(room).map_err(|error| encrypt_room(&error)))
                    .map_err(silent)?;
                TlsProgress::Done
            }
        },
        // The peer sends no more bytes, but can still receive bytes. So only the direction from the peer to this side
        // has ended.
        ConnectionState::PeerClosed => TlsProgress::Ended,
        ConnectionState::Closed => TlsProgress::Done,
        _ => return Err(silent("the peer sent data before it was known")),
    };
    Ok((discard, came))
}

impl State {
    fn new(side: Side) -> Self {
        let incoming = vec![0; INCOMING];
        Self {
            side,
            incoming,
            start: 0,
            end: 0,
            left: vec![],
            left_from: 0,
            pending: vec![],
            ended: false,
            refused: None,
        }
    }

    /// Decrypts, into `buffer`, the bytes that have arrived, and encrypts what `want` names. Stops when `buffer` is
    /// full, when `want` is done, or when more bytes from the peer are needed. Returns how many bytes of `buffer` were
    /// filled, and why the processing stopped.
    fn look(&mut self, buffer: &mut [u8], want: PendingSend<'_>) -> std::result::Result<(usize, TlsProgress), String> {
        if let Some(reason) = &self.refused {
            return Err(reason.clone());
        }
        let looked = self.look_on(buffer, want);
        if let Err((reason, speaks)) = looked {
            if speaks {
                self.take_alert();
            }
            self.refused = Some(reason.clone());
            return Err(reason);
        }
        looked.map_err(|(reason, _)| reason)
    }

    /// Puts into `pending` the alert that tells the peer why its certificate is refused. Rustls has queued the alert,
    /// and hands it out before it processes further bytes. Rustls gets no bytes here, because it would refuse the same
    /// bytes once more.
    fn take_alert(&mut self) {
        let mut sink = Sink { buffer: &mut [], filled: 0, left: &mut self.left };
        let _ = match &mut self.side {
            Side::Client(side) => {
                step(side.process_tls_records(&mut []), &mut sink, &mut self.pending, &mut PendingSend::Nothing)
            }
            Side::Server(side) => {
                step(side.process_tls_records(&mut []), &mut sink, &mut self.pending, &mut PendingSend::Nothing)
            }
        };
    }

    fn look_on(
        &mut self,
        buffer: &mut [u8],
        mut want: PendingSend<'_>,
    ) -> std::result::Result<(usize, TlsProgress), Refused> {
        let mut sink = Sink { buffer, filled: 0, left: &mut self.left };
        loop {
            let came = &mut self.incoming[self.start..self.end];
            let (discard, came) = match &mut self.side {
                Side::Client(side) => step(side.process_tls_records(came), &mut sink, &mut self.pending, &mut want)?,
                Side::Server(side) => step(side.process_tls_records(came), &mut sink, &mut self.pending, &mut want)?,
            };
            self.start += discard;
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            }
            match came {
                TlsProgress::Ended => self.ended = true,
                TlsProgress::On => {}
                TlsProgress::Dry | TlsProgress::Done => return Ok((sink.filled, came)),
            }
            if matches!(want, PendingSend::Nothing) && sink.is_full() && !sink.buffer.is_empty() {
                return Ok((sink.filled, TlsProgress::On));
            }
        }
    }

    fn is_handshaking(&self) -> bool {
        match &self.side {
            Side::Client(side) => side.is_handshaking(),
            Side::Server(side) => side.is_handshaking(),
        }
    }

    /// The free part of the buffer `incoming`; `None` if the buffer is full.
    fn room(&mut self) -> Option<&mut [u8]> {
        if self.end == self.incoming.len() {
            self.incoming.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = &mut self.incoming[self.end..];
        if room.is_empty() { None } else { Some(room) }
    }
}

/// A connection inside TLS, after both sides have proved their names.
pub struct Tls {
    plain: Plain,
    state: Mutex<State>,
    /// Lets one thread at a time send.
    writers: Turns,
    /// The encrypted records that are sent next. Only the thread that holds the [`Turn`] of `writers` uses them. On a
    /// connection for gRPC, only the event loop uses them.
    out: Mutex<Vec<u8>>,
    peer: CertificateDer<'static>,
    is_http2: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("address", &self.plain.address).finish_non_exhaustive()
    }
}

const HINT: &str =
    "both nodes need TLS, and certificates of the same authority that are valid now; see docs/transports.md";

/// Makes the TLS handshake with a server, which must prove that it is `node`.
pub fn connect(plain: Plain, own: &Certificates, node: &str, protocol: Protocol, deadline: Deadline) -> Result<Tls> {
    let config = match protocol {
        Protocol::Messages => &own.client,
        #[cfg(feature = "grpc")]
        Protocol::Http2 => &own.client_of_http2,
    };
    let name = ServerName::try_from(node.to_owned());
    let name = name.map_err(|_| Error::new(Status::Invalid, "connect", format!("'{node}' is no node's name")))?;
    let side = UnbufferedClientConnection::new(config.clone(), name)
        .map_err(|error| Error::new(Status::System, "connect", error.to_string()))?;
    greet("connect", plain, Side::Client(side), deadline)
}

/// Makes the TLS handshake with a client, which must prove that it is a node.
pub fn accept(plain: Plain, own: &Certificates, deadline: Deadline) -> Result<Tls> {
    let side = UnbufferedServerConnection::new(own.server.clone())
        .map_err(|error| Error::new(Status::System, "accept", error.to_string()))?;
    greet("accept", plain, Side::Server(side), deadline)
}

fn greet(tried: &str, plain: Plain, side: Side, deadline: Deadline) -> Result<Tls> {
    let mut state = State::new(side);
    let refused =
        |reason: String| Error::new(Status::Denied, tried, format!("TLS: {reason}")).at(&plain.address).hint(HINT);
    loop {
        let looked = state.look(&mut [], PendingSend::Nothing);
        // `pending` contains records of the handshake or, if the peer is refused, the alert that tells the peer why.
        if !state.pending.is_empty() {
            let sent = plain.write(&[&state.pending], deadline);
            state.pending.clear();
            if looked.is_ok() {
                sent?;
            }
        }
        looked.map_err(refused)?;
        if !state.is_handshaking() {
            break;
        }
        let Some(room) = state.room() else { return Err(refused("the greeting does not end".to_owned())) };
        match plain.take(room)? {
            Some(0) => {
                let reason = "the peer closed during the greeting of TLS";
                return Err(Error::new(Status::Disconnected, tried, reason).at(&plain.address).hint(HINT));
            }
            Some(read) => state.end += read,
            None => plain.wait(deadline).map_err(|error| error.trying(format!("{tried}: greeting")))?,
        }
    }
    let (peer, protocol) = match &state.side {
        Side::Client(side) => (side.peer_certificates(), side.alpn_protocol()),
        Side::Server(side) => (side.peer_certificates(), side.alpn_protocol()),
    };
    let is_http2 = protocol == Some(HTTP2);
    let Some(peer) = peer.and_then(|chain| chain.first()).cloned().map(CertificateDer::into_owned) else {
        return Err(refused("the peer has no certificate".to_owned()));
    };
    Ok(Tls { plain, state: Mutex::new(state), writers: Turns::default(), out: Mutex::new(Vec::new()), peer, is_http2 })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls that the event loop of gRPC makes. On one connection, either these calls are used or those of [`Stream`].
#[cfg(feature = "grpc")]
impl Tls {
    /// Reads decrypted bytes that have arrived; `None` if none have, 0 if the peer ended the stream properly.
    pub fn take(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let (read, wants_to_send) = {
            let mut state = lock(&self.state);
            (self.read_now(&mut state, buffer), !state.pending.is_empty())
        };
        if wants_to_send {
            let flushed = self.flush_now();
            if read.is_ok() {
                flushed?;
            }
        }
        read
    }

    /// Encrypts some of the bytes of `parts`, and sends what the socket has room for. Gives `None` if the socket has no
    /// room.
    pub fn give(&self, parts: &[&[u8]]) -> Result<Option<usize>> {
        if !self.flush_now()? {
            return Ok(None);
        }
        let mut plain = Vec::new();
        for part in parts {
            let taken = part.len().min(AT_ONCE - plain.len());
            plain.extend_from_slice(&part[..taken]);
        }
        if plain.is_empty() {
            return Ok(Some(0));
        }
        let mut out = lock(&self.out);
        let looked = lock(&self.state).look(&mut [], PendingSend::Encrypt(&plain, &mut out));
        match looked {
            Ok((_, TlsProgress::Done)) => {}
            Ok(_) => {
                return Err(Error::new(Status::Disconnected, "write", "the stream has ended").at(self.address()));
            }
            Err(reason) => return Err(self.refused("write", reason)),
        }
        drop(out);
        self.flush_now()?;
        Ok(Some(plain.len()))
    }

    /// Sends as much of the encrypted records in `out` as the socket has room for. Returns `true` if all of them have
    /// gone to the socket.
    pub fn flush_now(&self) -> Result<bool> {
        let mut out = lock(&self.out);
        out.append(&mut lock(&self.state).pending);
        let mut sent = 0;
        while sent < out.len() {
            match self.plain.give(&[&out[sent..]])? {
                Some(more) => sent += more,
                None => break,
            }
        }
        out.drain(..sent);
        Ok(out.is_empty())
    }

    pub const fn socket(&self) -> &std::os::fd::OwnedFd {
        &self.plain.socket
    }
}

impl Tls {
    /// Tells whether the two nodes agreed in the TLS handshake that the connection carries HTTP/2.
    pub const fn is_http2(&self) -> bool {
        self.is_http2
    }

    fn refused(&self, tried: &str, reason: String) -> Error {
        Error::new(Status::Denied, tried, format!("TLS: {reason}")).at(&self.plain.address).hint(HINT)
    }

    /// Reads decrypted bytes that have arrived; `None` if none have.
    fn read_now(&self, state: &mut State, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            if state.left_from < state.left.len() {
                let taken = buffer.len().min(state.left.len() - state.left_from);
                buffer[..taken].copy_from_slice(&state.left[state.left_from..state.left_from + taken]);
                state.left_from += taken;
                return Ok(Some(taken));
            }
            state.left.clear();
            state.left_from = 0;
            let refused = |reason| self.refused("read", reason);
            let (filled, _) = state.look(buffer, PendingSend::Nothing).map_err(refused)?;
            if filled > 0 || state.ended {
                return Ok(Some(filled));
            }
            let Some(room) = state.room() else { return Err(self.refused("read", "a record is too long".to_owned())) };
            match self.plain.take(room)? {
                Some(0) => {
                    let reason = "the connection was cut without a farewell";
                    return Err(Error::new(Status::Disconnected, "read", reason).at(&self.plain.address));
                }
                Some(read) => state.end += read,
                None => return Ok(None),
            }
        }
    }

    /// Sends the records in `pending`, which rustls made by itself.
    fn flush(&self, _turn: &Turn<'_>, deadline: Deadline) -> Result<()> {
        let mut out = lock(&self.out);
        out.clear();
        out.append(&mut lock(&self.state).pending);
        if out.is_empty() { Ok(()) } else { self.plain.write(&[&out], deadline) }
    }

    /// Encrypts a piece of plain text into `out` and sends it.
    fn write_piece(&self, piece: &[u8], out: &mut Vec<u8>, deadline: Deadline) -> Result<()> {
        out.clear();
        let looked = lock(&self.state).look(&mut [], PendingSend::Encrypt(piece, out));
        match looked {
            Ok((_, TlsProgress::Done)) if !out.is_empty() => self.plain.write(&[out], deadline),
            Ok(_) => Err(Error::new(Status::Disconnected, "write", "the stream has ended").at(&self.plain.address)),
            Err(reason) => {
                self.plain.close();
                Err(self.refused("write", reason))
            }
        }
    }
}

impl Stream for Tls {
    fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize> {
        assert!(!buffer.is_empty(), "a read into nothing cannot be told from the end");
        loop {
            let (read, wants_to_send) = {
                let mut state = lock(&self.state);
                (self.read_now(&mut state, buffer), !state.pending.is_empty())
            };
            if wants_to_send {
                // A read seldom has records to send: only if rustls announces new keys, or sends an alert that tells
                // the peer why it is refused. If another thread is sending, a successful read does not wait until it
                // may send. The other thread's next write, or the next read, then sends the records. A read that failed
                // waits, because it ends the connection.
                let turn = if read.is_ok() { self.writers.try_take() } else { self.writers.take(deadline) };
                let flushed = turn.map_or(Ok(()), |turn| self.flush(&turn, deadline));
                if read.is_ok() {
                    flushed?;
                }
            }
            match read {
                Ok(Some(read)) => return Ok(read),
                Ok(None) => self.plain.wait(deadline)?,
                Err(error) => {
                    self.plain.close();
                    return Err(error);
                }
            }
        }
    }

    fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()> {
        let Some(_turn) = self.writers.take(deadline) else { return Err(self.plain.busy()) };
        let mut out = lock(&self.out);
        let mut small = Vec::new();
        for part in parts {
            // A small part is joined with the beginning of the next part, so that both share a TLS record.
            let joined =
                if small.is_empty() && part.len() >= RECORD { 0 } else { part.len().min(RECORD - small.len()) };
            small.extend_from_slice(&part[..joined]);
            if small.len() == RECORD || joined < part.len() {
                if !small.is_empty() {
                    self.write_piece(&small, &mut out, deadline)?;
                    small.clear();
                }
                for piece in part[joined..].chunks(AT_ONCE) {
                    self.write_piece(piece, &mut out, deadline)?;
                }
            }
        }
        if small.is_empty() { Ok(()) } else { self.write_piece(&small, &mut out, deadline) }
    }

    fn close(&self) {
        // If another thread waits in a write, this thread may not send, so the peer is not told that the stream ends.
        // The close below then ends the other thread's write.
        if let Some(_turn) = self.writers.try_take() {
            let mut out = lock(&self.out);
            out.clear();
            let looked = lock(&self.state).look(&mut [], PendingSend::Farewell(&mut out));
            if looked.is_ok() && !out.is_empty() {
                let _ = self.plain.write(&[&out], Deadline::after(FAREWELL));
            }
        }
        self.plain.close();
    }

    fn address(&self) -> &str {
        &self.plain.address
    }

    fn transport(&self) -> &'static str {
        TCP[1]
    }

    fn is_protected(&self) -> bool {
        true
    }

    fn may_be(&self, node: &str) -> bool {
        let Ok(name) = ServerName::try_from(node) else { return false };
        ParsedCertificate::try_from(&self.peer).is_ok_and(|peer| verify_server_name(&peer, &name).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_read_goes_on_while_a_writer_has_the_turn_and_its_records_go_with_the_next_write() {
        let soon = || Deadline::after(Duration::from_secs(60));
        let authority = Authority::make("test", Duration::from_secs(3600)).unwrap();
        let own = |node: &str| Certificates::new(&authority.issue(node).unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let plain = |socket: OwnedFd| Plain::new(socket, address.to_string());
        let (server, client) = std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (socket, _) = listener.accept().unwrap();
                socket.set_nonblocking(true).unwrap();
                accept(plain(socket.into()), &own("b"), soon()).unwrap()
            });
            let socket = crossdock_os::tcp::connect(address, soon()).unwrap();
            let client = connect(plain(socket), &own("a"), "b", Protocol::Messages, soon()).unwrap();
            (server.join().unwrap(), client)
        });
        let mut record = Vec::new();
        lock(&client.state).look(&mut [], PendingSend::Encrypt(b"first, ", &mut record)).unwrap();
        lock(&client.state).pending = record;
        server.write(&[b"hello"], soon()).unwrap();
        let turn = client.writers.try_take().unwrap();
        let mut buffer = [0; 32];
        assert_eq!(client.read(&mut buffer, Deadline::after(Duration::from_secs(5))).unwrap(), 5);
        drop(turn);
        client.write(&[b"second"], soon()).unwrap();
        let mut filled = 0;
        while filled < 13 {
            filled += server.read(&mut buffer[filled..], soon()).unwrap();
        }
        assert_eq!(&buffer[..filled], b"first, second");
    }
}
