//! The memory that this process's program and libraries take.

use std::ffi::{c_int, c_void};

use crate::sys;

/// Takes the pages of the program and of its libraries out of this process's memory, except the pages that the process
/// may write. A page that is needed again comes back from the page cache, which takes about a microsecond. Other
/// processes do not notice.
///
/// A process calls this function when it has done its work of the start, and from then on executes little of its
/// program. Does nothing while a debugger traces this process, because the debugger's breakpoints would be lost.
pub fn give_back_pages() {
    if is_traced() {
        return;
    }
    // SAFETY: the callback has the expected type, and uses its arguments only during the call.
    unsafe { libc::dl_iterate_phdr(Some(give_back_object), std::ptr::null_mut()) };
}

/// Tells whether a debugger traces this process; also true if the kernel does not say.
fn is_traced() -> bool {
    let status = sys::read_text("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).is_none_or(|tracer| tracer.trim() != "0")
}

/// Takes the pages of one program or library out of this process's memory.
unsafe extern "C" fn give_back_object(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the dynamic loader gives a valid description, whose table has the stated length.
    let (base, segments) = unsafe {
        let info = &*info;
        (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    let page = rustix::param::page_size() as u64;
    for segment in segments.iter().filter(|s| s.p_type == libc::PT_LOAD && s.p_flags & libc::PF_W == 0) {
        let start = (base + segment.p_vaddr) / page * page;
        let length = (base + segment.p_vaddr + segment.p_memsz).next_multiple_of(page) - start;
        // SAFETY: the process cannot write these pages, so the file still has the same bytes. If the call fails, the
        // pages stay.
        sys::raw("madvise", || unsafe { libc::madvise(start as *mut c_void, length as usize, libc::MADV_DONTNEED) });
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the bytes of this process's memory that are pages of files.
    fn of_files() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn the_program_runs_on_with_fewer_pages() {
        let before = of_files();
        give_back_pages();
        let after = of_files();
        assert!(after < before * 3 / 4, "{before} bytes before, {after} after");
        assert!(!is_traced());
    }
}
