//! The floors of a transfer (the least times that this machine needs): raw TCP into memory that exists already, and
//! into fresh memory.

use std::time::Instant;

use crossdock_bench::raw::Streams;
use crossdock_os::{Access, Mapping, memfd};

use crate::Size;
use crate::rows::{FLOORS, FRESH, ROUND_TRIP, Times};

pub struct Floors {
    one: Streams,
    four: Streams,
    memory: Vec<u8>,
}

impl Floors {
    /// Connects to a raw TCP server. Measures objects of at most `most` bytes.
    pub fn new(address: &str, most: usize) -> Self {
        Self { one: Streams::connect(address, 1), four: Streams::connect(address, 4), memory: vec![1; most] }
    }

    /// Measures the time of a request and its answer of eight bytes.
    pub fn round_trip(&mut self, times: &mut Times) {
        let (one, memory) = (&mut self.one, &mut self.memory[..8]);
        times.add_each(&[ROUND_TRIP], &all_of(100, || one.pull(memory)));
    }

    pub fn measure(&mut self, times: &mut Times, size: &Size) {
        let Self { one, four, memory } = self;
        let memory = &mut memory[..size.bytes];
        times.add_each(&[FLOORS[0], size.name], &all_of(size.times, || one.pull(memory)));
        times.add_each(&[FLOORS[1], size.name], &all_of(size.times, || four.pull(memory)));
        let fresh = || {
            let file = memfd::create("bench", size.bytes as u64).expect("memory");
            let mut mapping = Mapping::new(&file, size.bytes, Access::ReadWrite).expect("a mapping");
            four.pull(mapping.fresh_bytes());
        };
        times.add_each(&[FRESH, size.name], &all_of(size.times, fresh));
    }
}

/// Measures the time of each call, in microseconds.
fn all_of(times: usize, mut call: impl FnMut()) -> Vec<f64> {
    let once = |_| {
        let begun = Instant::now();
        call();
        begun.elapsed().as_secs_f64() * 1e6
    };
    (0..times).map(once).collect()
}
