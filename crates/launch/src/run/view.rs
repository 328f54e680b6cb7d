//! What the user sees while the workflow runs; all of it on standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Show;

/// More bars than this do not fit a screen; the view falls back to lines.
const BARS_MAX: usize = 16;

/// The view.
pub struct View {
    show: Show,
    begin: Instant,
    width: usize,
    bars: Vec<ProgressBar>,
    screen: Option<MultiProgress>,
}

impl View {
    /// For ranks of these names.
    pub fn new(show: Show, names: &[String]) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|t| t != "dumb");
        let show = match show {
            Show::Auto if terminal && names.len() <= BARS_MAX => Show::Live,
            Show::Auto => Show::Lines,
            other => other,
        };
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).max(9);
        let mut view = Self { show, begin: Instant::now(), width, bars: Vec::new(), screen: None };
        if show == Show::Live {
            let screen = MultiProgress::new();
            let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>6} {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            for name in names {
                let bar = screen.add(ProgressBar::new_spinner().with_style(style.clone()));
                bar.set_prefix(format!("{name:width$}"));
                bar.set_message("waits");
                view.bars.push(bar);
            }
            view.screen = Some(screen);
        }
        view
    }

    /// Something about the run as a whole.
    pub fn note(&self, text: &str) {
        if self.show != Show::Quiet {
            self.print(text);
        }
    }

    /// Something that must be seen whatever is shown.
    pub fn alarm(&self, text: &str) {
        self.print(text);
    }

    /// A rank's standing has changed.
    pub fn rank(&self, index: usize, name: &str, text: &str) {
        match self.bars.get(index) {
            Some(bar) => bar.set_message(text.to_owned()),
            None => self.note(&format!(
                "{name:width$} · {text} ({:.1} s)",
                self.begin.elapsed().as_secs_f64(),
                width = self.width
            )),
        }
    }

    /// A rank has begun: its clock starts.
    pub fn begun(&self, index: usize, name: &str, text: &str) {
        if let Some(bar) = self.bars.get(index) {
            bar.reset_elapsed();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        self.rank(index, name, text);
    }

    /// A rank has ended: its clock stops.
    pub fn ended(&self, index: usize, name: &str, text: &str) {
        match self.bars.get(index) {
            Some(bar) => {
                bar.disable_steady_tick();
                bar.abandon_with_message(text.to_owned());
            }
            None => self.rank(index, name, text),
        }
    }

    /// A rank wrote a line.
    pub fn line(&self, index: usize, name: &str, line: &str) {
        match (self.show, self.bars.get(index)) {
            (_, Some(bar)) => bar.set_message(line.to_owned()),
            (Show::Lines, None) => self.print(&format!("{name:width$} | {line}", width = self.width)),
            _ => {}
        }
    }

    /// Nothing is renewed any more.
    pub fn finish(&self) {
        for bar in &self.bars {
            if !bar.is_finished() {
                bar.abandon();
            }
        }
    }

    fn print(&self, text: &str) {
        match &self.screen {
            Some(screen) => {
                let _ = screen.println(text);
            }
            // A closed terminal must not end the run.
            None => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }
}
