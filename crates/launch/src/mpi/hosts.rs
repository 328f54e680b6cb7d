//! Finds the hosts of an MPI job: from `--hosts`, from a file, or from a batch system's allocation.

use std::collections::HashMap;
use std::env;

/// One host of the job, and the number of its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The host's name as ssh and the launcher use it.
    pub name: String,
    /// The number of ranks on the host.
    pub slots: u32,
}

/// The most hosts that a list, or all patterns in it together, may stand for. Slurm's own limit is 65 533.
const HOSTS_MAX: usize = 100_000;
/// The most bytes of a host's name.
const NAME_MAX: usize = 255;

/// Reads a list of hosts: `n1:2,n2`, or lines of a file in the form `n1:2` or `n1 slots=2`.
pub fn parse(text: &str) -> Result<Vec<Host>, String> {
    let (mut hosts, mut known, mut expanded) = (Vec::<Host>::new(), HashMap::new(), 0);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        for word in split(line) {
            let (names, slots) = slots(word.trim())?;
            let is_pattern = names.contains('[');
            let names = expand(names)?;
            // Limits how many names the patterns may expand to, so that a short text cannot cause long work. Names
            // outside of patterns are not counted: a batch system may write a host's name once for each rank.
            expanded += if is_pattern { names.len() } else { 0 };
            if expanded > HOSTS_MAX {
                return Err(format!("its patterns stand for more than {HOSTS_MAX} hosts"));
            }
            for name in names {
                if name.starts_with('-') || name.contains(|c: char| c.is_whitespace() || "'\"`$;|&<>()\\/".contains(c))
                {
                    return Err(format!("`{name}` is not the name of a host"));
                }
                let at = *known.entry(name.clone()).or_insert(hosts.len());
                if at == HOSTS_MAX {
                    return Err(format!("more than {HOSTS_MAX} hosts"));
                }
                if at == hosts.len() {
                    hosts.push(Host { name, slots });
                    continue;
                }
                let sum = hosts[at].slots.checked_add(slots);
                hosts[at].slots = sum.ok_or_else(|| format!("`{name}` has too many ranks"))?;
            }
        }
    }
    if hosts.is_empty() { Err("there is no host in it".into()) } else { Ok(hosts) }
}

/// Splits a text at the commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().filter(|p| !p.trim().is_empty()).collect()
}

fn slots(word: &str) -> Result<(&str, u32), String> {
    let (name, number) = match word.split_once(char::is_whitespace) {
        Some((name, rest)) => (name, Some(rest.trim().trim_start_matches("slots=").trim_start_matches("slots ="))),
        None => word.rsplit_once(':').map_or((word, None), |(name, number)| (name, Some(number))),
    };
    let bad = || format!("`{word}`: write NAME:RANKS, as in n1:2,n2:2");
    let slots = number.map_or(Ok(1), |n| n.trim().parse().map_err(|_| bad()))?;
    if slots == 0 || name.is_empty() { Err(bad()) } else { Ok((name, slots)) }
}

/// Expands a pattern of hosts that Slurm writes: `node[1-3,5]-x` stands for node1-x node2-x node3-x node5-x.
pub fn expand(pattern: &str) -> Result<Vec<String>, String> {
    let bad = || format!("`{pattern}` is not a list of hosts");
    let many = || format!("`{pattern}` stands for more than {HOSTS_MAX} hosts");
    // For each bracket with several numbers: the text before the bracket, and the numbers. A bracket with one number is
    // part of the text.
    let mut parts: Vec<(String, Vec<String>)> = Vec::new();
    let (mut behind, mut text, mut count, mut length) = (pattern, String::new(), 1, 0);
    while let Some(open) = behind.find('[') {
        let close = behind.find(']').filter(|close| *close > open).ok_or_else(bad)?;
        let mut numbers = Vec::new();
        for part in behind[open + 1..close].split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (u32, u32) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
            if from > to || first.len() > 10 {
                return Err(bad());
            }
            if (to - from) as usize >= HOSTS_MAX || count * (numbers.len() + (to - from) as usize + 1) > HOSTS_MAX {
                return Err(many());
            }
            numbers.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
        }
        count *= numbers.len();
        length += open + numbers.iter().map(String::len).max().unwrap_or(0);
        text.push_str(&behind[..open]);
        match &numbers[..] {
            [number] => text.push_str(number),
            _ => parts.push((std::mem::take(&mut text), numbers)),
        }
        behind = &behind[close + 1..];
        // This check limits the length of each name, and the code above limits the number of names. So the memory for
        // the list is limited too.
        if length > NAME_MAX {
            return Err(bad());
        }
    }
    if length > 0 && length + behind.len() > NAME_MAX {
        return Err(bad());
    }
    text.push_str(behind);
    let name = |index: usize| {
        let (mut name, mut step) = (String::with_capacity(length + behind.len()), count);
        for (before, numbers) in &parts {
            step /= numbers.len();
            name.push_str(before);
            name.push_str(&numbers[index / step % numbers.len()]);
        }
        name.push_str(&text);
        name
    };
    Ok((0..count).map(name).collect())
}

