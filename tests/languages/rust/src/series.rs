//! Tests rows S1 to S19 of the table in tests/languages/conformance.md: series.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crossdock_client::{
    AttributeSpec, ConnectOptions, FullPolicy, Kind, Observer, Publisher, SeriesOptions, SeriesState, Session, Status,
    Value, Variable, Version, diff,
};

use crate::harness::{Context, Outcome, Row, alone, equal, fails, kill_self, say_ready, says, text, took};

const WAIT: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

pub fn rows() -> Vec<Row> {
    vec![
        Row { id: "S1", claim: "describe and read", test: s1, role: s1_peer },
        Row { id: "S2", claim: "a version stays as it was", test: s2, role: alone },
        Row { id: "S3", claim: "next waits", test: s3, role: s3_peer },
        Row { id: "S4", claim: "at", test: s4, role: alone },
        Row { id: "S5", claim: "observing waits", test: s5, role: s5_peer },
        Row { id: "S6", claim: "one publisher", test: s6, role: s6_peer },
        Row { id: "S7", claim: "publisher ends", test: s7, role: three_peer },
        Row { id: "S8", claim: "publisher killed", test: s8, role: three_peer },
        Row { id: "S9", claim: "begin and abandon", test: s9, role: alone },
        Row { id: "S10", claim: "growing variable", test: s10, role: alone },
        Row { id: "S11", claim: "full pool", test: s11, role: alone },
        Row { id: "S12", claim: "diff", test: s12, role: alone },
        Row { id: "S13", claim: "misuse", test: s13, role: alone },
        Row { id: "S14", claim: "a session is not left behind a series' back", test: s14, role: alone },
        Row { id: "S15", claim: "a publisher is not stopped by its observers", test: s15, role: alone },
        Row { id: "S16", claim: "what was taken back is an error, or stays", test: s16, role: alone },
        Row { id: "S17", claim: "each, and at with a deadline", test: s17, role: alone },
        Row { id: "S18", claim: "a normal end ends what is open", test: s18, role: s18_peer },
        Row { id: "S19", claim: "a stuck observer costs one version", test: s19, role: s19_peer },
    ]
}

fn of(variables: Vec<Variable>) -> SeriesOptions {
    SeriesOptions { variables, ..SeriesOptions::default() }
}

fn u_only() -> SeriesOptions {
    of(vec![Variable::new("u", "f64", &[4, 5])])
}

fn publisher(context: &Context, options: &SeriesOptions) -> Result<Publisher, String> {
    context.session.publisher(&context.name(""), options).map_err(text)
}

fn observe(context: &Context) -> Result<Observer, String> {
    context.session.observe(&context.name(""), WAIT).map_err(text)
}

fn fill(publisher: &mut Publisher, value: f64) -> Outcome {
    publisher.elements::<f64>("u").map_err(text)?.fill(value);
    Ok(())
}

/// Fills the array, publishes it, and gives the version's number.
fn publish(publisher: &mut Publisher, value: f64) -> Result<u64, String> {
    fill(publisher, value)?;
    publisher.publish(&[]).map_err(text)
}

fn shows(version: &Version, value: f64) -> Outcome {
    let all = version.elements::<f64>("u").map_err(text)?.iter().all(|x| *x == value);
    if all { Ok(()) } else { Err(format!("version {} does not show {value}", version.sequence())) }
}

fn latest(observer: &mut Observer, sequence: u64, value: f64) -> Outcome {
    let version = observer.latest().map_err(text)?;
    equal("sequence", version.sequence(), sequence)?;
    shows(&version, value)
}

fn s1(context: &Context) -> Outcome {
    let mut u = Variable::new("u", "f64", &[4, 5]);
    u.constants.push(("dx".into(), Value::F64(0.5)));
    let mut options = of(vec![u, Variable::new("n", "i32", &[])]);
    options.attributes.push(AttributeSpec { name: "step".into(), ty: Kind::I64 });
    let mut publisher = publisher(context, &options)?;
    publisher.elements::<f64>("u").map_err(text)?.iter_mut().zip(0..).for_each(|(x, i)| *x = f64::from(i));
    publisher.elements::<i32>("n").map_err(text)?[0] = 7;
    let now = [("step", Value::I64(3)), ("time", Value::F64(0.25)), ("note", Value::Text("ab".into()))];
    equal("sequence", publisher.publish(&now).map_err(text)?, 1)?;
    context.run("B", &[])
}

