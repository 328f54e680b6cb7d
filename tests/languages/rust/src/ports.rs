//! Tests rows P1 to P17 of the table in tests/languages/conformance.md: ports.

use std::time::{Duration, Instant};

use crossdock_client::{End, Handle, Inline, Message, ObjectMode, Pattern, Port, PortOptions, Status};
use crossdock_os::Deadline;

use crate::harness::{Context, LONG, Outcome, POLL, Row, alone, equal, fails, kill_self, say_ready, says, text, took};

const ANY: ObjectMode = ObjectMode::OpenOrCreate;
const SHORT: Option<Duration> = Some(Duration::from_millis(200));

pub fn rows() -> Vec<Row> {
    vec![
        Row { id: "P1", claim: "one to one, order", test: p1, role: p1_peer },
        Row { id: "P2", claim: "tag and inline bytes", test: p2, role: p2_peer },
        Row { id: "P3", claim: "handle", test: p3, role: p3_peer },
        Row { id: "P4", claim: "credits", test: p4, role: p4_peer },
        Row { id: "P5", claim: "deadline names the peer", test: p5, role: p5_peer },
        Row { id: "P6", claim: "fan-out", test: p6, role: p6_peer },
        Row { id: "P7", claim: "fan-in", test: p7, role: p7_peer },
        Row { id: "P8", claim: "work queue", test: p8, role: p8_peer },
        Row { id: "P9", claim: "producer leaves", test: p9, role: p9_peer },
        Row { id: "P10", claim: "producer killed", test: p10, role: p10_peer },
        Row { id: "P11", claim: "consumer killed", test: p11, role: p11_peer },
        Row { id: "P12", claim: "not yet", test: p12, role: alone },
        Row { id: "P13", claim: "descriptor", test: p13, role: p13_peer },
        Row { id: "P14", claim: "second producer", test: p14, role: p14_peer },
        Row { id: "P15", claim: "options must agree", test: p15, role: alone },
        Row { id: "P16", claim: "threads", test: p16, role: alone },
        Row { id: "P17", claim: "earlier peers are history", test: p17, role: p9_peer },
    ]
}

fn options(pattern: Pattern, capacity: u32) -> PortOptions {
    PortOptions { pattern: Some(pattern), capacity, persistent: false }
}

fn open(context: &Context, end: End, pattern: Pattern, capacity: u32) -> Result<Port, String> {
    context.session.port(&context.name(""), end, &options(pattern, capacity), LONG).map_err(text)
}

/// Opens a second port of the test.
fn named(context: &Context, suffix: &str, end: End, pattern: Pattern) -> Result<Port, String> {
    context.session.port(&context.name(suffix), end, &options(pattern, 8), LONG).map_err(text)
}

fn tagged(tag: u64) -> Message {
    Message::new(Handle::NONE, tag)
}

fn send_tags(port: &Port, tags: impl IntoIterator<Item = u64>) -> Outcome {
    tags.into_iter().try_for_each(|tag| port.send(&tagged(tag), LONG)).map_err(text)
}

/// Receives one message, releases it, and gives its tag.
fn take(port: &Port) -> Result<u64, String> {
    let message = port.receive(LONG).map_err(text)?;
    port.release(&message).map_err(text)?;
    Ok(message.tag)
}

fn expect_tags(port: &Port, tags: impl IntoIterator<Item = u64>) -> Outcome {
    tags.into_iter().try_for_each(|tag| equal("tag", take(port)?, tag))
}

fn p1(context: &Context) -> Outcome {
    let port = open(context, End::Producer, Pattern::OneToOne, 4)?;
    let peer = context.start("b", &[]);
    send_tags(&port, 0..1000)?;
    port.close();
    peer.finish()
}

fn p1_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 4)?;
    expect_tags(&port, 0..1000)?;
    fails(Status::Closed, port.receive(LONG)).map(drop)
}

fn p2(context: &Context) -> Outcome {
    let port = open(context, End::Producer, Pattern::OneToOne, 8)?;
    let peer = context.start("b", &[]);
    let bytes: Vec<u8> = (0..24).collect();
    let inline = Inline::new(&bytes).map_err(text)?;
    port.send(&Message { tag: (1 << 63) + 1, inline, ..Message::default() }, LONG).map_err(text)?;
    port.send(&tagged(0), LONG).map_err(text)?;
    fails(Status::Invalid, Inline::new(&[0; 25]))?;
    peer.finish()
}

