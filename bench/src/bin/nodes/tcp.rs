//! The floors of a transfer: raw TCP into memory that exists already, and into fresh memory.

use std::time::Instant;

use crossdock_bench::median;
use crossdock_bench::raw::Streams;
use crossdock_os::{Access, Mapping, memfd};

use crate::rows::{FLOORS, FRESH, ROUND_TRIP, Times};
use crate::{MOST, Size};

pub struct Floors {
    one: Streams,
    four: Streams,
    memory: Vec<u8>,
}

impl Floors {
    pub fn new(address: &str) -> Self {
        Self { one: Streams::connect(address, 1), four: Streams::connect(address, 4), memory: vec![1; MOST] }
    }

    /// Measures the time of a request and its answer of eight bytes.
    pub fn round_trip(&mut self, times: &mut Times) {
        let (one, memory) = (&mut self.one, &mut self.memory[..8]);
        times.add(&[ROUND_TRIP], median_of(100, || one.pull(memory)));
    }

    pub fn measure(&mut self, times: &mut Times, size: &Size) {
        let Self { one, four, memory } = self;
        let memory = &mut memory[..size.bytes];
        times.add(&[FLOORS[0], size.name], median_of(size.times, || one.pull(memory)));
        times.add(&[FLOORS[1], size.name], median_of(size.times, || four.pull(memory)));
        let fresh = || {
            let file = memfd::create("bench", size.bytes as u64).expect("memory");
            let mut mapping = Mapping::new(&file, size.bytes, Access::ReadWrite).expect("a mapping");
            four.pull(mapping.fresh_bytes());
        };
        times.add(&[FRESH, size.name], median_of(size.times, fresh));
    }
}

/// Measures the median time of a call, in microseconds.
fn median_of(times: usize, mut call: impl FnMut()) -> f64 {
    let once = |_| {
        let begun = Instant::now();
        call();
        begun.elapsed().as_secs_f64() * 1e6
    };
    median(&(0..times).map(once).collect::<Vec<f64>>())
}
