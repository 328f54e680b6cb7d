//! Tests rows E1 to E4 of the table in tests/languages/conformance.md: bad names, sizes and types; no daemon; and
//! progress.

use std::time::{Duration, Instant};

use crossdock_client::{ANY_SIZE, ConnectOptions, End, Mode, ObjectMode, PortOptions, Session, Status, TypeRef};

use crate::harness::{Context, Outcome, REGION, Row, alone, fails, says, took};

pub fn rows() -> Vec<Row> {
    vec![
        Row { id: "E1", claim: "bad names", test: e1, role: alone },
        Row { id: "E2", claim: "bad sizes and types", test: e2, role: alone },
        Row { id: "E3", claim: "no daemon", test: e3, role: alone },
        Row { id: "E4", claim: "progress", test: e4, role: alone },
    ]
}

fn e1(context: &Context) -> Outcome {
    let region = context.region()?;
    let int = TypeRef { name: "i32".into(), size: 4, align: 4 };
    for name in ["", &"x".repeat(128), "a b", "/a", "a/../b"] {
        let messages = [
            fails(Status::Invalid, context.session.region(name, Mode::OpenOrCreate, REGION, None))?,
            fails(Status::Invalid, region.claim(name, &int, ObjectMode::OpenOrCreate, None))?,
            fails(Status::Invalid, context.session.port(name, End::Producer, &PortOptions::default(), None))?,
        ];
        if messages.iter().any(String::is_empty) {
            return Err(format!("the name '{name}' was refused without a word"));
        }
    }
    Ok(())
}

fn e2(context: &Context) -> Outcome {
    fails(Status::Invalid, context.session.region(&context.name("b"), Mode::OpenOrCreate, 0, None))?;
    let huge = context.session.region(&context.name("c"), Mode::OpenOrCreate, 1 << 60, None);
    match huge {
        Err(error) if matches!(error.status, Status::NoSpace | Status::Invalid) => {}
        other => return Err(format!("a region of 2^60 bytes: expected no space or invalid, came {other:?}")),
    }
    for size in [1 << 20, ANY_SIZE] {
        context.session.region(&context.name("s"), Mode::OpenOrCreate, size, None).map_err(|e| e.to_string())?;
    }
    fails(Status::Invalid, context.session.region(&context.name("s"), Mode::OpenOrCreate, 2 << 20, None))?;
    let wrong = TypeRef { name: "f65".into(), size: 8, align: 8 };
    says(&fails(Status::Invalid, context.region()?.claim("x", &wrong, ObjectMode::OpenOrCreate, None))?, "f65")
}

fn e3(_: &Context) -> Outcome {
    let started = Instant::now();
    let socket = "/nonexistent/crossdock/endpoint.sock";
    let options = ConnectOptions { socket: Some(socket.into()), private_daemon: false, ..ConnectOptions::default() };
    says(&fails(Status::NotFound, Session::connect(&options))?, socket)?;
    took(started, 0, 2000)
}

fn e4(context: &Context) -> Outcome {
    says(&fails(Status::Invalid, context.session.progress(11, 10))?, "11 of 10")?;
    for n in 1..=1000 {
        context.session.progress(n, 1000).map_err(|e| e.to_string())?;
    }
    listed(context, Some((1000, 1000)))?;
    context.session.progress(0, 0).map_err(|e| e.to_string())?;
    listed(context, None)
}

/// Waits until the daemon's list shows this report as the progress of the session.
fn listed(context: &Context, wanted: Option<(u64, u64)>) -> Outcome {
    let started = Instant::now();
    loop {
        let members = context.session.list().map_err(|e| e.to_string())?.members;
        let own = members.iter().find(|m| m.id == context.session.member()).and_then(|m| m.progress);
        if own == wanted {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(5) {
            return Err(format!("the daemon lists {own:?}, not {wanted:?}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
