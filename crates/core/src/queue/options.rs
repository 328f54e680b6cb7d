//! What a port is opened with.

use super::{Pattern, Shape};

/// What a port is made with. Each task that opens it says the same, or leaves it open: the default takes the port as the
/// first one made it (a task, or the launcher by the workflow file).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PortOptions {
    /// Who may send, and who gets what. `None`: the port's; one-to-one if it is made by this.
    pub pattern: Option<Pattern>,
    /// Messages in flight at most: a power of two, 1 to 4096. 0: as many as the port has, 8 if it is made by this.
    pub capacity: u32,
    /// If the port is made by this: it outlasts the run, with the messages in it, until it is removed. Otherwise it ends with
    /// the last member of its workflow, and the next run gets a fresh port.
    pub persistent: bool,
}

impl PortOptions {
    /// The shape of a port that is made by these.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let capacity = if self.capacity == 0 { 8 } else { self.capacity };
        Shape { pattern: self.pattern.unwrap_or(Pattern::OneToOne), capacity }
    }

    /// Do they leave open, or ask for, what a port of this shape has?
    #[must_use]
    pub fn fits(&self, shape: Shape) -> bool {
        self.pattern.is_none_or(|pattern| pattern == shape.pattern)
            && (self.capacity == 0 || self.capacity == shape.capacity)
    }
}
