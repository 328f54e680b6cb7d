//! Kill tests of cooperative items: a process dies by SIGKILL at every fault point of the owner word's protocol.
//! After the death, exactly one of the waiting members must get the item, within a short time.
#![cfg(feature = "fault-points")]

use std::time::{Duration, Instant};

use crossdock_core::fault;
use crossdock_core::item::{Backing, FAULT_POINTS, ItemMemory, ItemWaitOutcome};
use crossdock_layout::MemberId;
use crossdock_layout::item::new_cooperative_item;
use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::wire::OnDeath;
use crossdock_os::{Access, Deadline, Mapping, file, memfd};

const SIGKILL: i32 = 9;
const A: MemberId = MemberId::new(1, 1);
/// The member whose process dies.
const B: MemberId = MemberId::new(2, 2);
/// A member that died before the test begins.
const D: MemberId = MemberId::new(4, 4);
/// C is the member that takes B's place when B's task is restarted. E is the member to which B hands the item.
const C: MemberId = MemberId::new(3, 3);
const E: MemberId = MemberId::new(5, 5);

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(30))
}

struct World {
    table: Mapping,
    item: ItemMemory,
}

impl World {
    /// Makes an item of the party `owner`, which the member `holder` has.
    fn new(owner: u32, holder: MemberId, on_death: OnDeath) -> Self {
        let size = size_of::<LivenessTable>();
        let fd = memfd::create("crossdock-test-table", size as u64).unwrap();
        let table = Mapping::new(&fd, size, Access::ReadWrite).unwrap();
        let fd = memfd::create("crossdock-test-item", 8192).unwrap();
        file::write_all_at(&fd, &new_cooperative_item(owner, holder, on_death), 0).unwrap();
        let item = ItemMemory::open(&fd, 4096, Backing::Cooperative).unwrap();
        let world = Self { table, item };
        world.table().format();
        [A, B, C, E].iter().for_each(|member| world.table().set_alive(*member));
        world
    }

    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping has the table's size and a page's alignment, and all fields are atomics and bytes.
        unsafe { self.table.start().cast().as_ref() }
    }

    /// Forks a child that runs `part` as the member B and dies at the fault point `point`. Returns `false` if the child
    /// did not reach the point.
    fn die_at(&self, point: &str, part: impl FnOnce()) -> bool {
        // SAFETY: the child works on shared memory, allocates little, and leaves by a signal or _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            fault::arm(point, 1);
            part();
            // SAFETY: the call ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: the call waits for the child that this function has forked.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        self.table().set_dead(B);
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == SIGKILL
    }

    /// Lets each of the members A, C and E ask for the item. Returns the members that got it, and whether the item is
    /// destroyed. A member that gets the item keeps it.
    fn takers(&self) -> (Vec<MemberId>, bool) {
        let (mut takers, mut gone) = (Vec::new(), false);
        for (member, word) in [(A, 1), (C, 2), (E, 3)] {
            let began = Instant::now();
            match self.item.take(&[word], member, self.table(), soon()) {
                ItemWaitOutcome::Taken(_) => takers.push(member),
                ItemWaitOutcome::Gone => gone = true,
                ItemWaitOutcome::TimedOut { .. } => {}
            }
            assert!(began.elapsed() < Duration::from_secs(2), "a wait did not end");
        }
        (takers, gone)
    }
}

/// Does what the member B does before it dies at the fault point `point`.
fn part(world: &World, point: &str) {
    match point {
        // The item belongs to the member A, so B sleeps in `take`.
        "item.sleep" => drop(world.item.take(&[2], B, world.table(), Deadline::after(Duration::from_secs(1)))),
        "item.begin" => drop(world.item.created_by(B)),
        _ => {
            world.item.take(&[2], B, world.table(), soon());
            let _ = world.item.hand_over(3, B);
        }
    }
}

#[test]
fn a_death_at_every_point_leaves_the_item_to_exactly_one() {
    for on_death in [OnDeath::Keep, OnDeath::Return, OnDeath::Destroy] {
        for point in FAULT_POINTS {
            let (owner, holder) = if *point == "item.begin" { (2, B) } else { (1, A) };
            let world = World::new(owner, holder, on_death);
            match *point {
                "item.begin" | "item.sleep" => {}
                // The item's holder, the member D, is dead. So B heals the item when it takes the item.
                "item.counted" | "item.heal" => {
                    world.item.hand_over(2, A).unwrap();
                    world.table().set_alive(D);
                    assert!(matches!(world.item.take(&[2], D, world.table(), soon()), ItemWaitOutcome::Taken(_)));
                    world.table().set_dead(D);
                }
                _ => world.item.hand_over(2, A).unwrap(),
            }
            assert!(world.die_at(point, || part(&world, point)), "no process came to {point}");
            if *point == "item.sleep" {
                // Member A still has the item, and hands it to the party of B. B died while it slept.
                world.item.hand_over(2, A).unwrap();
            }
            let (takers, gone) = world.takers();
            let what = format!("{point}, {on_death:?}: {takers:?}, gone: {gone}");
            let expected: &[MemberId] = match (*point, on_death) {
                ("item.sleep", _) => &[C],
                // B handed the item to E before B died, so the item belongs to E.
                ("item.given-back" | "item.handed-over", _) => &[E],
                // The item belonged to B's party already, but B died before it noticed this.
                ("item.taken", _) => &[C],
                (_, OnDeath::Keep) => &[C],
                // With `Return`, the item goes back to the party that made it, which here is B's own party.
                ("item.begin", OnDeath::Return) => &[C],
                (_, OnDeath::Return) => &[A],
                (_, OnDeath::Destroy) => &[],
            };
            assert_eq!(takers, expected, "{what}");
            assert_eq!(gone, expected.is_empty(), "{what}");
        }
    }
}
