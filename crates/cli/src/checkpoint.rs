//! `crossdock checkpoint`: an observer that writes versions to disk. If the publisher dies or ends, the command saves
//! the publisher's last version.

use std::time::{Duration, Instant};

use crossdock_checkpoint::{self as file, Contents, Folder, Value};
use crossdock_client::{SeriesState, Version};
use crossdock_launch::file::units;
use crossdock_launch::run::code;

use crate::args::Checkpoint;
use crate::series::durations::Every;
use crate::series::ranked_observers::RankedObservers;
use crate::series::{self, LOOK, StopSignal, contents};
use crate::table::{complain, say, visible};

/// The attribute at the root of a checkpoint file that holds the id of the first rank's series. This id changes when
/// the publishers are started again.
const LIFE: &str = "publisher";

/// If the ranks publish versions, but for this long no version number exists in all ranks, the command reports this.
const APART: Duration = Duration::from_secs(10);

pub fn checkpoint(options: &Checkpoint) -> u8 {
    let outcome = StopSignal::on_signals().and_then(|stop| Writer::open(options, stop)).map(Writer::work);
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
    stop: StopSignal,
    /// The id of the first rank's series, which changes when the publishers are started again, and the number of the
    /// publishers' newest version that is on disk.
    safe: (u64, u64),
    safe_since: Instant,
    saved: u64,
    failed: Option<file::Error>,
    /// The last error of removing old checkpoints. It is kept so that the same error is not reported again.
    kept: Option<file::Error>,
    /// Set while the ranks have versions that are newer than the last saved version, but no newer version number is
    /// common to all ranks. The fields say since when this has been so, and whether the command has reported it.
    apart: Option<(Instant, bool)>,
}

impl<'a> Writer<'a> {
    fn open(options: &'a Checkpoint, stop: StopSignal) -> Result<Self, String> {
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
        let safe_since = Instant::now();
        Ok(Self { options, names, folder, stop, safe, safe_since, saved: 0, failed: None, kept: None, apart: None })
    }

    /// Saves versions of the publishers and, if they die, of their successors. Ends when publishers end without an
    /// error, or when the user stops the command.
    fn work(mut self) -> u8 {
        let mut dead = Vec::new();
        // The observers of dead publishers stay open until the successors are observed. The daemon of another node
        // keeps the id of a series only while the series is observed, and the search for successors needs the ids of
        // the dead publishers' series.
        let mut _held = None;
        loop {
            let until = Instant::now() + self.options.wait;
            let attached = self.attach(&dead, until);
            let mut set = match attached {
                Ok(set) => set,
                Err(why) => return self.end(why),
            };
            match self.follow(&mut set) {
                Ok(Some(ids)) => (dead, _held) = (ids, Some(set)),
                Ok(None) => return self.end(String::new()),
                Err(why) => return self.end(why),
            }
        }
    }

    /// Opens observers of the successors of the publishers whose series have the ids `dead`. If `dead` is empty,
    /// observes any publishers that belong to one start of the program.
    fn attach(&self, dead: &[u64], until: Instant) -> Result<RankedObservers, String> {
        let mut reported = !dead.is_empty();
        // A search may find publishers that are not the successors. Their observers stay open until the next search has
        // ended, so that the mirrors of series of other nodes stay. A new mirror says that its publisher lives until
        // the other node has told it otherwise. So a search that made new mirrors could take an ended series for a
        // living one.
        let mut held = None;
        loop {
            let wanted = self.wanted(!dead.is_empty() || self.options.former, until);
            let observers = match series::observe(&wanted, &self.stop) {
                // The search may fail because a series has no room for a second observer. So the observers in `held`
                // are closed, and the search is repeated.
                Err(_) if held.take().is_some() => {
                    std::thread::sleep(LOOK / 2);
                    continue;
                }
                observers => observers?,
            };
            let set = RankedObservers::new(&self.names, observers);
            if set.succeeds(dead, self.options.former && dead.is_empty()) {
                return Ok(set);
            }
            if Instant::now() >= until {
                let names = series::together(&self.names);
                return Err(format!("not all publishers of {names} live, and no successors of all of them came"));
            }
            if !reported {
                complain(&format!(
                    "some publishers of {} died or ended; waiting up to {:.1} s for successors of all (--wait)",
                    series::together(&self.names),
                    self.options.wait.as_secs_f64()
                ));
                reported = true;
            }
            std::thread::sleep(LOOK / 2);
            if self.stop.asked().is_some() {
                return Err("stopped".into());
            }
            held = Some(set);
        }
    }

