//! Transfers of 1 GB. Each kind of transfer has a site of its own, so that only one kind keeps its memory at a time.

use crate::peer::Peer;
use crate::rows::{NOUNS, SITES, Times};
use crate::send::Senders;
use crate::site::Sites;
use crate::{Place, Size, grpc, tcp};

const HUGE: Size = Size { name: "1 GB", bytes: 1_000_000_000, times: 1, quick: false };
/// The size of the transfer that opens the connections before the measurement.
const SMALL: usize = 1_000_000;
/// The memory that a measurement with 1 GB needs, in bytes. A series keeps several versions on each node.
const MEMORY: u64 = 10_000_000_000;

/// Measures one transfer of 1 GB of each kind, after two transfers that are not measured. Series need these two: a
/// series gets its memory on both nodes while its first two versions are published, which takes longer than a transfer.
/// Gives the size, or `None` if nothing was measured.
pub fn measure(times: &mut Times, place: &Place, program: Option<&str>) -> Option<&'static Size> {
    let available = available_memory();
    if available < MEMORY {
        eprintln!("nodes: no transfers of 1 GB: {available} bytes of memory are available, and {MEMORY} are needed");
        return None;
    }
    if let Some(program) = program {
        grpc::measure(times, program, place, &[&HUGE], 1);
    }
    for name in SITES {
        for noun in NOUNS {
            let sites = Sites::start(place, &[name]);
            let most = if noun == "message" { HUGE.bytes } else { SMALL };
            let mut senders = [Senders::new(&sites.all[0], most)];
            let mut peer = Peer::start(place, &sites.setting(&senders, SMALL));
            let mut all = senders[0].all();
            let (_, sender) = all.iter_mut().find(|(other, _)| *other == noun).expect("all nouns have senders");
            peer.transfer(name, noun, *sender, SMALL, 1);
            peer.transfer(name, noun, *sender, HUGE.bytes, 2);
            peer.transfer(name, noun, *sender, HUGE.bytes, 3);
            let took = peer.transfer(name, noun, *sender, HUGE.bytes, 4);
            times.add_each(&[noun, name, HUGE.name], &[took]);
        }
    }
    let sites = Sites::start(place, &SITES[..1]);
    let senders = [Senders::new(&sites.all[0], SMALL)];
    let peer = Peer::start(place, &sites.setting(&senders, HUGE.bytes));
    let mut tcp = tcp::Floors::new(&peer.raw, HUGE.bytes);
    for is_counted in [false, true] {
        times.is_counted = is_counted;
        tcp.measure(times, &HUGE);
    }
    Some(&HUGE)
}

/// Gives how many bytes of memory are available (`MemAvailable` in `/proc/meminfo`); 0 if this is not known.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
