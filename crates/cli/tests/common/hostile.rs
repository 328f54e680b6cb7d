//! A program that tests start as several tasks. One task is a hostile former owner: it keeps access to items, and also
//! tries to write an item that it may only read. The other tasks are its honest victims.
//!
//! `former` speaks the wire protocol itself, so that it can lie: it says that it gave its items up, but keeps some
//! access to each item, in a different way for each. `victim` becomes the owner of the items and writes a secret into
//! them. After that, the former owner searches for the secret and tries to overwrite it. Both tasks print what they
//! see, and the test reads their output.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crossdock_client::{ConnectOptions, Item, ItemLevel, ItemOptions, OnDeath, Party, Session};
use crossdock_layout::wire::{Answer, FINGERPRINT, ItemRequest, MAX_MESSAGE, PROTOCOL_VERSION, Request};
use crossdock_layout::{MemberId, SegmentId};
use crossdock_os::socket::{self, Received};
use crossdock_os::{Access, Deadline, Mapping, child, event, tmpfs};

const WAIT: Duration = Duration::from_secs(30);
const PAGES: u64 = 16;
const SIZE: u64 = PAGES * 4096;
/// The value that the former owner writes first. `SECRET` is the value that the victim writes. `SCRIBBLE` is the value
/// with which the former owner overwrites the item.
const OLD: u64 = 0x1111_1111_1111_1111;
const SECRET: u64 = 0x5ec4_e75e_c4e7_5ec4;
const SCRIBBLE: u64 = 0x6666_6666_6666_6666;

/// Ways to keep access, each tried on an item of its own. The ways `numbered`, `spliced`, `sent` and `path` leave no
/// open file that the kernel could report.
const WAYS: [&str; 12] = [
    "mapping",
    "duplicate",
    "fork",
    "child",
    "flight",
    "reopened",
    "numbered",
    "spliced",
    "sent",
    "path",
    "racing",
    "spying",
];
/// Ways to keep access that are tried all the time while other tasks hand the item to and fro, `ROUNDS` times.
const RACES: [&str; 2] = ["racing", "spying"];
const ROUNDS: usize = 200;

fn main() {
    let word = std::env::args().nth(1).unwrap_or_default();
    let outcome = match word.as_str() {
        "former" => former(),
        "victim" => victim(),
        "partner" => partner(),
        other => Err(format!("unknown word {other}")),
    };
    if let Err(why) = outcome {
        println!("FAILED: {why}");
        std::process::exit(1);
    }
}

/// A client of the daemon that can also send messages that an honest client never sends.
struct Liar {
    socket: OwnedFd,
    next: u64,
}

