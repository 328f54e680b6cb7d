//! Runs: to which run of its workflow a member, a port or a series belongs.
//!
//! A workflow that a launcher made is one run, and ends with it. A workflow without an owner (the default one) has a
//! run as long as it has members: the first member begins a run, and the last one ends it. Visitors, which are members
//! that only inspect the daemon's state, do not count. At the end of a run its ports are removed, except persistent
//! ones, because messages of one run must not be received in the next. A series stays after its run. Members that ask
//! for a former series find it until its name is published again.

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{MemberId, SegmentId};

use super::{Broker, Cause, Record};

impl Broker {
    /// Tells whether this workflow has a run at present.
    pub(super) fn is_running(&self, workflow: u64) -> bool {
        let owned = self.lasting.workflows.get(&workflow).is_some_and(|w| w.owner != MemberId::NONE);
        owned || self.lasting.members.values().any(|m| m.workflow == workflow && !m.visitor)
    }

    /// Begins a run of the workflow if the workflow has none, because a member joins that does more than inspect the
    /// daemon's state.
    pub(super) fn begin_run(&mut self, workflow: u64) {
        if self.is_running(workflow) {
            return;
        }
        let Some(run) = self.lasting.workflows.get(&workflow).map(|w| w.run.saturating_add(1)) else { return };
        self.commit(Record::Run { workflow, run });
    }

    /// After the end of a member: if the run has no member any more, removes the run's ports.
    pub(super) fn end_run_of_the_last(&mut self, workflow: u64) {
        if self.is_running(workflow) {
            return;
        }
        let ends = |kind: SegmentKind, persistent: bool| kind == SegmentKind::Port && !persistent;
        let ports = self
            .lasting
            .segments
            .iter()
            .filter(|(_, s)| s.workflow == workflow && s.removed.is_none() && ends(s.kind, s.persistent));
        for port in ports.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.take_name(port, Cause::NONE);
        }
    }

    /// After the broker's start: removes the ports of runs that have ended. The former broker may have been killed
    /// before it did this.
    pub(super) fn recover_runs(&mut self) {
        for workflow in self.lasting.workflows.keys().copied().collect::<Vec<_>>() {
            self.end_run_of_the_last(workflow);
        }
    }

    /// Tells whether this series belongs to the present run.
    pub(super) fn is_of_this_run(&self, series: SegmentId) -> bool {
        let Some(found) = self.lasting.segments.get(&series) else { return false };
        let (Some(series), Some(workflow)) = (&found.series, self.lasting.workflows.get(&found.workflow)) else {
            return false;
        };
        series.run == workflow.run && self.is_running(found.workflow)
    }
}
