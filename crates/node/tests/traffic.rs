//! Tests that messages and the region's growth continue while the broker is killed again and again.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{End, Message, Mode, ObjectMode, PortOptions, Status};
use support::Daemon;

const KILLS: u32 = 100;
const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// For each message the producer makes a new object, so the region must grow from time to time. To let the region grow,
/// the producer needs the broker; to send messages, the producer does not need the broker. The consumer checks that no
/// message is lost, doubled, reordered or changed.
#[test]
fn a_hundred_broker_kills_lose_no_message() {
    let daemon = Daemon::start();
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let received = std::thread::scope(|scope| {
        let producing = scope.spawn(|| produce(&daemon, &over, &sent));
        let consuming = scope.spawn(|| consume(&daemon));
        for kill in 0..KILLS {
            let before = sent.load(Ordering::Relaxed);
            daemon.kill_broker();
            // Every second kill comes after one millisecond, while the new broker is still starting. The other kills
            // come only after some messages have passed.
            let patience = if kill % 2 == 0 { Duration::from_millis(1) } else { Duration::from_secs(5) };
            let began = Instant::now();
            while sent.load(Ordering::Relaxed) < before + 30 && began.elapsed() < patience && !producing.is_finished() {
                std::thread::sleep(Duration::from_micros(250));
            }
        }
        over.store(true, Ordering::Relaxed);
        producing.join().unwrap();
        consuming.join().unwrap()
    });
    let sent = sent.into_inner();
    println!("{sent} messages over {KILLS} kills");
    assert!(sent > 1000, "only {sent} messages");
    assert_eq!(received, sent);
    daemon.stop();
}

fn produce(daemon: &Daemon, over: &AtomicBool, sent: &AtomicU64) {
    let session = daemon.session();
    let region = session.region("objects", Mode::OpenOrCreate, 64 << 20, None).unwrap();
    let port = session.port("flow", End::Producer, &PortOptions::default(), LONG).unwrap();
    port.wait_peer(LONG).unwrap();
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let v = region.vector::<u64>(&format!("v{number}"), ObjectMode::CreateOnly, None).unwrap();
        v.assign(&vec![number; 64 + (number % 64) as usize]).unwrap();
        port.send(&Message::new(v.save().unwrap(), number), LONG).unwrap();
        number += 1;
        sent.store(number, Ordering::Relaxed);
    }
    port.close();
}

fn consume(daemon: &Daemon) -> u64 {
    let session = daemon.session();
    let port = session.port("flow", End::Consumer, &PortOptions::default(), LONG).unwrap();
    let mut next = 0;
    loop {
        let message = match port.receive(LONG) {
            Ok(message) => message,
            Err(error) if error.status == Status::Closed => return next,
            Err(error) => panic!("after {next} messages: {error}"),
        };
        assert_eq!(message.tag, next);
        let region = session.region_of(message.handle).unwrap();
        let values = region.load_vector::<u64>(message.handle).unwrap().to_vec().unwrap();
        assert_eq!(values, vec![next; 64 + (next % 64) as usize]);
        region.remove(&format!("v{next}")).unwrap();
        port.release(&message).unwrap();
        next += 1;
    }
}
