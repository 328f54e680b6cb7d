//! `crossdock export`: writes one version as a file.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossdock_checkpoint::{Contents, Error, write, write_npz};
use crossdock_client::{SeriesState, Status, Version};
use crossdock_launch::file::units;
use crossdock_launch::run::code;
use crossdock_os::child;

use crate::args::Export;
use crate::series::ranked_observers::RankedObservers;
use crate::series::{self, StopSignal, contents};
use crate::table::{complain, say};

pub fn export(options: &Export) -> u8 {
    match one(options) {
        Ok(line) => {
            say(&line);
            code::OK
        }
        Err((code, why)) => {
            complain(&why);
            code
        }
    }
}

type Failure = (u8, String);

fn one(options: &Export) -> Result<String, Failure> {
    let as_npz = match options.file.extension().and_then(|e| e.to_str()) {
        Some("npz") => true,
        Some("h5" | "hdf5") => false,
        _ => return Err((code::USAGE, format!("{}: end its name in .h5 or .npz", options.file.display()))),
    };
    let names = series::of_ranks(std::slice::from_ref(&options.series), options.ranks);
    if as_npz && names.len() > 1 {
        return Err((code::USAGE, ".npz holds one series; take .h5 for several ranks".into()));
    }
    let away = |why| (code::UNAVAILABLE, why);
    let stop = StopSignal::on_signals().map_err(|why| (code::SYSTEM, why))?;
    let until = Instant::now() + options.wait;
    let (socket, wait, former) = (options.socket.as_deref(), options.wait, options.former);
    let wanted = series::SeriesSelection { names: &names, socket, wait, former };
    let observers = series::observe(&wanted, &stop).map_err(away)?;
    let mut set = RankedObservers::new(&names, observers);
    let versions = versions(&mut set, options.sequence, until, &stop).map_err(away)?;
    let mut whole = Contents::default();
    for ((name, observer), version) in set.each().zip(&versions) {
        whole.series.push(contents::of(name, observer, version).map_err(away)?);
    }
    let good = || versions.iter().all(contents::is_steady);
    let length = put(&options.file, &whole, as_npz, &good).map_err(|e| (code::SYSTEM, e.to_string()))?;
    let what = series::together(&names);
    Ok(format!("{}: version {} of {what}, {}", options.file.display(), versions[0].sequence(), units::show(length)))
}

fn versions(
    set: &mut RankedObservers,
    sequence: Option<u64>,
    until: Instant,
    stop: &StopSignal,
) -> Result<Vec<Version>, String> {
    loop {
        let found = match sequence {
            Some(n) => set.at(n)?,
            None => set.common(Duration::from_millis(500))?,
        };
        match found {
            Some(versions) => return Ok(versions),
            None if Instant::now() >= until || stop.asked().is_some() || set.state().0 != SeriesState::Live => {
                return Err("no version came that all of the series have; is something published?".into());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Writes to a new file and renames it to its final name, so that no reader finds an incomplete file. The new file's
/// name has a random number and no process id, because a command in another container may export to the same name and
/// may have the same process id.
fn put(path: &Path, whole: &Contents, as_npz: bool, good: &dyn Fn() -> bool) -> Result<u64, Error> {
    let number = u32::from_ne_bytes(child::random().map_err(|e| refused(path, &e.reason()))?);
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{number:08x}.new"));
    let new = PathBuf::from(new);
    let file = File::create_new(&new).map_err(|e| refused(&new, &e))?;
    let done = put_new(&file, &new, whole, as_npz).and_then(|length| {
        if !good() {
            let message = "the version was taken back while it was written; try again".to_owned();
            return Err(Error::new(Status::Closed, message));
        }
        fs::rename(&new, path).map_err(|e| refused(path, &e))?;
        Ok(length)
    });
    done.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

fn put_new(file: &File, new: &Path, whole: &Contents, as_npz: bool) -> Result<u64, Error> {
    if !as_npz {
        return Ok(write(file, new, whole)?.length);
    }
    let mut out = BufWriter::new(file);
    write_npz(&mut out, &whole.series[0])?;
    out.flush().and_then(|()| file.sync_all()).map_err(|e| refused(new, &e))?;
    drop(out);
    Ok(file.metadata().map_err(|e| refused(new, &e))?.len())
}

fn refused(path: &Path, e: &std::io::Error) -> Error {
    Error::system(format!("cannot write {}", path.display()), e)
}