fn s1_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let mut observer = observe(context)?;
    let described: Vec<_> =
        observer.description().variables.iter().map(|v| (v.name.clone(), v.ty.clone(), v.shape.clone())).collect();
    let wanted = [("u".into(), "f64".into(), vec![4, 5]), ("n".into(), "i32".into(), vec![])];
    equal("variables", described.as_slice(), wanted.as_slice())?;
    equal("dx", observer.description().variables[0].constants[0].clone(), ("dx".into(), Value::F64(0.5)))?;
    let version = observer.latest().map_err(text)?;
    equal("sequence", version.sequence(), 1)?;
    let u = version.elements::<f64>("u").map_err(text)?;
    equal("u", u, (0..20).map(f64::from).collect::<Vec<_>>().as_slice())?;
    equal("n", version.elements::<i32>("n").map_err(text)?, [7].as_slice())?;
    equal("shape", version.shape("u").map_err(text)?, [4, 5].as_slice())?;
    for (name, value) in [("step", Value::I64(3)), ("time", Value::F64(0.25)), ("note", Value::Text("ab".into()))] {
        equal(name, version.attribute(name).map_err(text)?, &value)?;
    }
    fails(Status::WrongType, version.elements::<f32>("u")).map(drop)
}

fn s2(context: &Context) -> Outcome {
    let (mut publisher, mut observer) = (publisher(context, &u_only())?, observe(context)?);
    publish(&mut publisher, 0.0)?;
    let mut held = observer.latest().map_err(text)?;
    for k in 1..=20 {
        publish(&mut publisher, f64::from(100 * k))?;
    }
    shows(&held, 0.0)?;
    latest(&mut observer, 21, 2000.0)?;
    held.refresh().map_err(text)?;
    equal("refreshed", held.sequence(), 21)?;
    shows(&held, 2000.0)
}

fn s3(context: &Context) -> Outcome {
    let peer = context.start_ready("B", &[])?;
    let mut observer = observe(context)?;
    observer.latest().map_err(text)?;
    let started = Instant::now();
    let error = fails(Status::TimedOut, observer.next(SHORT))?;
    says(&error, &context.name(""))?;
    took(started, 200, 2000)?;
    fails(Status::NotYet, observer.next(Duration::ZERO))?;
    let version = observer.next(WAIT).map_err(text)?;
    equal("sequence", version.sequence(), 2)?;
    shows(&version, 2.0)?;
    peer.finish()
}

fn s3_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let mut publisher = publisher(context, &u_only())?;
    publish(&mut publisher, 1.0)?;
    say_ready();
    // This pause is longer than the timeout with which the other process waits for a version.
    sleep(Duration::from_millis(1200));
    publish(&mut publisher, 2.0)?;
    publisher.end().map_err(text)
}

fn s4(context: &Context) -> Outcome {
    let options = SeriesOptions { keep: 2, ..u_only() };
    let (mut publisher, mut observer) = (publisher(context, &options)?, observe(context)?);
    for k in 1..=5 {
        publish(&mut publisher, f64::from(k))?;
    }
    for k in 3..=5u32 {
        let version = observer.at(k.into(), Duration::ZERO).map_err(text)?;
        equal("sequence", version.sequence(), k.into())?;
        shows(&version, k.into())?;
    }
    fails(Status::NotFound, observer.at(1, Duration::ZERO))?;
    fails(Status::NotYet, observer.at(9, Duration::ZERO)).map(drop)
}

fn s5(context: &Context) -> Outcome {
    let name = context.name("");
    fails(Status::NotFound, context.session.observe(&name, Duration::ZERO))?;
    let started = Instant::now();
    says(&fails(Status::TimedOut, context.session.observe(&name, SHORT))?, &name)?;
    took(started, 200, 2000)?;
    let peer = context.start("B", &[]);
    observe(context)?;
    peer.finish()
}

fn s5_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    sleep(SHORT);
    let mut publisher = publisher(context, &u_only())?;
    publish(&mut publisher, 1.0)?;
    sleep(SHORT);
    publisher.end().map_err(text)
}

