//! One worker of the soak test, in Rust. worker.c describes what it does.
//!
//! The command line is `worker NUMBER SECONDS`.

use std::io::Write;
use std::process::exit;
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, End, Error, Inline, ItemOptions, Message, Mode, ObjectMode, Observer, Port, PortOptions, Publisher,
    Region, Result, SeriesOptions, Session, Status, Value, Variable, Version,
};

const N: usize = 4096;
const ITEM: usize = 50_000;
const SHORT: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(4);

/// Prints one line for the soak test. An error is ignored, because it means that the soak test is gone.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn wrong(what: &str) -> ! {
    say(&format!("WRONG {what}"));
    exit(3)
}

fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn pattern(count: usize, stamp: u64) -> impl Iterator<Item = i64> {
    (0..count as u64).map(move |i| mix(stamp.wrapping_add(i)) as i64)
}

fn check(what: &str, seen: &[i64], stamp: u64) {
    if !seen.iter().copied().eq(pattern(seen.len(), stamp)) {
        wrong(what);
    }
}

/// Tells whether the status is an expected one: it can come from kills, stops and restarts of processes, or from a lack
/// of room. A session must outlive all of these, so the error that a session is over is not expected.
fn is_explained(error: &Error) -> bool {
    use Status::{Busy, Closed, Disconnected, Exists, NoSpace, NotFound, NotYet, PeerDied, TimedOut};
    match error.status {
        NotYet | TimedOut | Closed | PeerDied | NotFound | Exists | NoSpace | Busy => true,
        Disconnected => !error.to_string().contains("cannot be made again"),
        _ => false,
    }
}

/// Runs one part of a round. An unexpected error ends the worker. If the part takes several seconds, a line is printed.
fn works<T>(what: &str, part: impl FnOnce() -> Result<T>) -> std::result::Result<T, Status> {
    let began = Instant::now();
    let outcome = part();
    if began.elapsed() > SLOW {
        let how = outcome.as_ref().err().map_or("OK".to_owned(), ToString::to_string);
        say(&format!("SLOW {:.1} s: {what}: {how}", began.elapsed().as_secs_f64()));
    }
    outcome.map_err(|error| {
        if !is_explained(&error) {
            say(&format!("UNEXPLAINED {what}: {error}"));
            exit(4);
        }
        error.status
    })
}

struct Worker {
    number: u64,
    session: Session,
    region: Option<Region>,
    port: Option<Port>,
    publisher: Option<Publisher>,
    observer: Option<Observer>,
    version: Option<Version>,
    sent: u64,
    from: u64,
    received: u64,
}

impl Worker {
    fn consumes(&self) -> bool {
        self.number % 2 == 1
    }

    fn name(&self, kind: char) -> String {
        format!("{kind}{}", self.number / 2)
    }

    fn round(&mut self, stamp: u64) {
        let _ = works("heap", || self.heap(stamp));
        if let Err(Status::Closed | Status::Disconnected) = works("port", || self.message()) {
            (self.port, self.from) = (None, 0);
        }
        match works("series", || self.series(stamp)) {
            Ok(()) | Err(Status::TimedOut | Status::NotYet) => {}
            Err(_) => (self.observer, self.version) = (None, None),
        }
        let _ = works("item", || self.item(stamp));
    }

    fn heap(&mut self, stamp: u64) -> Result<()> {
        if self.region.is_none() {
            self.region = Some(self.session.region("heap", Mode::OpenOrCreate, 256 << 20, None)?);
        }
        let Some(region) = &self.region else { return Ok(()) };
        let vector = region.vector::<i64>(&format!("v{}", self.number), ObjectMode::OpenOrCreate, Some(WAIT))?;
        // The first element is the number from which the other elements were computed, or 0 while they are being
        // written.
        let before = vector.to_vec()?;
        if before.len() > 1 && before[0] != 0 {
            check("vector", &before[1..], before[0] as u64);
        }
        let count = 1 + (mix(stamp) % 5000) as usize;
        if !before.is_empty() {
            vector.set(0, 0)?;
        }
        let fresh: Vec<_> = std::iter::once(0).chain(pattern(count, stamp | 1)).collect();
        vector.assign(&fresh)?;
        vector.set(0, (stamp | 1) as i64)
    }

