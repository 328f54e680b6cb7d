//! The node daemon as a program of its own, for tests. Users run `crossdock serve`, which has the same options.

use std::process::ExitCode;
use std::time::Duration;

use crossdock_node::{CatalogAddress, Choice, GatewayOptions, ServeOptions, SiteOptions, serve};

fn main() -> ExitCode {
    let mut options = ServeOptions::default();
    let mut site = SiteOptions {
        site: String::new(),
        node: String::new(),
        catalog: CatalogAddress::Etcd(Vec::new()),
        catalog_socket: None,
        listen: None,
        certificates: None,
        trusted_network: false,
        transport: Choice::Auto,
        lease: GatewayOptions::LEASE,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "serve" => {}
            "--private" => options.private = true,
            "--detach" => options.detach = true,
            "--socket" => options.socket = Some(value().into()),
            "--idle-ms" => options.idle = Duration::from_millis(value().parse().unwrap_or(1000)),
            "--memory" => options.memory = value().parse().unwrap_or(0),
            "--site" => site.site = value(),
            "--node" => site.node = value(),
            "--catalog" => match value().parse() {
                Ok(catalog) => site.catalog = catalog,
                Err(why) => {
                    eprintln!("crossdock-node: {why}");
                    return ExitCode::from(2);
                }
            },
            "--catalog-socket" => site.catalog_socket = value().parse().ok(),
            "--certificates" => site.certificates = Some(value().into()),
            "--listen" => site.listen = Some(value()),
            "--trusted-network" => site.trusted_network = true,
            "--transport" => match value().parse() {
                Ok(transport) => site.transport = transport,
                Err(why) => {
                    eprintln!("crossdock-node: {why}");
                    return ExitCode::from(2);
                }
            },
            "--lease-ms" => site.lease = Duration::from_millis(value().parse().unwrap_or(10_000)),
            other => {
                eprintln!("crossdock-node: unknown argument '{other}'");
                return ExitCode::from(2);
            }
        }
    }
    if !site.site.is_empty() {
        options.site = Some(site);
    }
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crossdock-node: {error}");
            ExitCode::FAILURE
        }
    }
}
