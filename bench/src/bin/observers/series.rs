//! Makes publishers and observers of series in the form that the measurements need.

use std::path::Path;
use std::time::Duration;

use crossdock_bench::connect;
use crossdock_client::{Detect, Observer, Publisher, SeriesOptions, Session, Status, Variable, Version};

/// Makes a publisher of one array of `bytes` bytes.
pub fn publisher(session: &Session, name: &str, bytes: usize, detect: Detect, chunk: Option<u32>) -> Publisher {
    publisher_that_keeps(session, name, bytes, detect, chunk, SeriesOptions::default().keep)
}

/// Makes a publisher as `publisher` does. The series keeps `keep` older versions besides the newest.
pub fn publisher_that_keeps(
    session: &Session,
    name: &str,
    bytes: usize,
    detect: Detect,
    chunk: Option<u32>,
    keep: u32,
) -> Publisher {
    let options = SeriesOptions {
        keep,
        variables: vec![Variable::new("u", "f64", &[bytes as u64 / 8])],
        capacity: Some((bytes as u64 * 12).max(1 << 20) + (16 << 20)),
        chunk,
        detect,
        ..SeriesOptions::default()
    };
    session.publisher(name, &options).expect("a series")
}

/// Gives the array of the publisher, which the caller changes in place.
pub fn array(publisher: &mut Publisher, bytes: usize) -> &mut [f64] {
    let start = publisher.memory("u").expect("a variable of that name");
    // SAFETY: the variable has `bytes` bytes, and the program uses only one view of them at a time.
    unsafe { super::shared::numbers_at(start, bytes) }
}

/// Connects to the daemon and observes the series of this name.
pub fn observer(socket: &Path, name: &str) -> (Session, Observer) {
    let session = connect(socket);
    let observer = session.observe(name, Duration::from_secs(10)).expect("the series");
    (session, observer)
}

/// Waits for the next version and gives it; `None` at the end of the series.
pub fn next(observer: &mut Observer) -> Option<Version> {
    loop {
        match observer.next(Duration::from_secs(1)) {
            Ok(version) => return Some(version),
            Err(e) if matches!(e.status, Status::Closed | Status::PeerDied) => return None,
            Err(e) if matches!(e.status, Status::TimedOut) => {}
            Err(e) => panic!("{e}"),
        }
    }
}
