//! Round trips between two processes, and the time for one direction.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossdock_bench::median;
use crossdock_os::{Access, Mapping, clock, memfd};

/// The number of trips in one round.
const TRIPS: u32 = 200;
/// The pause between two trips. It is long enough for the other side to fall asleep while it waits.
const PAUSE: Duration = Duration::from_micros(100);

/// Memory that both processes share. It has the words by which the two processes wake each other, and the time of the
/// last send.
pub struct Words(pub Mapping);

impl Words {
    const SENT: u64 = 256;

    pub fn new() -> Self {
        let memory = memfd::create("bench", 4096).expect("memory");
        Self(Mapping::new(memory, 4096, Access::ReadWrite).expect("a mapping"))
    }

    fn send_off(&self) {
        self.0.word64(Self::SENT).expect("within").store(clock::now_ns(), Ordering::Release);
    }

    /// Gives the time since the last send, in microseconds.
    fn on_its_way(&self) -> f64 {
        clock::now_ns().saturating_sub(self.0.word64(Self::SENT).expect("within").load(Ordering::Acquire)) as f64 / 1e3
    }
}

/// Whether there is a pause between two trips of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pace {
    /// There is a pause before each trip, so that the receiver has waited for a while. The measured time lasts from the
    /// send until the receiver's call returns.
    OneWay,
    /// There is no pause between two trips. The measured time is half of a round trip.
    BackToBack,
}

impl Pace {
    pub const BOTH: [Self; 2] = [Self::OneWay, Self::BackToBack];

    pub fn name(self) -> &'static str {
        match self {
            Self::OneWay => "one way",
            Self::BackToBack => "back to back",
        }
    }
}

/// One side of a hand-over. It sends an object and receives it back.
pub trait Side {
    /// Prepares the first trip. The asking side has the object, and the answering side waits for it.
    fn start(&mut self, asks: bool);
    /// Hands the object over.
    fn send(&mut self);
    /// Waits until this side has the object.
    fn take(&mut self);

    /// Sends the object and receives it back many times. Returns the microseconds for one direction.
    fn ask(&mut self, pace: Pace, words: &Words) -> f64 {
        self.start(true);
        let (mut began, mut ways) = (Instant::now(), Vec::new());
        for trip in 0..=TRIPS {
            // The first trip is not measured. It warms up the caches and waits until the other side has started.
            if trip == 1 {
                began = Instant::now();
                ways.clear();
            }
            if pace == Pace::OneWay {
                std::thread::sleep(PAUSE);
            }
            self.send();
            self.take();
            ways.push(words.on_its_way());
        }
        match pace {
            Pace::OneWay => median(&ways),
            Pace::BackToBack => began.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS) / 2.0,
        }
    }

    /// Runs on the other side: each time that [`Side::ask`] sends the object, takes the object and sends it back.
    fn answer(&mut self, pace: Pace, words: &Words) {
        self.start(false);
        for _ in 0..=TRIPS {
            self.take();
            if pace == Pace::OneWay {
                std::thread::sleep(PAUSE);
            }
            words.send_off();
            self.send();
        }
    }
}
