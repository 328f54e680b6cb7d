//! `crossdock inspect`: shows one object in detail.

mod series;

use std::time::Duration;

use crossdock_client::{EndInfo, Mode, PortReport, SegmentInfo, SegmentKind, Session};
use crossdock_launch::file::{nearest, units};
use crossdock_launch::run::code;
use serde_json::{Value, json};

use crate::args::Inspect;
use crate::ls::kind;
use crate::table::columns;
use crossdock_web::find::{self, FoundDaemon};

pub fn inspect(options: &Inspect) -> u8 {
    options.output.show(|| {
        let parts = look(options).map_err(|e| (code::UNAVAILABLE, e))?;
        let (texts, values): (Vec<String>, Vec<Value>) = parts.into_iter().unzip();
        Ok((json!({ "segments": values }), texts.join("\n\n")))
    })
}

fn look(options: &Inspect) -> Result<Vec<(String, Value)>, String> {
    let socket = options.socket.as_deref();
    let mut known = Vec::new();
    let mut parts = Vec::new();
    for daemon in find::daemons(socket)? {
        let listing = daemon.session.list().map_err(|e| e.to_string())?;
        for item in &listing.items {
            let whole = format!("{}/{}", item.workflow, item.key);
            if options.name == whole || options.name == item.key {
                parts.push((crate::items::text(item, &listing), crate::items::json(item)));
            }
            known.push(whole);
        }
        for segment in listing.segments.into_iter().filter(|s| s.kind != SegmentKind::Item) {
            let whole = format!("{}/{}", segment.workflow, segment.name);
            if options.name == whole || options.name == segment.name {
                parts.push(one(&daemon, &segment, socket)?);
            }
            known.push(whole);
        }
    }
    if !parts.is_empty() {
        return Ok(parts);
    }
    let name = &options.name;
    let short = known.iter().filter_map(|k| Some(k.split_once('/')?.1));
    Err(match nearest(name, known.iter().map(String::as_str).chain(short)) {
        Some(near) => format!("there is no region, port, series or item `{name}`; did you mean `{near}`?"),
        None if known.is_empty() => {
            format!(
                "there is no region, port, series or item `{name}`, nor any other; `crossdock ls` shows what there is"
            )
        }
        None => format!("there is no region, port, series or item `{name}`; there are: {}", known.join(", ")),
    })
}

fn one(
    daemon: &FoundDaemon,
    segment: &SegmentInfo,
    socket: Option<&std::path::Path>,
) -> Result<(String, Value), String> {
    let inside = daemon.inside(&segment.workflow, socket)?;
    let head = format!(
        "{} {}/{} (segment {}), capacity {}, memory {}",
        kind(segment.kind),
        segment.workflow,
        segment.name,
        segment.id.0,
        units::show(segment.size),
        units::show(segment.reserved)
    );
    let mut value = json!({
        "kind": kind(segment.kind), "workflow": segment.workflow, "name": segment.name, "id": segment.id.0,
        "size": segment.size, "reserved": segment.reserved,
    });
    let (text, more) = match segment.kind {
        SegmentKind::Region => region(&inside, &segment.name)?,
        SegmentKind::Item => (String::new(), Value::Null),
        SegmentKind::Port => port(&inside.port_report(segment.id).map_err(|e| e.to_string())?),
        SegmentKind::Series => series::look(&inside, segment)?,
    };
    if let (Value::Object(all), Value::Object(more)) = (&mut value, more) {
        all.extend(more);
    }
    Ok((format!("{head}\n{text}"), value))
}

fn region(inside: &Session, name: &str) -> Result<(String, Value), String> {
    let region = inside.region(name, Mode::OpenOnly, 0, Some(Duration::ZERO)).map_err(|e| e.to_string())?;
    let (s, objects) = (region.statistics(), region.objects().map_err(|e| e.to_string())?);
    let mut text = format!(
        "  in use {} in {} blocks, {} members at work in it, largest free block {}",
        units::show(s.used),
        s.blocks,
        s.slots,
        units::show(s.largest_free)
    );
    if !objects.is_empty() {
        let row = |o: &crossdock_client::ObjectInfo| {
            vec![format!("  {}", o.name), o.ty.name.clone(), o.ty.size.to_string(), o.offset.to_string()]
        };
        let rows: Vec<_> = objects.iter().map(row).collect();
        text += &format!("\n{}", columns(&["  OBJECT", "TYPE", "BYTES", "OFFSET"], &rows));
    }
    let list: Vec<Value> = objects.iter().map(|o| json!({ "name": o.name, "type": o.ty.name, "bytes": o.ty.size, "align": o.ty.align, "offset": o.offset })).collect();
    let value = json!({ "used": s.used, "blocks": s.blocks, "slots": s.slots, "largest_free": s.largest_free, "objects": list });
    Ok((text, value))
}

fn port(r: &PortReport) -> (String, Value) {
    let s = &r.statistics;
    let pattern = r.shape.pattern.word();
    let mut text = format!(
        "  {pattern}, {} cells, {} messages sent, {} taken, {} in flight, {} handed over, {} copied",
        r.shape.capacity,
        s.messages,
        s.received,
        s.under_way,
        units::show(s.bytes_handed_over),
        units::show(s.bytes_copied)
    );
    let seconds = |ns: u64| format!("{:.2} s", ns as f64 * 1e-9);
    let row = |e: &EndInfo| {
        let state = match (e.alive, e.waiting) {
            (false, _) => "dead or gone",
            (true, true) => "waits",
            (true, false) => "at work",
        };
        vec![
            format!("  {:?}", e.end),
            e.task.clone(),
            e.messages.to_string(),
            seconds(e.wait_ns),
            format!("{:.1} s ago", e.last_seen.as_secs_f64()),
            state.to_owned(),
        ]
    };
    if !r.ends.is_empty() {
        let rows: Vec<_> = r.ends.iter().map(row).collect();
        text += &format!("\n{}", columns(&["  END", "TASK", "MESSAGES", "WAITED", "SEEN", "STATE"], &rows));
    }
    let ends: Vec<Value> = r
        .ends
        .iter()
        .map(|e| {
            json!({ "end": format!("{:?}", e.end).to_lowercase(), "task": e.task, "member": e.member.0, "alive": e.alive, "waiting": e.waiting,
                    "messages": e.messages, "wait_ns": e.wait_ns, "last_seen_seconds": e.last_seen.as_secs_f64() })
        })
        .collect();
    let value = json!({
        "pattern": pattern, "capacity": r.shape.capacity, "messages": s.messages, "received": s.received, "under_way": s.under_way,
        "bytes_handed_over": s.bytes_handed_over, "bytes_copied": s.bytes_copied, "producer_wait_ns": s.producer_wait_ns,
        "consumer_wait_ns": s.consumer_wait_ns, "redelivered": s.redelivered, "voided": s.voided, "ends": ends,
    });
    (text, value)
}