fn s6(context: &Context) -> Outcome {
    let peer = context.start_ready("B", &[])?;
    let name = context.name("");
    let error = fails(Status::Exists, context.session.publisher(&name, &u_only()))?;
    says(&error, &name)?;
    says(&error, "peer")?;
    peer.finish()
}

fn s6_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let publisher = publisher(context, &u_only())?;
    say_ready();
    sleep(Duration::from_secs(1));
    publisher.end().map_err(text)
}

/// Publishes three versions, gives the test time to observe them, and then ends the series or is killed.
fn three_peer(context: &Context, role: &str, _: &[&str]) -> Outcome {
    let mut publisher = publisher(context, &u_only())?;
    for k in 1..=3 {
        publish(&mut publisher, f64::from(k))?;
    }
    say_ready();
    sleep(Duration::from_millis(500));
    if role == "killed" {
        kill_self();
    }
    publisher.end().map_err(text)
}

fn s7(context: &Context) -> Outcome {
    let peer = context.start_ready("B", &[])?;
    let before = observe(context)?;
    peer.finish()?;
    for mut observer in [before, observe(context)?] {
        let version = observer.next(WAIT).map_err(text)?;
        equal("sequence", version.sequence(), 3)?;
        shows(&version, 3.0)?;
        fails(Status::Closed, observer.next(WAIT))?;
        equal("state", observer.state(), SeriesState::Ended)?;
    }
    Ok(())
}

fn s8(context: &Context) -> Outcome {
    let peer = context.start_ready("killed", &[])?;
    let mut observer = observe(context)?;
    peer.killed()?;
    equal("sequence", observer.next(WAIT).map_err(text)?.sequence(), 3)?;
    let started = Instant::now();
    says(&fails(Status::PeerDied, observer.next(WAIT))?, "peer")?;
    took(started, 0, 2000)?;
    equal("state", observer.state(), SeriesState::Died)?;
    latest(&mut observer, 3, 3.0)?;
    let mut publisher = publisher(context, &u_only())?;
    publish(&mut publisher, 9.0)?;
    let mut fresh = observe(context)?;
    if fresh.id() == observer.id() {
        return Err("the successor's series is the same one".into());
    }
    latest(&mut fresh, 1, 9.0)?;
    latest(&mut observer, 3, 3.0)
}

fn s9(context: &Context) -> Outcome {
    let (mut publisher, mut observer) = (publisher(context, &u_only())?, observe(context)?);
    publish(&mut publisher, 1.0)?;
    publisher.begin().map_err(text)?;
    equal("sequence", publish(&mut publisher, 2.0)?, 2)?;
    latest(&mut observer, 2, 2.0)?;
    publisher.begin().map_err(text)?;
    fails(Status::Busy, publisher.begin())?;
    fill(&mut publisher, 3.0)?;
    publisher.abandon().map_err(text)?;
    fails(Status::Invalid, publisher.abandon())?;
    latest(&mut observer, 2, 2.0)?;
    equal("in place", publisher.elements::<f64>("u").map_err(text)?.to_vec(), vec![2.0; 20])
}

fn s10(context: &Context) -> Outcome {
    let mut u = Variable::new("u", "f64", &[10]);
    u.max_shape = vec![1000];
    let (mut publisher, mut observer) = (publisher(context, &of(vec![u]))?, observe(context)?);
    publisher.publish(&[]).map_err(text)?;
    let first = observer.latest().map_err(text)?;
    publisher.resize("u", &[20]).map_err(text)?;
    let u = publisher.elements::<f64>("u").map_err(text)?;
    equal("new elements", u.to_vec(), vec![0.0; 20])?;
    u[19] = 5.0;
    publisher.publish(&[]).map_err(text)?;
    let second = observer.latest().map_err(text)?;
    equal("first shape", first.shape("u").map_err(text)?, [10].as_slice())?;
    equal("second shape", second.shape("u").map_err(text)?, [20].as_slice())?;
    equal("u[19]", second.elements::<f64>("u").map_err(text)?[19], 5.0)?;
    fails(Status::Invalid, publisher.resize("u", &[1001])).map(drop)
}

