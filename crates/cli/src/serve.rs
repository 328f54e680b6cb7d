//! `crossdock serve`: runs the node daemon.

use std::os::fd::AsFd;

use crossdock_launch::run::code;
use crossdock_node::{ServeOptions, SiteOptions};
use crossdock_os::spawn::host_name;

use crate::args::Serve;
use crate::table::complain;

pub fn serve(options: Serve) -> u8 {
    let ready = if options.ready {
        match std::io::stdout().as_fd().try_clone_to_owned() {
            Ok(fd) => Some(fd),
            Err(e) => {
                complain(&format!("cannot report readiness on standard output: {e}"));
                return code::SYSTEM;
            }
        }
    } else {
        None
    };
    if options.web {
        if let Err(why) = crate::web::beside(&options.page, options.socket.as_ref()) {
            complain(&why);
            return code::SYSTEM;
        }
    }
    let site = options.site.zip(options.catalog).map(|(site, catalog)| SiteOptions {
        site,
        node: options.node.unwrap_or_else(host_name),
        catalog,
        catalog_socket: options.catalog_socket,
        listen: options.listen,
        certificates: options.certificates,
        trusted_network: options.trusted_network,
        transport: options.transport,
        lease: options.lease,
    });
    let serve = ServeOptions {
        site,
        socket: options.socket,
        private: options.private,
        idle: options.idle,
        memory: options.memory.unwrap_or(0),
        ready,
        detach: options.detach,
        ..ServeOptions::default()
    };
    match crossdock_node::serve(serve) {
        Ok(()) => code::OK,
        Err(e) => {
            complain(&e.to_string());
            code::UNAVAILABLE
        }
    }
}
