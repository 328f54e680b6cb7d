//! Between the names of the library and those of the queue below it.

use crossdock_core::queue::{self, Pattern, Shape};

use super::{PortOptions, PortReport};

impl From<PortOptions> for Shape {
    fn from(options: PortOptions) -> Self {
        // What is left open, for a port that is made by this.
        let capacity = if options.capacity == 0 { 8 } else { options.capacity };
        Self { pattern: options.pattern.unwrap_or(Pattern::OneToOne), capacity }
    }
}

impl From<Shape> for PortOptions {
    fn from(shape: Shape) -> Self {
        Self { pattern: Some(shape.pattern), capacity: shape.capacity, persistent: false }
    }
}

impl From<queue::Report> for PortReport {
    fn from(report: queue::Report) -> Self {
        Self { options: report.shape.into(), statistics: report.totals, ends: report.ends }
    }
}
