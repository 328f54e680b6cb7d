//! Tests that an observer cannot write to the pool. There is a test for each way that the kernel offers, with all
//! rights of the user who runs it (if that is root, with the rights of a container's root). Each of these ways would
//! succeed if the memory were not sealed. Where it is possible, `control` shows that.

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
struct Scene {
    publisher: Publisher,
    series: Series,
    version: Version,
    pool: OwnedFd,
}

fn scene() -> Scene {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(WORDS));
    pattern::write(numbers(&mut publisher, "u"), 1, false);
    publisher.publish(&[]).unwrap();
    let version = series.observe(0).latest().unwrap();
    version.bytes("u").unwrap();
    let pool = series.parts(1).pool;
    Scene { publisher, series, version, pool }
}

impl Scene {
    /// Opens the pool for writing through `/proc`. The kernel gives a descriptor, but refuses to write through it.
    fn reopened(&self) -> OwnedFd {
        reopen(&self.pool, OFlags::RDWR).unwrap()
    }

    fn view(&self) -> *mut c_void {
        self.version.bytes("u").unwrap().as_ptr() as *mut c_void
    }

    /// Checks that nothing in the pool has changed, and that the publisher can go on.
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
    // SAFETY: a new mapping at an address that the kernel chooses; the tests leave it until the process ends.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, protection, flags, fd, 0) }
}

const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

#[test]
fn mapping_it_writable_is_refused() {
    let scene = scene();
    assert_eq!(map(&scene.pool, BOTH, MapFlags::SHARED).unwrap_err(), Errno::ACCESS);
    assert_eq!(map(scene.reopened(), BOTH, MapFlags::SHARED).unwrap_err(), Errno::PERM);
    scene.unharmed();
}

