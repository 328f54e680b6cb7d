//! Series: one publisher changes data in place and publishes consistent versions. Observers read the versions and never
//! stop the publisher. `docs/memory-format-series.md` has pictures. `crossdock_layout::series` says for each field
//! which process writes it and which reads it.
//!
//! | file | contents |
//! |---|---|
//! | `spec`, `value`, `plan` | the declaration of a series, and the plan of its memory |
//! | `pool`, `describe` | the pool as one process sees it, and the description in it |
//! | `protocol` | how observers pin versions and the publisher retires them, and why this is safe (modelled by loom) |
//! | `slots`, `chunk_set` | the publisher's lists of free slots and of changed chunks |
//! | `field`, `variables`, `elements` | a variable in the publisher's own memory, and the program's access to it |
//! | `detector`, `costs`, `changes`, `backing`, `method` | finding what changed, by the cheapest method of this machine |
//! | `publisher`, `publish`, `copy`, `begin`, `room`, `statistics` | the publishing side |
//! | `observer`, `attached`, `version`, `record`, `variable_mapping` | the observing side |
//! | `replica` | a copy of another node's series, version by version |
//! | `report` | counters and versions, for programs that only look |
//! | `fuzz` | an entry point for fuzzing the readers of a series' memory |
//!
//! The pool, which holds the versions, is sealed so that only its publisher can write to it. Observers write the
//! numbers of the versions that they use into pages of their own, the pin pages. The publisher only compares these
//! numbers and never waits for an observer. An observer reads a record in the pool only to copy the parts that it
//! needs. It checks the copy, and from then on uses only the copy.
//!
//! For loom, the model checker, this module consists only of `protocol` and `loom_model`; `lib.rs` makes that choice.

mod attached;
mod backing;
mod begin;
mod changes;
mod children;
mod chunk_set;
mod copy;
mod costs;
mod describe;
mod detector;
mod elements;
mod field;
mod fuzz;
mod method;
mod observer;
mod pins;
mod plan;
mod pool;
mod protocol;
mod publish;
mod publisher;
mod record;
mod replica;
mod report;
mod room;
mod slots;
mod spec;
mod statistics;
mod value;
mod variable_mapping;
mod variables;
mod version;
mod withheld;

pub use crate::host::PinPageGiven;

pub use self::{
    costs::Costs,
    describe::Description,
    detector::Changing,
    fuzz::fuzz_entry,
    observer::{AttachParts, Observer, PublisherState, Waiter},
    publisher::{EndMark, Offer, Publisher, Runner},
    replica::{ChunkRun, Fresh, Original, Replica, VersionHead, pieces},
    report::Report,
    spec::{AttributeSpec, Detect, FullPolicy, Identity, Method, Pages, Spec, Variable},
    statistics::Statistics,
    value::{Kind, Value},
    version::{Version, diff},
};

/// The names of all fault points of this module, at which a test build can kill its own process. The kill tests kill a
/// process at each of them.
pub const FAULT_POINTS: &[&str] = &[
    "series.begin.aside",
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
    "series.publish.withheld",
    "series.publish.woken",
    "series.refresh.copied",
    "series.refresh.half",
    "series.refresh.pinned",
    "series.retire.freed",
    "series.retire.marked",
    "series.retire.taken_back",
    "series.sleep.noted",
    "series.view.half",
];

#[cfg(test)]
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