fn p2_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 8)?;
    let first = port.receive(LONG).map_err(text)?;
    equal("tag", first.tag, (1 << 63) + 1)?;
    equal("inline bytes", first.inline.to_vec(), (0..24).collect())?;
    let second = port.receive(LONG).map_err(text)?;
    equal("second", (second.tag, second.inline.len()), (0, 0))
}

fn p3(context: &Context) -> Outcome {
    let v = context.region()?.vector::<f64>("v", ANY, None).map_err(text)?;
    v.assign(&(1..=1000).map(f64::from).collect::<Vec<_>>()).map_err(text)?;
    let handle = v.save().map_err(text)?;
    let port = open(context, End::Producer, Pattern::OneToOne, 1)?;
    port.send_sized(&Message::new(handle, 0), 8000, LONG).map_err(text)?;
    let peer = context.start("b", &[]);
    equal("credit", port.reclaim(LONG).map_err(text)?, Some(handle))?;
    peer.finish()?;
    let counted = port.statistics();
    equal("statistics", (counted.messages, counted.bytes_handed_over, counted.bytes_copied), (1, 8000, 0))?;
    equal("v[0]", v.get(0).map_err(text)?, -1.0)
}

fn p3_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 1)?;
    let message = port.receive(LONG).map_err(text)?;
    let region = context.session.region_of(message.handle).map_err(text)?;
    let v = region.load_vector::<f64>(message.handle).map_err(text)?;
    equal("sum", v.to_vec().map_err(text)?.iter().sum::<f64>(), 500_500.0)?;
    v.set(0, -1.0).map_err(text)?;
    port.release(&message).map_err(text)
}

fn p4(context: &Context) -> Outcome {
    let region = context.region()?;
    let port = open(context, End::Producer, Pattern::OneToOne, 2)?;
    let mut handles = Vec::new();
    for name in ["x", "y"] {
        let handle = region.vector::<f64>(name, ANY, None).and_then(|v| v.save()).map_err(text)?;
        port.send(&Message::new(handle, 0), LONG).map_err(text)?;
        handles.push(handle);
    }
    fails(Status::NotYet, port.send(&tagged(2), POLL))?;
    // The peer reports that it is ready when it has received the first message. The peer releases this message when a
    // second message comes through the port `go`.
    let go = named(context, "b", End::Producer, Pattern::OneToOne)?;
    let peer = context.start_ready("b", &[])?;
    fails(Status::NotYet, port.send(&tagged(2), POLL))?;
    send_tags(&go, [1])?;
    equal("credit", port.reclaim(LONG).map_err(text)?, Some(handles[0]))?;
    port.send(&tagged(2), POLL).map_err(text)?;
    peer.finish()
}

fn p4_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let go = named(context, "b", End::Consumer, Pattern::OneToOne)?;
    let port = open(context, End::Consumer, Pattern::OneToOne, 2)?;
    let first = port.receive(LONG).map_err(text)?;
    say_ready();
    expect_tags(&go, [1])?;
    port.release(&first).map_err(text)?;
    take(&port)?;
    equal("third", take(&port)?, 2)
}

fn p5(context: &Context) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 1)?;
    let idle = context.start_ready("idle", &[])?;
    let started = Instant::now();
    let message = fails(Status::TimedOut, port.receive(SHORT))?;
    took(started, 200, 2000)?;
    says(&message, port.name())?;
    says(&message, "peer")?;
    drop(idle);

    let name = context.name("b");
    let full = context.session.port(&name, End::Producer, &options(Pattern::OneToOne, 1), LONG).map_err(text)?;
    full.send(&tagged(0), LONG).map_err(text)?;
    let holding = context.start_ready("hold", &[&name])?;
    let started = Instant::now();
    let message = fails(Status::TimedOut, full.send(&tagged(1), SHORT))?;
    took(started, 200, 2000)?;
    says(&message, &name)?;
    says(&message, "peer")?;
    drop(holding);
    Ok(())
}

