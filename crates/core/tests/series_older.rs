//! Series where the kernel or a container's filter gives less: a seccomp filter takes calls away from a child process, as
//! docker's default does with userfaultfd, and as an older kernel lacks PAGEMAP_SCAN. Everything still works, and says what
//! it does without.

mod series_world;

use crossdock_core::series::{Detect, Method, Spec};
use series_world::{World, as_numbers, numbers, pattern, spec};

const PAGEMAP_SCAN: u32 = 0xc060_6610;

/// What a filter answers, instead of the kernel.
#[derive(Clone, Copy)]
enum Refuse {
    /// Nothing.
    Nothing,
    /// `userfaultfd`: not permitted.
    Userfaultfd,
    /// `PAGEMAP_SCAN`: no such request, as before Linux 6.7; and `userfaultfd`.
    PagemapScan,
}

/// Takes calls away from this process for good.
fn take_away(what: Refuse) {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let userfaultfd = libc::SYS_userfaultfd as u32;
    // The call's number; the low half of its second argument.
    let filter = match what {
        Refuse::Nothing => return,
        Refuse::Userfaultfd => vec![
            step(LOAD, 0, 0, 0),
            step(JUMP_IF_EQUAL, 0, 1, userfaultfd),
            step(RETURN, 0, 0, ERRNO | libc::EPERM as u32),
            step(RETURN, 0, 0, ALLOW),
        ],
        Refuse::PagemapScan => vec![
            step(LOAD, 0, 0, 0),
            step(JUMP_IF_EQUAL, 4, 0, userfaultfd),
            step(JUMP_IF_EQUAL, 0, 2, libc::SYS_ioctl as u32),
            step(LOAD, 0, 0, 24),
            step(JUMP_IF_EQUAL, 2, 0, PAGEMAP_SCAN),
            step(RETURN, 0, 0, ALLOW),
            step(RETURN, 0, 0, ERRNO | libc::ENOSYS as u32),
            step(RETURN, 0, 0, ERRNO | libc::ENOTTY as u32),
        ],
    };
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: settings of this process; the filter lives through the call, which copies it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(set, "no filter to be had: {}", std::io::Error::last_os_error());
}

/// Thirty versions, dense and sparse, each checked; gives what statistics say in the end.
fn works(what: Refuse, detect: Detect) -> (Method, Vec<(Method, String)>) {
    take_away(what);
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { chunk: Some(4096), detect, ..spec(400 * 512) });
    let mut observer = series.observe(0);
    for step in 1..=30 {
        pattern::write(numbers(&mut publisher, 0), step, false);
        if detect == Detect::Hints {
            publisher.touched(0, 0..400 * 4096).unwrap();
        }
        publisher.publish(&[]).unwrap();
        let version = observer.latest().unwrap();
        pattern::check(as_numbers(version.bytes(0).unwrap()), step, 1).unwrap();
        if step % 10 == 0 {
            publisher.begin().unwrap();
            pattern::write(numbers(&mut publisher, 0), step, true);
            publisher.abandon().unwrap();
        }
    }
    let statistics = publisher.statistics();
    (statistics.method, statistics.unavailable)
}

/// As `works`, in a child, for each way; `good` looks at what statistics say.
fn check(what: Refuse, good: impl Fn(Detect, Method, &[(Method, String)]) -> bool) {
    for detect in [Detect::Auto, Detect::Hints, Detect::CopyAll, Detect::PrivateCopies, Detect::WriteProtect] {
        let world = World::new();
        let pid = world.fork(|| {
            let (method, unavailable) = works(what, detect);
            let good = good(detect, method, &unavailable);
            if !good {
                eprintln!("{detect:?}: {method:?}, {unavailable:?}");
            }
            i32::from(!good)
        });
        assert_eq!(world.wait(pid), 0, "{detect:?}");
    }
}

#[test]
fn without_userfaultfd_private_copies_are_left() {
    check(Refuse::Userfaultfd, |detect, method, unavailable| match detect {
        Detect::WriteProtect => {
            method == Method::CopyAll
                && unavailable.len() == 1
                && unavailable[0].0 == Method::WriteProtect
                && unavailable[0].1.contains("not permitted")
        }
        Detect::PrivateCopies => method == Method::PrivateCopies && unavailable.is_empty(),
        Detect::Auto => unavailable.len() == 1 && method != Method::WriteProtect,
        _ => unavailable.is_empty(),
    });
}

#[test]
fn without_pagemap_scan_everything_is_copied() {
    check(Refuse::PagemapScan, |detect, method, unavailable| match detect {
        Detect::Hints => method == Method::Hints,
        Detect::CopyAll => method == Method::CopyAll && unavailable.is_empty(),
        _ => {
            let says_so = unavailable.iter().all(|(_, why)| why.contains("PAGEMAP_SCAN"));
            method == Method::CopyAll && !unavailable.is_empty() && says_so
        }
    });
}

#[test]
fn with_all_of_it_nothing_is_missing() {
    // Also where these tests run without userfaultfd, private copies are there.
    check(Refuse::Nothing, |detect, method, unavailable| match detect {
        Detect::PrivateCopies => method == Method::PrivateCopies && unavailable.is_empty(),
        _ => unavailable.iter().all(|(method, _)| *method == Method::WriteProtect),
    });
}
