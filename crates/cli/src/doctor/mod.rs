//! `crossdock doctor`: checks what this node allows, and says what to change.

mod items;

use std::fs;

use crossdock_launch::engine;
use crossdock_launch::file::units;
use crossdock_launch::run;
use crossdock_os::process::{self, Limit};
use crossdock_os::ucx::{Fabric, Library};
use crossdock_os::{file, memfd};
use serde::Serialize;

use crate::args::Doctor;
use crate::table::say;
use crossdock_web::find;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckResult {
    Ok,
    /// The checked thing works but could be better, or an optional thing is missing.
    Note,
    /// The checked thing does not work.
    Bad,
}

#[derive(Clone, Debug, Serialize)]
struct NodeCheck {
    area: &'static str,
    name: String,
    result: CheckResult,
    /// What the check found.
    what: String,
    /// What the user should do; empty if nothing.
    hint: String,
}

fn check(area: &'static str, name: &str, result: CheckResult, what: impl Into<String>, hint: &str) -> NodeCheck {
    let hint = if result == CheckResult::Ok { String::new() } else { hint.to_owned() };
    NodeCheck { area, name: name.to_owned(), result, what: what.into(), hint }
}

fn pass(good: bool, otherwise: CheckResult) -> CheckResult {
    if good { CheckResult::Ok } else { otherwise }
}

pub fn doctor(options: &Doctor) -> u8 {
    let mut checks = kernel();
    checks.extend(limits());
    checks.extend(memory());
    checks.extend(items::checks());
    checks.extend(places());
    checks.push(ucx());
    checks.extend(engines());
    let bad = checks.iter().filter(|c| c.result == CheckResult::Bad).count();
    if options.json {
        crate::table::json(&serde_json::json!({ "checks": checks, "bad": bad }));
    } else {
        say(&text(&checks, bad));
    }
    u8::from(bad > 0)
}

fn text(checks: &[NodeCheck], bad: usize) -> String {
    let mut lines = Vec::new();
    let mut area = "";
    let width = checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    for c in checks {
        if c.area != area {
            area = c.area;
            lines.push(area.to_owned());
        }
        let mark = match c.result {
            CheckResult::Ok => "ok  ",
            CheckResult::Note => "note",
            CheckResult::Bad => "BAD ",
        };
        lines.push(format!("  {mark}  {:width$}  {}", c.name, c.what));
        if !c.hint.is_empty() {
            lines.push(format!("        {:width$}  hint: {}", "", c.hint));
        }
    }
    lines.push(match bad {
        0 => "nothing is in the way of running workflows".into(),
        1 => "1 thing is in the way".into(),
        n => format!("{n} things are in the way"),
    });
    lines.join("\n")
}

fn sysctl(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn kernel() -> Vec<NodeCheck> {
    let area = "kernel";
    let release = process::kernel_release();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let mut checks = vec![check(
        area,
        "version",
        pass(version >= (5, 14), CheckResult::Bad),
        format!("Linux {release}"),
        "5.14 or later is needed",
    )];
    let since = |what: &str, need: (u32, u32), with: &str, without: &str| {
        let text = if version >= need { with } else { without };
        check(
            area,
            what,
            pass(version >= need, CheckResult::Note),
            text,
            &format!("Linux {}.{} or later has it", need.0, need.1),
        )
    };
    checks.push(since(
        "futex_waitv",
        (5, 16),
        "a wait ends at once when the peer dies",
        "a dead peer is noticed within 20 ms instead of at once",
    ));
    checks.push(since(
        "SO_PEERPIDFD",
        (6, 5),
        "members are known for sure even if process ids are reused",
        "members are known by process id",
    ));
    checks.push(since(
        "PAGEMAP_SCAN",
        (6, 7),
        "changed pages can be found quickly",
        "changed pages are found by comparing",
    ));
    let (result, what) = match memfd::create("crossdock:doctor", 4096) {
        Ok(_) => (CheckResult::Ok, "segments can be made and sealed".to_owned()),
        Err(e) => (CheckResult::Bad, format!("a segment cannot be made: {e}")),
    };
    checks.push(check(area, "memfd", result, what, "a seccomp filter or a policy forbids memfd_create; allow it"));
    let count = sysctl("/proc/sys/user/max_user_namespaces").and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
    let debian = sysctl("/proc/sys/kernel/unprivileged_userns_clone").is_none_or(|v| v != "0");
    let ubuntu = sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").is_none_or(|v| v == "0");
    let (good, what) = match (count > 0, debian && ubuntu) {
        (false, _) => (false, "no user may make namespaces (user.max_user_namespaces is 0)"),
        (true, false) => {
            (false, "only root may make namespaces: bubblewrap, charliecloud and rootless podman may fail")
        }
        (true, true) => (true, "any user may make them"),
    };
    let hint = "sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1 (Debian), \
                kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)";
    checks.push(check(area, "namespaces", pass(good, CheckResult::Note), what, hint));
    checks
}

fn limits() -> Vec<NodeCheck> {
    let area = "limits";
    let (now, most) = process::limit(Limit::Descriptors);
    let (now, most) = (now.unwrap_or(u64::MAX), most.unwrap_or(u64::MAX));
    let show = |n: u64| if n == u64::MAX { "no limit".to_owned() } else { n.to_string() };
    let text = format!("{} now, at most {}", show(now), show(most));
    let mut checks = vec![check(
        area,
        "open files",
        pass(most >= 1024, CheckResult::Bad),
        text,
        "ulimit -Hn 65536, or LimitNOFILE= of the service",
    )];
    let processes = process::limit(Limit::Processes).1.unwrap_or(u64::MAX);
    checks.push(check(
        area,
        "processes",
        pass(processes >= 256, CheckResult::Note),
        show(processes),
        "ulimit -Hu 4096",
    ));
    let space = process::limit(Limit::AddressSpace).0;
    let text = space.map_or("no limit".to_owned(), units::show);
    let hint = "ulimit -v unlimited: regions take address space up to their capacity";
    checks.push(check(area, "address space", pass(space.is_none(), CheckResult::Note), text, hint));
    let maps = sysctl("/proc/sys/vm/max_map_count").and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
    checks.push(check(
        area,
        "mappings",
        pass(maps >= 65_530, CheckResult::Note),
        maps.to_string(),
        "sysctl vm.max_map_count=65530",
    ));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let what = match processors {
        1 => "1: waits sleep at once, a hand-over takes some µs".to_owned(),
        n => format!("{n}: waits may spin first, a hand-over takes well below 1 µs"),
    };
    checks.push(check(
        area,
        "processors",
        pass(processors > 1, CheckResult::Note),
        what,
        "give the workflow two processors or more",
    ));
    checks
}

fn memory() -> Vec<NodeCheck> {
    let area = "memory";
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|k| k << 10)
    };
    let free = field("MemAvailable:").unwrap_or(0);
    let text = format!("{} of {} available", units::show(free), units::show(field("MemTotal:").unwrap_or(0)));
    let mut checks = vec![check(
        area,
        "node",
        pass(free >= 256 << 20, CheckResult::Note),
        text,
        "end what takes the memory, or lower `memory:` of the workflow",
    )];
    let cgroup = crossdock_os::cgroup::Cgroup::own();
    if cgroup.is_limited() {
        let left = cgroup.left();
        let text = format!("this memory cgroup may take {} more; beyond that tasks get NO_SPACE", units::show(left));
        checks.push(check(
            area,
            "cgroup",
            pass(left >= 256 << 20, CheckResult::Note),
            text,
            "raise the memory limit of the job or service",
        ));
    }
    let huge = sysctl("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let chosen = huge.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let good = ["always", "within_size", "advise"].contains(&chosen.as_str());
    let what = if good {
        format!("{chosen}: large segments may use them")
    } else {
        format!("{chosen}: segments use 4 KiB pages, the first touch of each costs 0.2 to 0.9 µs")
    };
    let hint = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (as root)";
    checks.push(check(area, "huge pages", pass(good, CheckResult::Note), what, hint));
    checks
}

