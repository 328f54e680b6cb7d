//! `crossdock ls --nodes`: lists the nodes of a site.

use std::path::Path;

use crossdock_client::{NodeInfo, NodeState};
use crossdock_launch::run::code;
use serde_json::{Value, json};

use crate::output::Output;
use crate::table::{columns, complain};
use crossdock_web::find;

/// Lists the nodes of each daemon's site.
pub fn list(socket: Option<&Path>, output: &Output) -> u8 {
    output.show(|| {
        let found = find::daemons(socket).map_err(|e| (code::UNAVAILABLE, e))?;
        let mut listings = Vec::new();
        for daemon in &found {
            match daemon.session.nodes() {
                Ok(nodes) => listings.push((daemon.place.clone(), nodes)),
                Err(e) => complain(&format!("{}: {e}", daemon.place)),
            }
        }
        let daemons = listings.iter().map(|(place, nodes)| {
            json!({ "place": place, "site": nodes.first().map(|n| &n.site), "nodes": nodes.iter().map(as_json).collect::<Vec<_>>() })
        });
        let value = json!({ "daemons": daemons.collect::<Vec<_>>() });
        let texts: Vec<_> = listings.iter().filter_map(|(place, nodes)| as_text(place, nodes)).collect();
        let text = match texts.is_empty() {
            true => "no daemon of yours is a node of a site (`crossdock serve --site` makes one)".to_owned(),
            false => texts.join("\n\n"),
        };
        Ok((value, text))
    })
}

fn as_json(node: &NodeInfo) -> Value {
    json!({
        "name": node.name, "number": node.number, "state": node.state.word(), "silent_ms": node.silent.as_millis() as u64,
        "names": node.names, "address": node.address, "transport": node.transport,
        "round_trip_us": node.round_trip.map(|took| took.as_micros() as u64), "why_not_better": node.why,
    })
}

fn as_text(place: &str, nodes: &[NodeInfo]) -> Option<String> {
    let site = &nodes.first()?.site;
    let row = |node: &NodeInfo| {
        let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let took = node.round_trip.map(|took| format!("{} µs", took.as_micros()));
        let seen = format!("{} s ago", node.silent.as_secs());
        vec![
            node.name.clone(),
            node.number.to_string(),
            node.state.word().to_owned(),
            seen,
            node.names.to_string(),
            or_none(&node.address),
            or_none(node.transport.as_deref().unwrap_or("")),
            or_none(&took.unwrap_or_default()),
            or_none(&node.why),
        ]
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    let table = columns(
        &["NODE", "NUMBER", "STATE", "LAST SEEN", "NAMES", "ADDRESS", "LINK", "ROUND TRIP", "WHY NOT BETTER"],
        &rows,
    );
    let cut_off = nodes.iter().any(|node| node.state == NodeState::CutOff);
    let old = if cut_off { "\nthis node is cut off from the catalog: what it knows of others may be old" } else { "" };
    Some(format!("{place}, site {site}:\n{table}{old}"))
}
