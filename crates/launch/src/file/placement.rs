//! Decides which rank runs on which host when a run has several hosts.
//!
//! The keys `node`, `with` and `spread` of a task say on which hosts its ranks run. A task without these keys goes to
//! the host of an earlier task with which it shares a region or a managed directory. Tasks for which there is no such
//! earlier task are distributed over the hosts round-robin, in the order of the file.

use super::TaskGrant;
use super::problem::{Position, Problem};
use super::reader::{Notes, Section, clip, list};
use super::suggest::nearest;
use super::workflow::{Task, Workflow};

/// What the file says about the hosts of a task's ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placing {
    /// The name or number of the host, and the position of this text in the file.
    pub node: Option<(String, Position)>,
    /// The name of another task, and the position of this name in the file. The ranks of this task run on the host of
    /// the other task.
    pub with: Option<(String, Position)>,
    /// The position of the key `spread`, if the ranks are distributed over all hosts in turn.
    pub spread: Option<Position>,
}

/// Reads the keys `node`, `with` and `spread` of a task.
pub(super) fn placing(s: &Section<'_>) -> Placing {
    let text = |key| s.get(key).and_then(|item| Some((item.text()?, item.position())));
    let spread = s.get("spread").filter(|item| item.flag().unwrap_or(false)).map(|item| item.position());
    Placing { node: text("node"), with: text("with"), spread }
}

/// Checks the keys `node`, `with` and `spread` of all tasks, as far as that is possible without knowing the hosts.
pub(super) fn check(w: &Workflow, notes: &Notes) {
    let mut broken = false;
    for task in &w.tasks {
        let key = |key: &str| format!("tasks.{}.{key}", clip(&task.name));
        let Placing { node, with, spread } = &task.placing;
        if let (Some((_, position)), Some(_)) = (with, node) {
            notes.add(*position, &key("with"), "the task has `node` and `with`", "keep one of the two");
        }
        if let (Some(position), true) = (spread, node.is_some() || with.is_some()) {
            let what = "the task is on one host by `node` or `with`, and on all by `spread`";
            notes.add(*position, &key("spread"), what, "keep one of the keys");
        }
        let Some((name, position)) = with else { continue };
        if *name == task.name {
            notes.add(*position, &key("with"), "the task is with itself", "name another task");
            broken = true;
        } else if !w.tasks.iter().any(|t| t.name == *name) {
            let names = || w.tasks.iter().map(|t| t.name.as_str());
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("tasks of this file: {}", list(names())),
            };
            notes.add(*position, &key("with"), format!("there is no task `{}`", clip(name)), hint);
            broken = true;
        }
    }
    for task in w.tasks.iter().filter(|_| !broken) {
        let mut next = task;
        for _ in 0..w.tasks.len() {
            let Some(other) = next.placing.with.as_ref().and_then(|(name, _)| w.tasks.iter().find(|t| t.name == *name))
            else {
                break;
            };
            next = other;
            if let (true, Some((_, position))) = (std::ptr::eq(next, task), &task.placing.with) {
                let what = "a cycle: tasks that are with each other are on no host";
                notes.add(*position, &format!("tasks.{}.with", clip(&task.name)), what, "give one of them a `node`");
                return;
            }
        }
    }
}

/// The numbers of a task's processes and ranks on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of the task's processes that the run itself starts on the host. Such a process is a rank, or the
    /// launcher of an MPI task.
    pub processes: u32,
    /// The number of the task's ranks that are on the host.
    pub ranks: u32,
}

/// Divides the ranks of an MPI task among `hosts` hosts in blocks. The result is the size of the block with the number
/// `at`, counted from 0.
pub fn share(ranks: u32, hosts: u32, at: usize) -> u32 {
    ranks / hosts + u32::from((at as u32) < ranks % hosts)
}

/// On which host each process of a run is. Hosts are named by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// For each task, in the order of the file: the number of the host of each of its processes. A process is a rank,
    /// or the launcher of an MPI task.
    ranks: Vec<Vec<usize>>,
    /// For each task, the hosts on which it has an endpoint. The ranks of an MPI task with `spread` run on all of these
    /// hosts.
    hosts: Vec<Vec<usize>>,
}

impl Places {
    /// Places all tasks on the only host of the run.
    pub fn one_host(workflow: &Workflow) -> Self {
        let ranks = workflow.tasks.iter().map(|t| vec![0; t.processes() as usize]).collect();
        Self { ranks, hosts: vec![vec![0]; workflow.tasks.len()] }
    }

