//! `crossdock certificates`: makes the certificates of a site's nodes.

use std::path::Path;
use std::time::Duration;

use crossdock_launch::run::code;
use crossdock_link::{Authority, bad_node_name};

use crate::args::CertificateOptions;
use crate::table::{complain, say};

pub fn make(options: &CertificateOptions) -> u8 {
    for node in &options.nodes {
        if let Some(why) = bad_node_name(node) {
            complain(&format!("'{node}' is no name of a node: {why}"));
            return code::USAGE;
        }
    }
    match write(&options.folder, &options.nodes, Duration::from_secs(u64::from(options.days) * 86_400)) {
        Ok(()) => code::OK,
        Err(why) => {
            complain(&why);
            code::SYSTEM
        }
    }
}

fn write(folder: &Path, nodes: &[String], lasting: Duration) -> Result<(), String> {
    let authority = Authority::make("crossdock site", lasting).map_err(|error| error.to_string())?;
    for node in nodes {
        let place = folder.join(node);
        std::fs::create_dir_all(&place).map_err(|error| format!("{} cannot be made: {error}", place.display()))?;
        let credentials = authority.issue(node).map_err(|error| error.to_string())?;
        credentials.save(&place).map_err(|error| error.to_string())?;
        say(&place.display().to_string());
    }
    Ok(())
}
