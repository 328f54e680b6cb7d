//! The options for opening a port.

use super::{Pattern, Shape};

/// The options that a port is made with. Each task that opens the port gives the same options or leaves them open. The
/// default takes the port as its first opener made it (a task, or the launcher as the workflow file says).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PortOptions {
    /// Which tasks may send, and which get each message. `None` takes the port's pattern; a port that this call makes
    /// is one-to-one.
    pub pattern: Option<Pattern>,
    /// The largest number of messages in flight: a power of two from 1 to 4096. 0 takes the port's number; a port that
    /// this call makes gets 8.
    pub capacity: u32,
    /// Matters if this call makes the port. A persistent port outlasts the run together with its messages, until it is
    /// removed. Otherwise the port ends with the last member of its workflow, and the next run gets a fresh port.
    pub persistent: bool,
}

impl PortOptions {
    /// The shape of a port that is made with these options.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let capacity = if self.capacity == 0 { 8 } else { self.capacity };
        Shape { pattern: self.pattern.unwrap_or(Pattern::OneToOne), capacity }
    }

    /// Does a port of this shape have what these options ask for?
    #[must_use]
    pub fn fits(&self, shape: Shape) -> bool {
        self.pattern.is_none_or(|pattern| pattern == shape.pattern)
            && (self.capacity == 0 || self.capacity == shape.capacity)
    }
}
