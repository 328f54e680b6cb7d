//! The shim's program. It takes its role from the name under which it was started, or from its first argument.

use std::os::unix::ffi::OsStringExt;

fn main() {
    let mut words: Vec<String> =
        std::env::args_os().map(|w| String::from_utf8_lossy(&w.into_vec()).into_owned()).collect();
    let name = words.first().map(|w| w.rsplit('/').next().unwrap_or_default().to_owned()).unwrap_or_default();
    if !words.is_empty() {
        words.remove(0);
    }
    let role = if matches!(name.as_str(), "ssh" | "rsh") { name } else { words.first().cloned().unwrap_or_default() };
    let rest = words.get(1..).unwrap_or_default();
    let code = match role.as_str() {
        "ssh" | "rsh" => crossdock_shim::agent::run(&words),
        "init" => crossdock_shim::init::run(rest),
        "rank" => crossdock_shim::rank::run(rest),
        "door" => crossdock_shim::door::run(rest),
        "detect" => crossdock_shim::detect::run(rest),
        _ => {
            eprintln!(
                "crossdock-shim: a part of `crossdock run` and `crossdock mpirun`; not for people (its roles: ssh, init, rank, detect, \
                 door)"
            );
            2
        }
    };
    std::process::exit(code);
}
