//! Chooses the CPUs and the memory of a rank: those of one socket, those of one core, or those that the launcher has
//! chosen.

use std::collections::BTreeMap;
use std::fs;

use crossdock_os::spawn;

/// Maps each core, or each socket, to its CPUs. The key is the number of the socket and the number of the core. If the
/// CPUs are grouped by socket, the number of the core is 0.
type Places = BTreeMap<(i64, i64), Vec<u32>>;

/// Binds this process to the CPUs of a rank. `how` says how the CPUs are chosen, and `local` is the number of the rank
/// on its host. Returns the CPUs to which the process is then bound.
pub fn bind(how: &str, local: u32) -> Result<String, String> {
    let allowed = spawn::allowed_cpus();
    if how != "none" && !allowed.is_empty() {
        let places = match how {
            "core" => places(&allowed, true),
            "socket" => places(&allowed, false),
            list => vec![listed(list, &allowed)?],
        };
        let cpus = choose(&places, local);
        spawn::use_cpus(cpus).map_err(|e| e.to_string())?;
        let nodes = nodes_of(cpus);
        if !nodes.is_empty() {
            // A container may forbid this call (docker's filter does), so an error is ignored. The memory is usually
            // local even without the call: the kernel places a page near the CPU that touches it first, and the rank is
            // bound to its CPUs.
            let _ = spawn::use_memory_of(&nodes);
        }
    }
    Ok(show(&spawn::allowed_cpus()))
}

fn choose(places: &[Vec<u32>], local: u32) -> &[u32] {
    &places[local as usize % places.len()]
}

/// Groups the allowed CPUs by core or by socket. The groups are sorted by socket.
fn places(allowed: &[u32], by_core: bool) -> Vec<Vec<u32>> {
    let mut places = Places::new();
    for cpu in allowed {
        let number = |what: &str| -> i64 {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}");
            fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(-1)
        };
        let socket = number("physical_package_id");
        // Without information about cores and sockets, each CPU counts as a core.
        let core = match (by_core, number("core_id")) {
            (false, _) => 0,
            (true, -1) => i64::from(*cpu),
            (true, core) => core,
        };
        places.entry((socket, core)).or_default().push(*cpu);
    }
    places.into_values().collect()
}

/// Reads a list of CPUs, such as `0,2-5`, all of which must be allowed.
fn listed(list: &str, allowed: &[u32]) -> Result<Vec<u32>, String> {
    let cpus = parse(list)
        .ok_or_else(|| format!("`{list}` is not a binding; choose none, core, socket or a list of CPUs as 0,2-5"))?;
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(format!("CPU {cpu} is not among those that this process may use ({})", show(allowed))),
        None => Ok(cpus),
    }
}

/// The highest CPU number that is accepted, and the largest number of entries in a list of CPUs. The kernel's own limit
/// is 8192 CPUs.
const MOST: u32 = 8192;

/// Reads a list of CPUs or nodes in the kernel's form, such as `0-3,6`.
pub fn parse(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u32>().ok()?);
        if first > last || last > MOST {
            return None;
        }
        numbers.extend(first..=last);
        if numbers.len() > MOST as usize {
            return None;
        }
    }
    Some(numbers)
}

/// Writes a list of CPUs in the kernel's form: `0-3,6`.
pub fn show(cpus: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => parts.push((*cpu, *cpu)),
        }
    }
    let part = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// Finds the NUMA nodes that these CPUs belong to. The list is empty if the machine has only one NUMA node.
fn nodes_of(cpus: &[u32]) -> Vec<u32> {
    let mut all = 0;
    let mut nodes = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(node) = name.strip_prefix("node").and_then(|n| n.parse().ok()) else { continue };
        all += 1;
        let list = fs::read_to_string(entry.path().join("cpulist")).ok().and_then(|t| parse(&t)).unwrap_or_default();
        if cpus.iter().any(|cpu| list.contains(cpu)) {
            nodes.push(node);
        }
    }
    if all > 1 { nodes } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_and_written_as_the_kernel_does() {
        assert_eq!(parse("0,2-4"), Some(vec![0, 2, 3, 4]));
        assert_eq!(parse("3-1"), None);
        assert_eq!(parse("x"), None);
        assert_eq!(parse(&"0-8000,".repeat(1000)), None);
        assert_eq!(show(&[0, 2, 3, 4, 9]), "0,2-4,9");
        assert_eq!(show(&[]), "");
    }

    #[test]
    fn ranks_take_places_in_turn() {
        let places = [vec![0, 1], vec![2, 3]];
        assert_eq!(choose(&places, 0), [0, 1]);
        assert_eq!(choose(&places, 3), [2, 3]);
    }

    #[test]
    fn each_allowed_cpu_is_in_exactly_one_core() {
        let allowed = spawn::allowed_cpus();
        let mut cpus: Vec<u32> = places(&allowed, true).concat();
        cpus.sort_unstable();
        assert_eq!(cpus, allowed);
    }
}
