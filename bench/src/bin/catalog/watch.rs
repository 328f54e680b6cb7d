//! Watches of a catalog: each follows all changes of the site, as a daemon does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossdock_catalog::{Catalog, CatalogError, Event, Revision};
use crossdock_os::Deadline;

use crate::board::Watcher;

/// The prefix of the site's keys in the catalog.
pub const SITE: &str = "crossdock/bench/";
/// The beginning of the names that the benchmark registers. The number of the registration follows.
const NAME: &str = "registered-";
/// How often a watching thread looks whether it must end.
const SLICE: Duration = Duration::from_secs(1);

/// Gives the name for the registration with this number.
pub fn name(number: usize) -> String {
    format!("{NAME}{number}")
}

/// The number of the registration that made this key; `None` if the key has another origin.
fn number(key: &str) -> Option<usize> {
    key.rsplit('/').next()?.strip_prefix(NAME)?.parse().ok()
}

/// Watches the site from a revision on, until `stop` is set. Reports each registration.
pub fn start(catalog: &Arc<dyn Catalog>, from: Revision, watcher: Watcher, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (catalog, stop) = (Arc::clone(catalog), Arc::clone(stop));
    let watch = move || {
        let mut watch = catalog.watch(SITE, from).expect("a watch");
        while !stop.load(Ordering::Relaxed) {
            let events = match watch.next(Deadline::after(SLICE)) {
                Ok(events) => events,
                Err(CatalogError::Compacted(_)) => panic!("the catalog forgot changes before a watch had them"),
                // After a lost connection the watch continues where it was.
                Err(_) => continue,
            };
            for event in events {
                let registered = match &event {
                    Event::Put(entry) => number(&entry.key),
                    Event::Deleted { .. } => None,
                };
                registered.into_iter().for_each(|number| watcher.report(number));
            }
        }
    };
    thread::Builder::new().stack_size(256 << 10).spawn(watch).expect("a thread")
}
