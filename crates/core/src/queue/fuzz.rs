//! Fuzzes a port's queue, whose memory another process may overwrite. Whatever the bytes are, each call must end with a
//! result or an error.

use crossdock_layout::MemberId;
use crossdock_os::{Access, Deadline, Mapping, memfd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{End, INLINE_MAX, Inline, Message, Pattern, Ring, Shape, Side};
use crate::host::{Host, StandaloneHost};
use crossdock_layout::queue::{PORT_READY, PortHeader};

static MEMBERS: [MemberId; 2] = [MemberId::new(1, 1), MemberId::new(2, 2)];

/// Runs one round. Makes a port in fresh memory and lets both ends work. Then overwrites words of the memory, one for
/// every ten bytes of `data` (offset and value), and lets both ends work again with the shortest possible waits.
pub fn fuzz_entry(data: &[u8]) {
    let Some((&[first, second], rest)) = data.split_first_chunk() else { return };
    let shape = Shape {
        pattern: Pattern::from_number(u32::from(first & 3)).expect("four patterns"),
        capacity: 1 << (second & 3),
    };
    let host: Arc<dyn Host> = Arc::new(StandaloneHost::with(&MEMBERS));

    let size = shape.size();
    let fd = memfd::create("crossdock-fuzz", size).expect("a memfd");
    let mapping = || Mapping::new(&fd, size as usize, Access::ReadWrite).expect("a mapping");
    let raw = mapping();
    let open = |side: Side| {
        let ring = Ring::open(mapping(), shape, MEMBERS[side as usize], host.liveness(), Deadline::after(SHORT))?;
        End::open(ring, side, MEMBERS[side as usize], "fuzz", host.clone(), Duration::ZERO)
    };
    let early = first & 4 != 0;
    let mut ends = if early { Some((open(Side::Producer), open(Side::Consumer))) } else { None };
    for (round, scribble) in rest.chunks(10).enumerate() {
        if let Some((Ok(producer), Ok(consumer))) = &ends {
            work(producer, consumer, round);
        }
        overwrite(&raw, scribble);
        if second & 4 != 0 {
            // This step marks the port as formatted. Otherwise opening the port would reject most inputs.
            // SAFETY: the mapping is larger than a header, aligned, and all fields are atomics.
            let header: &PortHeader = unsafe { raw.start().cast().as_ref() };
            header.identity.init.store(PORT_READY, Relaxed);
        }
        if let Some((Ok(producer), Ok(consumer))) = &ends {
            work(producer, consumer, round);
        } else {
            ends = Some((open(Side::Producer), open(Side::Consumer)));
        }
        if let Ok(ring) = Ring::inspect(mapping()) {
            let report = ring.report(host.liveness());
            assert!(report.ends.len() <= 63);
        }
    }
}

const SHORT: Duration = Duration::from_micros(50);

fn work(producer: &End, consumer: &End, round: usize) {
    let message = Message {
        tag: round as u64,
        inline: Inline::cut([0; INLINE_MAX], (round % 25) as u32).unwrap_or_default(),
        ..Message::default()
    };
    for turn in 0..3 {
        let timeout = if turn == 0 { SHORT } else { Duration::ZERO };
        let _ = producer.reclaim(timeout);
        let _ = producer.send(&message, 1, timeout);
        if let Ok((position, message)) = consumer.receive(timeout) {
            assert!(message.inline.len() <= INLINE_MAX);
            let _ = consumer.release(position);
        }
        let _ = consumer.release(round as u64);
        producer.has_event();
        consumer.has_event();
    }
}

/// Overwrites one word: two bytes are the offset, and eight are the value. If fewer bytes are left, the missing ones
/// are zero.
fn overwrite(raw: &Mapping, scribble: &[u8]) {
    let mut bytes = [0; 10];
    bytes[..scribble.len()].copy_from_slice(scribble);
    let offset = u16::from_le_bytes([bytes[0], bytes[1]]) as u64 % (raw.length() as u64 / 8) * 8;
    let value = u64::from_le_bytes(bytes[2..].try_into().expect("eight bytes"));
    let Some(address) = raw.at(offset, 8) else { return };
    // SAFETY: the word lies within the mapping and is aligned. All other references to this memory are to atomics too,
    // so an atomic store is allowed beside them.
    unsafe { crossdock_layout::queue::AtomicU64::from_ptr(address.as_ptr().cast()) }.store(value, Relaxed);
}
