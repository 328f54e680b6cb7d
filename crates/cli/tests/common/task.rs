//! A program that tests start as a task. `publish N` publishes N versions of the series `field`; with N = 0 it never
//! ends. `produce N` sends N blocks of a region through the port `numbers`, and `consume N` takes them. `await PATH`
//! waits for a file with the library's call, and reads the file. `hold` opens objects that the task was granted and
//! keeps them open. `intrude` tries to open objects that the task was not granted.

use std::time::Duration;

use crossdock_client::{
    ConnectOptions, End, Message, Mode, ObjectMode, PortOptions, Publisher, SeriesOptions, Session, Value, Variable,
};

const WAIT: Option<Duration> = Some(Duration::from_secs(20));

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, what, count] = &words[..] else { return Err("produce|consume|hold|intrude N, await PATH".into()) };
    if what == "await" {
        crossdock_client::await_file(count)?;
        println!("{count} has {} bytes", std::fs::read(count)?.len());
        return Ok(());
    }
    let count: u64 = count.parse()?;
    let session = Session::connect(&ConnectOptions::default())?;
    println!("connected as {}/{} rank {}", session.workflow(), session.task(), session.rank());
    match what.as_str() {
        "produce" => produce(&session, count)?,
        "consume" => consume(&session, count)?,
        "publish" => publish(&session, count)?,
        // Opens the objects that the task was granted, and keeps them open for a minute, or until the task is stopped.
        "hold" => hold(&session, count)?,
        // Tries to open objects that the task was not granted. Each attempt must be refused.
        "intrude" => intrude(&session),
        other => return Err(format!("unknown word {other}").into()),
    }
    Ok(())
}

fn produce(session: &Session, count: u64) -> crossdock_client::Result<()> {
    let region = session.region("blocks", Mode::OpenOrCreate, 16 << 20, None)?;
    let port = session.port("numbers", End::Producer, &PortOptions::default(), WAIT)?;
    println!("sends through {:?}", port.shape());
    port.wait_peer(WAIT)?;
    for i in 0..count {
        let handle = match port.reclaim(WAIT)? {
            Some(handle) => handle,
            None => region.save(region.allocate(4096, 64)?)?,
        };
        port.send_sized(&Message::new(handle, i), 4096, WAIT)?;
    }
    println!("sent {count}");
    port.close();
    Ok(())
}

fn consume(session: &Session, count: u64) -> crossdock_client::Result<()> {
    let port = session.port("numbers", End::Consumer, &PortOptions::default(), WAIT)?;
    for i in 0..count {
        let message = port.receive(WAIT)?;
        assert_eq!(message.tag, i);
        let region = session.region_of(message.handle)?;
        assert!(region.load(message.handle, None)?.size >= 4096);
        port.release(&message)?;
    }
    println!("received {count} in order");
    port.close();
    Ok(())
}

/// Publishes versions: in version n every element is n, and the attribute `step` is n too. After each version the task
/// pauses for FIELD_PAUSE_MS. The series of FIELD_NAMES (default `field`) are published one after the other, as the
/// ranks of a program would do it.
fn publish(session: &Session, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let given = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let pause = Duration::from_millis(given("FIELD_PAUSE_MS", "5").parse()?);
    let elements: u64 = given("FIELD_ELEMENTS", "30000").parse()?;
    let mut variable = Variable::new("u", "f64", &[elements / 100, 100]);
    variable.constants.push(("x".into(), Value::F64(0.5)));
    let options = SeriesOptions { variables: vec![variable], keep: 2, ..SeriesOptions::default() };
    let names = given("FIELD_NAMES", "field");
    let mut publishers: Vec<Publisher> =
        names.split(' ').map(|name| session.publisher(name, &options)).collect::<Result<_, _>>()?;
    // With FIELD_SHAPE=wave the elements form a wave that looks good on a page. Otherwise every element is the
    // version's number.
    let wave = given("FIELD_SHAPE", "flat") == "wave";
    let value = |step: i64, i: usize| match wave {
        true => ((i / 100) as f64 * 0.05 + step as f64 * 0.02).sin() * ((i % 100) as f64 * 0.08).cos(),
        false => step as f64,
    };
    for step in 1.. {
        for publisher in &mut publishers {
            let start = publisher.memory("u")?.cast::<f64>();
            for i in 0..elements as usize {
                // SAFETY: the variable has `elements` elements, and only this thread accesses them.
                unsafe { start.add(i).write_volatile(value(step, i)) };
            }
            publisher.publish(&[("step", Value::I64(step)), ("note", Value::Text("é".into()))])?;
        }
        if step as u64 == count {
            break;
        }
        std::thread::sleep(pause);
    }
    println!("published {count}");
    publishers.into_iter().try_for_each(Publisher::end)?;
    Ok(())
}

/// Keeps a region and a port open. If `count` is 0, the task makes the region and is the port's producer. Otherwise it
/// opens the existing region and is the port's consumer.
fn hold(session: &Session, count: u64) -> crossdock_client::Result<()> {
    let (mode, end) = if count == 0 { (Mode::OpenOrCreate, End::Producer) } else { (Mode::OpenOnly, End::Consumer) };
    let region = session.region("blocks", mode, 16 << 20, WAIT)?;
    let port = session.port("numbers", end, &PortOptions::default(), WAIT)?;
    if count == 0 {
        region.vector::<f64>("positions", ObjectMode::OpenOrCreate, None)?.resize(1000)?;
    }
    println!("holds {} and {}", region.name(), port.name());
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn intrude(session: &Session) {
    let tries = [
        ("region", session.region("blocks", Mode::OpenOnly, 0, WAIT).err()),
        ("port", session.port("numbers", End::Consumer, &PortOptions::default(), WAIT).err()),
        ("workflow", session.make_workflow("mine", 0).err()),
    ];
    for (what, error) in tries {
        match error {
            Some(e) => println!("{what}: {:?}: {}", e.status, e),
            None => println!("{what}: LET IN"),
        }
    }
}
