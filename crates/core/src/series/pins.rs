//! The pin pages as the publisher knows them.
//!
//! The daemon makes a page when an observer comes for whom there is no free slot, and changes a word of the liveness table
//! before that observer has it. The publisher compares the word, behind its retiring fence, with the one that it knew before it
//! asked for pages: unchanged, it has every page that any observer can have pinned in by then. Otherwise it retires
//! nothing this time, and asks for the new pages first the next time.
//!
//! ```text
//! daemon: a page is made; word += 1; the observer gets it    observer: pin, fence, look at the state
//! publisher: word = w; ask for pages (`update`); states := retiring; fence; word = w still (`is_complete`)? look at pins
//! ```
//!
//! An observer whose fence is before the publisher's got its page, and so the word was changed, before that. One whose
//! fence is behind it sees *retiring*.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossdock_layout::series::{AtomicU64, PAGE, PAGE_SLOTS, PINS, PinPage, PinSlot};
use crossdock_os::{Access, Mapping, memfd};

use crate::Host;

/// After the daemon did not answer it is not asked again before so many times what the attempt took.
const REST: u32 = 50;
const LONGEST_REST: Duration = Duration::from_secs(5);

/// All pin pages that the publisher knows, for reading.
#[derive(Default)]
pub(super) struct Pins {
    pages: Vec<Mapping>,
    /// The index of the next page, as the daemon counts.
    next: u32,
    /// The word when the pages that are known were all.
    word: u32,
    rest: Option<Instant>,
}

impl Pins {
    /// Gets the pages that are not known yet. `false`: there may be some that could not be had.
    pub fn update(&mut self, host: &dyn Host) -> bool {
        let word = host.pages_word();
        if word == self.word {
            return true;
        }
        let started = Instant::now();
        if self.rest.is_some_and(|until| started < until) {
            return false;
        }
        let all = self.ask_for_all(host);
        self.rest = (!all).then(|| Instant::now() + (started.elapsed() * REST).min(LONGEST_REST));
        if all {
            self.word = word;
        }
        all
    }

    fn ask_for_all(&mut self, host: &dyn Host) -> bool {
        loop {
            let given = match host.pin_page(self.next) {
                Ok(None) => return true,
                Ok(Some(given)) => given,
                Err(_) => return false,
            };
            let mapped = memfd::check(&given.page, PAGE);
            let Ok(page) = mapped.and_then(|()| Mapping::new(&given.page, PAGE as usize, Access::Read)) else {
                return false;
            };
            self.pages.push(page);
            self.next = given.next;
            if given.left == 0 {
                return true;
            }
        }
    }

    /// Behind the fence: are the known pages still all?
    pub fn is_complete(&self, host: &dyn Host) -> bool {
        host.pages_word() == self.word
    }

    /// The pins of each observer, as many as it ever used. Wild.
    pub fn slots(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.pages.iter().flat_map(|page| {
            // SAFETY: a mapping of a page's size, for as long as `self`; a pin page is made of atomics. Its memory is
            // reserved, sealed against shrinking, and a hole punched into it reads as zeros.
            let page = unsafe { page.start().cast::<PinPage>().as_ref() };
            page.slots.iter().map(used)
        })
    }

    /// The sequences that some observer pins, sorted. Wild, but only ever compared.
    pub fn held(&self) -> Vec<u64> {
        let pins = self.slots().flatten().map(|pin| pin.load(Relaxed));
        let mut held: Vec<_> = pins.filter(|pin| *pin != 0).collect();
        held.sort_unstable();
        held
    }
}

fn used(slot: &PinSlot) -> &[AtomicU64] {
    let count = slot.count.load(Relaxed).min(PINS as u64) as usize;
    &slot.pins[..count]
}

/// The slot of a page that an observer stores its pins in.
pub(super) fn slot(page: &Mapping, slot: u32) -> &PinSlot {
    assert!((slot as usize) < PAGE_SLOTS, "checked when it was attached");
    // SAFETY: as above; the mapping is the observer's own, for reading and writing.
    unsafe { &page.start().cast::<PinPage>().as_ref().slots[slot as usize] }
}
