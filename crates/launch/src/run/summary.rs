//! The summary that the user sees at the end of a run, as text or as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::file::units;

/// The summary of the whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The name of the workflow.
    pub workflow: String,
    /// The run's id.
    pub run: String,
    /// The name of the engine; the next field has its version.
    pub engine: String,
    /// The version of the engine.
    pub engine_version: String,
    /// What tasks shared with the host; `None` if nothing.
    pub shared_with_host: Option<String>,
    /// The result: `ok`, `failed`, `interrupted` or `deadline`.
    pub result: String,
    /// The exit code of the run.
    pub code: u8,
    /// Why the run did not end with success; `None` if it did.
    pub reason: Option<String>,
    /// The wall time of the run in seconds.
    pub seconds: f64,
    /// One entry for each rank.
    pub tasks: Vec<TaskLine>,
    /// The figures of ports, series, items, regions and directories.
    #[serde(flatten)]
    pub figures: Figures,
    /// The folder with the logs.
    pub logs: PathBuf,
}

/// The figures from the daemon and from shared memory, as they are when the last task has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// One entry for each port.
    pub ports: Vec<PortLine>,
    /// One entry for each series.
    pub series: Vec<SeriesLine>,
    /// One entry for each item that still exists.
    pub items: Vec<ItemLine>,
    /// One entry for each region.
    pub regions: Vec<RegionLine>,
    /// One entry for each managed directory.
    pub files: Vec<FilesLine>,
    /// The progress that living ranks report; only the live view shows it.
    #[serde(skip)]
    pub progress: Vec<ProgressLine>,
}

/// The progress that a rank has reported.
#[derive(Clone, Debug, Default)]
pub struct ProgressLine {
    /// The name of the task.
    pub task: String,
    /// The number of the rank in its task.
    pub rank: u32,
    /// The number of steps done.
    pub done: u64,
    /// The number of all steps.
    pub of: u64,
}

/// The summary of one rank.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TaskLine {
    /// The name of the task.
    pub task: String,
    /// The number of the rank in its task.
    pub rank: u32,
    /// The rank's host, in a run on several hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How the rank ended, in words.
    pub ended: String,
    /// The end of the rank as an exit code.
    pub code: u8,
    /// The rank's wall time in seconds; zero if it never started.
    pub seconds: f64,
    /// The path of the rank's log.
    pub log: PathBuf,
}

/// The figures of one port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortLine {
    /// The name of the port.
    pub port: String,
    /// The number of messages sent.
    pub messages: u64,
    /// The number of messages that consumers took and released.
    pub received: u64,
    /// The bytes of messages that went to a consumer without a copy.
    pub bytes_handed_over: u64,
    /// The bytes that producers and consumers copied.
    pub bytes_copied: u64,
    /// How long producers waited for room, in seconds.
    pub producer_wait_seconds: f64,
    /// How long consumers waited for messages, in seconds.
    pub consumer_wait_seconds: f64,
}

/// The figures of one series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SeriesLine {
    /// The name of the series.
    pub series: String,
    /// The number of versions that were published.
    pub versions: u64,
    /// The bytes that were copied into versions, because they had changed.
    pub bytes_copied: u64,
    /// The bytes that versions share with the version before.
    pub bytes_shared: u64,
    /// The number of calls of `publish` that withheld their version because no slot was free. The next version contains
    /// their changes.
    pub withheld: u64,
    /// The number of calls of `publish` that failed because there was no room.
    pub no_space: u64,
    /// The number of versions that were taken back from observers.
    pub taken_back: u64,
}

/// The figures of one item.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ItemLine {
    /// The name of the item.
    pub item: String,
    /// The size of the item in bytes.
    pub size: u64,
    /// The owner of the item when the figures were collected: a task, a rank or a number.
    pub owner: String,
    /// How often the item was transferred to another owner.
    pub transfers: u64,
    /// How often the item was copied for the next owner, because a former user still had it open or mapped.
    pub copies: u64,
}