#[test]
fn making_a_view_writable_is_refused() {
    let scene = scene();
    // SAFETY: the view's own range; if the call did what it must not, the test fails.
    let made = unsafe { rustix::mm::mprotect(scene.view(), PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(made.unwrap_err(), Errno::ACCESS);
    let again = map(scene.reopened(), ProtFlags::READ, MapFlags::SHARED).unwrap();
    // SAFETY: the mapping made above.
    let made = unsafe { rustix::mm::mprotect(again, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(made.unwrap_err(), Errno::ACCESS);
    scene.unharmed();
}

#[test]
fn mapping_a_view_once_more_does_not_make_it_writable() {
    let scene = scene();
    // SAFETY: an old size of 0 leaves the view as it is.
    let again = unsafe { rustix::mm::mremap(scene.view(), 0, PAGE, MremapFlags::MAYMOVE) }.unwrap();
    // SAFETY: the mapping made above.
    let made = unsafe { rustix::mm::mprotect(again, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(made.unwrap_err(), Errno::ACCESS);
    scene.unharmed();
}

#[test]
fn writing_to_a_private_mapping_changes_a_copy_only() {
    let scene = scene();
    let own = map(&scene.pool, BOTH, MapFlags::PRIVATE).unwrap();
    // SAFETY: the private mapping made above.
    unsafe { own.cast::<[u8; PAGE]>().write_volatile([0xff; PAGE]) };
    scene.unharmed();
}

#[test]
fn write_is_refused() {
    let scene = scene();
    assert_eq!(rustix::io::pwrite(&scene.pool, b"x", 0).unwrap_err(), Errno::BADF);
    assert_eq!(rustix::io::write(scene.reopened(), &[0xff; PAGE]).unwrap_err(), Errno::PERM);
    let writing = reopen(&scene.pool, OFlags::WRONLY | OFlags::APPEND).unwrap();
    assert!(rustix::io::write(writing, b"x").is_err());
    scene.unharmed();
}

#[test]
fn truncating_it_is_refused() {
    let scene = scene();
    for size in [0, PAGE as u64, scene.series.offer.size - 1, scene.series.offer.size + 1] {
        assert_eq!(rustix::fs::ftruncate(scene.reopened(), size).unwrap_err(), Errno::PERM);
    }
    assert!(reopen(&scene.pool, OFlags::RDWR | OFlags::TRUNC).is_err());
    scene.unharmed();
}

#[test]
fn punching_holes_is_refused() {
    let scene = scene();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(scene.reopened(), hole, 0, 1 << 20).unwrap_err(), Errno::PERM);
    scene.unharmed();
}

#[test]
fn fallocate_in_every_other_mode_changes_nothing() {
    let scene = scene();
    let size = scene.series.offer.size;
    for mode in [FallocateFlags::ZERO_RANGE, FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert!(rustix::fs::fallocate(scene.reopened(), mode, 0, 1 << 20).is_err());
    }
    assert_eq!(rustix::fs::fallocate(scene.reopened(), FallocateFlags::empty(), size, 4096).unwrap_err(), Errno::PERM);
    // The kernel allows an observer to reserve memory for pages that have none yet. This changes no byte.
    let _ = rustix::fs::fallocate(scene.reopened(), FallocateFlags::KEEP_SIZE, size - 4096, 4096);
    scene.unharmed();
}

#[test]
fn madvise_cannot_remove_its_pages() {
    let scene = scene();
    let again = map(scene.reopened(), ProtFlags::READ, MapFlags::SHARED).unwrap();
    for (address, advice) in [
        (scene.view(), libc::MADV_REMOVE),
        (again, libc::MADV_REMOVE),
        // The kernel allows these calls. The pages are then read again with the same contents.
        (scene.view(), libc::MADV_DONTNEED),
        (scene.view(), 21), // MADV_PAGEOUT
        (again, libc::MADV_DONTNEED),
    ] {
        // SAFETY: ranges of this test's own mappings.
        let answer = unsafe { libc::madvise(address, PAGE, advice) };
        assert!(answer < 0 || advice != libc::MADV_REMOVE, "removed");
    }
    scene.unharmed();
}

#[test]
fn other_calls_that_write_to_files_are_refused() {
    let scene = scene();
    let source = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&source, &[0xff; 2 * PAGE]).unwrap();
    let (from, to) = (source.as_raw_fd(), scene.reopened());
    let (mut one, mut other) = (0i64, 0i64);
    // SAFETY: descriptors and numbers of this test's own.
    let sent = unsafe { libc::sendfile(to.as_raw_fd(), from, &mut one, PAGE) };
    assert!(sent <= 0, "sendfile wrote");
    one = 0;
    // SAFETY: as above.
    let copied = unsafe { libc::copy_file_range(from, &mut one, to.as_raw_fd(), &mut other, PAGE, 0) };
    assert!(copied <= 0, "copy_file_range wrote");
    let (out, into) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&into, &[0xff; 100]).unwrap();
    let mut at = 0;
    let spliced = rustix::pipe::splice(&out, None, &to, Some(&mut at), 100, rustix::pipe::SpliceFlags::empty());
    assert!(spliced.is_err(), "splice wrote");
    scene.unharmed();
}

#[test]
fn writing_through_ones_own_proc_mem_is_refused() {
    let scene = scene();
    let own = rustix::fs::open("/proc/self/mem", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    assert!(rustix::io::pwrite(&own, &[0xff; 64], scene.view() as u64).is_err());
    let control = [0u8; 64];
    assert_eq!(
        rustix::io::pwrite(&own, &[1; 64], control.as_ptr() as u64),
        Ok(64),
        "control: ordinary memory is written"
    );
    scene.unharmed();
}

#[test]
fn process_vm_writev_to_a_view_is_refused() {
    let scene = scene();
    let bytes = [0xffu8; 64];
    let local = libc::iovec { iov_base: bytes.as_ptr() as *mut c_void, iov_len: 64 };
    let remote = libc::iovec { iov_base: scene.view(), iov_len: 64 };
    // SAFETY: this process's own memory; the view's pages are what the kernel must not write.
    let written = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    assert!(written < 0);
    scene.unharmed();
}

#[test]
fn seals_can_neither_be_removed_nor_added() {
    let scene = scene();
    for seal in [SealFlags::WRITE, SealFlags::SEAL, SealFlags::empty()] {
        let added = rustix::fs::fcntl_add_seals(scene.reopened(), seal);
        assert!(added.is_err(), "{seal:?}");
    }
    let seals = rustix::fs::fcntl_get_seals(&scene.pool).unwrap();
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE;
    assert!(seals.contains(all));
    scene.unharmed();
}

#[test]
fn the_publisher_itself_can_map_it_writable_no_more() {
    let scene = scene();
    assert_eq!(map(&scene.series.offer.pool, BOTH, MapFlags::SHARED).unwrap_err(), Errno::PERM);
    scene.unharmed();
}

#[test]
fn a_store_through_a_view_is_a_fault() {
    let scene = scene();
    let pid = scene.series.world.fork(|| {
        // SAFETY: deliberately not: the child must die of it.
        unsafe { scene.view().cast::<u8>().write_volatile(1) };
        0
    });
    assert_eq!(scene.series.world.wait(pid), -libc::SIGSEGV);
    scene.unharmed();
}
