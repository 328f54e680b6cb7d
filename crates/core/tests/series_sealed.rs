//! Tests that an observer cannot write to the pool. There is one test for each way to write that the kernel offers.
//! Each test uses all rights of its user; if the user is root, it uses the rights that root has in a container. Each
//! way would work if the memory were not sealed. Where possible, the test shows this with memory that is not sealed.

mod series_world;

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crossdock_core::series::{Publisher, Version};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use series_world::{Series, World, as_numbers, numbers, pattern, spec};

const WORDS: u64 = 64 * 512;
const PAGE: usize = 4096;

/// A publisher and an observer, with the observer's descriptors and a version that it has mapped.
struct Fixture {
    publisher: Publisher,
    series: Series,
    version: Version,
    pool: crossdock_os::OwnFile,
}

fn fixture() -> Fixture {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(WORDS));
    pattern::write(numbers(&mut publisher, "u"), 1, false);
    publisher.publish(&[]).unwrap();
    let version = series.observe(0).latest().unwrap();
    version.bytes("u").unwrap();
    let pool = series.parts(1).pool;
    Fixture { publisher, series, version, pool }
}

impl Fixture {
    /// Opens the pool for writing through `/proc`. The kernel gives a descriptor, but refuses each write through this
    /// descriptor.
    fn reopened(&self) -> OwnedFd {
        reopen(&self.pool, OFlags::RDWR).unwrap()
    }

    fn view(&self) -> *mut c_void {
        self.version.bytes("u").unwrap().as_ptr() as *mut c_void
    }

    /// Checks that no byte of the pool has changed, and that the publisher can publish another version.
    fn unharmed(mut self) {
        pattern::check(as_numbers(self.version.bytes("u").unwrap()), 1, 1).unwrap();
        pattern::check(numbers(&mut self.publisher, "u"), 1, 1).unwrap();
        pattern::write(numbers(&mut self.publisher, "u"), 2, false);
        self.publisher.publish(&[]).unwrap();
        let next = self.series.observe(1).latest().unwrap();
        pattern::check(as_numbers(next.bytes("u").unwrap()), 2, 1).unwrap();
    }
}

fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

fn map(fd: impl AsFd, protection: ProtFlags, flags: MapFlags) -> Result<*mut c_void, Errno> {
    // SAFETY: the call makes a new mapping at an address that the kernel chooses. The tests keep the mapping until the
    // process ends.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, protection, flags, fd, 0) }
}

const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

#[test]
fn mapping_it_writable_is_refused() {
    let fixture = fixture();
    assert_eq!(map(&fixture.pool, BOTH, MapFlags::SHARED).unwrap_err(), Errno::ACCESS);
    assert_eq!(map(fixture.reopened(), BOTH, MapFlags::SHARED).unwrap_err(), Errno::PERM);
    fixture.unharmed();
}

