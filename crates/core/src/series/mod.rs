//! Series: consistent versions of data that one publisher changes in place, for observers that never stop it.
//! `docs/memory-format-series.md` has the pictures; `crossdock_layout::series` says field by field who writes and reads.
//!
//! | file | idea |
//! |---|---|
//! | `spec`, `value`, `plan` | what is declared, and where it will lie |
//! | `pool`, `describe` | the pool as one process sees it; its self-description |
//! | `protocol` | pinning and retiring, and why it is safe (modelled by loom) |
//! | `slots`, `bits` | the publisher's book of free slots and changed chunks |
//! | `field`, `variables`, `elements` | a variable in the publisher's own memory; what the program does with it |
//! | `finder`, `costs`, `changes`, `method` | finding what changed, by the cheapest way that this place has |
//! | `publisher`, `publish`, `copy`, `begin`, `room`, `statistics` | the publishing side |
//! | `observer`, `attached`, `version`, `record`, `view` | the observing side |
//! | `report` | counters and versions, for those who only look |
//!
//! The pool is sealed so that nobody but its publisher can write it, by any means; observers write to pin pages of their
//! own. The publisher reads those as wild numbers that it compares and nothing else, and never waits. Observers copy what
//! they need of a record out of the pool once, check it, and use the copy.

#[cfg(not(loom))]
mod attached;
#[cfg(not(loom))]
mod begin;
#[cfg(not(loom))]
mod bits;
#[cfg(not(loom))]
mod changes;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod costs;
#[cfg(not(loom))]
mod describe;
#[cfg(not(loom))]
mod elements;
#[cfg(not(loom))]
mod field;
#[cfg(not(loom))]
mod finder;
#[cfg(not(loom))]
mod fuzz;
#[cfg(all(test, loom))]
mod loom_model;
#[cfg(not(loom))]
mod method;
#[cfg(not(loom))]
mod observer;
#[cfg(not(loom))]
mod plan;
#[cfg(not(loom))]
mod pool;
mod protocol;
#[cfg(not(loom))]
mod publish;
#[cfg(not(loom))]
mod publisher;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod room;
#[cfg(not(loom))]
mod slots;
#[cfg(not(loom))]
mod spec;
#[cfg(not(loom))]
mod statistics;
#[cfg(not(loom))]
mod value;
#[cfg(not(loom))]
mod variables;
#[cfg(not(loom))]
mod version;
#[cfg(not(loom))]
mod view;

#[cfg(not(loom))]
pub use self::{
    costs::Costs,
    describe::Description,
    finder::Changing,
    fuzz::fuzz_entry,
    observer::{AttachParts, Observer, PublisherState},
    publisher::{Offer, Publisher, Runner, Surroundings},
    report::Report,
    spec::{AttributeSpec, Detect, FullPolicy, Method, Spec, Variable},
    statistics::Statistics,
    value::{Kind, Value},
    version::{Version, diff},
};

/// Every place in this module where a checked build can be made to die; the kill matrix goes through all of them.
pub const FAULT_POINTS: &[&str] = &[
    "series.begin.placed",
    "series.begin.taken",
    "series.end.noted",
    "series.grow.reserved",
    "series.pin.held",
    "series.pin.stored",
    "series.publish.copied",
    "series.publish.filled",
    "series.publish.filling",
    "series.publish.found",
    "series.publish.half",
    "series.publish.latest",
    "series.publish.live",
    "series.publish.taken",
    "series.publish.tracked",
    "series.publish.woken",
    "series.refresh.half",
    "series.refresh.pinned",
    "series.retire.freed",
    "series.retire.marked",
    "series.retire.refused",
    "series.view.half",
];

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn the_list_of_fault_points_has_every_one_of_the_sources() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/series");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let points = text.split("fault_point!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(points.map(str::to_owned));
        }
        found.sort();
        assert_eq!(found, super::FAULT_POINTS);
    }
}
