//! `crossdock checkpoint`: an observer that writes versions to disk. It saves the last version of a publisher that dies
//! or ends.

use std::time::{Duration, Instant};

use crossdock_checkpoint::{self as file, Contents, Folder, Value};
use crossdock_client::{SeriesState, Version};
use crossdock_launch::file::units;
use crossdock_launch::run::code;

use crate::args::Checkpoint;
use crate::series::set::Set;
use crate::series::span::Every;
use crate::series::{self, LOOK, Stop, contents};
use crate::table::{complain, say};

/// The root attribute with the incarnation of the publisher whose version a checkpoint holds.
const LIFE: &str = "publisher";

pub fn checkpoint(options: &Checkpoint) -> u8 {
    let outcome = Stop::on_signals().and_then(|stop| Writer::open(options, stop)).map(Writer::work);
    match outcome {
        Ok(code) => code,
        Err(why) => {
            complain(&why);
            code::SYSTEM
        }
    }
}

struct Writer<'a> {
    options: &'a Checkpoint,
    names: Vec<String>,
    folder: Folder,
    stop: Stop,
    /// The publishers' incarnation, and the number of the newest version that is on disk.
    safe: (u64, u64),
    safe_since: Instant,
    saved: u64,
    failed: Option<file::Error>,
}

impl<'a> Writer<'a> {
    fn open(options: &'a Checkpoint, stop: Stop) -> Result<Self, String> {
        let names = series::of_ranks(&options.series, options.ranks);
        let name = options.name.clone().unwrap_or_else(|| file::base_of(&names[0]));
        let folder = Folder::open(&options.to, &name, &mut |said| say(&said)).map_err(|e| e.to_string())?;
        let newest = folder.newest().map_err(|e| e.to_string())?;
        let safe = newest.as_ref().and_then(|c| {
            say(&format!("goes on behind {}", c.path().display()));
            let life = c.attributes().find(|(name, _)| name == LIFE).map(|(_, value)| value.clone());
            let Some(Value::U64(life)) = life else { return None };
            Some((life, c.sequence(c.series().next()?).ok()?))
        });
        let safe = safe.unwrap_or((0, 0));
        Ok(Self { options, names, folder, stop, safe, safe_since: Instant::now(), saved: 0, failed: None })
    }

    /// Follows one incarnation of the publishers after the other, until they end in order or the user stops the
    /// command.
    fn work(mut self) -> u8 {
        let mut dead = None;
        loop {
            let until = Instant::now() + self.options.wait;
            let attached = self.attach(dead, until);
            let mut set = match attached {
                Ok(set) => set,
                Err(why) => return self.end(why),
            };
            match self.follow(&mut set) {
                Ok(Some(life)) => dead = Some(life),
                Ok(None) => return self.end(String::new()),
                Err(why) => return self.end(why),
            }
        }
    }

    /// Opens observers of publishers that are not of the incarnation `dead`.
    fn attach(&self, dead: Option<u64>, until: Instant) -> Result<Set, String> {
        loop {
            let observers = series::observe(&self.wanted(dead.is_some() || self.options.former, until), &self.stop)?;
            let set = Set::new(&self.names, observers);
            if dead != Some(set.incarnation()) {
                return Ok(set);
            }
            if Instant::now() >= until {
                return Err(format!("no successor of the publisher of {} came", series::together(&self.names)));
            }
            std::thread::sleep(LOOK / 2);
            if self.stop.asked().is_some() {
                return Err("stopped".into());
            }
        }
    }

    /// After a publisher's death, the dead publisher's series is observed until its successor's exists.
    fn wanted(&self, former: bool, until: Instant) -> series::Wanted<'_> {
        let wait = until.saturating_duration_since(Instant::now());
        series::Wanted { names: &self.names, socket: self.options.socket.as_deref(), wait, former }
    }

    /// Saves versions until the publishers end (`None`) or die (then their incarnation is returned).
    fn follow(&mut self, set: &mut Set) -> Result<Option<u64>, String> {
        if self.safe.0 != set.incarnation() {
            self.safe = (set.incarnation(), 0);
        }
        loop {
            let (state, who) = set.state();
            let who = who.to_owned();
            if state != SeriesState::Live || self.stop.asked().is_some() {
                // The last version exists only as long as the publisher's memory, so it is written at once.
                self.save_if(set, 1)?;
                return match state {
                    SeriesState::Died => {
                        say(&format!("the publisher of {who} died; version {} is safe", self.safe.1));
                        Ok(Some(set.incarnation()))
                    }
                    _ => Ok(None),
                };
            }
            match self.options.every {
                Every::Versions(n) => {
                    if set.wait(LOOK)? {
                        self.save_if(set, n)?;
                    }
                }
                Every::Time(pause) => match (self.safe_since + pause).checked_duration_since(Instant::now()) {
                    Some(rest) => std::thread::sleep(rest.min(LOOK)),
                    None if set.wait(LOOK)? => self.save_if(set, 1)?,
                    None => {}
                },
            }
        }
    }

    /// Saves the newest version that all ranks have, if its number is at least `newer_by` above that of the last saved
    /// one.
    fn save_if(&mut self, set: &mut Set, newer_by: u64) -> Result<(), String> {
        let Some(versions) = set.common(Duration::from_secs(1))? else { return Ok(()) };
        let sequence = versions[0].sequence();
        if sequence < self.safe.1.saturating_add(newer_by) {
            return Ok(());
        }
        match self.save(set, &versions) {
            Ok(line) => {
                say(&line);
                self.safe.1 = sequence;
                self.saved += 1;
                self.failed = None;
            }
            // A full disk must not stop the publisher. The next version is tried again.
            Err(e) => {
                if self.failed.as_ref() != Some(&e) {
                    complain(&format!("version {sequence} was not saved: {e}"));
                }
                self.failed = Some(e);
                std::thread::sleep(LOOK);
            }
        }
        self.safe_since = Instant::now();
        Ok(())
    }

    fn save(&mut self, set: &Set, versions: &[Version]) -> Result<String, file::Error> {
        let trouble = |message| file::Error::new(crossdock_layout::Status::Invalid, message);
        let mut whole = Contents { attributes: vec![(LIFE.into(), Value::U64(set.incarnation()))], series: Vec::new() };
        for ((name, observer), version) in set.each().zip(versions) {
            whole.series.push(contents::of(name, observer, version).map_err(trouble)?);
        }
        let saved = self.folder.save(&whole, &|| versions.iter().all(contents::is_steady))?;
        self.folder.prune(self.options.keep as usize)?;
        let words: Vec<String> =
            whole.series[0].attributes.iter().map(|(name, value)| format!("{name} {value}")).collect();
        Ok(format!(
            "{}: version {} of {} ({}), {} in {:.0} ms",
            saved.path.display(),
            versions[0].sequence(),
            series::together(&self.names),
            words.join(", "),
            units::show(saved.length),
            saved.took.as_secs_f64() * 1e3
        ))
    }

    fn end(&self, why: String) -> u8 {
        say(&format!("{} checkpoints written", self.saved));
        if let Some(e) = &self.failed {
            complain(&format!("the last one was not written: {e}"));
            return code::SYSTEM;
        }
        match self.stop.asked() {
            Some(code) => code,
            None if why.is_empty() => code::OK,
            None => {
                complain(&why);
                code::UNAVAILABLE
            }
        }
    }
}