impl Liar {
    fn connect() -> Result<Self, String> {
        let path = std::env::var("CROSSDOCK_SOCKET").unwrap_or_else(|_| "/run/crossdock/endpoint.sock".into());
        let socket = socket::connect(path.as_ref()).map_err(|e| e.to_string())?;
        let mut liar = Self { socket, next: 1 };
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: crossdock_layout::LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token: child::random().map_err(|e| e.to_string())?,
            member: MemberId::NONE,
            rank: 0,
            task: None,
            workflow: None,
            visitor: false,
        };
        liar.ask(&hello)?;
        Ok(liar)
    }

    fn ask(&mut self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), String> {
        let number = self.next;
        self.next += 1;
        socket::send(&self.socket, &request.encode(number, number), &[]).map_err(|e| e.to_string())?;
        let deadline = Deadline::after(WAIT);
        let mut buffer = [0; MAX_MESSAGE + 1];
        loop {
            match socket::receive(&self.socket, &mut buffer).map_err(|e| e.to_string())? {
                Some(Received::Message(length, fds)) => {
                    let (of, answer) = Answer::decode(&buffer[..length], fds.len()).map_err(|e| e.to_string())?;
                    match answer {
                        _ if of != number => {}
                        Answer::Failed { status, text } => return Err(format!("{request:?}: {status}: {text}")),
                        answer => return Ok((answer, fds)),
                    }
                }
                Some(_) => return Err(format!("{request:?}: the daemon hung up")),
                None if event::wait_readable(&self.socket, deadline).unwrap_or(false) => {}
                None => return Err(format!("{request:?}: no answer")),
            }
        }
    }

    fn item(&mut self, request: ItemRequest) -> Result<(Answer, Vec<OwnedFd>), String> {
        self.ask(&Request::Item(request))
    }

    /// Opens an item for reading; gives the descriptor and the id of the item's file.
    fn read(&mut self, key: &str) -> Result<(OwnedFd, SegmentId), String> {
        let wait_ms = WAIT.as_millis() as u64;
        let asked = self.item(ItemRequest::Access { read: true, wait_ms, keys: vec![key.into()] })?;
        let (Answer::Item(given), fds) = asked else { return Err("no item".into()) };
        let fd = fds.into_iter().next().ok_or_else(|| format!("no descriptor came with item {key}"))?;
        Ok((fd, given.file))
    }

    fn access(&mut self, key: &str, read: bool) -> Result<OwnedFd, String> {
        let wait_ms = WAIT.as_millis() as u64;
        let given = self.item(ItemRequest::Access { read, wait_ms, keys: vec![key.into()] })?;
        given.1.into_iter().next().ok_or_else(|| format!("no descriptor came with item {key}"))
    }
}

/// The access that a former owner has kept to an item.
#[derive(Default)]
struct Kept {
    /// The reading end of the pipe or socket into which the item's pages were spliced or sent.
    pages: Option<OwnedFd>,
    mapping: Option<Mapping>,
    descriptor: Option<OwnedFd>,
    /// A pair of sockets between which the item's descriptor is in flight.
    flight: Option<(OwnedFd, OwnedFd)>,
    child: Option<i32>,
    /// An eventfd by which the parent tells the child that the item now belongs to another owner.
    start: Option<OwnedFd>,
}

fn map(fd: &OwnedFd) -> Result<Mapping, String> {
    Mapping::new(fd, (SIZE + 4096) as usize, Access::ReadWrite).map_err(|e| e.to_string())
}

fn fill(mapping: &Mapping, value: u64) {
    for offset in (4096..SIZE + 4096).step_by(8) {
        mapping.word64(offset).expect("within").store(value, std::sync::atomic::Ordering::SeqCst);
    }
}

fn sees(mapping: &Mapping, value: u64) -> bool {
    let words = (0..SIZE + 4096).step_by(8).filter_map(|offset| mapping.word64(offset));
    words.into_iter().any(|word| word.load(std::sync::atomic::Ordering::SeqCst) == value)
}

