//! Fuzzes the readers of a series' memory: an observer of a pool that another process overwrote, and a publisher whose
//! pin pages hold false numbers. Whatever the bytes are, each call must end with a result or an error.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossdock_layout::SegmentId;
use crossdock_layout::series::{AtomicU64, PinSlot, SERIES_READY, SeriesHeader};
use crossdock_os::{Access, Mapping, file, memfd};

use super::plan::metadata_bytes;
use super::{
    AttachParts, Detect, FullPolicy, Identity, Observer, Offer, Pages, PinPageGiven, Publisher, Report, Spec, Value,
    Variable, Version, diff,
};
use crate::Result;
use crate::host::{Host, StandaloneHost};
use crate::liveness::LivenessSource;

fn shared(size: u64) -> (OwnedFd, Mapping) {
    let fd = memfd::create("crossdock-fuzz", size).expect("a memfd");
    let mapping = Mapping::new(&fd, size as usize, Access::ReadWrite).expect("a mapping");
    (fd, mapping)
}

/// Runs one round: a publisher with three versions, one observer of its pool, and one observer of a copy of the pool.
/// Every ten bytes of `data` are an offset and a value, by which one word of the copy's tables or of a pin page is
/// overwritten. After each such write the publisher and both observers do some more calls.
pub fn fuzz_entry(data: &[u8]) {
    let Some((&[ways, more], rest)) = data.split_first_chunk() else { return };
    let alone = StandaloneHost::default();
    if more & 1 == 0 {
        alone.table().set_alive(StandaloneHost::MEMBER);
    }
    let page = memfd::create("crossdock-fuzz-pins", 4096).expect("a memfd");
    let host: Arc<dyn Host> = Arc::new(WithPage(alone, page.try_clone().expect("a descriptor")));
    let mut publisher = Fixture::publisher(ways, page, host.clone());
    let metadata = metadata_bytes(publisher.0.pool.geometry());
    let mut real = publisher.1.observe(0, &publisher.1.offer.pool, &host).expect("an honest pool");
    let mut held = real.latest().expect("an honest pool");

    let (copy, raw) = shared(publisher.1.offer.size);
    copy_pool(&publisher.1.offer, &raw);
    let mut observer = publisher.1.observe(1, &copy, &host);
    let mut version = None;
    for (round, scribble) in rest.chunks(10).enumerate() {
        let (offset, value) = decode(scribble);
        if more & 2 != 0 && round % 3 == 0 {
            let pins = Mapping::new(&publisher.1.page, 4096, Access::ReadWrite).expect("a pin page");
            overwrite(&pins, round as u64 % 2 * size_of::<PinSlot>() as u64 + offset % 16 * 8, value % 8);
        } else {
            overwrite(&raw, offset % (metadata / 8) * 8, value);
        }
        if more & 4 != 0 {
            // Marks the copy as a complete series. Without the mark, most inputs would already be rejected at the first
            // check.
            // SAFETY: the mapping is larger than a header, aligned, and all fields are atomics.
            let header: &SeriesHeader = unsafe { raw.start().cast().as_ref() };
            header.identity.init.store(SERIES_READY, Relaxed);
        }
        match &mut observer {
            Ok(observer) => work(observer, &mut version, round as u64),
            Err(_) => observer = publisher.1.observe(1, &copy, &host),
        }
        let _ = Report::read("fuzz", &copy, publisher.1.offer.size);
        Fixture::step(&mut publisher.0, round as u64);
        if held.is_valid() {
            look(&held);
        }
        let _ = held.refresh();
    }
}

/// A `Host` for the fuzzer, with one pin page: the page in which the fuzzer's observers note the versions that they
/// use.
struct WithPage(StandaloneHost, OwnedFd);

impl Host for WithPage {
    fn liveness(&self) -> &dyn LivenessSource {
        &self.0
    }

    fn pages_word(&self) -> u32 {
        1
    }

    fn pin_page(&self, from: u32) -> Result<Option<PinPageGiven>> {
        let page = self.1.try_clone().expect("a descriptor");
        Ok((from == 0).then_some(PinPageGiven { page: page.into(), next: 1, left: 0 }))
    }
}

/// The memory of a published series: its pool and its pin page. In normal use, the daemon keeps the descriptors of
/// both.
struct Fixture {
    offer: Offer,
    page: OwnedFd,
}