/// The figures of one managed directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FilesLine {
    /// The name of the directory.
    pub directory: String,
    /// The number of published files. If a file is replaced, the new file counts too.
    pub published: u64,
    /// The bytes of the published files.
    pub bytes: u64,
    /// The number of files that were not published because their writer was killed.
    pub torn: u64,
    /// The number of files that were not published because the quota was used up.
    pub cut: u64,
    /// The number of published files that were removed under the workflow file's key `keep`.
    pub dropped: u64,
    /// The number of published files that were moved to a disk.
    pub spilled: u64,
    /// The number of files that hosts with consumers have fetched from other hosts. A file counts once for each host
    /// that fetched it.
    pub fetched: u64,
    /// The bytes of the fetched files.
    pub bytes_fetched: u64,
    /// One line for each problem with the directory's files.
    pub troubles: Vec<String>,
}

/// The figures of one region.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegionLine {
    /// The name of the region.
    pub region: String,
    /// The capacity of the region in bytes.
    pub size: u64,
    /// The bytes of memory that the region has reserved.
    pub reserved: u64,
}

impl Summary {
    /// Writes the summary as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|e| format!("{{\"result\": \"failed\", \"reason\": \"{e}\"}}"))
    }

    /// Writes the summary as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let shared =
            self.shared_with_host.as_deref().map(|s| format!(" (tasks share the host's {s})")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "workflow {}, engine {} {}{shared}", self.workflow, self.engine, self.engine_version);
        let with_hosts = self.tasks.iter().any(|t| t.host.is_some());
        let rows = self.tasks.iter().map(|t| {
            let name = if self.tasks.iter().filter(|o| o.task == t.task).count() > 1 {
                format!("{}.{}", t.task, t.rank)
            } else {
                t.task.clone()
            };
            let mut row = vec![name, format!("{:.2} s", t.seconds), t.ended.clone(), t.log.display().to_string()];
            if with_hosts {
                row.insert(1, t.host.clone().unwrap_or_default());
            }
            row
        });
        let mut head = vec!["task", "wall time", "end", "log"];
        if with_hosts {
            head.insert(1, "host");
        }
        table(&mut text, &head, rows.collect());
        self.figures.write(&mut text);
        let _ = match &self.reason {
            Some(reason) => writeln!(text, "{} after {:.2} s: {reason}", self.result, self.seconds),
            None => writeln!(text, "all tasks ended well in {:.2} s", self.seconds),
        };
        text
    }
}

impl FilesLine {
    /// Adds the figures that another host has for the same directory.
    fn add(&mut self, other: Self) {
        let Self { directory: _, published, bytes, torn, cut, dropped, spilled, fetched, bytes_fetched, troubles } =
            other;
        self.published += published;
        self.bytes += bytes;
        self.torn += torn;
        self.cut += cut;
        self.dropped += dropped;
        self.spilled += spilled;
        self.fetched += fetched;
        self.bytes_fetched += bytes_fetched;
        self.troubles.extend(troubles);
    }
}

impl Figures {
    /// Adds the figures of another host.
    pub fn add(&mut self, other: Self) {
        let Self { ports, series, items, regions, files, progress } = other;
        self.ports.extend(ports);
        self.series.extend(series);
        self.items.extend(items);
        self.regions.extend(regions);
        for line in files {
            match self.files.iter_mut().find(|known| known.directory == line.directory) {
                Some(known) => known.add(line),
                None => self.files.push(line),
            }
        }
        self.progress.extend(progress);
    }

