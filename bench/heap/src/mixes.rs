//! The patterns of allocation that are measured. `boost.cpp` contains the same patterns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::heaps::{Crossdock, Heap};
use crate::world::{World, pin};

/// A function that runs one mix and returns nanoseconds per call.
pub type Mix = fn(&mut dyn Heap, &mut Random, u64) -> f64;

/// The mixes with their names.
pub const MIXES: &[(&str, Mix)] =
    &[("same size, at once", at_once), ("random, 1000 live", random), ("batches", batches)];

/// A random number generator (xorshift64).
pub struct Random(pub u64);

impl Random {
    /// Gives a random number from 0 to `n` - 1.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Each block of 64 bytes is allocated, written and immediately freed.
fn at_once(heap: &mut dyn Heap, _: &mut Random, steps: u64) -> f64 {
    let start = Instant::now();
    for _ in 0..steps {
        let block = heap.allocate(64);
        heap.touch(block);
        heap.free(block);
    }
    per_call(start, 2 * steps)
}

/// One of 1000 live blocks, chosen at random, is replaced by a block of random size, 16 to 1015 bytes.
fn random(heap: &mut dyn Heap, random: &mut Random, steps: u64) -> f64 {
    let mut live: Vec<u64> = (0..1000).map(|_| heap.allocate(16 + random.below(1000))).collect();
    let start = Instant::now();
    for _ in 0..steps {
        let at = random.below(1000) as usize;
        heap.free(live[at]);
        live[at] = heap.allocate(16 + random.below(1000));
        heap.touch(live[at]);
    }
    let time = per_call(start, 2 * steps);
    for block in live {
        heap.free(block);
    }
    time
}

/// A thousand blocks of 16 to 143 bytes are allocated, and then freed in the order in which they were allocated.
fn batches(heap: &mut dyn Heap, random: &mut Random, steps: u64) -> f64 {
    let mut blocks = Vec::with_capacity(1000);
    let start = Instant::now();
    for _ in 0..steps / 1000 {
        for _ in 0..1000 {
            let block = heap.allocate(16 + random.below(128));
            heap.touch(block);
            blocks.push(block);
        }
        for block in blocks.drain(..) {
            heap.free(block);
        }
    }
    per_call(start, 2 * (steps / 1000 * 1000))
}

/// One process allocates blocks and another process frees them. The blocks pass through a ring with 4096 places. Gives
/// nanoseconds per call: the time per block divided by two, because each block is allocated by one call and freed by
/// another.
pub fn hand_over(world: &Arc<World>, steps: u64) -> f64 {
    const RING: u64 = 4096;
    let (put, got) = (world.word(64), world.word(128));
    let other = world.spawn(2, |region| {
        pin(1);
        let mut heap = Crossdock(region);
        world.meet(0, 2);
        for i in 0..steps {
            wait_until(|| put.load(Ordering::Acquire) > i);
            heap.free(world.word(1024 + (i % RING) as usize).load(Ordering::Relaxed));
            got.store(i + 1, Ordering::Release);
        }
    });
    pin(0);
    let mut heap = Crossdock(world.attach(1));
    world.meet(0, 2);
    let mut random = Random(5);
    let start = Instant::now();
    for i in 0..steps {
        wait_until(|| got.load(Ordering::Acquire) + RING > i);
        let block = heap.allocate(16 + random.below(1000));
        heap.touch(block);
        world.word(1024 + (i % RING) as usize).store(block, Ordering::Relaxed);
        put.store(i + 1, Ordering::Release);
    }
    let time = per_call(start, 2 * steps);
    world.wait(other);
    time
}

/// Spins until the condition holds. It yields in between, in case the other process has no CPU.
fn wait_until(done: impl Fn() -> bool) {
    while !(0..200).any(|_| {
        done() || {
            std::hint::spin_loop();
            false
        }
    }) {
        std::thread::yield_now();
    }
}

fn per_call(start: Instant, calls: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / calls as f64
}
