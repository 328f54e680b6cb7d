//! The first and last leg of the ring, in which a vector passes through programs in five languages (README.md). This
//! program makes the vector, sends it round, and checks what comes back.

use std::time::Duration;

use crossdock_client::{
    ConnectOptions, End, Error, Handle, Inline, Message, Mode, ObjectMode, Port, PortOptions, Result, Session, Status,
    TypeRef,
};

const ELEMENTS: u64 = 1000;
const LEGS: u64 = 5;
const WAIT: Option<Duration> = Some(Duration::from_secs(30));

fn check(so: bool, what: &str) -> Result<()> {
    if so { Ok(()) } else { Err(Error::new(Status::Corrupt, format!("not so: {what}"))) }
}

fn run(prefix: &str, laps: u64) -> Result<()> {
    let options = ConnectOptions { task: Some("rust".into()), private_daemon: false, ..ConnectOptions::default() };
    let session = Session::connect(&options)?;
    let (region_name, options) = (format!("{prefix}/data"), PortOptions { capacity: 2, ..PortOptions::default() });
    let region = session.region(&region_name, Mode::CreateOnly, 16 << 20, None)?;
    let vector = region.vector::<f64>("v", ObjectMode::CreateOnly, None)?;
    vector.resize(ELEMENTS)?;
    let handle = region.find("v").and_then(|object| region.save(object.offset))?;
    // The second word of the header is the distance from that word to the elements.
    let header =
        region.raw("v", &TypeRef { name: "vector<f64>".into(), size: 32, align: 8 }, ObjectMode::OpenOnly, None)?;
    let elements = (handle.offset + 8).wrapping_add_signed(header.get::<i64>(8)?);
    let next = session.port(&format!("{prefix}/rust-cpp"), End::Producer, &options, None)?;
    let last = session.port(&format!("{prefix}/c-rust"), End::Consumer, &options, None)?;
    for lap in 0..laps {
        vector.set(0, (lap + 1) as f64)?;
        let message = Message { handle, tag: lap, inline: Inline::new(&elements.to_le_bytes())?, position: 0 };
        next.send_sized(&message, ELEMENTS * 8, WAIT)?;
        let back = last.receive(WAIT)?;
        check(back.tag == lap && *back.inline == elements.to_le_bytes(), "the message is that of this lap")?;
        check(back.handle == handle, "the handle is the same")?;
        for leg in 0..LEGS {
            check(vector.get(leg)? == (lap + 1) as f64, &format!("leg {leg} has been there in lap {lap}"))?;
        }
        check(
            (handle.offset + 8).wrapping_add_signed(header.get::<i64>(8)?) == elements,
            "the elements have not moved",
        )?;
        last.release(&back)?;
    }
    check(vector.to_vec()?[LEGS as usize..].iter().all(|x| *x == 0.0), "nothing was written elsewhere")?;
    end(&session, &region_name, prefix, handle, next, last, laps)
}

/// Checks the counters, closes the ports and removes everything.
fn end(session: &Session, region: &str, prefix: &str, handle: Handle, next: Port, last: Port, laps: u64) -> Result<()> {
    let counted = next.statistics();
    check(counted.messages == laps && counted.bytes_handed_over == laps * (ELEMENTS * 8 + 8), "all is counted")?;
    check(counted.bytes_copied == 0 && last.statistics().bytes_copied == 0, "nothing was copied")?;
    next.close();
    // The other legs leave one after the other. Each of them waits for a next message until the leg before it has left.
    match last.receive(WAIT) {
        Err(error) if error.status == Status::Closed => last.close(),
        other => return check(false, &format!("the last port is closed at the end: {other:?}")),
    }
    for port in ["rust-cpp", "cpp-python", "python-fortran", "fortran-c", "c-rust"] {
        session.remove_port(&format!("{prefix}/{port}"))?;
    }
    session.remove_region(region)?;
    println!("ok ring rust: {laps} laps of {handle}, {} bytes each, 0 copied", ELEMENTS * 8);
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let laps = arguments.get(2).and_then(|laps| laps.parse().ok()).expect("usage: ring-leg PREFIX LAPS");
    if let Err(error) = run(&arguments[1], laps) {
        println!("FAILED ring rust: {error}");
        std::process::exit(1);
    }
}