fn former() -> Result<(), String> {
    let mut liar = Liar::connect()?;
    let mut kept = Vec::new();
    for way in WAYS {
        let level = ItemLevel::Verified;
        let key = format!("way/{way}");
        let request = ItemRequest::Create { size: SIZE, level, on_death: OnDeath::Keep, key };
        let (Answer::Item(given), fds) = liar.item(request)? else { return Err("no item".into()) };
        let fd = fds.into_iter().next().ok_or("no descriptor")?;
        let mapping = map(&fd)?;
        fill(&mapping, OLD);
        kept.push((way, keep(way, fd, mapping)?));
        liar.item(ItemRequest::Transfer { item: given.item, to: Party::task("victim") })?;
        if let Some((_, Kept { start: Some(start), .. })) = kept.last() {
            event::signal(start);
        }
    }
    // The victim writes its secrets and then hands over the item `told`. This call returns after `told` was handed
    // over, so the secrets then exist.
    drop(liar.access("told", false)?);
    for (way, kept) in kept {
        for trouble in look(way, kept) {
            println!("{way}: {trouble}");
        }
    }
    println!("tried {} ways", WAYS.len());
    let (shared, file) = liar.read("shared")?;
    for trouble in scribble_on_shared(&shared) {
        println!("shared: {trouble}");
    }
    println!("tried to write what is shared");
    let pipe = given_away(&shared, false)?;
    let (Answer::ItemInfo(told), _) = liar.item(ItemRequest::Find { key: "told".into() })? else {
        return Err("no answer about 'told'".into());
    };
    let path = path_of(&shared)?;
    drop(shared);
    let detach = Request::Detach { segment: file, count: 1 }.encode(0, 0);
    socket::send(&liar.socket, &detach, &[]).map_err(|e| e.to_string())?;
    liar.item(ItemRequest::Transfer { item: told.item, to: Party::task("victim") })?;
    // The victim now ends the sharing of the item `shared`, writes a secret into this item, and then transfers the item
    // `told-again` to this process. The following `access` returns when `told-again` has come, so the secret exists
    // by then.
    drop(liar.access("told-again", false)?);
    if holds_secret(&pipe) {
        println!("shared: SEEN in the pipe that it was spliced into");
    }
    if try_path(&path, false).is_some_and(|_| file_holds_secret(&path)) || try_path(&path, true).is_some() {
        println!("shared: SEEN or WRITTEN as a path");
    }
    println!("tried to read on what was shared");
    Ok(())
}

/// Keeps access to an item in the way `way`, and gives up all other access to the item.
fn keep(way: &str, fd: OwnedFd, mapping: Mapping) -> Result<Kept, String> {
    let text = |e: crossdock_os::OsError| e.to_string();
    let mut kept = Kept::default();
    match way {
        "mapping" => kept.mapping = Some(mapping),
        "duplicate" => kept.descriptor = Some(fd.try_clone().map_err(|e| e.to_string())?),
        // The child process keeps the mapping of the item. Its parent keeps no access to the item.
        "fork" => kept.child = Some(child::fork_beside_threads(|| spy(Some(&mapping), None)).map_err(text)?),
        "child" => kept.child = Some(child::fork_beside_threads(|| spy(None, Some(&fd))).map_err(text)?),
        "flight" => {
            let (ours, theirs) = socket::pair().map_err(text)?;
            socket::send(&ours, b"x", &[fd.as_fd()]).map_err(text)?;
            kept.flight = Some((ours, theirs));
        }
        // The item's file belongs to the daemon's user, so a task of another user cannot even open the file again.
        "reopened" => match tmpfs::open_anew(&fd, Access::ReadWrite) {
            Ok(again) => kept.descriptor = Some(again),
            Err(error) => println!("reopened: refused: {error}"),
        },
        // Keeps only references to the item's pages, in a pipe or a socket.
        "spliced" | "sent" => kept.pages = Some(given_away(&fd, way == "sent")?),
        // Keeps no descriptor. Later, this program tries to open the item by each number in `/proc/self/fd`.
        "numbered" => {}
        "path" => kept.descriptor = Some(path_of(&fd)?),
        "racing" | "spying" => {
            let path = path_of(&fd)?;
            drop((fd, mapping));
            let start = event::eventfd().map_err(text)?;
            kept.child = Some(child::fork_beside_threads(|| race(&path, &start, way == "racing")).map_err(text)?);
            kept.start = Some(start);
        }
        other => return Err(format!("no way '{other}'")),
    }
    Ok(kept)
}

/// Splices the item's pages into a pipe, or sends them to a socket, by reference if the kernel allows that. Gives the end
/// from which the pages can be read. If the kernel refuses, nothing can be read from that end.
fn given_away(fd: &OwnedFd, send: bool) -> Result<OwnedFd, String> {
    let text = |e: rustix::io::Errno| e.to_string();
    let (pipe, filling) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).map_err(text)?;
    let mut offset = 4096;
    if send {
        let (receiver, sender) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .map_err(text)?;
        let _ = rustix::fs::sendfile(&sender, fd, Some(&mut offset), 32768);
        return Ok(receiver);
    }
    let _ = rustix::pipe::splice(fd, Some(&mut offset), &filling, None, 32768, rustix::pipe::SpliceFlags::NONBLOCK);
    Ok(pipe)
}

