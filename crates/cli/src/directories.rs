//! `crossdock ls --files`: lists the files of the managed directories of living runs.

use crossdock_files::{FileLine, FileUser, Refused, RefusedRole};
use crossdock_launch::file::units;
use crossdock_launch::run::directory_reports::{self, DirectoryAnswer};
use crossdock_launch::run::{self, code};
use crossdock_layout::files::Phase;
use serde_json::{Value, json};

use crate::output::{Output, age};
use crate::table::{columns, complain};

pub fn list(output: &Output) -> u8 {
    let mut trouble = false;
    let ended = output.show(|| {
        let found = directories(&mut trouble);
        let all: Vec<Value> = found.iter().map(|(run, seen)| value(run, seen)).collect();
        let texts: Vec<String> = found.iter().map(|(run, seen)| text(run, seen)).collect();
        let text = match texts.is_empty() {
            true => {
                "no living run of yours has a managed directory (`files:` in the workflow file makes one)".to_owned()
            }
            false => texts.join("\n\n"),
        };
        Ok((json!({ "directories": all }), text))
    });
    if trouble { code::SYSTEM } else { ended }
}

/// Looks into the managed directories of all living runs, also on other hosts. Sets `trouble` if a directory cannot be
/// looked into.
fn directories(trouble: &mut bool) -> Vec<(String, DirectoryAnswer)> {
    let mut found = Vec::new();
    for run in run::living() {
        for looks in [directory_reports::here(&run.folder), directory_reports::elsewhere(&run.folder)] {
            for why in looks.troubles {
                *trouble = true;
                complain(&format!("run {}: {why}", run.id));
            }
            found.extend(looks.seen.into_iter().map(|seen| (run.id.clone(), seen)));
        }
    }
    found
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Coming => "has not started",
        Phase::Producing => "runs",
        Phase::Ended => "has ended",
        Phase::Failed => "has failed",
    }
}

fn text(run: &str, DirectoryAnswer { host, directory, look }: &DirectoryAnswer) -> String {
    let on = host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    let quota = directory.quota.map(|bytes| format!(", quota {}: {} used", units::show(bytes), units::show(look.used)));
    let quota = quota.unwrap_or_default();
    let full = if look.is_full { "; no room left: writing fails with ENOSPC" } else { "" };
    let head = format!(
        "{run}{on}: {} at {} (publish {}, keep {}{quota}): {} {}, {} published{full}",
        directory.name,
        directory.path,
        directory.publish,
        directory.keep,
        look.producers,
        phase(look.phase),
        look.published
    );
    let users = |users: &[FileUser]| {
        let texts: Vec<String> = users.iter().map(|user| format!("{} ({})", user.task, user.pid)).collect();
        if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
    };
    // A reason says why a file is not published or cannot be written. If no file of the list has a reason, the column
    // for reasons is left out.
    let has_reasons = look.lines.iter().any(|line| line.reason(look.is_full).is_some());
    let row = |line: &FileLine| {
        let mut row = vec![
            line.name.display().to_string(),
            line.state.word().to_owned(),
            line.bytes.map_or_else(|| "-".to_owned(), units::show),
            users(&line.writers),
            users(&line.readers),
            users(&line.waiters),
        ];
        row.extend(has_reasons.then(|| line.reason(look.is_full).unwrap_or("-").to_owned()));
        row
    };
    let rows: Vec<Vec<String>> = look.lines.iter().map(row).collect();
    let mut text = head;
    if !rows.is_empty() {
        let titles = ["FILE", "STATE", "SIZE", "WRITTEN BY", "READ BY", "AWAITED BY", "REASON"];
        text += &format!("\n{}", columns(&titles[..if has_reasons { 7 } else { 6 }], &rows));
    }
    if look.more > 0 {
        text += &format!("\n… and {} more names", look.more);
    }
    if !look.refused.is_empty() {
        let rows: Vec<Vec<String>> = look.refused.iter().map(refusal).collect();
        text += &format!("\n{}", columns(&["REFUSED", "TIMES", "LAST FILE", "LAST", "ERROR", "REASON"], &rows));
    }
    text
}

/// Makes the table row for a task whose attempts to change files of the directory were refused.
fn refusal(refused: &Refused) -> Vec<String> {
    vec![
        refused.task.clone(),
        refused.times.to_string(),
        refused.last.clone(),
        format!("{} ago", age(refused.seconds_ago as f64)),
        refused.errno().to_owned(),
        refused.reason().to_owned(),
    ]
}

fn value(run: &str, DirectoryAnswer { host, directory, look }: &DirectoryAnswer) -> Value {
    let users = |users: &[FileUser]| -> Vec<Value> {
        users.iter().map(|user| json!({ "task": user.task, "pid": user.pid })).collect()
    };
    let line = |line: &FileLine| {
        json!({
            "name": line.name, "state": line.state.word(), "size": line.bytes, "written_by": users(&line.writers),
            "read_by": users(&line.readers), "awaited_by": users(&line.waiters), "reason": line.reason(look.is_full),
        })
    };
    let refused = |refused: &Refused| {
        let role = match refused.role {
            RefusedRole::Consumer => "consumer",
            RefusedRole::Producer => "producer",
        };
        json!({
            "task": refused.task, "role": role, "times": refused.times, "last": refused.last,
            "seconds_ago": refused.seconds_ago, "error": refused.errno(), "reason": refused.reason(),
        })
    };
    json!({
        "run": run, "host": host, "name": directory.name, "path": directory.path, "publish": directory.publish, "keep": directory.keep, "quota": directory.quota,
        "producers": directory.produce, "consumers": directory.consume, "state": phase(look.phase), "published": look.published,
        "used": directory.quota.map(|_| look.used), "full": look.is_full,
        "files": look.lines.iter().map(line).collect::<Vec<_>>(), "more_files": look.more,
        "refused": look.refused.iter().map(refused).collect::<Vec<_>>(),
    })
}