    /// Places every rank on one of the hosts `hosts`, whose names differ.
    ///
    /// # Errors
    /// The file asks for something that these hosts do not allow. The error lists all such problems.
    pub fn choose(workflow: &Workflow, hosts: &[String]) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut chosen: Vec<Option<Vec<usize>>> = Vec::new();
        for task in &workflow.tasks {
            let processes = task.processes() as usize;
            chosen.push(match (&task.placing.node, task.placing.spread) {
                (Some((node, position)), _) => match find(node, hosts) {
                    Ok(host) => Some(vec![host; processes]),
                    Err((what, hint)) => {
                        let key = format!("tasks.{}.node", clip(&task.name));
                        problems.push(Problem { position: *position, key, what, hint });
                        None
                    }
                },
                (None, Some(_)) => Some((0..processes).map(|rank| rank % hosts.len().max(1)).collect()),
                (None, None) => None,
            });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut turn = 0;
        for index in 0..workflow.tasks.len() {
            if chosen[index].is_none() {
                place(workflow, index, hosts.len(), &mut chosen, &mut turn);
            }
        }
        let ranks: Vec<Vec<usize>> = chosen.into_iter().map(Option::unwrap_or_default).collect();
        let served = |(task, on): (&Task, &Vec<usize>)| match task.is_over_hosts() {
            true => (0..hosts.len().min(task.ranks as usize)).collect(),
            false => on.clone(),
        };
        let places = Self { hosts: workflow.tasks.iter().zip(&ranks).map(served).collect(), ranks };
        Ok(places)
    }

    /// Gives the number of the host on which a rank runs.
    pub fn host(&self, task: usize, rank: u32) -> usize {
        self.ranks.get(task).and_then(|ranks| ranks.get(rank as usize)).copied().unwrap_or(0)
    }

    fn has_endpoint(&self, task: usize, host: usize) -> bool {
        self.hosts.get(task).is_some_and(|hosts| hosts.contains(&host))
    }

    /// Gives the names of the tasks that have an endpoint on this host. These tasks are the tasks of the host's
    /// [`Self::part`].
    pub fn tasks(&self, workflow: &Workflow, host: usize) -> Vec<String> {
        let tasks = workflow.tasks.iter().enumerate();
        tasks.filter(|(task, _)| self.has_endpoint(*task, host)).map(|(_, t)| t.name.clone()).collect()
    }

    /// Tells how many processes and ranks of each task are on this host. The list has one entry for each task of the
    /// host's [`Self::part`].
    pub fn counts(&self, workflow: &Workflow, host: usize) -> Vec<Count> {
        let here = (0..self.ranks.len()).filter(|task| self.has_endpoint(*task, host));
        let count = |task: usize| {
            let processes = self.ranks[task].iter().filter(|on| **on == host).count() as u32;
            let hosts = &self.hosts[task];
            let ranks = match &workflow.tasks[task] {
                of if of.is_over_hosts() && hosts.len() > 1 => {
                    let at = hosts.iter().position(|on| *on == host);
                    at.map_or(0, |at| share(of.ranks, hosts.len() as u32, at))
                }
                of if of.mpi.is_some() => of.ranks,
                _ => processes,
            };
            Count { processes, ranks }
        };
        here.map(count).collect()
    }

    /// Gives the part of the workflow that one host runs: its tasks, the managed directories of these tasks, and the
    /// ports and regions that are made on this host. If several tasks use a port or region, it is made on the host of
    /// the task that comes first in the file.
    pub fn part(&self, workflow: &Workflow, host: usize) -> Workflow {
        let mut part = workflow.clone();
        let names = self.tasks(workflow, host);
        let is_here = |name: &String| names.contains(name);
        part.tasks.retain(|task| is_here(&task.name));
        let home = |uses: &dyn Fn(&Task) -> bool| {
            workflow.tasks.iter().position(uses).map_or(0, |task| self.host(task, 0)) == host
        };
        part.ports.retain(|port| home(&|task| task.ports.iter().any(|p| p.name == port.name)));
        part.regions.retain(|region| home(&|task| task.regions.iter().any(|r| r.fits(&region.name))));
        part.directories.retain(|d| d.produce.iter().chain(&d.consume).any(is_here));
        part
    }

