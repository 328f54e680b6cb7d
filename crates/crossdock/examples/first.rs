//! This program has both ends of a port. It sends a vector in shared memory through the port. After that, it publishes
//! a series and observes it. The program can be run any number of times, because each run leaves the daemon as it found
//! it.

use std::time::Duration;

use crossdock::{
    ConnectOptions, End, Message, Mode, ObjectMode, PortOptions, Result, SeriesOptions, Session, Variable,
};

const WAIT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let session = Session::connect(&ConnectOptions::default())?; // starts a private daemon if there is none

    let frames = session.region("frames", Mode::Recreate, 16 << 20, None)?;
    let positions = frames.vector::<f64>("positions", ObjectMode::OpenOrCreate, None)?;
    positions.assign(&[0.5; 1000])?;

    let options = PortOptions { capacity: 2, ..PortOptions::default() };
    let (sender, receiver) = (
        session.port("ready", End::Producer, &options, Some(WAIT))?,
        session.port("ready", End::Consumer, &options, Some(WAIT))?,
    );
    sender.send(&Message::new(positions.save()?, 1), Some(WAIT))?; // 16 bytes travel; the vector stays where it is
    let message = receiver.receive(Some(WAIT))?;
    let seen = frames.load_vector::<f64>(message.handle)?;
    println!("message {}: {} elements", message.tag, seen.len()?);
    receiver.release(&message)?;

    let variables = vec![Variable::new("u", "f64", &[64, 64])];
    let mut field = session.publisher("field", &SeriesOptions { variables, ..SeriesOptions::default() })?;
    field.elements::<f64>("u")?.fill(2.0); // ordinary memory, changed in place
    field.publish(&[])?; // only what changed is copied
    let version = session.observe("field", WAIT)?.next(WAIT)?;
    println!("version {}: u[0] = {}", version.sequence(), version.elements::<f64>("u")?[0]);

    field.end()?;
    session.remove_region("frames")
}