    fn write(&self, text: &mut String) {
        let rows = self.ports.iter().map(|p| {
            vec![
                p.port.clone(),
                p.messages.to_string(),
                units::show(p.bytes_handed_over),
                units::show(p.bytes_copied),
                format!("{:.2} s", p.producer_wait_seconds),
                format!("{:.2} s", p.consumer_wait_seconds),
            ]
        });
        table(
            text,
            &["port", "messages", "handed over", "copied", "producers waited", "consumers waited"],
            rows.collect(),
        );
        let rows = self.series.iter().map(|s| {
            vec![
                s.series.clone(),
                s.versions.to_string(),
                units::show(s.bytes_copied),
                units::show(s.bytes_shared),
                s.withheld.to_string(),
                s.no_space.to_string(),
                s.taken_back.to_string(),
            ]
        });
        table(text, &["series", "versions", "copied", "unchanged", "withheld", "failed", "taken back"], rows.collect());
        let rows = self.items.iter().map(|i| {
            vec![i.item.clone(), units::show(i.size), i.owner.clone(), i.transfers.to_string(), i.copies.to_string()]
        });
        table(text, &["item", "size", "owner", "hand-overs", "copies"], rows.collect());
        let rows = self.regions.iter().map(|r| vec![r.region.clone(), units::show(r.size), units::show(r.reserved)]);
        table(text, &["region", "capacity", "memory"], rows.collect());
        // Files are fetched only in a run on several hosts, so runs without fetched files have no column for them.
        let is_fetched = self.files.iter().any(|f| f.fetched > 0);
        let rows = self.files.iter().map(|f| {
            let mut row = vec![
                f.directory.clone(),
                f.published.to_string(),
                units::show(f.bytes),
                f.spilled.to_string(),
                f.dropped.to_string(),
                f.torn.to_string(),
                f.cut.to_string(),
            ];
            if is_fetched {
                row.splice(3..3, [f.fetched.to_string(), units::show(f.bytes_fetched)]);
            }
            row
        });
        let mut head =
            vec!["directory", "files published", "size", "moved to disk", "dropped", "writers killed", "beyond quota"];
        if is_fetched {
            head.splice(3..3, ["fetched", "size"]);
        }
        table(text, &head, rows.collect());
        for line in self.files.iter().flat_map(|f| &f.troubles) {
            let _ = writeln!(text, "  {line}");
        }
    }
}

/// The most rows of one table in the text for people. The JSON has all rows.
const ROWS: usize = 32;

/// Writes a table whose columns are as wide as their widest field. Writes nothing if there are no rows.
fn table(text: &mut String, head: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).chain([head[i].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |fields: Vec<&str>| {
        let padded: Vec<String> = fields.iter().zip(&widths).map(|(f, w)| format!("{f:w$}")).collect();
        let _ = writeln!(text, "  {}", padded.join("  ").trim_end());
    };
    line(head.to_vec());
    for row in rows.iter().take(ROWS) {
        line(row.iter().map(String::as_str).collect());
    }
    if rows.len() > ROWS {
        line(vec![&format!("… and {} others", rows.len() - ROWS)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_tasks_ports_and_the_reason() {
        let summary = Summary {
            workflow: "melt".into(),
            engine: "podman".into(),
            engine_version: "4.3.1".into(),
            result: "failed".into(),
            reason: Some("task `plot` ended with exit code 3".into()),
            seconds: 1.5,
            tasks: vec![TaskLine {
                task: "plot".into(),
                ended: "ended with exit code 3".into(),
                seconds: 1.25,
                ..TaskLine::default()
            }],
            figures: Figures {
                ports: vec![PortLine {
                    port: "results".into(),
                    messages: 7,
                    bytes_handed_over: 1 << 20,
                    ..PortLine::default()
                }],
                series: vec![SeriesLine {
                    series: "field/0".into(),
                    versions: 41,
                    bytes_copied: 3 << 20,
                    ..SeriesLine::default()
                }],
                items: (0..40).map(|i| ItemLine { item: format!("frame.{i}"), ..ItemLine::default() }).collect(),
                ..Figures::default()
            },
            ..Summary::default()
        };
        let text = summary.text();
        for words in [
            "workflow melt, engine podman 4.3.1",
            "plot",
            "1.25 s",
            "results",
            "1 MiB",
            "field/0  41        3 MiB",
            "frame.31",
            "… and 8 others",
            "0 B",
            "failed after 1.50 s: task `plot`",
        ] {
            assert!(text.contains(words), "{words:?} in\n{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&summary.json()).unwrap();
        assert!(!text.contains("frame.32"), "{text}");
        assert_eq!(json["ports"][0]["bytes_handed_over"], 1 << 20);
        assert_eq!((json["series"][0]["versions"].as_u64(), json["items"].as_array().unwrap().len()), (Some(41), 40));
    }
}