fn p5_peer(context: &Context, role: &str, arguments: &[&str]) -> Outcome {
    let _kept = match (role, arguments) {
        ("idle", []) => open(context, End::Producer, Pattern::OneToOne, 1)?,
        ("hold", [name]) => {
            let port = context.session.port(name, End::Consumer, &options(Pattern::OneToOne, 1), LONG).map_err(text)?;
            port.receive(LONG).map_err(text)?;
            port
        }
        _ => return Err(format!("no role '{role}'")),
    };
    say_ready();
    // The process only waits here. The test kills it before the time is over.
    std::thread::sleep(Duration::from_secs(20));
    Ok(())
}

fn p6(context: &Context) -> Outcome {
    let port = open(context, End::Producer, Pattern::FanOut, 8)?;
    let peers = (0..3).map(|_| context.start_ready("b", &[])).collect::<Result<Vec<_>, _>>()?;
    send_tags(&port, 0..100)?;
    peers.into_iter().try_for_each(crate::harness::Peer::finish)
}

fn p6_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Consumer, Pattern::FanOut, 8)?;
    say_ready();
    expect_tags(&port, 0..100)
}

fn p7(context: &Context) -> Outcome {
    let port = open(context, End::Consumer, Pattern::FanIn, 8)?;
    // This producer's end stays open. Otherwise the consumer could get CLOSED before all producers have opened the
    // port.
    let _keep = open(context, End::Producer, Pattern::FanIn, 8)?;
    let peers: Vec<_> = (1..=3).map(|producer: u64| context.start("b", &[&producer.to_string()])).collect();
    let mut next = [0; 4];
    for _ in 0..300 {
        let tag = take(&port)?;
        let (producer, n) = ((tag / 1000) as usize, tag % 1000);
        equal("next of this producer", n, *next.get(producer).ok_or("a tag of no producer")?)?;
        next[producer] += 1;
    }
    equal("each producer's", next, [0, 100, 100, 100])?;
    peers.into_iter().try_for_each(crate::harness::Peer::finish)
}

fn p7_peer(context: &Context, _: &str, arguments: &[&str]) -> Outcome {
    let producer: u64 = arguments.first().and_then(|word| word.parse().ok()).ok_or("a number is needed")?;
    let port = open(context, End::Producer, Pattern::FanIn, 8)?;
    send_tags(&port, (0..100).map(|n| producer * 1000 + n))
}

fn p8(context: &Context) -> Outcome {
    // Through this port, the consumers report the messages that they have received.
    let came = named(context, "b", End::Consumer, Pattern::FanIn)?;
    // This producer's end stays open. Otherwise a consumer could get CLOSED before all producers have opened the port.
    let keep = open(context, End::Producer, Pattern::WorkQueue, 8)?;
    let consumers = (0..3).map(|_| context.start_ready("consume", &[])).collect::<Result<Vec<_>, _>>()?;
    let producers: Vec<_> = (0..2).map(|p: u64| context.start("produce", &[&p.to_string()])).collect();
    let mut tags = (0..300).map(|_| take(&came)).collect::<Result<Vec<_>, _>>()?;
    tags.sort_unstable();
    equal("the messages", tags, (0..300).collect())?;
    producers.into_iter().try_for_each(crate::harness::Peer::finish)?;
    keep.close();
    fails(Status::Closed, came.receive(LONG))?;
    consumers.into_iter().try_for_each(crate::harness::Peer::finish)
}

fn p8_peer(context: &Context, role: &str, arguments: &[&str]) -> Outcome {
    if role == "produce" {
        let producer: u64 = arguments.first().and_then(|word| word.parse().ok()).ok_or("a number is needed")?;
        let port = open(context, End::Producer, Pattern::WorkQueue, 8)?;
        return send_tags(&port, (0..150).map(|n| producer * 150 + n));
    }
    let came = named(context, "b", End::Producer, Pattern::FanIn)?;
    let port = open(context, End::Consumer, Pattern::WorkQueue, 8)?;
    say_ready();
    loop {
        match port.receive(LONG) {
            Ok(message) => {
                send_tags(&came, [message.tag])?;
                port.release(&message).map_err(text)?;
            }
            Err(error) if error.status == Status::Closed => {
                came.close();
                return Ok(());
            }
            Err(error) => return Err(text(error)),
        }
    }
}

fn p9(context: &Context) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 8)?;
    context.run("b", &[])?;
    expect_tags(&port, 0..3)?;
    fails(Status::Closed, port.receive(LONG)).map(drop)
}

fn p9_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Producer, Pattern::OneToOne, 8)?;
    send_tags(&port, 0..3)?;
    port.close();
    Ok(())
}

