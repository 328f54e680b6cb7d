//! The daemon alone, for the tests of these layers; people use `crossdock serve`, which has the same options.

use std::process::ExitCode;
use std::time::Duration;

use crossdock_node::{ServeOptions, serve};

fn main() -> ExitCode {
    let mut options = ServeOptions::default();
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
            other => {
                eprintln!("crossdock-node: unknown argument '{other}'");
                return ExitCode::from(2);
            }
        }
    }
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crossdock-node: {error}");
            ExitCode::FAILURE
        }
    }
}
