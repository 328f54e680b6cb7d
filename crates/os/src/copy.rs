//! Copies large blocks. Where it is faster, the copy bypasses the CPU's caches.
//!
//! An ordinary copy first reads the target's memory into the caches. That is useless if the same CPU does not read the
//! target soon. Stores that bypass the caches (non-temporal stores) avoid this read, and so save a third of the memory
//! traffic. For blocks that fit into the caches, such stores are slower than ordinary stores. So the caller measures
//! both ways and chooses the [`StoreMode`].

use std::sync::atomic::AtomicU8;
#[cfg(any(miri, not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))))]
use std::sync::atomic::Ordering;

/// How a copy stores the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StoreMode {
    /// Copies by the C library's `memcpy`.
    #[default]
    Cached,
    /// Copies by stores that bypass the caches.
    Streaming,
}

/// Asks the CPU to fetch the cache line at `at` and its address translation, while the caller goes on. Any address is
/// allowed, because this is not an access. An invalid address only costs time.
#[inline]
pub fn fetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86_64 has SSE; a prefetch never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Loads eight bytes that other threads and processes store one by one. The first byte is the lowest byte of the
/// result. The address of `first` must be a multiple of eight. Each byte of the result is the value that this byte of
/// memory had at some moment during the call.
///
/// One load of eight bytes replaces eight loads. In Rust, an atomic load of eight bytes that races with atomic stores
/// of single bytes is undefined behaviour. The load is therefore an `asm!` instruction, which may do whatever eight
/// loads of one byte may do.
#[inline]
pub fn load_eight(first: &[AtomicU8; 8]) -> u64 {
    debug_assert!(first.as_ptr().addr() % 8 == 0);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let eight: u64;
        // SAFETY: the instruction reads the eight bytes of the array, which are aligned to eight, and touches nothing
        // else.
        unsafe {
            std::arch::asm!("mov {eight}, qword ptr [{at}]", eight = out(reg) eight, at = in(reg) first.as_ptr(),
                options(nostack, preserves_flags, readonly));
        }
        eight
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
    {
        let eight: u64;
        // SAFETY: the instruction loads the eight bytes of the array, which are aligned to eight, and touches nothing
        // else.
        unsafe {
            std::arch::asm!("ldr {eight}, [{at}]", eight = out(reg) eight, at = in(reg) first.as_ptr(),
                options(nostack, preserves_flags, readonly));
        }
        eight
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))))]
    u64::from_le_bytes(std::array::from_fn(|n| first[n].load(Ordering::Relaxed)))
}

/// Tells whether this CPU has stores that bypass the caches.
pub const fn can_stream() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Copies `length` bytes.
///
/// # Safety
/// Both ranges must be mapped during the call, `to` must be writable, and they must not overlap. Another process may
/// read `to` meanwhile; it then sees a mixture of old and new bytes. No thread may write `from`.
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize, mode: StoreMode) {
    #[cfg(target_arch = "x86_64")]
    if mode == StoreMode::Streaming && length >= 4096 && to.addr() % 64 == 0 && from.addr() % 64 == 0 {
        let whole = length & !63;
        // SAFETY: the caller promises that both ranges are mapped and do not overlap, and that `to` is writable. Both
        // addresses are multiples of 64. AVX is used only if this CPU has it.
        unsafe {
            if std::is_x86_feature_detected!("avx") {
                stream_avx(to, from, whole);
            } else {
                stream_sse2(to, from, whole);
            }
            std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), length - whole);
        }
        return;
    }
    let _ = mode;
    // SAFETY: the caller promises that both ranges are mapped and do not overlap, and that `to` is writable.
    unsafe { std::ptr::copy_nonoverlapping(from, to, length) }
}

/// Copies `length` bytes that another process may be writing. Each aligned word of eight bytes is copied by one load,
/// and the bytes before and after these words one by one. The copy may mix old and new words, so the caller must find
/// out by other means whether `from` changed during the call.
///
/// # Safety
/// Both ranges must be mapped during the call. `to` must be writable and belong to this process alone. The ranges must
/// not overlap.
pub unsafe fn copy_racing(to: *mut u8, from: *const u8, length: usize) {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
    let mut at = 0;
    while at < length {
        // SAFETY: all accesses are within the caller's ranges, and a word is loaded only where its address is a
        // multiple of eight. Rust allows the race with the writer, because the loads are atomic.
        unsafe {
            let source = from.add(at);
            if source.addr() % 8 == 0 && length - at >= 8 {
                let word = (*source.cast::<AtomicU64>()).load(Relaxed);
                to.add(at).cast::<u64>().write_unaligned(word);
                at += 8;
            } else {
                to.add(at).write((*source.cast::<AtomicU8>()).load(Relaxed));
                at += 1;
            }
        }
    }
}