fn holds_secret(pages: &OwnedFd) -> bool {
    let mut bytes = vec![0; 65536];
    let length = rustix::io::read(pages, &mut bytes).unwrap_or(0);
    bytes[..length].chunks_exact(8).any(|word| word == SECRET.to_ne_bytes())
}

fn file_holds_secret(path: &OwnedFd) -> bool {
    let bytes = std::fs::read(format!("/proc/self/fd/{}", path.as_raw_fd())).unwrap_or_default();
    bytes.chunks_exact(8).any(|word| word == SECRET.to_ne_bytes())
}

/// Opens a descriptor with `O_PATH`. Such a descriptor leads to the file, but the kernel does not count the file as
/// open.
fn path_of(fd: &OwnedFd) -> Result<OwnedFd, String> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(|e| e.to_string())
}

/// Tries to use a path descriptor in several ways; gives the first way that works.
fn try_path(path: &OwnedFd, write: bool) -> Option<&'static str> {
    use std::os::unix::fs::PermissionsExt;
    let name = format!("/proc/self/fd/{}", path.as_raw_fd());
    if !write {
        return File::open(&name).is_ok().then_some("opened for reading");
    }
    let user = rustix::process::geteuid().as_raw();
    let changed = [
        ("its owner changed", std::os::unix::fs::chown(&name, Some(user), Some(user)).is_ok()),
        ("its mode changed", std::fs::set_permissions(&name, std::fs::Permissions::from_mode(0o666)).is_ok()),
        ("opened for writing", File::options().write(true).open(&name).is_ok()),
        ("opened for both", File::options().read(true).write(true).open(&name).is_ok()),
        ("truncated", File::options().write(true).truncate(true).open(&name).is_ok()),
    ];
    changed.into_iter().find(|(_, worked)| *worked).map(|(what, _)| what)
}

/// Runs in a child of the former owner: as soon as the item has another owner, tries again and again to open the item.
/// If the daemon has no mounts that shut former owners out, the child may reach the file that the former owner had. So
/// the test only asks whether that file contains the secret of the new owner, the task `victim`.
fn race(path: &OwnedFd, start: &OwnedFd, write: bool) -> i32 {
    if !event::wait_readable(start, Deadline::after(WAIT)).unwrap_or(false) {
        return 2;
    }
    let deadline = Deadline::after(Duration::from_secs(4));
    while deadline.left() > Duration::ZERO {
        if write {
            let _ = try_path(path, true);
        } else if file_holds_secret(path) {
            return 1;
        }
    }
    0
}

