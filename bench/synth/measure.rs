//! The figures of a run, as the Dhmem paper defines them: the throughput, which is the number of bytes that all tasks
//! sent, divided by the wall time; and the iterations per second.

use serde::Serialize;

use crate::graph::Graph;
use crate::run::Said;
use crate::verify;

/// The results of one run of a synthetic workflow, computed from what its tasks reported.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub tasks: usize,
    pub ports: usize,
    pub bytes_per_iteration: u64,
    /// The number of iterations of each trial.
    pub iterations: Vec<u64>,
    pub seconds: Vec<f64>,
    pub megabytes_per_second: Vec<f64>,
    pub iterations_per_second: Vec<f64>,
    /// For ports of crossdock: how often an end went to sleep, divided by the number of messages. The next field tells
    /// how often an end woke another one.
    pub sleeps_per_message: f64,
    pub wakes_per_message: f64,
    /// With `--latency`: for every iteration, the time from when a buffer was ready until the other task had it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hand_over_ns: Vec<u64>,
    /// With `--latency`: for every iteration, the time from when a buffer was ready until the other task had read all
    /// of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub until_read_ns: Vec<u64>,
}

impl Figures {
    pub fn median_hand_over_ns(&self) -> Option<u64> {
        let mut sorted = self.hand_over_ns.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Checks every checksum, and then computes the figures. If a checksum is wrong, the error names the tasks that had
/// wrong data.
pub fn measure(graph: &Graph, said: &[Said]) -> Result<Figures, String> {
    let messages = said.iter().map(|s| s.messages).sum::<u64>().max(1) as f64;
    let mut figures = Figures {
        tasks: graph.tasks.len(),
        ports: graph.ports.len(),
        bytes_per_iteration: graph.bytes_per_iteration(),
        iterations: Vec::new(),
        seconds: Vec::new(),
        megabytes_per_second: Vec::new(),
        iterations_per_second: Vec::new(),
        sleeps_per_message: said.iter().map(|s| s.sleeps).sum::<u64>() as f64 / messages,
        wakes_per_message: said.iter().map(|s| s.wakes).sum::<u64>() as f64 / messages,
        hand_over_ns: Vec::new(),
        until_read_ns: Vec::new(),
    };
    let trials = said[0].trials.len();
    let mut known: Option<(u64, Vec<u64>)> = None;
    for trial in 0..trials {
        let all: Vec<_> = said.iter().filter_map(|s| s.trials.get(trial)).collect();
        let iterations = all[0].iterations;
        if all.len() != said.len() || all.iter().any(|t| t.iterations != iterations) {
            return Err(format!("the tasks do not agree on how long trial {trial} was"));
        }
        // The expected checksums are computed again only if this trial has another length than the one before. Trials
        // of equal length have equal checksums.
        if known.as_ref().is_none_or(|(of, _)| *of != iterations) {
            known = Some((iterations, verify::expected(graph, iterations)?));
        }
        let expected = &known.as_ref().expect("set above").1;
        let wrong = |t: &usize| all[*t].checksum.parse() != Ok(expected[*t]);
        let wrong: Vec<&str> = (0..all.len()).filter(wrong).map(|t| graph.tasks[t].name.as_str()).collect();
        if !wrong.is_empty() {
            return Err(format!("wrong data: the checksums of {} in trial {trial} are not right", wrong.join(", ")));
        }
        let begin = all.iter().map(|t| t.begin).min().unwrap_or_default();
        let end = all.iter().map(|t| t.end).max().unwrap_or_default();
        let seconds = end.saturating_sub(begin).max(1) as f64 / 1e9;
        figures.iterations.push(iterations);
        figures.seconds.push(seconds);
        figures.megabytes_per_second.push(graph.bytes_per_iteration() as f64 * iterations as f64 / 1e6 / seconds);
        figures.iterations_per_second.push(iterations as f64 / seconds);
        let since_sent = |times: &[u64]| -> Vec<u64> {
            times.iter().zip(&all[0].at).map(|(time, sent)| time.saturating_sub(*sent)).collect()
        };
        if let [_, consumer] = all.as_slice() {
            figures.hand_over_ns.extend(since_sent(&consumer.at));
            figures.until_read_ns.extend(since_sent(&consumer.read));
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Method, Task};
    use crate::run::Trial;

    fn two_tasks() -> (Graph, Vec<Said>) {
        let task = Task { name: String::new(), elements: 1000, period_ns: 0 };
        let graph = Graph::shape("simple", 2, &task, Method::Crossdock).unwrap();
        let expected = verify::expected(&graph, 4).unwrap();
        let said = |task: usize| Said {
            task,
            messages: 8,
            sleeps: 2,
            wakes: 4,
            trials: vec![Trial {
                begin: 1_000_000_000 + task as u64,
                end: 2_000_000_000 + task as u64 * 500_000_000,
                iterations: 4,
                checksum: expected[task].to_string(),
                at: Vec::new(),
                read: Vec::new(),
            }],
        };
        (graph, vec![said(0), said(1)])
    }

    #[test]
    fn the_time_is_from_the_first_beginning_to_the_last_end() {
        let (graph, said) = two_tasks();
        let figures = measure(&graph, &said).unwrap();
        assert_eq!(figures.seconds, [1.5]);
        assert_eq!((figures.sleeps_per_message, figures.wakes_per_message), (0.25, 0.5));
        assert!((figures.megabytes_per_second[0] - 0.032 / 1.5).abs() < 1e-9);
        assert!((figures.iterations_per_second[0] - 4.0 / 1.5).abs() < 1e-9);
    }

    #[test]
    fn wrong_data_is_no_figure() {
        let (graph, mut said) = two_tasks();
        said[1].trials[0].checksum = "1".into();
        assert!(measure(&graph, &said).unwrap_err().contains("checksums of consume"));
    }
}
