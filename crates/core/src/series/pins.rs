//! The pin pages that the publisher knows. A pin page is a page of memory in which observers note the versions that
//! they use.
//!
//! If a new observer finds no free slot in a pin page, the daemon makes another page. Before the observer gets the
//! page, the daemon changes a word of the liveness table. The publisher remembers the value that this word had before
//! it last asked the daemon for pages. When the publisher retires versions, it compares the word with the remembered
//! value after its fence. If the word is unchanged, the publisher knows every page in which an observer can have pinned
//! a version before that fence. Otherwise the publisher keeps all versions for now. Before it retires versions the next
//! time, it asks the daemon for the new pages.
//!
//! ```text
//! daemon: a page is made; word += 1; the observer gets it    observer: pin, fence, look at the state
//! publisher: word = w; ask for pages (`update`); states := retiring; fence; word = w still (`is_complete`)? look at pins
//! ```
//!
//! There are two cases. If the observer's fence comes before the publisher's fence, the daemon has changed the word
//! even earlier, and the publisher sees the change. If the observer's fence comes after the publisher's fence, the
//! observer sees the state *retiring*. `loom_model` checks both.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossdock_layout::series::{AtomicU64, PAGE, PAGE_SLOTS, PINS, PinPage, PinSlot};
use crossdock_os::{Access, Mapping, memfd};

use super::protocol;
use crate::Host;

/// If the daemon did not answer a request for pin pages, the publisher waits this many times the duration of the
/// request before it asks again.
const REST: u32 = 50;
const LONGEST_REST: Duration = Duration::from_secs(5);

/// All pin pages that the publisher knows, mapped for reading.
#[derive(Default)]
pub(super) struct Pins {
    pages: Vec<Mapping>,
    /// The index of the next pin page that the publisher asks the daemon for. The daemon assigns the indices.
    next: u32,
    /// The value of the liveness table's word for pin pages when the publisher last knew all pages.
    word: u32,
    rest: Option<Instant>,
}

impl Pins {
    /// Asks the daemon for the pages that this process does not know yet. Returns `false` if there may be a page that
    /// this process still does not know.
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

    /// Lets the next [`Self::update`] ask the daemon, although the daemon did not answer a short time ago.
    pub fn ask_again(&mut self) {
        self.rest = None;
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

    /// Tells whether the publisher knows every pin page that an observer can have used so far. The publisher calls
    /// this function after the fence of the retiring step.
    pub fn is_complete(&self, host: &dyn Host) -> bool {
        host.pages_word() == self.word
    }

    /// Tells whether a thread of some observer may sleep until the word `published` changes from `value`. The publisher
    /// calls this function after [`super::protocol::announce`].
    pub fn may_sleep_at(&self, value: u32, host: &dyn Host) -> bool {
        !self.is_complete(host) || self.all().any(|slot| protocol::may_sleep_at(&slot.sleeps_at, value))
    }

    /// The pins that each observer has used so far. The observers write the numbers in the pins, and this function does
    /// not check the numbers.
    pub fn slots(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.all().map(used)
    }

    fn all(&self) -> impl Iterator<Item = &PinSlot> {
        self.pages.iter().flat_map(|page| {
            // SAFETY: the mapping has a page's size and lasts as long as `self`; a pin page is made of atomics. Reading
            // the page causes no fault: its memory is reserved and sealed against shrinking, and if a process punches a
            // hole into it, the hole reads as zeros.
            let page = unsafe { page.start().cast::<PinPage>().as_ref() };
            &page.slots
        })
    }

    /// The sequence numbers of all versions that some observer has pinned, sorted. Observers write these numbers, and
    /// no code checks them; the publisher only compares them with the numbers of its versions.
    pub fn held(&self) -> Vec<u64> {
        let pins = self.slots().flatten().map(|pin| pin.load(Relaxed));
        let mut held: Vec<_> = pins.filter(|pin| *pin != 0).collect();
        held.sort_unstable();
        held
    }
}

fn used(slot: &PinSlot) -> &[AtomicU64] {
    let count = slot.count.load(Relaxed).clamped(PINS as u32) as usize;
    &slot.pins[..count]
}

/// Gives the slot with this number, in which an observer stores its pins.
pub(super) fn slot(page: &Mapping, slot: u32) -> &PinSlot {
    assert!((slot as usize) < PAGE_SLOTS, "checked when it was attached");
    // SAFETY: the mapping has a page's size and lasts as long as `page`; a pin page is made of atomics. The assertion
    // above has checked the index.
    unsafe { &page.start().cast::<PinPage>().as_ref().slots[slot as usize] }
}