fn s11(context: &Context) -> Outcome {
    const N: u64 = 65_536;
    let mut options = of(vec![Variable::new("u", "f64", &[N])]);
    options.capacity = Some(5 * N * 8 / 2);
    options.full = FullPolicy::Fail;
    let (mut publisher, mut observer) = (publisher(context, &options)?, observe(context)?);
    let mut held = Vec::new();
    let error = loop {
        fill(&mut publisher, (held.len() + 1) as f64)?;
        match publisher.publish(&[]) {
            Ok(_) => held.push(observer.latest().map_err(text)?),
            Err(error) => break error,
        }
        if held.len() > 12 {
            return Err("the pool has no end".into());
        }
    };
    equal("status", error.status, Status::NoSpace)?;
    for (version, value) in held.iter().zip(1u32..) {
        shows(version, value.into())?;
    }
    let count = held.len();
    held.clear();
    publisher.publish(&[]).map_err(text)?;
    shows(&observer.latest().map_err(text)?, (count + 1) as f64)
}

fn s12(context: &Context) -> Outcome {
    let mut options = of(vec![Variable::new("u", "f64", &[262_144])]);
    options.chunk = Some(4096);
    let (mut publisher, mut observer) = (publisher(context, &options)?, observe(context)?);
    publisher.publish(&[]).map_err(text)?;
    let one = observer.latest().map_err(text)?;
    publisher.elements::<f64>("u").map_err(text)?[100] = 1.0;
    publisher.touched("u", 800..808).map_err(text)?;
    publisher.publish(&[]).map_err(text)?;
    let two = observer.latest().map_err(text)?;
    let changes = diff(&one, &two).map_err(text)?;
    let bytes: u64 = changes.iter().map(|(_, range)| range.end - range.start).sum();
    let found = changes.iter().any(|(variable, range)| variable == "u" && range.contains(&800));
    equal("what changed, and little", (found, bytes <= 8192), (true, true))?;
    equal("nothing", diff(&two, &two).map_err(text)?.len(), 0)
}

fn s13(context: &Context) -> Outcome {
    let mut publisher = publisher(context, &u_only())?;
    says(&fails(Status::NotFound, publisher.memory("velocity"))?, "velocity")?;
    publisher.publish(&[("step", Value::I64(1))]).map_err(text)?;
    says(&fails(Status::WrongType, publisher.publish(&[("step", Value::Text("one".into()))]))?, "step")?;
    fails(Status::Invalid, publisher.publish(&[("note", Value::Text("x".repeat(64)))]))?;
    let other = context.name("b");
    fails(Status::Invalid, context.session.publisher(&other, &SeriesOptions::default()))?;
    let bad = of(vec![Variable::new("u", "f65", &[4])]);
    says(&fails(Status::Invalid, context.session.publisher(&other, &bad))?, "f65")
}

fn s14(context: &Context) -> Outcome {
    let other = Session::connect(&ConnectOptions { private_daemon: false, ..Default::default() }).map_err(text)?;
    let mut publisher = other.publisher(&context.name(""), &u_only()).map_err(text)?;
    publish(&mut publisher, 1.0)?;
    let mut observer = observe(context)?;
    equal("first", observer.next(WAIT).map_err(text)?.sequence(), 1)?;
    says(&fails(Status::Busy, other.clone().close())?, "series")?;
    publish(&mut publisher, 2.0)?;
    shows(&observer.next(WAIT).map_err(text)?, 2.0)?;
    publisher.end().map_err(text)?;
    fails(Status::Closed, observer.next(WAIT))?;
    other.close().map_err(text)
}

const LARGE: u64 = 65_536;

fn large(full: FullPolicy) -> SeriesOptions {
    SeriesOptions { capacity: Some(5 * LARGE * 8 / 2), full, ..of(vec![Variable::new("u", "f64", &[LARGE])]) }
}