/// Runs in a child of the former owner: waits for a while, then looks for the secret and overwrites the item. The
/// child's exit code says whether the child saw the secret.
fn spy(mapping: Option<&Mapping>, fd: Option<&OwnedFd>) -> i32 {
    let deadline = Deadline::after(Duration::from_secs(20));
    let own = fd.and_then(|fd| map(fd).ok());
    let Some(mapping) = mapping.or(own.as_ref()) else { return 2 };
    loop {
        if sees(mapping, SECRET) {
            return 1;
        }
        // The child acts by time alone, without a signal from its parent, as a real spy would.
        if deadline.left() < Duration::from_secs(17) {
            fill(mapping, SCRIBBLE);
            return 0;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Uses the kept access to look for the victim's bytes, and to change them.
fn look(way: &str, kept: Kept) -> Vec<String> {
    let mut troubles = Vec::new();
    let mut what_worked = Vec::new();
    let mut look_at = |mapping: &Mapping, how: &str| {
        if sees(mapping, SECRET) {
            troubles.push(format!("SEEN through {how}"));
        }
        fill(mapping, SCRIBBLE);
    };
    if let Some(mapping) = &kept.mapping {
        look_at(mapping, "the old mapping");
    }
    if kept.pages.as_ref().is_some_and(holds_secret) {
        what_worked.push("given away as pages");
    }
    let received = kept.flight.as_ref().and_then(|(_, theirs)| match socket::receive(theirs, &mut [0; 8]) {
        Ok(Some(Received::Message(_, fds))) => fds.into_iter().next(),
        _ => None,
    });
    for fd in kept.descriptor.iter().chain(&received) {
        if let Ok(mapping) = map(fd) {
            look_at(&mapping, "the old descriptor");
        }
        if let Ok(again) = tmpfs::open_anew(fd, Access::ReadWrite) {
            if let Ok(mapping) = map(&again) {
                look_at(&mapping, "the old descriptor opened anew");
            }
        }
    }
    for number in 0..64 {
        let path = format!("/proc/self/fd/{number}");
        let Ok(target) = std::fs::read_link(&path) else { continue };
        if !target.to_string_lossy().contains("crossdock-item") {
            continue;
        }
        let opened = File::options().read(true).write(true).open(&path);
        if let Some(mapping) = opened.ok().and_then(|file| map(&OwnedFd::from(file)).ok()) {
            look_at(&mapping, &format!("descriptor {number} of /proc"));
        }
    }
    // The path descriptor is used last, because this use may truncate the file. If this program touched a mapping of a
    // truncated file, it would get SIGBUS.
    if way == "path" {
        let path = kept.descriptor.as_ref().expect("kept");
        // If the daemon has no mounts that shut former owners out, the path leads to the old file of the former owner,
        // and the victim has another file. So opening the old file is no fault, and the test only checks that the
        // secret is not in it.
        if file_holds_secret(path) {
            what_worked.push("read");
        }
        let _ = try_path(path, true);
    }
    if let Some(child) = kept.child {
        match child::ended(child, true) {
            Ok(Some(child::ExitStatus::Code(0))) => {}
            other => troubles.push(format!("SEEN by the child: {other:?}")),
        }
    }
    troubles.extend(what_worked.into_iter().map(|what| format!("SEEN as a path: {what}")));
    if way == "flight" && received.is_none() {
        troubles.push("the descriptor in flight did not arrive".into());
    }
    troubles
}

/// Tries by every means to write an item that this task may only read.
fn scribble_on_shared(fd: &OwnedFd) -> Vec<String> {
    let mut let_in = Vec::new();
    let mut tried = |what: &str, worked: bool| {
        if worked {
            let_in.push(format!("WRITTEN by {what}"));
        }
    };
    let junk = [0x66u8; 64];
    let file = File::from(fd.try_clone().expect("a descriptor"));
    tried("write", file.write_at(&junk, 4096).is_ok());
    tried("truncating", file.set_len(0).is_ok());
    tried("mapping for writing", Mapping::new(fd, 4096, Access::ReadWrite).is_ok());
    tried("opening anew", tmpfs::open_anew(fd, Access::ReadWrite).is_ok());
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    tried("opening for writing", File::options().write(true).open(&path).is_ok());
    tried("opening and truncating", File::create(&path).is_ok());
    tried("opening for appending", File::options().append(true).open(&path).is_ok());
    tried("truncating by path", rustix::fs::open(&path, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).is_ok());
    tried("allocating", rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).is_ok());
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    tried("punching", rustix::fs::fallocate(fd, hole, 0, 4096).is_ok());
    let Ok(mapping) = Mapping::new(fd, (SIZE + 4096) as usize, Access::Read) else { return let_in };
    let start = mapping.start().as_ptr();
    let memory = File::options().write(true).open("/proc/self/mem");
    let address = start as u64 + 4096;
    tried("/proc/self/mem", memory.is_ok_and(|memory| memory.write_at(&junk, address).is_ok()));
    let protection = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    // SAFETY: the range is this program's own mapping, and no reference points into it.
    let writable = unsafe { rustix::mm::mprotect(start.cast(), mapping.length(), protection) };
    tried("mprotect", writable.is_ok());
    let_in
}

/// Hands an item to the partner and gets it back, again and again, while a former owner tries to access the item.
fn to_and_fro(session: &Session, mut item: Item) -> Result<Item, String> {
    let text = |e: crossdock_client::Error| e.to_string();
    for round in 0..ROUNDS {
        let key = item.key().to_owned();
        item.transfer("partner").map_err(text)?;
        item = session.access_item(&key, Some(WAIT)).map_err(text)?;
        if !item.bytes().chunks_exact(8).all(|word| word == SECRET.to_ne_bytes()) {
            println!("{key}: HARMED in round {round}");
        }
    }
    Ok(item)
}

/// Receives each item that the victim hands over, and hands it back.
fn partner() -> Result<(), String> {
    let text = |e: crossdock_client::Error| e.to_string();
    let session = Session::connect(&ConnectOptions::default()).map_err(text)?;
    for way in RACES {
        for round in 0..ROUNDS {
            let mut item = session.access_item(&format!("way/{way}"), Some(WAIT)).map_err(text)?;
            if !item.bytes().chunks_exact(8).all(|word| word == SECRET.to_ne_bytes()) {
                println!("{way}: HARMED in round {round}");
            }
            item.bytes_mut().chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&SECRET.to_ne_bytes()));
            item.transfer("victim").map_err(text)?;
        }
    }
    Ok(())
}

