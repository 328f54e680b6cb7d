//! The options with which a task opens a port.

use super::{Pattern, Shape};

/// The options for opening a port. All tasks that open a port must give the same options; default options agree with
/// every port. The port gets the options of the first task that opens it, unless the launcher has made the port before,
/// as the workflow file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PortOptions {
    /// Which tasks may send, and which get each message. If the port exists, `None` accepts its pattern. If this call
    /// makes the port, `None` means one-to-one.
    pub pattern: Option<Pattern>,
    /// The largest number of messages in flight: a power of two from 1 to 4096. If the port exists, 0 accepts its
    /// capacity. If this call makes the port, 0 means 8.
    pub capacity: u32,
    /// True if the port outlasts the run. The value is used only if this call makes the port. A persistent port stays
    /// together with its messages until it is removed. Any other port ends with the last member of its workflow, and
    /// the next run gets a fresh port.
    pub persistent: bool,
}

impl PortOptions {
    /// The shape of a port that is made with these options: pattern and capacity.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let capacity = if self.capacity == 0 { 8 } else { self.capacity };
        Shape { pattern: self.pattern.unwrap_or(Pattern::OneToOne), capacity }
    }

    /// Tells whether a port of this shape agrees with these options.
    #[must_use]
    pub fn fits(&self, shape: Shape) -> bool {
        self.pattern.is_none_or(|pattern| pattern == shape.pattern)
            && (self.capacity == 0 || self.capacity == shape.capacity)
    }
}
