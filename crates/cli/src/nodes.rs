//! `crossdock ls --nodes`

use crossdock_client::{NodeInfo, NodeState};
use crossdock_launch::run::code;
use serde_json::{Value, json};

use crate::args::Look;
use crate::table::{columns, complain, say};
use crossdock_web::find;

/// The nodes of each daemon's site.
pub fn list(options: &Look) -> u8 {
    let found = match find::daemons(options.socket.as_deref()) {
        Ok(found) => found,
        Err(e) => {
            complain(&e);
            return code::UNAVAILABLE;
        }
    };
    let mut listings = Vec::new();
    for daemon in &found {
        match daemon.session.nodes() {
            Ok(nodes) => listings.push((daemon.place.clone(), nodes)),
            Err(e) => complain(&format!("{}: {e}", daemon.place)),
        }
    }
    if options.json {
        let daemons = listings.iter().map(|(place, nodes)| {
            json!({ "place": place, "site": nodes.first().map(|n| &n.site), "nodes": nodes.iter().map(as_json).collect::<Vec<_>>() })
        });
        crate::table::json(&json!({ "daemons": daemons.collect::<Vec<_>>() }));
        return code::OK;
    }
    let texts: Vec<_> = listings.iter().filter_map(|(place, nodes)| as_text(place, nodes)).collect();
    if texts.is_empty() {
        say("no daemon of yours is a node of a site (`crossdock serve --site` makes one)");
    } else {
        say(&texts.join("\n\n"));
    }
    code::OK
}

fn as_json(node: &NodeInfo) -> Value {
    json!({
        "name": node.name, "number": node.number, "state": node.state.word(), "silent_ms": node.silent.as_millis() as u64,
        "names": node.names, "address": node.address,
    })
}

fn as_text(place: &str, nodes: &[NodeInfo]) -> Option<String> {
    let site = &nodes.first()?.site;
    let row = |node: &NodeInfo| {
        let address = if node.address.is_empty() { "-" } else { &node.address };
        let seen = format!("{} s ago", node.silent.as_secs());
        vec![
            node.name.clone(),
            node.number.to_string(),
            node.state.word().to_owned(),
            seen,
            node.names.to_string(),
            address.to_owned(),
        ]
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    let table = columns(&["NODE", "NUMBER", "STATE", "LAST SEEN", "NAMES", "ADDRESS"], &rows);
    let cut_off = nodes.iter().any(|node| node.state == NodeState::CutOff);
    let old = if cut_off { "\nthis node is cut off from the catalog: what it knows of others may be old" } else { "" };
    Some(format!("{place}, site {site}:\n{table}{old}"))
}