impl Fixture {
    fn publisher(ways: u8, page: OwnedFd, host: Arc<dyn Host>) -> (Publisher, Self) {
        let detect = [Detect::Auto, Detect::Hints, Detect::PrivateCopies, Detect::CopyAll][usize::from(ways & 3)];
        let grows = Variable { max_shape: vec![3, 1024], ..Variable::new("v", "f64", &[1, 1024]) };
        let spec = Spec {
            keep: u32::from(ways >> 2 & 3),
            max_observers: 2,
            capacity: Some(20 * 4096),
            full: if ways & 16 != 0 { FullPolicy::TakeBack } else { FullPolicy::Withhold },
            detect,
            pages: Pages::MayMove,
            constants: vec![("c".into(), Value::Text("x".into()))],
            ..Spec::of(vec![Variable::new("u", "u8", &[5000]), grows])
        };
        let (mut publisher, offer) = Publisher::create(Identity::alone("fuzz"), &spec, host).expect("a series");
        for round in 0..3 {
            Self::step(&mut publisher, round);
        }
        (publisher, Self { offer, page })
    }

    fn step(publisher: &mut Publisher, round: u64) {
        let begun = round % 5 == 0 && publisher.begin().is_ok();
        if round % 7 == 0 && !begun {
            let _ = publisher.resize("v", &[round % 4, 1024]);
        }
        if publisher.bytes("u").is_ok_and(|bytes| bytes > 0) {
            let memory = publisher.memory("u").expect("the variable's memory");
            // SAFETY: the variable's memory has at least one byte.
            unsafe { memory.write_volatile(round as u8) };
            let _ = publisher.touched("u", 0..1);
        }
        if publisher.publish(&[("n", Value::U64(round))]).is_err() && begun {
            let _ = publisher.abandon();
        }
    }

    fn observe(&self, slot: u32, pool: impl AsFd, host: &Arc<dyn Host>) -> Result<Observer> {
        Observer::attach(AttachParts {
            name: "fuzz".into(),
            segment: SegmentId(7),
            pool: file::reopen_read_only(pool).expect("a memfd").into(),
            size: self.offer.size,
            pin_page: self.page.try_clone().expect("a memfd").into(),
            slot,
            publisher: StandaloneHost::MEMBER,
            host: host.clone(),
        })
    }
}

fn work(observer: &mut Observer, held: &mut Option<Version>, round: u64) {
    let newest = observer.latest();
    let asked = observer.at(round % 6, std::time::Duration::ZERO);
    let _ = observer.next(Duration::ZERO);
    for version in [&newest, &asked].into_iter().flatten() {
        look(version);
    }
    if let (Ok(one), Ok(other)) = (&newest, &asked) {
        let _ = diff(one, other);
    }
    if let Some(held) = held {
        look(held);
        let _ = held.refresh();
        look(held);
    }
    if round % 2 == 0 {
        *held = newest.ok();
    }
}

/// Reads every page of every variable of a version.
fn look(version: &Version) {
    for variable in version.description().variables.iter().map(|variable| variable.name.as_str()) {
        if let Ok(bytes) = version.bytes(variable) {
            let sum = bytes.iter().step_by(4096).fold(0u64, |sum, byte| sum + u64::from(*byte));
            std::hint::black_box(sum);
        }
        let _ = version.copy_out(variable, version.sequence() % 8000, &mut [0; 100]);
        std::hint::black_box((version.shape(variable).expect("a variable of it"), version.attributes()));
    }
}

fn copy_pool(offer: &Offer, to: &Mapping) {
    let from = Mapping::new(&offer.pool, offer.size as usize, Access::Read).expect("a mapping");
    // SAFETY: both mappings are as long as the pool, and only this thread writes to their memory.
    unsafe { std::ptr::copy_nonoverlapping(from.start().as_ptr(), to.start().as_ptr(), offer.size as usize) };
}

/// Splits the bytes of one write into the offset in words (two bytes) and the value (eight bytes). Missing bytes are
/// zero.
fn decode(scribble: &[u8]) -> (u64, u64) {
    let mut bytes = [0; 10];
    bytes[..scribble.len()].copy_from_slice(scribble);
    let offset = u64::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    (offset, u64::from_le_bytes(bytes[2..].try_into().expect("eight bytes")))
}

fn overwrite(raw: &Mapping, offset: u64, value: u64) {
    let Some(address) = raw.at(offset, 8) else { return };
    // SAFETY: the word lies within the mapping and is aligned. All other references to this memory are to atomics too,
    // so an atomic store is allowed beside them.
    unsafe { AtomicU64::from_ptr(address.as_ptr().cast()) }.store(value, Relaxed);
}