#[test]
fn making_a_view_writable_is_refused() {
    let fixture = fixture();
    // SAFETY: the range is the mapping of the version that the observer holds. The kernel must refuse the call; if it
    // does not, the test fails.
    let made = unsafe { rustix::mm::mprotect(fixture.view(), PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(made.unwrap_err(), Errno::ACCESS);
    let again = map(fixture.reopened(), ProtFlags::READ, MapFlags::SHARED).unwrap();
    // SAFETY: the range is a mapping that this test has just made.
    let made = unsafe { rustix::mm::mprotect(again, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(made.unwrap_err(), Errno::ACCESS);
    fixture.unharmed();
}

#[test]
fn mapping_a_view_once_more_does_not_make_it_writable() {
    let fixture = fixture();
    // SAFETY: with an old size of 0, the call maps the version's pages once more, and leaves the existing mapping as it
    // is.
    let again = unsafe { rustix::mm::mremap(fixture.view(), 0, PAGE, MremapFlags::MAYMOVE) }.unwrap();
    // SAFETY: the range is a mapping that this test has just made.
    let made = unsafe { rustix::mm::mprotect(again, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(made.unwrap_err(), Errno::ACCESS);
    fixture.unharmed();
}

#[test]
fn writing_to_a_private_mapping_changes_a_copy_only() {
    let fixture = fixture();
    let own = map(&fixture.pool, BOTH, MapFlags::PRIVATE).unwrap();
    // SAFETY: the range is a private mapping that this test has just made.
    unsafe { own.cast::<[u8; PAGE]>().write_volatile([0xff; PAGE]) };
    fixture.unharmed();
}

#[test]
fn write_is_refused() {
    let fixture = fixture();
    assert_eq!(rustix::io::pwrite(&fixture.pool, b"x", 0).unwrap_err(), Errno::BADF);
    assert_eq!(rustix::io::write(fixture.reopened(), &[0xff; PAGE]).unwrap_err(), Errno::PERM);
    let writing = reopen(&fixture.pool, OFlags::WRONLY | OFlags::APPEND).unwrap();
    assert!(rustix::io::write(writing, b"x").is_err());
    fixture.unharmed();
}

#[test]
fn truncating_it_is_refused() {
    let fixture = fixture();
    for size in [0, PAGE as u64, fixture.series.offer.size - 1, fixture.series.offer.size + 1] {
        assert_eq!(rustix::fs::ftruncate(fixture.reopened(), size).unwrap_err(), Errno::PERM);
    }
    assert!(reopen(&fixture.pool, OFlags::RDWR | OFlags::TRUNC).is_err());
    fixture.unharmed();
}

#[test]
fn punching_holes_is_refused() {
    let fixture = fixture();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(fixture.reopened(), hole, 0, 1 << 20).unwrap_err(), Errno::PERM);
    fixture.unharmed();
}

#[test]
fn fallocate_in_every_other_mode_changes_nothing() {
    let fixture = fixture();
    let size = fixture.series.offer.size;
    for mode in [FallocateFlags::ZERO_RANGE, FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert!(rustix::fs::fallocate(fixture.reopened(), mode, 0, 1 << 20).is_err());
    }
    assert_eq!(
        rustix::fs::fallocate(fixture.reopened(), FallocateFlags::empty(), size, 4096).unwrap_err(),
        Errno::PERM
    );
    // The kernel allows an observer to reserve memory for pages that have none yet. Reserving changes no byte of the
    // pool.
    let _ = rustix::fs::fallocate(fixture.reopened(), FallocateFlags::KEEP_SIZE, size - 4096, 4096);
    fixture.unharmed();
}

#[test]
fn madvise_cannot_remove_its_pages() {
    let fixture = fixture();
    let again = map(fixture.reopened(), ProtFlags::READ, MapFlags::SHARED).unwrap();
    for (address, advice) in [
        (fixture.view(), libc::MADV_REMOVE),
        (again, libc::MADV_REMOVE),
        // The kernel allows MADV_DONTNEED and MADV_PAGEOUT. They only drop pages from memory; the next read finds the
        // same contents.
        (fixture.view(), libc::MADV_DONTNEED),
        (fixture.view(), 21), // MADV_PAGEOUT
        (again, libc::MADV_DONTNEED),
    ] {
        // SAFETY: the ranges lie in this test's own mappings.
        let answer = unsafe { libc::madvise(address, PAGE, advice) };
        assert!(answer < 0 || advice != libc::MADV_REMOVE, "removed");
    }
    fixture.unharmed();
}

#[test]
fn other_calls_that_write_to_files_are_refused() {
    let fixture = fixture();
    let source = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&source, &[0xff; 2 * PAGE]).unwrap();
    let (from, to) = (source.as_raw_fd(), fixture.reopened());
    let (mut one, mut other) = (0i64, 0i64);
    // SAFETY: the call gets descriptors and numbers of this test's own.
    let sent = unsafe { libc::sendfile(to.as_raw_fd(), from, &mut one, PAGE) };
    assert!(sent <= 0, "sendfile wrote");
    one = 0;
    // SAFETY: the call gets descriptors and numbers of this test's own.
    let copied = unsafe { libc::copy_file_range(from, &mut one, to.as_raw_fd(), &mut other, PAGE, 0) };
    assert!(copied <= 0, "copy_file_range wrote");
    let (out, into) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&into, &[0xff; 100]).unwrap();
    let mut at = 0;
    let spliced = rustix::pipe::splice(&out, None, &to, Some(&mut at), 100, rustix::pipe::SpliceFlags::empty());
    assert!(spliced.is_err(), "splice wrote");
    fixture.unharmed();
}

#[test]
fn writing_through_ones_own_proc_mem_is_refused() {
    let fixture = fixture();
    let own = rustix::fs::open("/proc/self/mem", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    assert!(rustix::io::pwrite(&own, &[0xff; 64], fixture.view() as u64).is_err());
    let control = [0u8; 64];
    assert_eq!(
        rustix::io::pwrite(&own, &[1; 64], control.as_ptr() as u64),
        Ok(64),
        "control: ordinary memory is written"
    );
    fixture.unharmed();
}

#[test]
fn process_vm_writev_to_a_view_is_refused() {
    let fixture = fixture();
    let bytes = [0xffu8; 64];
    let local = libc::iovec { iov_base: bytes.as_ptr() as *mut c_void, iov_len: 64 };
    let remote = libc::iovec { iov_base: fixture.view(), iov_len: 64 };
    // SAFETY: the call reads this process's own memory. The kernel must refuse to write to the pages of the version.
    let written = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    assert!(written < 0);
    fixture.unharmed();
}

#[test]
fn seals_can_neither_be_removed_nor_added() {
    let fixture = fixture();
    for seal in [SealFlags::WRITE, SealFlags::SEAL, SealFlags::empty()] {
        let added = rustix::fs::fcntl_add_seals(fixture.reopened(), seal);
        assert!(added.is_err(), "{seal:?}");
    }
    let seals = rustix::fs::fcntl_get_seals(&fixture.pool).unwrap();
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE;
    assert!(seals.contains(all));
    fixture.unharmed();
}

#[test]
fn the_publisher_itself_can_map_it_writable_no_more() {
    let fixture = fixture();
    assert_eq!(map(&fixture.series.offer.pool, BOTH, MapFlags::SHARED).unwrap_err(), Errno::PERM);
    fixture.unharmed();
}

#[test]
fn a_store_through_a_view_is_a_fault() {
    let fixture = fixture();
    let pid = fixture.series.world.fork(|| {
        // SAFETY: none. The write is wrong on purpose, and the child process must die of it.
        unsafe { fixture.view().cast::<u8>().write_volatile(1) };
        0
    });
    assert_eq!(fixture.series.world.wait(pid), -libc::SIGSEGV);
    fixture.unharmed();
}
