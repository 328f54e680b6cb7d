//! Reads a description of a workflow (Dhmem paper, section IV-B). It is a list of lines for the workflow, its tasks and
//! its ports, each with `key=value` words after the names.

use clap::ValueEnum;
use crossdock_launch::file::units;

use crate::graph::{Graph, Method, Port, Task};

/// The values that are used if a line of the description does not give them.
pub struct Defaults {
    pub task: Task,
    pub method: Method,
    pub iterations: u64,
    pub depth: u32,
    pub region: Option<u64>,
}

/// Reads the graph. The error names the first wrong line and the reason.
pub fn read(text: &str, mut defaults: Defaults) -> Result<Graph, String> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut ports = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let read = match words.as_slice() {
            [] => Ok(()),
            ["workflow", pairs @ ..] => workflow(&mut defaults, pairs, tasks.is_empty()),
            ["task", name, pairs @ ..] => task(&defaults, &tasks, name, pairs).map(|t| tasks.push(t)),
            ["port", from, "->", to, pairs @ ..] => port(&defaults, &tasks, from, to, pairs).map(|p| ports.push(p)),
            [other, ..] => Err(format!(
                "`{other}`: a line is `workflow KEY=VALUE…`, `task NAME KEY=VALUE…` or `port FROM -> TO KEY=VALUE…`"
            )),
        };
        read.map_err(|what| format!("line {}: {what}", number + 1))?;
    }
    let Defaults { iterations, depth, region, .. } = defaults;
    Ok(Graph { tasks, ports, iterations, depth, region })
}

fn workflow(defaults: &mut Defaults, pairs: &[&str], first: bool) -> Result<(), String> {
    if !first {
        return Err("the workflow line comes before the tasks, because it says what they leave out".into());
    }
    for (key, value) in split(pairs)? {
        match key {
            "iterations" => defaults.iterations = number(value)?,
            "region" => defaults.region = Some(size(value)?),
            "depth" => defaults.depth = u32::try_from(number(value)?).map_err(|e| e.to_string())?,
            "method" => defaults.method = method(value)?,
            "size" => defaults.task.elements = elements(size(value)?),
            "period" => defaults.task.period_ns = duration(value)?,
            _ => return Err(unknown(key, "iterations, region, depth, method, size, period")),
        }
    }
    Ok(())
}

fn task(defaults: &Defaults, tasks: &[Task], name: &str, pairs: &[&str]) -> Result<Task, String> {
    if tasks.iter().any(|t| t.name == name) {
        return Err(format!("there is a task {name} already"));
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.+-".contains(&b)) {
        return Err(format!("`{name}` is no name of a task: letters, digits and _ . + -"));
    }
    let mut task = Task { name: name.to_owned(), ..defaults.task.clone() };
    for (key, value) in split(pairs)? {
        match key {
            "size" => task.elements = elements(size(value)?),
            "period" => task.period_ns = duration(value)?,
            _ => return Err(unknown(key, "size, period")),
        }
    }
    Ok(task)
}

fn port(defaults: &Defaults, tasks: &[Task], from: &str, to: &str, pairs: &[&str]) -> Result<Port, String> {
    let find = |name: &str| {
        let known = || tasks.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
        let place = tasks.iter().position(|t| t.name == name);
        place.ok_or_else(|| format!("no line above this one describes task {name}; there are: {}", known()))
    };
    let mut port = Port { from: find(from)?, to: find(to)?, method: defaults.method };
    for (key, value) in split(pairs)? {
        match key {
            "method" => port.method = method(value)?,
            _ => return Err(unknown(key, "method")),
        }
    }
    Ok(port)
}

fn split<'a>(pairs: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let each = |pair: &&'a str| pair.split_once('=').ok_or_else(|| format!("`{pair}` is not KEY=VALUE"));
    pairs.iter().map(each).collect()
}

fn unknown(key: &str, known: &str) -> String {
    format!("no key `{key}` here; there are: {known}")
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn size(text: &str) -> Result<u64, String> {
    units::size(text).map_err(|(what, hint)| format!("{what}; {hint}"))
}

/// Gives the number of elements for this many bytes. An element has 8 bytes, and there is at least one.
pub fn elements(bytes: u64) -> u64 {
    bytes.div_ceil(8).max(1)
}

fn method(text: &str) -> Result<Method, String> {
    Method::from_str(text, false).map_err(|_| {
        let known: Vec<&str> = Method::value_variants().iter().map(|m| m.word()).collect();
        format!("no method `{text}`; there are: {}", known.join(", "))
    })
}

/// Reads a duration such as `1s`, `10ms`, `1.5us` or `0s`, and gives it in nanoseconds.
pub fn duration(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no time; write a number and a unit: 1s, 10ms, 50us, 100ns");
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
    let factor = match &text[split..] {
        "s" => 1e9,
        "ms" => 1e6,
        "us" | "µs" => 1e3,
        "ns" => 1.0,
        _ => return Err(wrong()),
    };
    let value: f64 = text[..split].parse().map_err(|_| wrong())?;
    Ok((value * factor).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults {
        let task = Task { name: String::new(), elements: 1, period_ns: 0 };
        Defaults { task, method: Method::Crossdock, iterations: 10, depth: 2, region: None }
    }

    #[test]
    fn a_description_says_it_for_workflow_task_and_port() {
        let text = "workflow iterations=1024 region=1GiB method=mpi # all\n\ntask a size=10MB period=1.5s\ntask b size=1\n\
                    port a -> b method=copyfrom\nport a -> b";
        let graph = read(text, defaults()).unwrap();
        assert_eq!((graph.iterations, graph.region), (1024, Some(1 << 30)));
        assert_eq!((graph.tasks[0].elements, graph.tasks[0].period_ns), (1_250_000, 1_500_000_000));
        assert_eq!(graph.tasks[1].elements, 1);
        assert_eq!(graph.ports.iter().map(|p| p.method).collect::<Vec<_>>(), [Method::Copyfrom, Method::Mpi]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let wrong = |text: &str| read(text, defaults()).unwrap_err();
        assert!(wrong("task a\nport a -> b").starts_with("line 2: no line above this one describes task b"));
        assert!(wrong("task a sise=1").contains("there are: size, period"));
        assert!(wrong("task a\ntask a").contains("already"));
        assert!(wrong("tusk a").starts_with("line 1: `tusk`"));
        assert!(wrong("task a\nworkflow depth=2").contains("before the tasks"));
        assert!(wrong("task a period=soon").contains("no time"));
        assert!(wrong("workflow method=pigeon").contains("crossdock, mpi"));
    }
}
