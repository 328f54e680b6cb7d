//! An HTTP/1.1 server on loopback. It answers only GET, takes one request for each connection, and asks for a token for
//! everything except the empty page.
//!
//! The token comes in the header `Authorization: Bearer …`. A page of another web site cannot make a browser send that
//! header.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::answers::{self, Answer, Query};
use crate::frames::{Frame, Frames, Key};
use crate::sample::{Sample, Sampler, Scope};

/// The port that is tried first, so that the page usually has the same address.
const PORT: u16 = 8642;
/// The maximum number of connections at the same time.
const CONNECTIONS: usize = 32;
/// The maximum size of the head of a request, in bytes.
const HEAD: usize = 16 << 10;
/// How long a client may take to send its request, or to receive the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two samples while a page is open. While no page is open, the time is `SELDOM`.
const LOOK: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(5);

/// What the server shows, and where it listens.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The port on 127.0.0.1. With 0, the server uses the usual port, or any free port if the usual port is taken.
    pub port: u16,
    /// The token; with `None`, the server makes a new token.
    pub token: Option<String>,
    /// Which daemons and runs the page shows.
    pub scope: Scope,
}

/// A server, which runs until this value is dropped.
pub struct Web {
    /// The address of the page. The token follows `#`, so the browser does not send it in requests for the page.
    pub url: String,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub struct Shared {
    inner: Mutex<(Sampler, Frames)>,
    latest: Mutex<(Instant, Arc<Sample>)>,
    asked: Mutex<Instant>,
    token: String,
    port: u16,
    connections: AtomicUsize,
    over: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Web {
    /// Starts to listen, and serves the page in threads.
    ///
    /// # Errors
    /// Fails if the port is taken, if the given token is not valid, or if no threads can be made.
    pub fn start(options: Options) -> Result<Self, String> {
        let token = match options.token {
            Some(token) if token.len() >= 16 && token.bytes().all(|b| b.is_ascii_alphanumeric()) => token,
            Some(_) => return Err("a token has 16 letters and digits or more".into()),
            None => fresh_token()?,
        };
        let listener = listen(options.port)?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let mut sampler = Sampler::new(options.scope);
        let first = sampler.look();
        let shared = Arc::new(Shared::new(sampler, Instant::now(), first, token, port));
        let url = format!("http://127.0.0.1:{port}/#{}", shared.token);
        let (looking, serving) = (shared.clone(), shared.clone());
        let mut web = Self { url, shared, threads: Vec::new() };
        let failed = |e| format!("cannot start a thread for the page: {e}");
        web.threads.push(thread::Builder::new().spawn(move || looking.keep_looking()).map_err(failed)?);
        web.threads.push(thread::Builder::new().spawn(move || accept(&listener, &serving)).map_err(failed)?);
        Ok(web)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // This connection wakes the thread that accepts connections, so that the thread notices that it must end.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.shared.port));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn fresh_token() -> Result<String, String> {
    let bytes: [u8; 16] = crossdock_os::child::random().map_err(|e| e.to_string())?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn listen(port: u16) -> Result<TcpListener, String> {
    let bind = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let listener = match port {
        0 => bind(PORT).or_else(|_| bind(0)),
        port => bind(port),
    };
    listener.map_err(|e| format!("cannot listen at 127.0.0.1:{port}: {e}; choose another port"))
}

impl Shared {
    /// Makes the state of a server whose last sample, `first`, was made at the time `made`.
    pub fn new(sampler: Sampler, made: Instant, first: Sample, token: String, port: u16) -> Self {
        Self {
            inner: Mutex::new((sampler, Frames::default())),
            latest: Mutex::new((made, Arc::new(first))),
            asked: Mutex::new(Instant::now()),
            token,
            port,
            connections: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn keep_looking(&self) {
        while !self.over.load(Ordering::Acquire) {
            let pause = if locked(&self.asked).elapsed() < Duration::from_secs(15) { LOOK } else { SELDOM };
            if locked(&self.latest).0.elapsed() >= pause {
                self.look();
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn look(&self) {
        let mut inner = locked(&self.inner);
        let sample = Arc::new(inner.0.look());
        inner.1.tick();
        *locked(&self.latest) = (Instant::now(), sample);
    }

    /// Returns the last sample, or a new sample if the last sample is too old.
    pub fn sample(&self) -> Arc<Sample> {
        *locked(&self.asked) = Instant::now();
        if locked(&self.latest).0.elapsed() > 2 * LOOK {
            self.look();
        }
        locked(&self.latest).1.clone()
    }

    pub fn with_frames<T>(
        &self,
        key: &Key,
        f: impl FnOnce(&VecDeque<Frame>) -> Result<T, (u16, String)>,
    ) -> Result<T, (u16, String)> {
        *locked(&self.asked) = Instant::now();
        let mut inner = locked(&self.inner);
        let session = inner.0.session(&key.place, &key.workflow);
        f(inner.1.of(key, session).map_err(|why| (404, why))?)
    }

    pub fn log(&self, run: &str, name: &str) -> Option<PathBuf> {
        locked(&self.inner).0.log(run, name)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // The accept failed, for instance because the process has no descriptors left. A later accept may succeed.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let counted = Counted::new(shared);
        if shared.connections.load(Ordering::Acquire) > CONNECTIONS {
            continue;
        }
        // If no thread can be made at present, the connection is closed and no longer counted. A later connection may
        // get a thread.
        let _ = thread::Builder::new().spawn(move || serve(stream, &counted.0));
    }
}

/// Counts one open connection until this value is dropped.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::AcqRel);
        Self(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let (answer, with_body) = loop {
        let mut part = [0; 4096];
        let n = stream.read(&mut part)?;
        if n == 0 {
            return Ok(());
        }
        head.extend_from_slice(&part[..n]);
        match answer(&head, shared) {
            Some(answer) => break answer,
            None if head.len() > HEAD => break (Answer::error(431, "the request's head is too long"), true),
            None if Instant::now() > until => break (Answer::error(408, "the request took too long"), true),
            None => {}
        }
    };
    write(&mut stream, &answer, with_body)
}

/// Answers a request. Returns the answer, and whether the client wants its body. Returns `None` while the head is
/// incomplete.
pub fn answer(head: &[u8], shared: &Shared) -> Option<(Answer, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some((Answer::error(400, "this is no HTTP request"), true)),
    }
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    if method != "GET" && method != "HEAD" {
        return Some((Answer::error(405, "this server only looks: GET"), true));
    }
    let header = |name: &str| {
        let found = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    // The owner of a web site may let the name of that web site resolve to 127.0.0.1. So a request with a host name
    // other than this machine's is refused.
    let host = header("host").map(|h| h.rsplit_once(':').map_or(h, |(name, _)| name));
    if !matches!(host, Some("127.0.0.1" | "localhost" | "[::1]")) {
        return Some((Answer::error(403, "ask by 127.0.0.1 or localhost; from elsewhere, through `ssh -L`"), true));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if let Some(page) = answers::page(path) {
        return Some((page, method == "GET"));
    }
    let token = header("authorization").and_then(|a| a.strip_prefix("Bearer "));
    if !token.is_some_and(|token| same(token.trim().as_bytes(), shared.token.as_bytes())) {
        return Some((Answer::error(401, "the token is missing or wrong; open the address as it was printed"), true));
    }
    Some((answers::data(shared, path, &Query::parse(query)), method == "GET"))
}

/// Compares two texts in a time that does not depend on where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

pub fn write(stream: &mut impl Write, answer: &Answer, with_body: bool) -> std::io::Result<()> {
    let reason = match answer.status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        _ => "Request Header Fields Too Large",
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    stream.write_all(head.as_bytes())?;
    if with_body {
        stream.write_all(&answer.body)?;
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(web: &Web, request: &str) -> String {
        let port = web.shared.port;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn only_those_with_the_token_learn_anything_and_bad_requests_are_refused() {
        // No daemon listens at this socket, so the server reports that there is none.
        let nowhere = std::env::temp_dir().join("crossdock-web-test-no-daemon.sock");
        let scope = Scope { socket: Some(nowhere), front: None };
        let web = Web::start(Options { scope, ..Options::default() }).unwrap();
        let token = web.url.split_once('#').unwrap().1.to_owned();
        let get =
            |path: &str, more: &str| ask(&web, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:1\r\n{more}\r\n"));
        let with = format!("Authorization: Bearer {token}\r\n");
        assert!(get("/", "").starts_with("HTTP/1.1 200") && get("/page.js", "").contains("text/javascript"));
        assert!(get("/api/state", "").starts_with("HTTP/1.1 401"));
        assert!(
            get("/metrics", "Authorization: Bearer 00000000000000000000000000000000\r\n").starts_with("HTTP/1.1 401")
        );
        assert!(get(&format!("/api/state?token={token}"), "").starts_with("HTTP/1.1 401"));
        let state = get("/api/state", &with);
        assert!(state.starts_with("HTTP/1.1 200") && state.contains("\"trouble\":\""), "{state}");
        assert!(get("/metrics", &with).contains("crossdock_up{"));
        assert!(get("/api/no", &with).starts_with("HTTP/1.1 404"));
        assert!(get("/api/log?run=..&task=../../etc/passwd", &with).starts_with("HTTP/1.1 404"));
        assert!(get("/api/frame?place=x", &with).starts_with("HTTP/1.1 400"));
        let other = ask(&web, &format!("GET /api/state HTTP/1.1\r\nHost: evil.example\r\n{with}\r\n"));
        assert!(other.starts_with("HTTP/1.1 403"), "{other}");
        assert!(ask(&web, "POST /api/state HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(&web, "\x16\x03\x01\r\n\r\n").starts_with("HTTP/1.1 400"));
        let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(20_000));
        assert!(ask(&web, &long).starts_with("HTTP/1.1 431"));
        drop(web);
    }

    #[test]
    fn tokens_that_are_too_short_are_refused() {
        let options = Options { token: Some("short".into()), ..Options::default() };
        assert!(Web::start(options).is_err());
    }
}
