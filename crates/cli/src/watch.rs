//! `crossdock watch`: prints attributes and statistics of versions when they are published.

use std::time::Instant;

use crossdock_client::{Error, Observer, SeriesState, Status, Version, diff};
use crossdock_launch::file::units;
use crossdock_launch::run::code;
use serde_json::{Map, Value as Json, json};

use crate::args::Watch;
use crate::series::statistics;
use crate::series::{self, LOOK, StopSignal, contents};
use crate::table::{complain, say, say_if_read, visible};

pub fn watch(options: &Watch) -> u8 {
    match follow(options) {
        Ok(code) => code,
        Err(why) => {
            complain(&why);
            code::UNAVAILABLE
        }
    }
}

fn follow(options: &Watch) -> Result<u8, String> {
    let stop = StopSignal::on_signals()?;
    let names = std::slice::from_ref(&options.series);
    let (socket, wait, former) = (options.socket.as_deref(), options.wait, options.former);
    let mut observers = series::observe(&series::SeriesSelection { names, socket, wait, former }, &stop)?;
    let observer = &mut observers[0];
    let (mut before, mut count, mut withheld) = (None, 0, 0);
    loop {
        let shown = Instant::now();
        if let Some(code) = stop.asked() {
            return Ok(code);
        }
        let version = match if before.is_none() { observer.latest() } else { observer.next(LOOK) } {
            Ok(version) => version,
            Err(e) if matches!(e.status, Status::Closed | Status::PeerDied) => return Ok(ended(&e.to_string())),
            Err(e) if matches!(e.status, Status::TimedOut | Status::NotYet | Status::NotFound) => {
                withheld = tell_withheld(observer, withheld, options.json);
                if before.is_none() {
                    match observer.state() {
                        SeriesState::Live => std::thread::sleep(LOOK / 10),
                        _ => return Ok(ended("the publisher is gone and published nothing")),
                    }
                }
                continue;
            }
            Err(e) => return Err(e.to_string()),
        };
        let lines = if options.json {
            as_json_line(observer, &version, before.as_ref())
        } else {
            as_text(observer, &version, before.as_ref())
        };
        match lines {
            Ok(text) if say_if_read(&text) => {}
            Ok(_) => return Ok(code::OK),
            // The publisher took the version back before the command had read it. The command continues with a newer
            // version.
            Err(e) if e.status == Status::NotFound => continue,
            Err(e) => return Err(e.to_string()),
        }
        withheld = tell_withheld(observer, withheld, options.json);
        before = Some(version);
        count += 1;
        if options.versions.is_some_and(|n| count >= n) {
            return Ok(code::OK);
        }
        // Versions that are published during the pause are skipped, so that the next line shows the newest one.
        while shown.elapsed() < options.pause && stop.asked().is_none() {
            std::thread::sleep((options.pause.saturating_sub(shown.elapsed())).min(LOOK));
        }
    }
}

fn ended(why: &str) -> u8 {
    say(why);
    code::OK
}

/// Prints how many versions were withheld, if the number grew since `before`.
fn tell_withheld(observer: &Observer, before: u64, json: bool) -> u64 {
    let withheld = observer.withheld();
    if withheld > before {
        say(&match json {
            true => json!({ "withheld": withheld }).to_string(),
            false => format!("{withheld} versions withheld so far: the pool is full, and observers hold the old ones"),
        });
    }
    withheld
}

fn as_text(observer: &Observer, version: &Version, before: Option<&Version>) -> Result<String, Error> {
    let words: Vec<String> = version.attributes().iter().map(|(n, v)| format!("{n} {}", contents::value(v))).collect();
    let mut text = format!("version {}  {}", version.sequence(), visible(&words.join(", ")));
    for variable in &observer.description().variables {
        let name = &variable.name;
        let (shape, bytes) = read(version, name)?;
        let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
        text += &format!("\n  {name}  {} [{}]  {}", variable.ty, extents.join(" × "), units::show(bytes.len() as u64));
        if let Some(s) = statistics::of(&variable.ty.to_string(), bytes) {
            text += &format!("  least {:.6} mean {:.6} greatest {:.6}", s.least, s.mean, s.greatest);
            if s.not_finite > 0 {
                text += &format!("  {} NOT FINITE", s.not_finite);
            }
        }
        if let Some(changed) = before.and_then(|before| changed(before, version, name)) {
            text += &format!("  changed since the last line: {}", units::show(changed));
        }
    }
    Ok(text)
}

/// Describes a version as one line of JSON, so that a program can read the version as soon as the line is
/// printed.
fn as_json_line(observer: &Observer, version: &Version, before: Option<&Version>) -> Result<String, Error> {
    let mut attributes = Map::new();
    for (name, value) in version.attributes() {
        attributes.insert(name.clone(), as_json(&contents::value(value)));
    }
    let mut variables = Vec::new();
    for variable in &observer.description().variables {
        let (shape, bytes) = read(version, &variable.name)?;
        let mut one =
            json!({ "name": variable.name, "type": variable.ty.to_string(), "shape": shape, "bytes": bytes.len() });
        if let Some(s) = statistics::of(&variable.ty.to_string(), bytes) {
            one["statistics"] =
                json!({ "least": s.least, "mean": s.mean, "greatest": s.greatest, "not_finite": s.not_finite });
        }
        if let Some(changed) = before.and_then(|before| changed(before, version, &variable.name)) {
            one["changed_bytes"] = changed.into();
        }
        variables.push(one);
    }
    let (sequence, time) = (version.sequence(), version.time());
    Ok(json!({ "sequence": sequence, "time_ns": time, "attributes": attributes, "variables": variables }).to_string())
}

fn read<'a>(version: &'a Version, name: &str) -> Result<(Vec<u64>, &'a [u8]), Error> {
    Ok((version.shape(name)?.to_vec(), version.bytes(name)?))
}

/// Counts the bytes in chunks that differ between two versions.
fn changed(before: &Version, version: &Version, name: &str) -> Option<u64> {
    let ranges = diff(before, version).ok()?;
    Some(ranges.iter().filter(|(variable, _)| variable == name).map(|(_, range)| range.end - range.start).sum())
}

fn as_json(value: &crossdock_checkpoint::Value) -> Json {
    use crossdock_checkpoint::Value;
    match value {
        Value::I64(n) => (*n).into(),
        Value::U64(n) => (*n).into(),
        Value::F64(x) => (*x).into(),
        Value::Text(text) => text.clone().into(),
    }
}