    /// Says which series to observe, and how long to wait. After a publisher's death, the dead publisher's series is
    /// observed until the series of its successor exists.
    fn wanted(&self, former: bool, until: Instant) -> series::SeriesSelection<'_> {
        let wait = until.saturating_duration_since(Instant::now());
        series::SeriesSelection { names: &self.names, socket: self.options.socket.as_deref(), wait, former }
    }

    /// Saves versions until the publishers end or one of them dies. Returns `None` after an end, and the ids of all
    /// publishers' series after a death.
    fn follow(&mut self, set: &mut RankedObservers) -> Result<Option<Vec<u64>>, String> {
        if self.safe.0 != set.incarnation() {
            self.safe = (set.incarnation(), 0);
        }
        loop {
            let (state, who) = set.state();
            let who = who.to_owned();
            if state != SeriesState::Live || self.stop.asked().is_some() {
                // The publishers publish no more, or a signal has asked the command to end. So the last version is
                // saved now, whatever `--every` says.
                let there = self.save_if(set, 1)?;
                if !there && set.newest_of_all() > self.safe.1 {
                    complain(&format!("the last versions have no number in common: {}", set.apart()));
                }
                return match state {
                    SeriesState::Died => {
                        say(&format!("the publisher of {who} died; version {} is safe", self.safe.1));
                        Ok(Some(set.ids()))
                    }
                    _ => Ok(None),
                };
            }
            let newer_by = match self.options.every {
                Every::Versions(n) => n,
                Every::Time(pause) => {
                    if let Some(rest) = (self.safe_since + pause).checked_duration_since(Instant::now()) {
                        std::thread::sleep(rest.min(LOOK));
                        continue;
                    }
                    1
                }
            };
            // If `save_if` found no version with the same number in all ranks, it is called again even if nothing was
            // published meanwhile.
            if set.wait(self.safe.1.saturating_add(newer_by), LOOK)? {
                let there = self.save_if(set, newer_by)?;
                self.tell_apart(set, there);
            }
        }
    }

    /// Reports once that, for the time `APART`, the ranks had versions newer than the last saved version, but no such
    /// version number existed in all ranks. `there` says whether a version number that exists in all ranks was found
    /// now.
    fn tell_apart(&mut self, set: &RankedObservers, there: bool) {
        if there {
            self.apart = None;
            return;
        }
        let (since, reported) = self.apart.get_or_insert_with(|| (Instant::now(), false));
        if since.elapsed() >= APART && !*reported {
            let seconds = APART.as_secs();
            complain(&format!(
                "for {seconds} s there was no version that all of {} have: {}\n  hint: let the publishers keep more versions",
                series::together(&self.names),
                set.apart()
            ));
            *reported = true;
        }
        std::thread::sleep(LOOK / 10);
    }

    /// Saves the newest version that all ranks have, if its number is at least `newer_by` greater than the number of
    /// the last saved version. Returns false if no version number exists in all ranks.
    fn save_if(&mut self, set: &mut RankedObservers, newer_by: u64) -> Result<bool, String> {
        let Some(versions) = set.common(Duration::from_secs(1))? else { return Ok(false) };
        let sequence = versions[0].sequence();
        if sequence < self.safe.1.saturating_add(newer_by) {
            return Ok(true);
        }
        match self.save(set, &versions) {
            Ok(line) => {
                say(&line);
                self.safe.1 = sequence;
                self.saved += 1;
                self.failed = None;
                self.prune();
            }
            // A full disk must not stop the publisher, so the command continues, and tries to save the next version.
            Err(e) => {
                if self.failed.as_ref() != Some(&e) {
                    complain(&format!("version {sequence} was not saved: {e}"));
                }
                self.failed = Some(e);
                std::thread::sleep(LOOK);
            }
        }
        self.safe_since = Instant::now();
        Ok(true)
    }

    /// Removes old checkpoints. If this fails, no data is lost, because the new checkpoint is on disk. So the error is
    /// only reported, and the same error is not reported twice in a row.
    fn prune(&mut self) {
        let failed = self.folder.prune(self.options.keep as usize).err();
        if let Some(e) = failed.as_ref().filter(|e| self.kept.as_ref() != Some(e)) {
            complain(&format!("an old checkpoint stays: {e}"));
        }
        self.kept = failed;
    }

    fn save(&mut self, set: &RankedObservers, versions: &[Version]) -> Result<String, file::Error> {
        let trouble = |message| file::Error::new(crossdock_layout::Status::Invalid, message);
        let mut whole = Contents { attributes: vec![(LIFE.into(), Value::U64(set.incarnation()))], series: Vec::new() };
        for ((name, observer), version) in set.each().zip(versions) {
            whole.series.push(contents::of(name, observer, version).map_err(trouble)?);
        }
        let saved = self.folder.save(&whole, &|| versions.iter().all(contents::is_steady))?;
        let words: Vec<String> =
            whole.series[0].attributes.iter().map(|(name, value)| format!("{name} {value}")).collect();
        Ok(format!(
            "{}: version {} of {} ({}), {} in {:.0} ms",
            saved.path.display(),
            versions[0].sequence(),
            series::together(&self.names),
            visible(&words.join(", ")),
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
