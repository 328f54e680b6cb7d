//! What the user sees on standard error while the workflow runs, as lines or as a live picture.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Show;

/// If a run has more ranks than this, the screen shows lines, and no bar for each rank.
const BARS_MAX: usize = 16;

/// The template for the line of a rank that reports its progress.
const STEPS: &str =
    "{spinner:.blue} {prefix:.bold} {elapsed:>6} {bar:12.green/dim} {percent:>3} % {pos}/{len} {wide_msg}";

/// What the user sees on the terminal. If the terminal is stopped, each call waits until it goes on.
pub(super) struct Screen {
    show: Show,
    begin: Instant,
    width: usize,
    bars: Vec<ProgressBar>,
    /// The lines below the bars, with figures of the data that passes between the tasks.
    figures: Option<ProgressBar>,
    screen: Option<MultiProgress>,
    colours: bool,
}

/// The codes of a terminal's colours.
const GREEN: u8 = 32;
const RED: u8 = 31;
/// The colours of the tasks' names, which the screen shows before each line of a task.
const TASKS: [u8; 6] = [36, 33, 35, 34, 96, 93];

impl Screen {
    /// Makes a screen for ranks with these names.
    pub fn new(show: Show, names: &[String]) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|t| t != "dumb");
        let show = match show {
            Show::Auto if terminal && names.len() <= BARS_MAX => Show::Live,
            Show::Auto => Show::Lines,
            other => other,
        };
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).max(9);
        // NO_COLOR switches colours off (https://no-color.org).
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let begin = Instant::now();
        let mut made = Self { show, begin, width, bars: Vec::new(), figures: None, screen: None, colours };
        if show == Show::Live {
            let screen = MultiProgress::new();
            let style = ProgressStyle::with_template("{spinner:.blue} {prefix:.bold} {elapsed:>6} {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            for name in names {
                let bar = screen.add(ProgressBar::new_spinner().with_style(style.clone()));
                bar.set_prefix(format!("{name:width$}"));
                bar.set_message("waits");
                made.bars.push(bar);
            }
            let style = ProgressStyle::with_template("{wide_msg:.dim}");
            let figures =
                ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            made.figures = Some(screen.add(figures));
            made.screen = Some(screen);
        }
        made
    }

    /// Shows a note about the run as a whole.
    pub fn note(&self, text: &str) {
        if self.show != Show::Quiet {
            self.print(text);
        }
    }

    /// Shows an alarm. An alarm is printed even with `--show quiet`.
    pub fn alarm(&self, text: &str) {
        self.print(text);
    }

    /// Shows a rank's new state.
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

    /// Shows that a rank has begun, and starts its clock.
    pub fn begun(&self, index: usize, name: &str, text: &str) {
        if let Some(bar) = self.bars.get(index) {
            bar.reset_elapsed();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        self.rank(index, name, text);
    }

    /// Shows a bar in the rank's line, which says how far the rank is.
    pub fn progress(&self, index: usize, done: u64, of: u64) {
        let Some(bar) = self.bars.get(index).filter(|bar| !bar.is_finished()) else { return };
        if bar.length() != Some(of) {
            if let Ok(style) = ProgressStyle::with_template(STEPS) {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar.set_length(of);
        }
        bar.set_position(done);
    }

    /// Shows that a rank has ended, and stops its clock.
    pub fn ended(&self, index: usize, name: &str, text: &str, well: bool) {
        let text = self.coloured(if well { GREEN } else { RED }, text);
        match self.bars.get(index) {
            Some(bar) => {
                bar.disable_steady_tick();
                bar.abandon_with_message(text);
            }
            None => self.rank(index, name, &text),
        }
    }

    /// Tells whether the screen shows figures of the data that passes between the tasks.
    pub fn has_figures(&self) -> bool {
        self.figures.is_some()
    }

    /// Shows the figures below the bars.
    pub fn figures(&self, text: String) {
        if let Some(bar) = &self.figures {
            bar.set_message(text);
        }
    }

    fn coloured(&self, colour: u8, text: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Shows a line that a rank wrote.
    pub fn line(&self, index: usize, name: &str, line: &str) {
        match (self.show, self.bars.get(index)) {
            (_, Some(bar)) => bar.set_message(line.to_owned()),
            (Show::Lines, None) => {
                let name = self.coloured(TASKS[index % TASKS.len()], &format!("{name:width$} |", width = self.width));
                self.print(&format!("{name} {line}"));
            }
            _ => {}
        }
    }

    /// Ends the live picture: its lines are not updated any more.
    pub fn finish(&self) {
        if let Some(figures) = &self.figures {
            figures.finish_and_clear();
        }
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
            // A closed terminal must not end the run, so errors of writing are ignored.
            None => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }
}