fn s15(context: &Context) -> Outcome {
    let mut first = publisher(context, &large(FullPolicy::default()))?;
    let mut observer = observe(context)?;
    let (mut held, mut withheld) = (Vec::new(), 0);
    for k in 1..=12u32 {
        match publish(&mut first, k.into())? {
            0 => withheld += 1,
            _ => held.push(observer.latest().map_err(text)?),
        }
    }
    let statistics = first.statistics();
    equal("withheld", (withheld >= 9, statistics.withheld, statistics.no_space), (true, withheld, 0))?;
    for (version, value) in held.iter().zip(1u32..) {
        shows(version, value.into())?;
    }
    let count = held.len() as u64;
    held.clear();
    equal("the next", first.publish(&[]).map_err(text)?, count + 1)?;
    shows(&observer.latest().map_err(text)?, 12.0)?;
    first.end().map_err(text)?;
    let kept = SeriesOptions { keep: 9, capacity: None, ..large(FullPolicy::default()) };
    let mut second = publisher(context, &kept)?;
    for k in 1..=12u32 {
        equal("kept", publish(&mut second, k.into())?, k.into())?;
    }
    shows(&observe(context)?.at(3, Duration::ZERO).map_err(text)?, 3.0)
}

fn s16(context: &Context) -> Outcome {
    let mut publisher = publisher(context, &large(FullPolicy::TakeBack))?;
    let mut observer = observe(context)?;
    publish(&mut publisher, 1.0)?;
    let one = observer.latest().map_err(text)?;
    let read = one.elements::<f64>("u").map_err(text)?;
    publish(&mut publisher, 2.0)?;
    let two = observer.latest().map_err(text)?;
    for k in 3..=14u32 {
        equal("number", publish(&mut publisher, k.into())?, k.into())?;
    }
    equal("what was read", read.iter().all(|x| *x == 1.0), true)?;
    shows(&one, 1.0)?;
    says(&fails(Status::NotFound, two.bytes("u"))?, "take_back")
}

fn s17(context: &Context) -> Outcome {
    let mut publisher = publisher(context, &SeriesOptions { keep: 2, ..u_only() })?;
    let mut observer = observe(context)?;
    for (count, given) in [(3, [(1, 0), (2, 0), (3, 0)]), (5, [(6, 2), (7, 0), (8, 0)])] {
        fails(Status::NotYet, observer.each(Duration::ZERO))?;
        for _ in 0..count {
            publish(&mut publisher, 1.0)?;
        }
        for expected in given {
            let version = observer.each(WAIT).map_err(text)?;
            equal("version and missed", (version.sequence(), version.missed()), expected)?;
        }
    }
    fails(Status::TimedOut, observer.at(9, SHORT)).map(drop)
}

fn s18_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let mut publisher = publisher(context, &u_only())?;
    for k in 1..=3u32 {
        publish(&mut publisher, k.into())?;
    }
    say_ready();
    sleep(Duration::from_millis(500));
    // The publisher is not dropped, because this row tests a process that ends without an error but closes nothing.
    std::mem::forget(publisher);
    Ok(())
}

fn s18(context: &Context) -> Outcome {
    let peer = context.start_ready("B", &[])?;
    let mut observer = observe(context)?;
    peer.finish()?;
    equal("sequence", observer.next(WAIT).map_err(text)?.sequence(), 3)?;
    fails(Status::Closed, observer.next(WAIT)).map(drop)
}

fn s19_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let mut observer = observe(context)?;
    let held = observer.latest().map_err(text)?;
    say_ready();
    // This process waits here until the test begins to publish the series `go`.
    context.session.observe(&context.name("go"), WAIT).map_err(text)?;
    // If the suite runs across nodes, a new observer waits here until the newest version has arrived on its node.
    latest(&mut observe(context)?, 41, 41.0)?;
    shows(&held, 1.0)?;
    let newest = observer.next(WAIT).map_err(text)?;
    equal("sequence", newest.sequence(), 41)?;
    shows(&newest, 41.0)
}

fn s19(context: &Context) -> Outcome {
    let mut publisher = publisher(context, &SeriesOptions { capacity: None, ..large(FullPolicy::default()) })?;
    publish(&mut publisher, 1.0)?;
    let peer = context.start_ready("B", &[])?;
    for k in 2..=41u32 {
        equal("number", publish(&mut publisher, k.into())?, k.into())?;
    }
    equal("withheld", publisher.statistics().withheld, 0)?;
    let go = context.session.publisher(&context.name("go"), &u_only()).map_err(text)?;
    peer.finish()?;
    drop(go);
    Ok(())
}