/// Expands a list of counts that Slurm writes: `2(x3),1` stands for 2 2 2 1.
pub fn counts(text: &str) -> Option<Vec<u32>> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        if times > HOSTS_MAX || counts.len() + times > HOSTS_MAX {
            return None;
        }
        let number: u32 = number.trim().parse().ok()?;
        counts.extend(std::iter::repeat_n(number, times));
    }
    Some(counts)
}

/// Tells whether this process runs in an allocation of Slurm.
pub fn in_slurm() -> bool {
    env::var_os("SLURM_JOB_ID").is_some() && env::var_os("SLURM_JOB_NODELIST").is_some()
}

/// Gives the hosts of the allocation of Slurm, PBS or LSF in which this process runs.
pub fn allocated() -> Option<Result<Vec<Host>, String>> {
    if in_slurm() {
        return Some(slurm(&env::var("SLURM_JOB_NODELIST").ok()?, env::var("SLURM_TASKS_PER_NODE").ok().as_deref()));
    }
    if let Some(file) = env::var_os("PBS_NODEFILE") {
        let text = std::fs::read_to_string(&file).map_err(|e| format!("cannot read {}: {e}", file.to_string_lossy()));
        return Some(text.and_then(|t| parse(&t)));
    }
    // LSF's variable alternates hosts and their counts: "n1 2 n2 2".
    let list = env::var("LSB_MCPU_HOSTS").ok()?;
    let words: Vec<&str> = list.split_whitespace().collect();
    Some(parse(&words.chunks(2).map(|c| c.join(":")).collect::<Vec<_>>().join(",")))
}

fn slurm(nodes: &str, tasks: Option<&str>) -> Result<Vec<Host>, String> {
    let mut hosts = parse(nodes)?;
    let counts = tasks.map_or(Some(Vec::new()), counts).ok_or("SLURM_TASKS_PER_NODE cannot be read")?;
    for (host, slots) in hosts.iter_mut().zip(counts) {
        host.slots = slots.max(1);
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[Host]) -> String {
        hosts.iter().map(|h| format!("{}:{}", h.name, h.slots)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn hosts_are_read_from_a_list_and_from_a_file() {
        assert_eq!(list(&parse("n1:2,n2:2").unwrap()), "n1:2 n2:2");
        assert_eq!(list(&parse("n1,n1,n2").unwrap()), "n1:2 n2:1");
        assert_eq!(list(&parse("n1 slots=4\n# a comment\nn2\n").unwrap()), "n1:4 n2:1");
        assert_eq!(list(&parse("n[1-2,09]:3").unwrap()), "n1:3 n2:3 n09:3");
        for bad in ["", "n1:x", "n1:0", "-oProxyCommand=x", "a;b", "n[2-1]", ":3", "n1:4294967295,n1:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn short_patterns_do_not_stand_for_more_hosts_than_there_can_be() {
        assert_eq!(expand("n[1-1000]x[1-100]").unwrap().len(), 100_000);
        for bad in ["n[0-99999][0-99999][0-99999]", "n[1-1000]x[1-101]", "n[1-50000,1-50001]", "n[0-4294967295]"] {
            assert!(expand(bad).unwrap_err().contains("more than 100000 hosts"), "{bad}");
        }
        assert!(parse(&"n[1-1000]x[1-100],".repeat(2)).unwrap_err().contains("more than 100000 hosts"));
        assert_eq!(parse(&"n,".repeat(200_000)).unwrap()[0].slots, 200_000);
        assert_eq!(counts("1(x99999),2"), Some([vec![1; 99_999], vec![2]].concat()));
        assert_eq!(counts("1(x99999),2,3"), None);
    }

    /// The time for a pattern must not grow with the number of its brackets times the number of hosts.
    #[test]
    fn a_pattern_with_many_brackets_takes_no_more_time_than_its_names_need() {
        // The first number in this file is the thread's time on a CPU in nanoseconds.
        let used = || {
            let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let before = used();
        let names = expand(&format!("{}[1-1000][1-100]", "[1]".repeat(240))).unwrap();
        assert_eq!(names.len(), 100_000);
        assert_eq!((names[0].len(), &names[99_999][240..]), (242, "1000100"));
        for bad in ["[1]".repeat(100_000), "n[1]".repeat(128), format!("{}[1]", "n".repeat(255))] {
            assert!(expand(&bad).unwrap_err().contains("is not a list of hosts"));
        }
        assert!(used() - before < 3_000_000_000, "{} ns", used() - before);
    }

    #[test]
    fn an_allocation_of_slurm_tells_hosts_and_ranks() {
        assert_eq!(list(&slurm("node[1-3]", Some("2(x2),1")).unwrap()), "node1:2 node2:2 node3:1");
        assert_eq!(list(&slurm("a[01-02]x,b", None).unwrap()), "a01x:1 a02x:1 b:1");
    }
}
