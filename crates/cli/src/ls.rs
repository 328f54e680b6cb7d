//! `crossdock ls`

use crossdock_client::{Listing, SegmentKind};
use crossdock_launch::file::units;
use crossdock_launch::run::code;
use serde_json::{Value, json};

use crate::args::Ls;
use crate::table::{columns, complain, say};
use crossdock_web::find;

pub fn ls(options: &Ls) -> u8 {
    if options.files {
        return crate::directories::list(options.look.json);
    }
    if options.nodes {
        return crate::nodes::list(&options.look);
    }
    let options = &options.look;
    let found = match find::daemons(options.socket.as_deref()) {
        Ok(found) => found,
        Err(e) => {
            complain(&e);
            return code::UNAVAILABLE;
        }
    };
    let mut listings = Vec::new();
    for daemon in &found {
        match daemon.session.list() {
            Ok(listing) => listings.push((daemon.place.clone(), listing)),
            Err(e) => complain(&format!("{}: {}", daemon.place, e)),
        }
    }
    if options.json {
        let daemons: Vec<Value> = listings.iter().map(|(place, l)| as_json(place, l)).collect();
        crate::table::json(&json!({ "daemons": daemons }));
    } else if listings.is_empty() {
        say(
            "no daemon of yours is running: nothing to list (`crossdock run` and programs start one when they need it)",
        );
    } else {
        let texts: Vec<String> = listings.iter().map(|(place, l)| as_text(place, l)).collect();
        say(&texts.join("\n\n"));
    }
    code::OK
}

/// `region`, `port`, `series` or `item`.
pub fn kind(kind: SegmentKind) -> &'static str {
    kind.word()
}

fn as_json(place: &str, l: &Listing) -> Value {
    let workflows: Vec<Value> =
        l.workflows.iter().map(|w| json!({ "name": w.name, "quota": w.quota, "reserved": w.reserved })).collect();
    let members: Vec<Value> = l
        .members
        .iter()
        .map(|m| json!({ "id": m.id.0, "workflow": m.workflow, "task": m.task, "rank": m.rank, "pid": m.pid, "uid": m.uid, "connected": m.connected }))
        .collect();
    let segments: Vec<Value> = l
        .segments
        .iter()
        .map(|s| {
            json!({ "id": s.id.0, "kind": kind(s.kind), "workflow": s.workflow, "name": s.name, "size": s.size, "reserved": s.reserved, "creator": s.creator.0 })
        })
        .collect();
    let items: Vec<Value> = l.items.iter().map(crate::items::json).collect();
    json!({ "place": place, "workflows": workflows, "members": members, "segments": segments, "items": items })
}

fn as_text(place: &str, l: &Listing) -> String {
    let mut parts = vec![format!("{place}:")];
    let quota = |n: u64| if n == 0 { "the node's".to_owned() } else { units::show(n) };
    let rows: Vec<_> =
        l.workflows.iter().map(|w| vec![w.name.clone(), units::show(w.reserved), quota(w.quota)]).collect();
    if !rows.is_empty() {
        parts.push(columns(&["WORKFLOW", "MEMORY", "QUOTA"], &rows));
    }
    let rows: Vec<_> = l
        .segments
        .iter()
        // Items have a table of their own; what was copied away and is clung to stays here.
        .filter(|s| s.kind != SegmentKind::Item || s.removed)
        .map(|s| {
            let creator = l
                .members
                .iter()
                .find(|m| m.id == s.creator)
                .map_or_else(|| format!("member {}", s.creator.0), |m| m.task.clone());
            vec![
                kind(s.kind).to_owned(),
                format!("{}/{}", s.workflow, s.name),
                units::show(s.size),
                units::show(s.reserved),
                creator,
            ]
        })
        .collect();
    if !rows.is_empty() {
        parts.push(columns(&["SEGMENT", "NAME", "CAPACITY", "MEMORY", "MADE BY"], &rows));
    }
    parts.extend(crate::items::table(l));
    let rows: Vec<_> = l
        .members
        .iter()
        .map(|m| {
            let standing = if m.connected { "connected" } else { "away" };
            vec![
                format!("{}/{}", m.workflow, m.task),
                m.rank.to_string(),
                m.pid.to_string(),
                m.uid.to_string(),
                standing.to_owned(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        parts.push(columns(&["TASK", "RANK", "PROCESS", "USER", "STANDING"], &rows));
    }
    parts.join("\n")
}
