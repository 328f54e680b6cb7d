//! Tests wires (connections over UCX) that have both ends in this process: the bytes that arrive, deadlines, and how a
//! wire ends.

use crossdock_os::testing::skip;
use crossdock_os::ucx::{Fabric, Library, Received, Wire, WireError};
use crossdock_os::{Deadline, tcp};
use std::sync::Arc;
use std::time::Duration;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn shortly() -> Deadline {
    Deadline::after(Duration::from_millis(100))
}

fn fabric() -> Option<Arc<Fabric>> {
    let library = Library::load().ok()?;
    Some(Arc::new(Fabric::open(library).expect("a context")))
}

/// Makes two wires that are connected to each other.
fn pair(fabric: &Arc<Fabric>) -> (Wire, Wire) {
    let listener = tcp::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let one = tcp::connect(tcp::local_address(&listener).unwrap(), soon()).unwrap();
    let (other, _) = tcp::accept(&listener, soon()).unwrap().unwrap();
    let (one, other) = (Wire::open(fabric, one, 11).unwrap(), Wire::open(fabric, other, 22).unwrap());
    one.connect(&other.address().unwrap(), 22).unwrap();
    other.connect(&one.address().unwrap(), 11).unwrap();
    std::thread::scope(|scope| {
        let met = scope.spawn(|| other.meet(soon()));
        one.meet(soon()).unwrap();
        met.join().unwrap().unwrap();
    });
    (one, other)
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed) * 7 % 251) as u8).collect()
}

fn read_all(wire: &Wire, buffer: &mut [u8], step: usize) {
    let mut at = 0;
    while at < buffer.len() {
        let end = (at + step).min(buffer.len());
        match wire.read(&mut buffer[at..end], soon()).unwrap() {
            Received::Bytes(read) => at += read,
            Received::End => panic!("the end after {at} bytes"),
        }
    }
}

#[test]
fn bytes_arrive_in_order_both_ways_whatever_the_sizes_of_writes_and_reads() {
    let Some(fabric) = fabric() else { return skip("ucx") };
    let (one, other) = pair(&fabric);
    let sizes = [1, 32_767, 32_768, 100_000, 3, 1 << 20, 40, 5_000_001];
    let total: usize = sizes.iter().sum();
    let send = |wire: &Wire, seed| {
        let all = pattern(total, seed);
        let mut at = 0;
        for size in sizes {
            let (head, rest) = all[at..at + size].split_at(size / 3);
            wire.write(&[head, &[], rest], soon()).unwrap();
            at += size;
        }
    };
    let check = |wire: &Wire, seed, step| {
        let mut got = vec![0; total];
        read_all(wire, &mut got, step);
        assert!(got == pattern(total, seed), "bytes differ");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send(&one, 5));
        scope.spawn(|| send(&other, 9));
        scope.spawn(|| check(&one, 9, 77_777));
        check(&other, 5, 8 << 20);
    });
}

#[test]
fn a_read_ends_at_its_deadline_and_the_wire_goes_on() {
    let Some(fabric) = fabric() else { return skip("ucx") };
    let (one, other) = pair(&fabric);
    assert_eq!(one.read(&mut [0; 8], shortly()), Err(WireError::Late));
    other.write(&[b"later"], soon()).unwrap();
    let mut got = [0; 5];
    read_all(&one, &mut got, 5);
    assert_eq!(&got, b"later");
}

#[test]
fn a_write_that_the_peer_does_not_read_ends_the_wire_on_both_sides() {
    let Some(fabric) = fabric() else { return skip("ucx") };
    let (one, other) = pair(&fabric);
    assert_eq!(one.write(&[&pattern(1 << 20, 3)], shortly()), Err(WireError::Cut));
    assert!(matches!(one.write(&[b"more"], soon()), Err(WireError::Lost(_))));
    // The peer may have heard of the message, but it can no longer get the message's bytes, because the sender's wire
    // has ended.
    assert!(matches!(other.read(&mut vec![0; 1 << 20], soon()), Err(WireError::Lost(_))));
}

#[test]
fn a_wire_that_is_closed_is_read_to_its_end() {
    let Some(fabric) = fabric() else { return skip("ucx") };
    let (one, other) = pair(&fabric);
    other.write(&[b"last"], soon()).unwrap();
    other.close();
    drop(other);
    let mut got = [0; 4];
    read_all(&one, &mut got, 4);
    assert_eq!(&got, b"last");
    assert_eq!((one.read(&mut got, soon()), one.read(&mut got, soon())), (Ok(Received::End), Ok(Received::End)));
    assert!(matches!(one.write(&[b"more"], soon()), Err(WireError::Lost(_))));
}

#[test]
fn a_cut_sign_of_life_is_a_loss_and_no_end() {
    let Some(fabric) = fabric() else { return skip("ucx") };
    let (one, other) = pair(&fabric);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| one.read(&mut [0; 4], soon()));
        tcp::shut_down(other.life());
        assert_eq!(reads.join().unwrap(), Err(WireError::Lost("the connection was cut without a farewell".into())));
    });
}

#[test]
fn closing_ends_a_read_that_waits_in_another_thread() {
    let Some(fabric) = fabric() else { return skip("ucx") };
    let (one, _other) = pair(&fabric);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| one.read(&mut [0; 4], soon()));
        while !reads.is_finished() {
            one.close();
            std::thread::yield_now();
        }
        assert!(matches!(reads.join().unwrap(), Err(WireError::Lost(_))));
    });
}

#[test]
fn messages_with_another_token_are_not_read() {
    let Some(fabric) = fabric() else { return skip("ucx") };
    let listener = tcp::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let life = tcp::connect(tcp::local_address(&listener).unwrap(), soon()).unwrap();
    let (one, other) = pair(&fabric);
    let stranger = Wire::open(&fabric, life, 33).unwrap();
    stranger.connect(&one.address().unwrap(), 12).unwrap();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut got = [0; 5];
            read_all(&one, &mut got, 5);
            got
        });
        stranger.write(&[b"wrong"], soon()).unwrap();
        other.write(&[b"right"], soon()).unwrap();
        assert_eq!(&read.join().unwrap(), b"right");
    });
}