fn places() -> Vec<NodeCheck> {
    let area = "places";
    let base = run::runs_base();
    let above = base.ancestors().find(|p| p.exists()).unwrap_or(std::path::Path::new("/"));
    let writable = file::is_writable(above);
    // The path of a socket may have 107 bytes. The id of a run and the name of an endpoint take about 60 of them, so
    // about 45 are left for the folder of the runs.
    let long = base.as_os_str().len() > 45;
    let what = match (writable, long) {
        (false, _) => format!("{} cannot be written", above.display()),
        (_, true) => format!("{} is too long for sockets in it", base.display()),
        _ => base.display().to_string(),
    };
    let mut checks = vec![check(
        area,
        "runs",
        pass(writable && !long, CheckResult::Bad),
        what,
        "set CROSSDOCK_RUNS to a short folder of your own",
    )];
    let living = run::living();
    if !living.is_empty() {
        let ids: Vec<String> = living.into_iter().map(|run| run.id).collect();
        checks.push(check(area, "running now", CheckResult::Ok, ids.join(", "), ""));
    }
    let daemons = find::daemons(None).unwrap_or_default();
    let what = match daemons.len() {
        0 => "none running; one is started when it is needed".to_owned(),
        _ => daemons.iter().map(|d| d.place.as_str()).collect::<Vec<_>>().join(", "),
    };
    checks.push(check(area, "daemon", CheckResult::Ok, what, ""));
    checks
}

/// Checks whether this node could use UCX for pulls from other nodes.
fn ucx() -> NodeCheck {
    let (result, what) = match Library::load().and_then(Fabric::open) {
        Ok(fabric) => (CheckResult::Ok, format!("{} can be used by `serve --transport ucx`", fabric.version())),
        Err(why) => (CheckResult::Note, why),
    };
    check(
        "other nodes",
        "UCX",
        result,
        what,
        "install libucx0 (Debian, Ubuntu) if the nodes share a fabric such as InfiniBand",
    )
}

fn engines() -> Vec<NodeCheck> {
    let mut checks = Vec::new();
    for engine in engine::all() {
        let trial = engine::trial(engine.as_ref());
        checks.push(match trial.result {
            Ok(version) => {
                let shared =
                    engine.isolation().shared().map(|s| format!("; tasks share the host's {s}")).unwrap_or_default();
                let start = trial.start.map_or(0.0, |d| d.as_secs_f64() * 1e3);
                check(
                    "engines",
                    trial.engine,
                    CheckResult::Ok,
                    format!("{version}, starts in {start:.0} ms{shared}"),
                    "",
                )
            }
            // The engine `process` always works, so a missing container engine is no failure.
            Err(e) => check("engines", trial.engine, CheckResult::Note, e.why, &e.hint),
        });
    }
    checks
}