    fn message(&mut self) -> Result<()> {
        if self.port.is_none() {
            let end = if self.consumes() { End::Consumer } else { End::Producer };
            let options = PortOptions { capacity: 8, persistent: true, ..PortOptions::default() };
            self.port = Some(self.session.port(&self.name('p'), end, &options, Some(SHORT))?);
        }
        let Some(port) = &self.port else { return Ok(()) };
        if self.number % 2 == 0 {
            let tag = u64::from(std::process::id()) << 32 | (self.sent + 1);
            let body = [tag.to_le_bytes(), mix(tag).to_le_bytes()].concat();
            let message = Message { tag, inline: Inline::new(&body)?, ..Message::default() };
            port.send(&message, Some(SHORT))?;
            self.sent += 1;
            return Ok(());
        }
        let message = port.receive(Some(SHORT))?;
        let word = |at: usize| u64::from_le_bytes(message.inline[8 * at..8 * at + 8].try_into().unwrap_or_default());
        if message.inline.len() != 16 || word(0) != message.tag || word(1) != mix(message.tag) {
            wrong("message");
        }
        // Each message of a producer must arrive exactly once, and in the order of sending.
        if message.tag >> 32 == self.from && message.tag & 0xffff_ffff != self.received + 1 {
            wrong("order of messages");
        }
        (self.from, self.received) = (message.tag >> 32, message.tag & 0xffff_ffff);
        port.release(&message)
    }

    fn series(&mut self, stamp: u64) -> Result<()> {
        if !self.consumes() {
            if self.publisher.is_none() {
                let variables = vec![Variable::new("u", "i64", &[N as u64])];
                let options = SeriesOptions { variables, ..SeriesOptions::default() };
                self.publisher = Some(self.session.publisher(&self.name('s'), &options)?);
            }
            let Some(publisher) = &mut self.publisher else { return Ok(()) };
            publisher.elements::<i64>("u")?.iter_mut().zip(pattern(N, stamp)).for_each(|(to, word)| *to = word);
            return publisher.publish(&[("stamp", Value::I64(stamp as i64))]).map(drop);
        }
        if self.observer.is_none() {
            self.observer = Some(self.session.observe(&self.name('s'), SHORT)?);
        }
        let Some(observer) = &mut self.observer else { return Ok(()) };
        let newer = observer.next(SHORT)?;
        let version = match &mut self.version {
            Some(held) => {
                held.replace_by(newer)?;
                held
            }
            none => none.insert(newer),
        };
        let Value::I64(stamp) = version.attribute("stamp")? else { wrong("attributes of a version") };
        check("version", version.elements::<i64>("u")?, *stamp as u64);
        Ok(())
    }

    fn item(&mut self, stamp: u64) -> Result<()> {
        let key = self.name('i');
        let words = |bytes: &[u8]| -> Vec<i64> {
            bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
        };
        if self.consumes() {
            let item = self.session.access_item(&key, Some(SHORT))?;
            if item.size() != ITEM as u64 {
                wrong("size of the item");
            }
            let seen = words(item.bytes());
            check("item", &seen[1..], seen[0] as u64);
            return item.destroy();
        }
        let mut item = match self.session.create_item(&key, &ItemOptions::bytes(ITEM as u64)) {
            // An item of this name exists, because it was not handed on in the last round.
            Err(error) if error.status == Status::Exists => self.session.access_item(&key, Some(Duration::ZERO))?,
            made => made?,
        };
        let fresh = std::iter::once((stamp | 1) as i64).chain(pattern(ITEM / 8 - 1, stamp | 1));
        item.bytes_mut().chunks_exact_mut(8).zip(fresh).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        item.transfer(&format!("w{}", self.number ^ 1))
    }
}

fn main() {
    let words: Vec<_> = std::env::args().collect();
    let [_, number, seconds] = &words[..] else { exit(2) };
    let number: u64 = number.parse().expect("a number");
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let options = ConnectOptions {
        task: Some(format!("w{number}")),
        private_daemon: false,
        timeout: WAIT,
        ..ConnectOptions::default()
    };
    let session = loop {
        match works("connect", || Session::connect(&options)) {
            Ok(session) => break session,
            Err(_) if Instant::now() > until => return,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut worker = Worker {
        number,
        session,
        region: None,
        port: None,
        publisher: None,
        observer: None,
        version: None,
        sent: 0,
        from: 0,
        received: 0,
    };
    let (mut said_at, mut longest, mut rounds) = (Instant::now(), Duration::ZERO, 0u64);
    let mut stamp = mix(u64::from(std::process::id())) >> 2;
    while Instant::now() < until {
        let began = Instant::now();
        worker.round(stamp);
        (stamp, rounds, longest) = (stamp + 1, rounds + 1, longest.max(began.elapsed()));
        if said_at.elapsed() > Duration::from_secs(1) {
            say(&format!("{rounds} {:.3}", 1000.0 * longest.as_secs_f64()));
            (said_at, longest) = (Instant::now(), Duration::ZERO);
        }
    }
    say(&format!("DONE {rounds}"));
}
