//! The graph of a synthetic workflow: which task sends how much data to which other task, and by which method.

use clap::ValueEnum;

/// How the data of one connection between two tasks is passed: by a port of crossdock, by MPI, by TCP, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    Crossdock,
    Mpi,
    Hybrid,
    Copy,
    Copyinto,
    Copyfrom,
    Threads,
    Unix,
    Tcp,
    Boost,
}

impl Method {
    /// Gives the word for the method, which the user writes and the tasks' program reads.
    pub fn word(self) -> &'static str {
        match self {
            Self::Crossdock => "crossdock",
            Self::Mpi => "mpi",
            Self::Hybrid => "hybrid",
            Self::Copy => "copy",
            Self::Copyinto => "copyinto",
            Self::Copyfrom => "copyfrom",
            Self::Threads => "threads",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::Boost => "boost",
        }
    }

    /// Tells whether the method uses a port of crossdock.
    pub fn has_port(self) -> bool {
        matches!(self, Self::Crossdock | Self::Copy | Self::Copyinto | Self::Copyfrom)
    }

    pub fn needs_mpi(self) -> bool {
        matches!(self, Self::Mpi | Self::Hybrid)
    }
}

/// The MPI library that a run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mpi {
    Mpich,
    Openmpi,
}

/// How the ports of crossdock wait. The numbers of the variants are those of the C interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Waiting {
    Adaptive = 0,
    Spin = 1,
    Block = 2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub name: String,
    /// The number of elements that the task sends each time. An element has 8 bytes.
    pub elements: u64,
    pub period_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    pub from: usize,
    pub to: usize,
    pub method: Method,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    pub tasks: Vec<Task>,
    pub ports: Vec<Port>,
    pub iterations: u64,
    pub depth: u32,
    pub region: Option<u64>,
}

impl Graph {
    pub fn bytes_of(&self, port: &Port) -> u64 {
        self.tasks[port.from].elements * 8
    }

    /// Gives the number of bytes that all tasks together send in one iteration.
    pub fn bytes_per_iteration(&self) -> u64 {
        self.ports.iter().map(|p| self.bytes_of(p)).sum()
    }

    pub fn needs_mpi(&self) -> bool {
        self.ports.iter().any(|p| p.method.needs_mpi())
    }

    pub fn uses(&self, method: Method) -> bool {
        self.ports.iter().any(|p| p.method == method)
    }

    /// Gives the number of bytes that the region must have room for: the buffers of each task, the copies of them that
    /// other tasks make, and the tables of the region.
    pub fn region_bytes(&self) -> u64 {
        let buffers: u64 = self.tasks.iter().map(|t| (t.elements * 8 + 8192) * u64::from(self.depth)).sum();
        let copied = self.ports.iter().any(|p| matches!(p.method, Method::Copy | Method::Copyinto));
        let all = if copied { buffers * 2 } else { buffers };
        self.region.unwrap_or(all + all / 8 + (16 << 20))
    }

    /// Makes one of the graphs of the Dhmem paper. Returns `None` if the word names none of these graphs.
    pub fn shape(word: &str, tasks: usize, task: &Task, method: Method) -> Option<Self> {
        let named = |name: String| Task { name, ..task.clone() };
        let port = |(from, to)| Port { from, to, method };
        let (names, edges): (Vec<String>, Vec<(usize, usize)>) = match word {
            "simple" => (vec!["produce".into(), "consume".into()], vec![(0, 1)]),
            "pipeline" => {
                ((0..tasks).map(|i| format!("stage-{i}")).collect(), (1..tasks).map(|i| (i - 1, i)).collect())
            }
            "scatter-gather" => {
                let last = tasks.saturating_sub(1);
                let middle = (1..last).map(|i| format!("work-{i}"));
                let names = std::iter::once("scatter".to_owned()).chain(middle).chain(["gather".to_owned()]).collect();
                (names, (1..last).map(|i| (0, i)).chain((1..last).map(|i| (i, last))).collect())
            }
            _ => return None,
        };
        Some(Self {
            tasks: names.into_iter().map(named).collect(),
            ports: edges.into_iter().map(port).collect(),
            iterations: 0,
            depth: 0,
            region: None,
        })
    }

    /// Sorts the tasks so that each comes after all tasks that it reads from. If there is a cycle, the error names its
    /// tasks.
    pub fn order(&self) -> Result<Vec<usize>, String> {
        let mut order = Vec::new();
        let mut done = vec![false; self.tasks.len()];
        while order.len() < self.tasks.len() {
            let ready = |t: &usize| !done[*t] && self.ports.iter().all(|p| p.to != *t || done[p.from]);
            let Some(next) = (0..self.tasks.len()).find(ready) else {
                let stuck = |t: &usize| !done[*t];
                let names: Vec<&str> =
                    (0..self.tasks.len()).filter(stuck).map(|t| self.tasks[t].name.as_str()).collect();
                return Err(format!("{} wait for each other's data in a circle; take a port away", names.join(", ")));
            };
            done[next] = true;
            order.push(next);
        }
        Ok(order)
    }

    /// Checks a graph, whether it comes from a file with a description or from options of the command line.
    pub fn check(&self) -> Result<(), String> {
        if self.ports.is_empty() {
            return Err("no task sends to another; a pipeline has at least 2 tasks, a scatter-gather 3".into());
        }
        if !self.depth.is_power_of_two() || self.depth > 4096 {
            return Err(format!("a depth of {}; it is a power of two, 1 to 4096", self.depth));
        }
        for method in [Method::Threads, Method::Boost] {
            if self.uses(method) && !self.ports.iter().all(|p| p.method == method) {
                return Err(format!("{} is for the whole workflow, not for some of its ports", method.word()));
            }
        }
        self.order().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(word: &str, tasks: usize) -> Graph {
        let task = Task { name: String::new(), elements: 4, period_ns: 0 };
        let mut graph = Graph::shape(word, tasks, &task, Method::Crossdock).unwrap();
        graph.depth = 2;
        graph
    }

    #[test]
    fn the_shapes_have_the_papers_ports() {
        assert_eq!(shape("simple", 9).ports.len(), 1);
        assert_eq!(shape("pipeline", 9).ports.len(), 8);
        assert_eq!(shape("scatter-gather", 9).ports.len(), 14);
        assert_eq!(shape("scatter-gather", 9).bytes_per_iteration(), 14 * 32);
    }

    #[test]
    fn a_circle_and_a_graph_without_ports_are_refused() {
        let mut graph = shape("pipeline", 3);
        assert!(graph.check().is_ok());
        graph.ports.push(Port { from: 2, to: 0, method: Method::Crossdock });
        assert!(graph.check().unwrap_err().contains("circle"));
        assert!(shape("pipeline", 1).check().is_err());
    }

    #[test]
    fn threads_do_not_mix() {
        let mut graph = shape("pipeline", 3);
        graph.ports[0].method = Method::Threads;
        assert!(graph.check().unwrap_err().contains("whole workflow"));
    }
}
