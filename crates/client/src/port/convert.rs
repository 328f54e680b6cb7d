//! Between the names of the library and those of the queue below it.

use crossdock_core::queue::{self, Shape};

use super::{Pattern, PortOptions, PortReport};

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

impl From<queue::Report> for PortReport {
    fn from(report: queue::Report) -> Self {
        Self { options: report.shape.into(), statistics: report.totals, ends: report.ends }
    }
}
