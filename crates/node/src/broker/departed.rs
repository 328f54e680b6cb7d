//! The names that the catalog dropped because another node's lease ended. An error about such a name says on which node
//! the object was.
//!
//! When the lease of a node ends, the catalog drops the entries of the node's names. It reports these drops at about
//! the same time as the end of the lease. If it drops a name at another time, the name's node has removed the name.

use std::collections::{BTreeMap, VecDeque};

use crossdock_layout::wire::SegmentKind;

use super::Broker;
use super::site::SiteName;

/// The maximum number of dropped names that a broker remembers. If there are more, it forgets the names that were
/// dropped first.
const MOST: usize = 16_384;
/// The longest time, in milliseconds, between the report that a node's lease ended and the reports that the catalog
/// dropped the node's names.
const TOGETHER: u64 = 1000;

/// The names that other nodes had, each with the time at which the catalog dropped it.
#[derive(Default)]
pub(super) struct Departed {
    names: BTreeMap<SiteName, (String, u64)>,
    /// Every name that the catalog dropped, with the time at which it was dropped, the oldest first.
    order: VecDeque<(SiteName, u64)>,
}

impl Departed {
    /// Notes that the catalog dropped a name of the node `node`.
    pub fn dropped(&mut self, name: SiteName, node: String, now: u64) {
        self.names.insert(name.clone(), (node, now));
        self.order.push_back((name, now));
        while self.order.len() > MOST {
            let Some((oldest, at)) = self.order.pop_front() else { return };
            if self.names.get(&oldest).is_some_and(|(_, last)| *last == at) {
                self.names.remove(&oldest);
            }
        }
    }

    /// Forgets that the catalog dropped this name, because the name belongs to a node again.
    pub fn is_back(&mut self, name: &SiteName) {
        self.names.remove(name);
    }
}

impl Broker {
    /// Gives the end of an error text about a name that does not exist: on which node the object was, and how long ago
    /// that node's lease ended. The text is empty, unless the catalog dropped the name when that lease ended.
    pub(super) fn departed_with(&self, workflow: u64, kind: SegmentKind, name: &str) -> String {
        let found = self.site.as_ref().zip(self.site_name(workflow, kind, name)).and_then(|(site, name)| {
            let (node, at) = site.departed.names.get(&name)?;
            let since = site.gone_since(node)?;
            (since.abs_diff(*at) <= TOGETHER).then_some((node, since))
        });
        if found.is_none() && kind == SegmentKind::Item && self.was_lost_with_daemon(workflow, name) {
            return "; it was lost with the former daemon, which was killed".into();
        }
        let Some((node, since)) = found else { return String::new() };
        let ago = self.now.saturating_sub(since) as f64 / 1000.0;
        format!("; it was on node {node}, which has been gone for {ago:.1} s: what only that node had is lost")
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{ItemLevel, ItemRequest};

    use super::*;
    use crate::broker::bench::Bench;
    use crate::broker::{Event, MAIN_ENDPOINT, SiteEvent};

    fn name(number: usize) -> SiteName {
        SiteName { workflow: "w".into(), kind: SegmentKind::Item, name: number.to_string() }
    }

    #[test]
    fn the_names_that_were_dropped_first_are_forgotten_first() {
        let mut departed = Departed::default();
        departed.dropped(name(0), "a".into(), 1);
        // The test drops the name 1 twice. So the time of the second drop decides when this name is forgotten.
        departed.dropped(name(1), "a".into(), 1);
        departed.dropped(name(1), "b".into(), 2);
        for number in 2..MOST {
            departed.dropped(name(number), "c".into(), 3);
        }
        assert_eq!((departed.order.len(), departed.names.contains_key(&name(0))), (MOST, false));
        departed.dropped(name(MOST), "c".into(), 3);
        assert_eq!(departed.names[&name(1)], ("b".into(), 2));
        departed.is_back(&name(1));
        departed.dropped(name(MOST + 1), "c".into(), 3);
        assert!(!departed.names.contains_key(&name(1)));
        assert!(departed.names.len() <= MOST && departed.order.len() <= MOST);
    }

    #[test]
    fn errors_about_a_name_that_this_node_has_taken_since_do_not_speak_of_a_lost_object() {
        let mut bench = Bench::in_site();
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        let name = SiteName { workflow: "default".into(), kind: SegmentKind::Item, name: "x".into() };
        bench.event(Event::Site(SiteEvent::Named { name: name.clone(), node: "b".into() }));
        bench.event(Event::Site(SiteEvent::NodeGone { node: "b".into() }));
        bench.event(Event::Site(SiteEvent::Unnamed { name }));
        let workflow = bench.broker.lasting().workflow_names["default"];
        let departed = |bench: &Bench| bench.broker.departed_with(workflow, SegmentKind::Item, "x");
        assert!(departed(&bench).contains("it was on node b"));
        let item = bench.create(1, "x", ItemLevel::Verified);
        bench.ask_item(1, ItemRequest::Destroy { item });
        assert_eq!(departed(&bench), "");
    }
}
