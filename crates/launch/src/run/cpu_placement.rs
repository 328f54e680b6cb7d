//! Chooses processors for ranks.

use crossdock_os::process::{affinity, set_affinity};

use crate::file::{Processors, Task};

/// Gives each rank the next free CPUs. Ranks share CPUs only if there are fewer CPUs than the ranks need.
#[derive(Debug)]
pub struct CpuPlacement {
    free: Vec<u32>,
    next: usize,
}

impl CpuPlacement {
    /// Makes a placement over the processors that this process may use.
    pub fn new() -> Self {
        let free = affinity();
        Self { free: if free.is_empty() { vec![0] } else { free }, next: 0 }
    }

    /// Chooses the CPUs for one rank; `None` stands for all CPUs. If the workflow file lists CPUs, the rank gets this
    /// list. If the file gives a count, the rank gets the next CPUs in turn.
    pub fn take(&mut self, task: &Task) -> Result<Option<Vec<u32>>, String> {
        match &task.processors {
            Processors::Any => Ok(None),
            Processors::List(list) => match list.iter().find(|p| !self.free.contains(p)) {
                Some(missing) => Err(format!(
                    "task `{}`: processor {missing} is not there; this machine gives {}",
                    task.name,
                    show(&self.free)
                )),
                None => Ok(Some(list.clone())),
            },
            Processors::Count(n) if *n as usize > self.free.len() => Err(format!(
                "task `{}`: {n} processors are asked for, and this machine gives {}; lower `processors:`",
                task.name,
                self.free.len()
            )),
            Processors::Count(n) => {
                let mut taken: Vec<u32> =
                    (0..*n as usize).map(|i| self.free[(self.next + i) % self.free.len()]).collect();
                self.next = (self.next + *n as usize) % self.free.len();
                taken.sort_unstable();
                Ok(Some(taken))
            }
        }
    }
}

/// Writes a list of processors in short form: `0–3,6`.
fn show(list: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for p in list {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *p => *last = *p,
            _ => parts.push((*p, *p)),
        }
    }
    let text = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}–{b}") };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Calls `f` while this thread is bound to these processors. Processes that `f` starts inherit the binding.
pub fn with<T>(processors: Option<&[u32]>, f: impl FnOnce() -> T) -> T {
    let before = affinity();
    let moved = processors.is_some_and(|list| !before.is_empty() && set_affinity(list).is_ok());
    let result = f();
    if moved {
        let _ = set_affinity(&before);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(processors: Processors) -> Task {
        Task { processors, ..Task::example(vec!["x".into()]) }
    }

    #[test]
    fn counts_are_taken_in_turn_and_wrap_round() {
        let mut p = CpuPlacement { free: vec![0, 1, 4], next: 0 };
        assert_eq!(p.take(&task(Processors::Count(2))), Ok(Some(vec![0, 1])));
        assert_eq!(p.take(&task(Processors::Count(2))), Ok(Some(vec![0, 4])));
        assert_eq!(p.take(&task(Processors::Any)), Ok(None));
        assert_eq!(p.take(&task(Processors::List(vec![4]))), Ok(Some(vec![4])));
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let mut p = CpuPlacement { free: vec![0, 1, 4], next: 0 };
        assert!(p.take(&task(Processors::List(vec![0, 3]))).unwrap_err().contains("gives 0–1,4"));
        assert!(p.take(&task(Processors::Count(4))).unwrap_err().contains("gives 3"));
    }
}
