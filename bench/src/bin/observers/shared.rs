//! The work on the data that is done with each way of sharing. It is the same for all ways. Producer and observer work
//! in separate processes.

use std::time::Instant;

/// Does the producer's work: changes every number.
pub fn work(data: &mut [f64]) {
    for x in data.iter_mut() {
        *x += 1.0;
    }
    // `black_box` keeps the compiler from removing the loop or merging it with the next one.
    std::hint::black_box(data);
}

/// Does the observer's work: reads every number and returns a result that depends on all of them.
pub fn look(data: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for part in data.chunks_exact(8) {
        let part: &[f64; 8] = part.try_into().expect("eight of them");
        for i in 0..8 {
            sums[i] += part[i];
        }
    }
    std::hint::black_box(sums.iter().sum())
}

/// Views bytes as numbers.
pub fn numbers(bytes: &[u8]) -> &[f64] {
    // SAFETY: every sequence of eight bytes is a valid number. `align_to` leaves out unaligned bytes, and there are
    // none here.
    let (before, numbers, _) = unsafe { bytes.align_to() };
    assert!(before.is_empty());
    numbers
}

/// Views memory of this process as numbers.
///
/// # Safety
/// From `start` on there are `bytes` bytes of memory, which no other code writes or reads while the result is used.
pub unsafe fn numbers_at<'a>(start: *mut u8, bytes: usize) -> &'a mut [f64] {
    // SAFETY: the caller promises that the memory can be used. Pages are aligned for numbers.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes / 8) }
}

/// Runs an iteration many times, in a few runs of about the given time each. Gives the seconds per iteration of each
/// run.
pub fn measure(runs: usize, seconds: f64, mut iteration: impl FnMut()) -> Vec<f64> {
    let count = often_enough(seconds, &mut iteration);
    (0..runs).map(|_| timed(count, &mut iteration)).collect()
}

/// Finds how many iterations take about this many seconds together.
pub fn often_enough(seconds: f64, iteration: &mut dyn FnMut()) -> u32 {
    let mut count = 1u32;
    loop {
        let took = timed(count, iteration) * f64::from(count);
        if took > seconds / 4.0 || count > 1 << 24 {
            return ((f64::from(count) * seconds / took) as u32).max(3);
        }
        count *= 2;
    }
}

/// Runs the iteration `count` times and gives the seconds per iteration.
pub fn timed(count: u32, iteration: &mut dyn FnMut()) -> f64 {
    let begun = Instant::now();
    (0..count).for_each(|_| iteration());
    begun.elapsed().as_secs_f64() / f64::from(count)
}

/// Pins this process if there are two CPUs: the producer to the first CPU, an observer to the others.
pub fn pin(producer: bool) {
    let processors = crossdock_os::process::processors();
    if processors < 2 {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    if producer {
        set.set(0);
    } else {
        (1..processors).for_each(|p| set.set(p));
    }
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