fn p17(context: &Context) -> Outcome {
    for again in [false, true] {
        let port = open(context, End::Consumer, Pattern::OneToOne, 8)?;
        if again {
            let message = fails(Status::TimedOut, port.receive(Some(Duration::from_millis(200))))?;
            says(&message, port.name()).and_then(|()| says(&message, "no producer"))?;
        }
        context.run("b", &[])?;
        expect_tags(&port, 0..3)?;
        fails(Status::Closed, port.receive(LONG))?;
        port.close();
    }
    Ok(())
}

fn p10(context: &Context) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 8)?;
    context.start("b", &[]).killed()?;
    let started = Instant::now();
    expect_tags(&port, 0..3)?;
    says(&fails(Status::PeerDied, port.receive(LONG))?, "peer")?;
    took(started, 0, 2000)
}

fn p10_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Producer, Pattern::OneToOne, 8)?;
    send_tags(&port, 0..3)?;
    kill_self()
}

fn p11(context: &Context) -> Outcome {
    let port = open(context, End::Producer, Pattern::OneToOne, 8)?;
    send_tags(&port, 0..3)?;
    context.start("killed", &[]).killed()?;
    context.run("successor", &[])
}

fn p11_peer(context: &Context, role: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 8)?;
    if role == "killed" {
        equal("first", port.receive(LONG).map_err(text)?.tag, 0)?;
        kill_self();
    }
    expect_tags(&port, 0..3)
}

fn p12(context: &Context) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 8)?;
    let _producer = open(context, End::Producer, Pattern::OneToOne, 8)?;
    let started = Instant::now();
    fails(Status::NotYet, port.receive(POLL))?;
    took(started, 0, 100)
}

fn p13(context: &Context) -> Outcome {
    let port = open(context, End::Consumer, Pattern::OneToOne, 8)?;
    let peer = context.start_ready("b", &[])?;
    let readable = |ms| {
        let descriptor = port.descriptor().map_err(text)?;
        crossdock_os::event::wait_readable(descriptor, Deadline::after(Duration::from_millis(ms)))
            .map_err(|e| e.to_string())
    };
    equal("ready when armed", port.arm().map_err(text)?, false)?;
    equal("readable before anything was sent", readable(50)?, false)?;
    equal("readable after something was sent", readable(2000)?, true)?;
    equal("tag", port.receive(POLL).map_err(text)?.tag, 7)?;
    peer.finish()
}

fn p13_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let port = open(context, End::Producer, Pattern::OneToOne, 8)?;
    say_ready();
    std::thread::sleep(Duration::from_millis(300));
    send_tags(&port, [7])
}

fn p14(context: &Context) -> Outcome {
    let first = open(context, End::Producer, Pattern::OneToOne, 8)?;
    context.run("busy", &[])?;
    first.close();
    context.run("free", &[])
}

fn p14_peer(context: &Context, role: &str, _: &[&str]) -> Outcome {
    let name = context.name("");
    let opened = context.session.port(&name, End::Producer, &options(Pattern::OneToOne, 8), None);
    if role == "busy" { says(&fails(Status::Busy, opened.map(drop))?, &name) } else { opened.map(drop).map_err(text) }
}

fn p15(context: &Context) -> Outcome {
    let (name, producer) = (context.name(""), open(context, End::Producer, Pattern::OneToOne, 4)?);
    for other in [options(Pattern::OneToOne, 8), options(Pattern::FanOut, 4)] {
        let opened = context.session.port(&name, End::Consumer, &other, None);
        says(&fails(Status::Invalid, opened.map(drop))?, &name)?;
    }
    let as_made = context.session.port(&name, End::Consumer, &PortOptions::default(), None).map_err(text)?;
    send_tags(&producer, 0..4)?;
    fails(Status::NotYet, producer.send(&tagged(4), POLL))?;
    expect_tags(&as_made, 0..4)
}

fn p16(context: &Context) -> Outcome {
    let producer = open(context, End::Producer, Pattern::OneToOne, 8)?;
    let consumer = open(context, End::Consumer, Pattern::OneToOne, 8)?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send_tags(&producer, 0..1000));
        expect_tags(&consumer, 0..1000)?;
        sending.join().map_err(|_| "the producer's thread panicked".to_string())?
    })
}
