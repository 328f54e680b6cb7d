//! Answers requests for listings, one page for each request. A task sees its own workflow, and the daemon's own user
//! sees all workflows.

use std::ops::Bound;

use crossdock_layout::wire::{Answer, ItemEntry, ListOf, MemberEntry, NodeEntry, Page, SegmentEntry, WorkflowEntry};
use crossdock_layout::{MemberId, SegmentId, Status};

use super::{Broker, Requester};

impl Broker {
    pub(super) fn list(&mut self, asker: Requester, of: ListOf, after: u64, workflow: Option<&str>) {
        let Some((_, own)) = self.place(asker) else { return };
        let admin = self.is_admin(asker.connection);
        let only = match workflow {
            None if admin => None,
            None => Some(own),
            Some(name) => match self.lasting.workflow_names.get(name) {
                Some(number) if admin || *number == own => Some(*number),
                _ => {
                    let text = format!("there is no workflow '{name}' that this task may see");
                    return self.fail(asker, Status::NotFound, text);
                }
            },
        };
        let wanted = |workflow: u64| only.is_none_or(|o| o == workflow);
        let answer = match of {
            ListOf::Workflows => Answer::Workflows(page(self.workflow_entries(after, wanted), WorkflowEntry::PER_PAGE)),
            ListOf::Members => Answer::Members(page(self.member_entries(after, wanted), MemberEntry::PER_PAGE)),
            ListOf::Items => {
                let entries = self.item_entries(after, asker.member, wanted);
                Answer::Items(page(entries, ItemEntry::PER_PAGE))
            }
            ListOf::Nodes => Answer::Nodes(page(self.node_entries(after), NodeEntry::PER_PAGE)),
            ListOf::Segments => Answer::Segments(page(self.segment_entries(after, wanted), SegmentEntry::PER_PAGE)),
        };
        self.answer(asker, &answer);
    }

    fn workflow_entries(&self, after: u64, wanted: impl Fn(u64) -> bool) -> impl Iterator<Item = WorkflowEntry> {
        let rest = self.lasting.workflows.range((Bound::Excluded(after), Bound::Unbounded));
        rest.filter(move |(number, _)| wanted(**number)).map(|(number, w)| WorkflowEntry {
            number: *number,
            quota: w.quota,
            reserved: w.reserved,
            owner: w.owner,
            run: w.run,
            name: w.name.clone(),
        })
    }

    fn member_entries(&self, after: u64, wanted: impl Fn(u64) -> bool) -> impl Iterator<Item = MemberEntry> {
        let rest = self.lasting.members.range((Bound::Excluded(MemberId(after)), Bound::Unbounded));
        rest.filter(move |(_, m)| wanted(m.workflow)).filter_map(|(id, _)| self.entry(*id))
    }

    fn segment_entries(&self, after: u64, wanted: impl Fn(u64) -> bool) -> impl Iterator<Item = SegmentEntry> {
        let rest = self.lasting.segments.range((Bound::Excluded(SegmentId(after)), Bound::Unbounded));
        rest.filter(move |(_, s)| wanted(s.workflow)).map(|(id, s)| SegmentEntry {
            segment: *id,
            size: s.size,
            reserved: s.reserved,
            attribute: s
                .series
                .as_ref()
                .map_or(s.attribute, |of| (of.pins.len() as u64) << 32 | u64::from(of.observers)),
            creator: s.creator,
            since_ms: s.since_ms,
            kind: s.kind,
            members: self.open_segments.of(*id).len() as u32,
            removed: s.removed.is_some(),
            former: s.series.is_some() && !self.is_of_this_run(*id),
            workflow: self.lasting.workflow_name(s.workflow).unwrap_or_default(),
            name: s.name.clone(),
        })
    }

    pub(super) fn describe(&mut self, asker: Requester, whom: MemberId) {
        let Some((_, own)) = self.place(asker) else { return };
        let own = self.lasting.workflows.get(&own).map_or("", |w| &w.name);
        let visible = |e: &MemberEntry| e.workflow == own || self.is_admin(asker.connection);
        let living = self.entry(whom).filter(visible);
        let dead = || {
            let (heard, entry) = self.dead.iter().rev().find(|(_, e)| e.member == whom && visible(e))?;
            Some(MemberEntry { silent_ms: self.now - heard, ..entry.clone() })
        };
        match living.or_else(dead) {
            Some(entry) => self.answer(asker, &Answer::Member(entry)),
            None => self.fail(asker, Status::NotFound, format!("{whom} is not known here")),
        }
    }
}

fn page<T>(mut entries: impl Iterator<Item = T>, most: usize) -> Page<T> {
    let page: Vec<_> = entries.by_ref().take(most).collect();
    let more = entries.next().is_some();
    Page { entries: page, more }
}