fn victim() -> Result<(), String> {
    let text = |e: crossdock_client::Error| e.to_string();
    let session = Session::connect(&ConnectOptions::default()).map_err(text)?;
    let mut items = Vec::new();
    for way in WAYS {
        let mut item = session.access_item(&format!("way/{way}"), Some(WAIT)).map_err(text)?;
        let found = item.bytes().chunks_exact(8).all(|word| word == OLD.to_ne_bytes());
        if !found {
            println!("{way}: the bytes did not come over");
        }
        item.bytes_mut().chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&SECRET.to_ne_bytes()));
        if RACES.contains(&way) {
            item = to_and_fro(&session, item)?;
        }
        items.push((way, item));
    }
    let mut shared = session.create_item("shared", &ItemOptions::bytes(SIZE)).map_err(text)?;
    // The owner writes this value before it shares the item, so the readers may see the value.
    shared.bytes_mut().chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&OLD.to_ne_bytes()));
    let shared = shared.share().map_err(text)?;
    session.create_item("told", &ItemOptions::bytes(8)).map_err(text)?.transfer("former").map_err(text)?;
    let told = session.access_item("told", Some(WAIT + WAIT)).map_err(text)?;
    for (way, item) in &items {
        let whole = item.bytes().chunks_exact(8).all(|word| word == SECRET.to_ne_bytes());
        let info = session.find_item(item.key()).map_err(text)?;
        println!("{way}: {} copies {}", if whole { "unharmed" } else { "HARMED" }, info.copies);
    }
    let whole = shared.bytes().chunks_exact(8).all(|word| word == OLD.to_ne_bytes());
    println!("shared: {}", if whole { "unharmed" } else { "HARMED" });
    // The owner ends the sharing and then writes another value. Readers that have closed the item must not see this
    // value.
    let mut again = shared.unshare(Some(Duration::from_secs(5))).map_err(text)?;
    again.bytes_mut().chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&SECRET.to_ne_bytes()));
    session.create_item("told-again", &ItemOptions::bytes(8)).map_err(text)?.transfer("former").map_err(text)?;
    std::thread::sleep(Duration::from_millis(300));
    let whole = again.bytes().chunks_exact(8).all(|word| word == SECRET.to_ne_bytes());
    println!("taken back: {}", if whole { "unharmed" } else { "HARMED" });
    drop((told, items, again));
    Ok(())
}
