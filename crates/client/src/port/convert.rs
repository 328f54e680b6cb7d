//! Between the names of the library and those of the queue below it.

use crossdock_core::queue::{self, Shape, Side};

use super::{End, EndInfo, Pattern, PortOptions, PortReport, PortStatistics, Waiting};

impl From<End> for Side {
    fn from(end: End) -> Self {
        match end {
            End::Producer => Self::Producer,
            End::Consumer => Self::Consumer,
        }
    }
}

impl From<Side> for End {
    fn from(side: Side) -> Self {
        match side {
            Side::Producer => Self::Producer,
            Side::Consumer => Self::Consumer,
        }
    }
}

impl From<Pattern> for queue::Pattern {
    fn from(pattern: Pattern) -> Self {
        match pattern {
            Pattern::Any | Pattern::OneToOne => Self::OneToOne,
            Pattern::FanOut => Self::FanOut,
            Pattern::FanIn => Self::FanIn,
            Pattern::WorkQueue => Self::WorkQueue,
        }
    }
}

impl From<queue::Pattern> for Pattern {
    fn from(pattern: queue::Pattern) -> Self {
        match pattern {
            queue::Pattern::OneToOne => Self::OneToOne,
            queue::Pattern::FanOut => Self::FanOut,
            queue::Pattern::FanIn => Self::FanIn,
            queue::Pattern::WorkQueue => Self::WorkQueue,
        }
    }
}

impl From<PortOptions> for Shape {
    fn from(options: PortOptions) -> Self {
        // What is left open, for a port that is made by this.
        let capacity = if options.capacity == 0 { 8 } else { options.capacity };
        Self { pattern: options.pattern.into(), capacity }
    }
}

impl From<Shape> for PortOptions {
    fn from(shape: Shape) -> Self {
        Self { pattern: shape.pattern.into(), capacity: shape.capacity }
    }
}

impl From<Waiting> for queue::Waiting {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Adaptive => Self::Adaptive,
            Waiting::Spin => Self::Spin,
            Waiting::Block => Self::Block,
        }
    }
}

impl From<queue::Totals> for PortStatistics {
    fn from(totals: queue::Totals) -> Self {
        Self {
            messages: totals.sent,
            received: totals.released,
            bytes_handed_over: totals.bytes,
            bytes_copied: totals.copied,
            producer_wait_ns: totals.producer_wait_ns,
            consumer_wait_ns: totals.consumer_wait_ns,
            sleeps: totals.sleeps,
            wakes: totals.wakes,
            redelivered: totals.redelivered,
            voided: totals.voided,
            under_way: totals.under_way,
        }
    }
}

impl From<queue::EndReport> for EndInfo {
    fn from(end: queue::EndReport) -> Self {
        Self {
            end: end.side.into(),
            member: end.member,
            task: end.task,
            alive: end.alive,
            messages: end.messages,
            wait_ns: end.wait_ns,
            last_seen: end.last_seen,
            waiting: end.waiting,
        }
    }
}

impl From<queue::Report> for PortReport {
    fn from(report: queue::Report) -> Self {
        Self {
            options: report.shape.into(),
            statistics: report.totals.into(),
            ends: report.ends.into_iter().map(Into::into).collect(),
        }
    }
}
