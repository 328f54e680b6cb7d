//! Tests of series on a kernel, or in a container, that allows fewer system calls. A seccomp filter denies a child
//! process userfaultfd, as docker's default filter does, or PAGEMAP_SCAN, which older kernels lack. Series must work
//! even so, and their statistics must say which methods are missing.

#[path = "series_world/refuse.rs"]
mod refuse;
mod series_world;

use crossdock_core::series::{Detect, Method, Spec};
use refuse::{Refuse, take_away};
use series_world::{World, as_numbers, numbers, pattern, spec};

/// Publishes thirty versions and checks each; some change much, others little. Gives the chosen method and the missing
/// methods from the statistics after the last version.
fn works(what: Refuse, detect: Detect) -> (Method, Vec<(Method, String)>) {
    take_away(what);
    let world = World::new();
    let (mut publisher, series) =
        world.publisher(Spec { chunk: Some(4096), detect, pages: series_world::pages(detect), ..spec(400 * 512) });
    let mut observer = series.observe(0);
    for step in 1..=30 {
        pattern::write(numbers(&mut publisher, "u"), step, false);
        if detect == Detect::Hints {
            publisher.touched("u", 0..400 * 4096).unwrap();
        }
        publisher.publish(&[]).unwrap();
        let version = observer.latest().unwrap();
        pattern::check(as_numbers(version.bytes("u").unwrap()), step, 1).unwrap();
        if step % 10 == 0 {
            publisher.begin().unwrap();
            pattern::write(numbers(&mut publisher, "u"), step, true);
            publisher.abandon().unwrap();
        }
    }
    let statistics = publisher.statistics();
    (statistics.method, statistics.unavailable)
}

const WAYS: [Detect; 6] =
    [Detect::Auto, Detect::Hints, Detect::CopyAll, Detect::PrivateCopies, Detect::WriteProtect, Detect::Compare];

/// Runs `works` in a child for each setting of `Detect`. `good` checks the chosen method and the missing methods that
/// `works` returns.
fn check(what: Refuse, good: impl Fn(Detect, Method, &[(Method, String)]) -> bool) {
    for detect in WAYS {
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
        Detect::Auto => unavailable.len() == 1 && method != Method::WriteProtect && method != Method::PrivateCopies,
        _ => unavailable.is_empty(),
    });
}

#[test]
fn without_pagemap_scan_everything_is_copied() {
    check(Refuse::PagemapScan, |detect, method, unavailable| match detect {
        Detect::Hints => method == Method::Hints,
        Detect::CopyAll => method == Method::CopyAll && unavailable.is_empty(),
        Detect::Compare => method == Method::Compare && unavailable.is_empty(),
        Detect::Auto => [Method::CopyAll, Method::Compare].contains(&method) && !unavailable.is_empty(),
        _ => {
            let says_so = unavailable.iter().all(|(_, why)| why.contains("PAGEMAP_SCAN"));
            method == Method::CopyAll && !unavailable.is_empty() && says_so
        }
    });
}

#[test]
fn with_all_of_it_nothing_is_missing() {
    // Even without this filter, userfaultfd may be forbidden where the tests run. Then write protection is missing.
    // Private copies are always available.
    check(Refuse::Nothing, |detect, method, unavailable| match detect {
        Detect::PrivateCopies => method == Method::PrivateCopies && unavailable.is_empty(),
        _ => unavailable.iter().all(|(method, _)| *method == Method::WriteProtect),
    });
}