    /// Gives the numbers of the hosts that have a rank of one of these tasks, in ascending order.
    pub fn hosts_of(&self, workflow: &Workflow, tasks: &[String]) -> Vec<usize> {
        let of_tasks = workflow.tasks.iter().zip(&self.hosts).filter(|(task, _)| tasks.contains(&task.name));
        let mut hosts: Vec<usize> = of_tasks.flat_map(|(_, hosts)| hosts.iter().copied()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

/// Places a task that has neither `node` nor `spread`. If the task has `with`, the task that `with` names is placed
/// first.
fn place(w: &Workflow, index: usize, hosts: usize, chosen: &mut Vec<Option<Vec<usize>>>, turn: &mut usize) {
    let task = &w.tasks[index];
    let processes = task.processes() as usize;
    let with = task.placing.with.as_ref().and_then(|(name, _)| w.tasks.iter().position(|t| t.name == *name));
    if let Some(other) = with {
        // The recursion ends, because the check of the file has excluded cycles of `with`, and each call is for a task
        // that is not placed yet.
        if chosen[other].is_none() {
            place(w, other, hosts, chosen, turn);
        }
        let theirs = chosen[other].clone().unwrap_or_default();
        chosen[index] = Some((0..processes).map(|rank| theirs[rank % theirs.len().max(1)]).collect());
        return;
    }
    let shares = |other: &usize| chosen[*other].is_some() && shares(w, task, &w.tasks[*other]);
    let host = match (0..w.tasks.len()).find(shares).and_then(|other| chosen[other].as_ref()?.first().copied()) {
        Some(host) => host,
        None => {
            *turn += 1;
            (*turn - 1) % hosts.max(1)
        }
    };
    chosen[index] = Some(vec![host; processes]);
}

/// Tells whether two tasks use the same region or the same managed directory.
fn shares(w: &Workflow, a: &Task, b: &Task) -> bool {
    let meets = |x: &TaskGrant, y: &TaskGrant| {
        let beginning = |g: &TaskGrant| g.name.strip_suffix('*').unwrap_or(&g.name).to_owned();
        x.fits(&beginning(y)) || y.fits(&beginning(x))
    };
    let region = a.regions.iter().any(|x| b.regions.iter().any(|y| meets(x, y)));
    let uses = |task: &Task, names: &[String]| names.contains(&task.name);
    let directory = w.directories.iter().any(|d| {
        let names: Vec<String> = d.produce.iter().chain(&d.consume).cloned().collect();
        uses(a, &names) && uses(b, &names)
    });
    region || directory
}

/// Finds the host that `node` names. The error is the problem and a hint.
fn find(node: &str, hosts: &[String]) -> Result<usize, (String, String)> {
    if let Some(host) = hosts.iter().position(|name| name == node) {
        return Ok(host);
    }
    let names = || hosts.iter().map(String::as_str);
    if let Ok(number) = node.parse::<usize>() {
        return if number < hosts.len() {
            Ok(number)
        } else {
            let what = format!("there is no host number {number}: the run has {} hosts, counted from 0", hosts.len());
            Err((what, format!("hosts of this run: {}", list(names()))))
        };
    }
    let hint = match nearest(node, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("hosts of this run: {}; or write a host's number, from 0", list(names())),
    };
    Err((format!("`{}` is not a host of this run", clip(node)), hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{parse, parse_on};
    use std::path::Path;

    const HOSTS: [&str; 3] = ["n1", "n2", "n3"];

    fn places(tasks: &str) -> Result<String, String> {
        let text = format!("workflow: w\ntasks:\n{tasks}");
        let hosts = HOSTS.map(str::to_owned);
        let (workflow, places) = parse_on(Path::new("w.yaml"), &text, &hosts, None).map_err(|p| p.to_string())?;
        let hosts = |task: usize| places.ranks[task].iter().map(|h| HOSTS[*h]).collect::<Vec<_>>().join("+");
        let all = workflow.tasks.iter().enumerate().map(|(i, t)| format!("{}:{}", t.name, hosts(i)));
        Ok(all.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn node_with_and_spread_place_ranks() {
        let tasks = "  a: {command: [x], node: n3}\n  b: {command: [x], node: 1}\n  c: {command: [x], with: a, ranks: 2}\n  \
                     d: {command: [x], spread: true, ranks: 4}\n  e: {command: [x], with: d, ranks: 4}\n";
        assert_eq!(places(tasks).unwrap(), "a:n3 b:n2 c:n3+n3 d:n1+n2+n3+n1 e:n1+n2+n3+n1");
    }

    #[test]
    fn tasks_without_keys_are_dealt_in_turn_and_stay_with_those_that_share_a_region() {
        let tasks = "  a: {command: [x]}\n  b: {command: [x], regions: {r/*: create}}\n  \
                     c: {command: [x], regions: {r/1: read}}\n  d: {command: [x]}\n  e: {command: [x]}\n";
        assert_eq!(places(tasks).unwrap(), "a:n1 b:n2 c:n2 d:n3 e:n1");
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (tasks, line, what, hint) in [
            ("  a: {command: [x], node: n4}\n", 3, "`n4` is not a host of this run", "did you mean"),
            ("  a:\n    command: [x]\n    node: 3\n", 5, "there is no host number 3", "n1, n2, n3"),
            ("  a: {command: [x], with: b}\n", 3, "there is no task `b`", "did you mean `a`?"),
            ("  a: {command: [x], with: a}\n", 3, "with itself", "another task"),
            ("  a: {command: [x], with: b}\n  b: {command: [x], with: a}\n", 3, "a cycle", "`node`"),
            ("  a: {command: [x], node: n1, spread: true}\n", 3, "on one host", "keep one"),
            ("  b: {command: [x]}\n  a: {command: [x], node: n1, with: b}\n", 4, "`node` and `with`", "keep one"),
        ] {
            let text = places(tasks).unwrap_err();
            assert!(text.contains(&format!("w.yaml:{line}:")), "{tasks}: {text}");
            assert!(text.contains(what) && text.contains(hint), "{tasks}: {text}");
        }
    }

    #[test]
    fn tasks_of_a_managed_directory_stay_together_unless_the_file_says_otherwise() {
        let file = |b: &str| {
            format!(
                "  a: {{command: [x], node: n1}}\n  b: {{command: [x]{b}}}\n\
                 files: {{f: {{path: /f, produce: a, consume: b}}}}\n"
            )
        };
        assert_eq!(places(&file("")).unwrap(), "a:n1 b:n1");
        assert_eq!(places(&file(", node: n2")).unwrap(), "a:n1 b:n2");
        assert_eq!(places(&file(", spread: true, ranks: 4")).unwrap(), "a:n1 b:n1+n2+n3+n1");
    }

    #[test]
    fn without_hosts_the_keys_have_no_effect() {
        let text =
            "workflow: w\ntasks:\n  a: {command: [x], node: elsewhere}\n  b: {command: [x], spread: true, ranks: 2}\n";
        let workflow = parse(Path::new("w.yaml"), text).unwrap();
        assert_eq!(Places::one_host(&workflow).ranks, [vec![0], vec![0, 0]]);
    }

    #[test]
    fn an_mpi_task_with_spread_has_an_endpoint_on_each_host_and_its_launcher_on_the_first() {
        let task = |name: &str, ranks: u32| {
            format!("  {name}: {{command: [x], mpi: auto, spread: true, ranks: {ranks}, series: {{f/*: publish}}}}\n")
        };
        let text = format!("workflow: w\ntasks:\n{}{}  c: {{command: [x], node: n2}}\n", task("a", 6), task("b", 2));
        let (workflow, places) = parse_on(Path::new("w.yaml"), &text, &HOSTS.map(str::to_owned), None).unwrap();
        assert_eq!(places.ranks, [vec![0], vec![0], vec![1]]);
        let counts = |host| places.counts(&workflow, host).iter().map(|c| (c.processes, c.ranks)).collect::<Vec<_>>();
        let all: Vec<_> = (0..3).map(|host| (places.tasks(&workflow, host).concat(), counts(host))).collect();
        let wanted = [("ab", vec![(1, 2), (1, 1)]), ("abc", vec![(0, 2), (0, 1), (1, 1)]), ("a", vec![(0, 2)])];
        assert_eq!(all, wanted.map(|(names, counts)| (names.to_owned(), counts)));
        let text = text + "files: {f: {path: /f, produce: a, consume: c}}\n";
        let (workflow, places) = parse_on(Path::new("w.yaml"), &text, &HOSTS.map(str::to_owned), None).unwrap();
        let on = |host| places.part(&workflow, host).directories.len();
        assert_eq!((places.hosts_of(&workflow, &["a".to_owned()]), [on(0), on(1), on(2)]), (vec![0, 1, 2], [1, 1, 1]));
    }

    #[test]
    fn folders_are_looked_for_only_on_the_host_of_their_task() {
        let text = "workflow: w\ntasks:\n  a: {command: [x], node: 0, root: /nowhere}\n  b: {command: [x], node: 1}\n";
        let hosts = ["n1".to_owned(), "n2".to_owned()];
        let on = |here| parse_on(Path::new("w.yaml"), text, &hosts, here);
        assert!(on(Some(0)).unwrap_err().to_string().contains("/nowhere is not there"));
        assert!(on(Some(1)).is_ok() && on(None).is_ok());
        assert!(parse(Path::new("w.yaml"), text).is_err());
    }

    #[test]
    fn a_hosts_part_has_its_tasks_and_what_is_made_there() {
        let text = "workflow: w\ntasks:\n  a: {command: [x], node: 0, ports: {p: produce}}\n  \
                    b: {command: [x], node: 1, ports: {p: consume}}\nports: {p: {capacity: 4}}\n";
        let hosts = ["n1".to_owned(), "n2".to_owned()];
        let (workflow, places) = parse_on(Path::new("w.yaml"), text, &hosts, None).unwrap();
        let part = |host| places.part(&workflow, host);
        assert_eq!((part(0).tasks.len(), part(0).ports.len()), (1, 1));
        assert_eq!((part(1).tasks.len(), part(1).ports.len()), (1, 0));
        assert_eq!(part(1).tasks[0].name, "b");
    }
}
