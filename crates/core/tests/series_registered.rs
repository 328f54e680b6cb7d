//! Tests of a published array whose memory is registered with io_uring. io_uring keeps the pages that the array has
//! when it is registered. READ_FIXED later writes to these pages, even if other pages lie at the array's addresses by
//! then. By default, publishing never replaces the array's pages, with or without userfaultfd. So the bytes that
//! io_uring reads must arrive in the array and in the next version.
//!
//! `tests/container/series` also runs this test in docker, where userfaultfd is forbidden.

#[path = "series_world/refuse.rs"]
mod refuse;
mod series_world;
#[path = "series_world/uring.rs"]
mod uring;

use crossdock_core::series::{Detect, Pages, Spec};
use refuse::{Refuse, take_away};
use series_world::{World, as_numbers, numbers, spec};
use uring::Ring;

const PAGE: usize = 4096;
/// The number of pages of the array, whose size is 2 MiB. The array must be small, because in a container all processes
/// of a user together may register only 8 MiB.
const PAGES: usize = 512;
const STEPS: u64 = 80;
/// The exit code by which a child says that the machine has no io_uring.
const NO_RING: i32 = 77;

/// The number of the physical page behind each page of the array; `None` if the kernel does not show these numbers to
/// this process.
fn frames(start: *const u8) -> Option<Vec<u64>> {
    use std::os::unix::fs::FileExt;
    let map = std::fs::File::open("/proc/self/pagemap").ok()?;
    let mut bytes = vec![0; PAGES * 8];
    map.read_exact_at(&mut bytes, start as u64 / PAGE as u64 * 8).ok()?;
    let frame = |entry: &[u8]| u64::from_le_bytes(entry.try_into().unwrap()) & ((1 << 55) - 1);
    let frames: Vec<u64> = bytes.chunks_exact(8).map(frame).collect();
    frames.iter().any(|frame| *frame != 0).then_some(frames)
}

/// Publishes a version after each step. In a step, the program changes one per cent of the pages and io_uring writes
/// one page. Counts how many times io_uring's page did not arrive in the array, and how many times it did not arrive in
/// the version.
fn lost(spec: Spec, ring: &Ring) -> (u32, u32) {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec);
    let mut observer = series.observe(0);
    let start = publisher.memory("u").unwrap();
    numbers(&mut publisher, "u").fill(1);
    // SAFETY: the call locks memory of this process, and does not change its contents.
    assert_eq!(unsafe { libc::mlock(start.cast(), PAGES * PAGE) }, 0, "{}", std::io::Error::last_os_error());
    let mut model = numbers(&mut publisher, "u").to_vec();
    publisher.publish(&[]).unwrap();
    ring.register(start, PAGES * PAGE);
    let before = frames(start);
    let (mut array, mut version) = (0, 0);
    for step in 2..STEPS {
        for n in 0..PAGES / 100 {
            let at = (n * 97 + step as usize * 13) % PAGES * 512 + n;
            numbers(&mut publisher, "u")[at] = step;
            model[at] = step;
        }
        let page = step as usize * 41 % PAGES;
        ring.read_fixed(start.wrapping_add(page * PAGE), step as u8);
        let word = u64::from_le_bytes([step as u8; 8]);
        model[page * 512..][..512].fill(word);
        array += u32::from(numbers(&mut publisher, "u")[page * 512..][..512].iter().any(|n| *n != word));
        publisher.publish(&[]).unwrap();
        let newest = observer.latest().unwrap();
        version += u32::from(as_numbers(newest.bytes("u").unwrap()) != model);
        // The model is what the array should contain. Here it gets the array's actual contents, so that each lost page
        // counts only once.
        model.copy_from_slice(numbers(&mut publisher, "u"));
    }
    if array == 0
        && let (Some(before), Some(after)) = (before, frames(start))
    {
        assert!(before == after, "{} pages moved", before.iter().zip(&after).filter(|(a, b)| a != b).count());
    }
    println!("{:?}: {array} and {version} lost", publisher.statistics().method);
    ring.forget();
    (array, version)
}

/// Registers the array before each publish, and ends the registration before the next publish. After each publish
/// io_uring writes one page, and the program writes nothing. Counts how many times io_uring's page did not arrive in
/// the array, and how many times it did not arrive in the version.
fn lost_when_forgotten(spec: Spec, ring: &Ring) -> (u32, u32) {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec);
    let mut observer = series.observe(0);
    let start = publisher.memory("u").unwrap();
    numbers(&mut publisher, "u").fill(1);
    let (mut array, mut version) = (0, 0);
    for step in 2..12_usize {
        ring.register(start, PAGES * PAGE);
        publisher.publish(&[]).unwrap();
        let page = step * 41 % PAGES;
        ring.read_fixed(start.wrapping_add(page * PAGE), step as u8);
        ring.forget();
        let word = u64::from_le_bytes([step as u8; 8]);
        array += u32::from(numbers(&mut publisher, "u")[page * 512..][..512].iter().any(|n| *n != word));
        publisher.publish(&[]).unwrap();
        let newest = observer.latest().unwrap();
        version += u32::from(as_numbers(newest.bytes("u").unwrap()) != numbers(&mut publisher, "u"));
    }
    println!("{:?}: {array} and {version} lost", publisher.statistics().method);
    (array, version)
}

/// Runs `lost` in a child to which a filter denies the system calls of `what`, and checks the result of `lost` with
/// `expected`.
fn check(what: Refuse, spec: Spec, expected: impl Fn((u32, u32)) -> bool) {
    check_with(what, |ring| expected(lost(spec.clone(), ring)));
}

/// Runs `work` in a child to which a filter denies the system calls of `what`, and checks that `work` gives true.
fn check_with(what: Refuse, work: impl Fn(&Ring) -> bool) {
    let world = World::new();
    let pid = world.fork(|| {
        take_away(what);
        let Some(ring) = Ring::new() else { return NO_RING };
        i32::from(!work(&ring))
    });
    match world.wait(pid) {
        NO_RING => println!("skipped: no io_uring here"),
        code => assert_eq!(code, 0),
    }
}

fn large(detect: Detect, pages: Pages) -> Spec {
    Spec { detect, pages, ..spec((PAGES * 512) as u64) }
}

#[test]
fn by_default_nothing_that_is_read_into_registered_memory_is_lost() {
    for detect in [Detect::Auto, Detect::WriteProtect, Detect::Compare, Detect::CopyAll] {
        for what in [Refuse::Nothing, Refuse::Userfaultfd, Refuse::PagemapScan] {
            check(what, large(detect, Pages::Stay), |lost| lost == (0, 0));
        }
    }
}

#[test]
fn nothing_is_lost_if_the_memory_was_registered_when_write_protection_began_and_is_not_any_more() {
    for detect in [Detect::Auto, Detect::WriteProtect] {
        check_with(Refuse::Nothing, |ring| lost_when_forgotten(large(detect, Pages::Stay), ring) == (0, 0));
    }
}

#[test]
fn private_copies_lose_it_and_are_had_only_by_a_name_that_says_so() {
    // A control test. Private copies move pages, so io_uring's bytes do not arrive, and the array keeps its old bytes.
    check(Refuse::Nothing, large(Detect::PrivateCopies, Pages::MayMove), |(array, _)| array > 40);
    let world = World::new();
    let error = world.try_publisher(large(Detect::PrivateCopies, Pages::Stay)).unwrap_err();
    assert!(error.to_string().contains("may_move"), "{error}");
}
