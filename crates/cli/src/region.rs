//! `crossdock region`: copies and moves regions to this node.

use crossdock_launch::run::code;
use crossdock_layout::wire::SegmentKind;

use crate::args::{RegionCommand, RegionOptions};
use crate::table::{complain, say};
use crossdock_web::find;

/// The workflow that is meant if a name is given without a workflow.
const DEFAULT: &str = "default";

pub fn region(command: &RegionCommand) -> u8 {
    let done = match command {
        RegionCommand::Copy { region, copy, common } => bring(region, Some(copy), common),
        RegionCommand::Move { region, common } => bring(region, None, common),
    };
    match done {
        Ok(line) => {
            say(&line);
            code::OK
        }
        Err(why) => {
            complain(&why);
            code::UNAVAILABLE
        }
    }
}

/// Copies the region to this node under the name `copy`. If `copy` is `None`, moves the region to this node.
fn bring(given: &str, copy: Option<&str>, options: &RegionOptions) -> Result<String, String> {
    let socket = options.socket.as_deref();
    let mut in_sites = Vec::new();
    for daemon in find::daemons(socket)? {
        if let Some(node) = this_node(&daemon)? {
            in_sites.push((daemon, node));
        }
    }
    let [(daemon, node)] = &in_sites[..] else {
        return Err(match &in_sites[..] {
            [] => "no daemon of yours is in a site, so there is no other node; start it with `crossdock serve --site`"
                .into(),
            several => {
                let places: Vec<_> = several.iter().map(|(daemon, _)| daemon.place.clone()).collect();
                format!("several daemons of yours are in sites: {}; say which one with --socket", places.join(", "))
            }
        });
    };
    let listing = daemon.session.list().map_err(|error| error.to_string())?;
    let workflows = listing.workflows.iter().map(|workflow| workflow.name.as_str());
    let split = |workflow: &'_ str| Some(given.strip_prefix(workflow)?.strip_prefix('/')?.to_owned());
    let found = workflows.filter_map(|workflow| Some((workflow, split(workflow)?))).max_by_key(|found| found.0.len());
    let (workflow, name) = found.unwrap_or((DEFAULT, given.to_owned()));
    let session = daemon.inside(workflow, socket)?;
    let region = SegmentKind::Region.word();
    match copy {
        Some(copy) => {
            let copy = split(workflow).and(copy.strip_prefix(&format!("{workflow}/"))).unwrap_or(copy);
            session.copy_region(&name, copy, options.timeout).map_err(|error| error.to_string())?;
            Ok(format!("copied {region} {workflow}/{name} to {workflow}/{copy} on node {node}"))
        }
        None => {
            session.move_region(&name, options.timeout).map_err(|error| error.to_string())?;
            Ok(format!("{region} {workflow}/{name} is on node {node}"))
        }
    }
}

/// Gives the name of the daemon's node, if the daemon is in a site.
fn this_node(daemon: &find::FoundDaemon) -> Result<Option<String>, String> {
    use crossdock_client::NodeState::{CutOff, Here};
    let nodes = daemon.session.nodes().map_err(|error| error.to_string())?;
    Ok(nodes.into_iter().find(|node| matches!(node.state, Here | CutOff)).map(|node| node.name))
}
