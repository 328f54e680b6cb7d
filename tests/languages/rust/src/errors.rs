//! Rows E1 to E3: bad names, sizes and types, and no daemon.

use std::time::Instant;

use crossdock_client::{ConnectOptions, End, Mode, ObjectMode, PortOptions, Session, Status, TypeRef};

use crate::harness::{Context, Outcome, REGION, Row, alone, fails, says, took};

pub fn rows() -> Vec<Row> {
    vec![
        Row { id: "E1", claim: "bad names", test: e1, role: alone },
        Row { id: "E2", claim: "bad sizes and types", test: e2, role: alone },
        Row { id: "E3", claim: "no daemon", test: e3, role: alone },
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