/// Copies memory with AVX stores that bypass the caches, 64 bytes in each iteration of the loop. Both addresses and
/// `length` must be multiples of 64.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream_avx(to: *mut u8, from: *const u8, length: usize) {
    use std::arch::x86_64::_MM_HINT_NTA;
    use std::arch::x86_64::{__m256i, _mm_prefetch, _mm_sfence, _mm256_load_si256, _mm256_stream_si256};
    const AHEAD: usize = 512;
    let mut at = 0;
    while at < length {
        // SAFETY: the loads and stores are aligned and within the caller's ranges. A prefetch beyond the end is no
        // access.
        unsafe {
            _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(at + AHEAD).cast());
            let source = from.add(at).cast::<__m256i>();
            let target = to.add(at).cast::<__m256i>();
            let (one, two) = (_mm256_load_si256(source), _mm256_load_si256(source.add(1)));
            _mm256_stream_si256(target, one);
            _mm256_stream_si256(target.add(1), two);
        }
        at += 64;
    }
    _mm_sfence();
}

#[cfg(target_arch = "x86_64")]
unsafe fn stream_sse2(to: *mut u8, from: *const u8, length: usize) {
    use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};
    let mut at = 0;
    while at < length {
        // SAFETY: the loads and stores are aligned and within the caller's ranges. Every x86_64 has SSE2.
        unsafe {
            let value = _mm_load_si128(from.add(at).cast::<__m128i>());
            _mm_stream_si128(to.add(at).cast::<__m128i>(), value);
        }
        at += 16;
    }
    // SAFETY: every CPU of x86_64 has this instruction.
    unsafe { _mm_sfence() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Block([u8; 3 * 4096]);

    #[test]
    fn a_racing_copy_copies_every_byte_and_none_beside() {
        let mut from = Block([0; 3 * 4096]);
        for (n, byte) in from.0.iter_mut().enumerate() {
            *byte = (n % 251) as u8;
        }
        for (at, length) in [(0, 3 * 4096), (3, 4096), (8, 17), (5, 2), (1, 0)] {
            let mut to = Block([0xee; 3 * 4096]);
            // SAFETY: both ranges lie within the two blocks of this test.
            unsafe { copy_racing(to.0.as_mut_ptr().add(1), from.0.as_ptr().add(at), length.min(3 * 4096 - 1)) };
            let length = length.min(3 * 4096 - 1);
            assert_eq!(to.0[1..=length], from.0[at..at + length], "{at} {length}");
            assert!(to.0[0] == 0xee && to.0[length + 1..].iter().all(|b| *b == 0xee), "{at} {length}");
        }
    }

    #[test]
    fn both_ways_copy_every_byte_and_none_beside() {
        let mut from = Block([0; 3 * 4096]);
        for (n, byte) in from.0.iter_mut().enumerate() {
            *byte = (n % 251) as u8;
        }
        for mode in [StoreMode::Cached, StoreMode::Streaming] {
            for (at, length) in [(0, 3 * 4096), (64, 4096), (0, 4096 + 17), (128, 63), (4096, 0), (1, 5000)] {
                let mut to = Block([0xee; 3 * 4096]);
                // SAFETY: both ranges lie within the two blocks of this test.
                unsafe { copy(to.0.as_mut_ptr().add(at), from.0.as_ptr().add(at), length, mode) };
                assert_eq!(to.0[at..at + length], from.0[at..at + length], "{mode:?} {at} {length}");
                assert!(to.0[..at].iter().chain(&to.0[at + length..]).all(|b| *b == 0xee), "{mode:?} {at} {length}");
            }
        }
    }

    #[test]
    fn eight_bytes_are_loaded_in_their_order() {
        #[repr(align(8))]
        struct Eight([AtomicU8; 8]);
        let bytes = Eight(std::array::from_fn(|n| AtomicU8::new(n as u8 + 1)));
        assert_eq!(load_eight(&bytes.0), 0x0807_0605_0403_0201);
    }
}
