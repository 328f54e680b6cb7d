//! Measures the rates at which data passes between the tasks, once a second, for the live view.

use std::time::{Duration, Instant};

use super::Run;
use crate::file::units;
use crate::run::summary::Figures;

const PAUSE: Duration = Duration::from_secs(1);
/// The longest time for an answer of the daemon. If an answer takes longer, the daemon is not asked again, because
/// waiting for it would delay the handling of tasks that end.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most objects that the live view names one by one.
const NAMED: usize = 6;

/// The figures of the previous measurement, and whether the daemon has answered too slowly to be asked again.
#[derive(Default)]
pub(super) struct Rates {
    before: Option<(Instant, Figures)>,
    /// When the daemon was asked last, whether it answered or not.
    asked: Option<Instant>,
    too_slow: bool,
}

impl Run {
    pub(super) fn show_figures(&mut self) {
        let due = self.rates.asked.is_none_or(|then| then.elapsed() >= PAUSE);
        if !self.view.has_figures() || !due || self.rates.too_slow {
            return;
        }
        let Some(hosted) = self.part.hosted.as_mut().filter(|_| self.stop.is_none()) else { return };
        if hosted.dead() {
            return;
        }
        let now = Instant::now();
        let figures = hosted.report(&self.part.workflow);
        self.rates.asked = Some(now);
        self.rates.too_slow = now.elapsed() > PATIENCE;
        let Ok(figures) = figures else { return };
        for report in &figures.progress {
            let name = |task: usize| &self.workflow.tasks[task].name;
            let place = self.ranks.iter().position(|r| *name(r.task) == report.task && r.rank == report.rank);
            if let Some(index) = place {
                self.view.progress(index, report.done, report.of);
            }
        }
        if let Some((then, before)) = &self.rates.before {
            self.view.figures(line(&figures, before, now.duration_since(*then).as_secs_f64()));
        }
        self.rates.before = Some((now, figures));
    }
}

fn line(now: &Figures, before: &Figures, seconds: f64) -> String {
    let rate = |is: u64, was: Option<u64>| is.saturating_sub(was.unwrap_or(0)) as f64 / seconds;
    let mut parts = Vec::new();
    for port in &now.ports {
        let was = before.ports.iter().find(|p| p.port == port.port);
        let bytes = rate(port.bytes_handed_over, was.map(|p| p.bytes_handed_over));
        let messages = rate(port.messages, was.map(|p| p.messages));
        parts.push(format!("{} {messages:.0}/s {}/s", port.port, units::show(bytes as u64)));
    }
    for series in &now.series {
        let was = before.series.iter().find(|s| s.series == series.series);
        parts.push(format!("{} {:.1} versions/s", series.series, rate(series.versions, was.map(|s| s.versions))));
    }
    let more = parts.len().saturating_sub(NAMED);
    parts.truncate(NAMED);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::summary::{PortLine, SeriesLine};

    #[test]
    fn rates_are_those_since_the_look_before() {
        let port =
            |messages, bytes| PortLine { port: "p".into(), messages, bytes_handed_over: bytes, ..PortLine::default() };
        let series = |versions| SeriesLine { series: "s".into(), versions, ..SeriesLine::default() };
        let figures = |m, b, v| Figures { ports: vec![port(m, b)], series: vec![series(v)], ..Figures::default() };
        let text = line(&figures(30, 5 << 20, 7), &figures(10, 1 << 20, 2), 2.0);
        assert_eq!(text, "p 10/s 2 MiB/s · s 2.5 versions/s");
    }
}
