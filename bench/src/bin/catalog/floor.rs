//! The floor of the embedded catalog: the least that a program must do to register a name and to tell all nodes. A
//! server appends each call to a file, syncs the file, answers, and sends the number of the registration to each
//! watcher. The server parses nothing, checks nothing and has no leases. All its messages have a fixed length.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use crate::Nodes;
use crate::board::{Board, Watcher};

/// The length of a call in bytes. A registration in the embedded catalog is about as long.
const CALL: usize = 100;
/// The first byte of a connection that carries calls. Watchers' connections begin with another byte.
const CALLS: u8 = b'c';
const WATCH: u8 = b'w';

/// The floor's server, a separate process that does the least that a catalog must do; and the connections to this
/// server.
pub struct Floor {
    server: Child,
    _input: Option<ChildStdin>,
    lanes: Vec<Mutex<TcpStream>>,
    watches: Vec<JoinHandle<()>>,
}

impl Floor {
    /// Starts a server whose file is in `folder`, and connects `lanes` callers and `watchers` watchers.
    pub fn start(folder: &Path, lanes: usize, watchers: usize, board: &Arc<Board>) -> Self {
        let own = std::env::current_exe().expect("this program's path");
        let mut command = Command::new(own);
        command.arg("--floor").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().expect("the server starts");
        let mut address = String::new();
        let said = server.stdout.take().expect("piped");
        BufReader::new(said).read_line(&mut address).expect("an address");
        let connect = |role: u8| {
            let mut stream = TcpStream::connect(address.trim()).expect("the server listens");
            stream.set_nodelay(true).expect("TCP_NODELAY");
            stream.write_all(&[role]).expect("the server reads");
            // The answer says that the server knows this connection.
            stream.read_exact(&mut [0]).expect("the server answers");
            stream
        };
        let watch = |_| {
            let (stream, watcher) = (connect(WATCH), board.watcher());
            let report = move || report(stream, &watcher);
            thread::Builder::new().stack_size(256 << 10).spawn(report).expect("a thread")
        };
        let watches = (0..watchers).map(watch).collect();
        let lanes = (0..lanes).map(|_| Mutex::new(connect(CALLS))).collect();
        Self { _input: server.stdin.take(), server, lanes, watches }
    }
}

/// Reports each number that the server sends, until the server ends.
fn report(stream: TcpStream, watcher: &Watcher) {
    let mut stream = BufReader::new(stream);
    let mut number = [0; 8];
    while stream.read_exact(&mut number).is_ok() {
        watcher.report(u64::from_le_bytes(number) as usize);
    }
}

impl Nodes for Floor {
    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn register(&self, lane: usize, number: usize) {
        let mut stream = self.lanes[lane].lock().expect("no caller panics");
        let mut call = [0; CALL];
        call[..8].copy_from_slice(&(number as u64).to_le_bytes());
        stream.write_all(&call).expect("the server reads");
        stream.read_exact(&mut call[..8]).expect("the server answers");
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        for watch in self.watches.drain(..) {
            let _ = watch.join();
        }
    }
}

struct State {
    file: File,
    /// The watchers that have connected since the server last sent registrations. `tell` sends the next registrations
    /// to these watchers, too.
    watchers: Vec<TcpStream>,
    /// The bytes (numbers of registrations) that have not been sent to the watchers yet.
    news: Vec<u8>,
}

#[derive(Clone)]
struct Server(Arc<(Mutex<State>, Condvar)>);

/// Runs the server until the standard input of this process ends.
pub fn serve(folder: &str) {
    let path = Path::new(folder).join(format!("crossdock-floor-{}", std::process::id()));
    let file = File::create(&path).expect("a file");
    std::fs::remove_file(&path).expect("the file is ours");
    let state = State { file, watchers: Vec::new(), news: Vec::new() };
    let server = Server(Arc::new((Mutex::new(state), Condvar::new())));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("{}", listener.local_addr().expect("its address"));
    let telling = server.clone();
    thread::spawn(move || telling.tell());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (server, stream) = (server.clone(), stream.expect("a connection"));
            let serve = move || server.serve(stream);
            thread::Builder::new().stack_size(256 << 10).spawn(serve).expect("a thread");
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().expect("no thread of the server panics")
    }

    /// Serves one connection.
    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let mut role = [0];
        if stream.read_exact(&mut role).is_err() {
            return;
        }
        if role[0] == WATCH {
            let mut state = self.lock();
            if stream.write_all(&role).is_ok() {
                state.watchers.push(stream);
            }
            return;
        }
        let mut answered = stream.write_all(&role);
        let mut call = [0; CALL];
        while answered.is_ok() && stream.read_exact(&mut call).is_ok() {
            let mut state = self.lock();
            state.file.write_all(&call).and_then(|()| state.file.sync_data()).expect("room");
            state.news.extend_from_slice(&call[..8]);
            drop(state);
            self.0.1.notify_one();
            answered = stream.write_all(&call[..8]);
        }
    }

    /// Sends the numbers of all registrations to the watchers. Numbers that arrive during a send are sent together
    /// afterwards.
    fn tell(&self) {
        let mut watchers = Vec::new();
        loop {
            let mut state = self.lock();
            while state.news.is_empty() {
                state = self.0.1.wait(state).expect("no thread of the server panics");
            }
            let news = std::mem::take(&mut state.news);
            watchers.append(&mut state.watchers);
            drop(state);
            watchers.iter_mut().for_each(|stream| stream.write_all(&news).unwrap_or_default());
        }
    }
}
