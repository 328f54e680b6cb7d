//! Kill tests in which a process learns of a death only from a port or from an item, and not from the liveness table.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crossdock_core::item::{Backing, ItemMemory, ItemWaitOutcome};
use crossdock_core::queue::{End, Message, Pattern, Ring, Shape, Side, postpone_healing};
use crossdock_core::region::{MappedRegionParts, Region};
use crossdock_core::{Result, fault};
use crossdock_layout::item::new_cooperative_item;
use crossdock_layout::wire::OnDeath;
use crossdock_layout::{Handle, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping, file, memfd};

use crate::common::{World, member};
use crate::{SIGKILL, SIZE, header_of, ten_numbers};

const SOON: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::ZERO;

/// The member that dies while it changes a vector.
const DEAD: u64 = 2;

/// A port in memory that the processes of the test share.
struct Port {
    shape: Shape,
    memory: OwnedFd,
}

impl Port {
    fn new(pattern: Pattern) -> Self {
        let shape = Shape { pattern, capacity: 1 };
        Self { shape, memory: memfd::create("crossdock-test-port", shape.size()).unwrap() }
    }

    fn open(&self, world: &Arc<World>, counter: u64, side: Side) -> Result<End> {
        let mapping = Mapping::new(&self.memory, self.shape.size() as usize, Access::ReadWrite).unwrap();
        let (host, me) = (world.host(), member(counter));
        let ring = Ring::open(mapping, self.shape, me, host.liveness(), Deadline::after(SOON))?;
        End::open(ring, side, me, "test", host, POLL)
    }
}

/// One case of the test `change_after`: a pattern of the port, and what happens before and after the death.
struct Case<T> {
    pattern: Pattern,
    /// Whether the dead member was a producer or a consumer of the port. If it was a consumer, it had received a
    /// message.
    dying: Side,
    /// The side of the port at which another process opens an end after the death. By opening this end, the other
    /// process heals the dead member's end.
    healer: Side,
    /// Runs in this process before the death: opens ends of the port and sends a message.
    before: fn(&dyn Fn(Side) -> End, &Message) -> T,
    /// Runs in this process after the death: gets from the port what the dead member left.
    learn: fn(&dyn Fn(Side) -> End, T),
}

/// How this process changes the vector after the death.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// By a call of the library: `vector_resize`.
    Resize,
    /// By a store to the vector's header. The inline operations of C++ change a vector in this way.
    Store,
}

/// Another member dies at `point` while it changes a vector, and this process learns of the death only from the port.
/// Then this process changes the vector. Healing the region later must not undo this second change.
fn change_after<T>(case: &Case<T>, point: &str, change: Change) {
    let what = format!("{}, {point}, {change:?}", case.pattern.word());
    let (world, port) = (World::new(SIZE), Port::new(case.pattern));
    let peer = world.attach(1);
    let vector = ten_numbers(&peer);
    let open = |side: Side| port.open(&world, 1, side).unwrap();
    let ends = (case.before)(&open, &Message::new(Handle { segment: 7, offset: vector }, 0));
    let pid = world.spawn(DEAD, |region| {
        let end = port.open(&world, DEAD, case.dying).unwrap();
        if case.dying == Side::Consumer {
            end.receive(POLL).unwrap();
        }
        fault::arm(point, 1);
        region.vector_resize(vector, 8, 1000).unwrap();
        0
    });
    assert_eq!(world.wait_unseen(pid), SIGKILL, "{what}");
    world.leave_roll(DEAD);
    let pid = world.spawn_bare(3, || {
        port.open(&world, 3, case.healer).unwrap().has_event();
        0
    });
    assert_eq!(world.wait_unseen(pid), 0, "{what}: the healing process");
    (case.learn)(&open, ends);
    match change {
        Change::Resize => peer.vector_resize(vector, 8, 2000).unwrap(),
        Change::Store => store_size(&peer, vector, 5),
    }
    let seen = header_of(&peer, vector);
    let blocks: Vec<_> = (0..200).map(|_| peer.allocate(80, 16).unwrap()).collect();
    world.liveness().set_dead(member(DEAD));
    peer.heal().unwrap();
    assert_eq!(header_of(&peer, vector), seen, "{what}: healing undid the successor's change");
    for block in blocks {
        peer.deallocate(block).unwrap_or_else(|error| panic!("{what}: a block in use was freed: {error}"));
    }
    peer.remove("v").unwrap();
    assert_eq!(peer.statistics().used, 0, "{what}");
}

fn at_each_point<T>(case: &Case<T>) {
    for point in ["replace.begun", "replace.writing", "retire.freed"] {
        for change in [Change::Resize, Change::Store] {
            change_after(case, point, change);
        }
    }
}

/// Stores the size of a vector in its header.
fn store_size(region: &Region, vector: u64, size: u64) {
    // SAFETY: the word lies in the vector's header, in this test's own region.
    unsafe { region.base().add(vector as usize + 16).cast::<u64>().write_volatile(size) };
}

/// Opens a producer's end in this process and sends the message.
fn producer_with_a_message(open: &dyn Fn(Side) -> End, message: &Message) -> End {
    let producer = open(Side::Producer);
    producer.send(message, 0, POLL).unwrap();
    producer
}

#[test]
fn a_message_that_another_process_gave_back_tells_of_its_consumers_death() {
    at_each_point(&Case {
        pattern: Pattern::WorkQueue,
        dying: Side::Consumer,
        healer: Side::Producer,
        before: |open, message| {
            let (producer, consumer) = (open(Side::Producer), open(Side::Consumer));
            producer.send(message, 0, POLL).unwrap();
            (producer, consumer)
        },
        learn: |_, (_producer, consumer)| assert_ne!(consumer.receive(POLL).unwrap().1.handle, Handle::NONE),
    });
}

#[test]
fn the_messages_that_a_new_consumer_finds_tell_of_its_predecessors_death() {
    at_each_point(&Case {
        pattern: Pattern::OneToOne,
        dying: Side::Consumer,
        healer: Side::Consumer,
        before: producer_with_a_message,
        learn: |open, _| assert_ne!(open(Side::Consumer).receive(POLL).unwrap().1.handle, Handle::NONE),
    });
}

#[test]
fn healing_that_a_call_postpones_is_done_after_the_call() {
    at_each_point(&Case {
        pattern: Pattern::WorkQueue,
        dying: Side::Consumer,
        healer: Side::Producer,
        before: |open, message| {
            let (producer, consumer) = (open(Side::Producer), open(Side::Consumer));
            producer.send(message, 0, POLL).unwrap();
            (producer, consumer)
        },
        learn: |_, (_producer, consumer)| {
            let (received, due) = postpone_healing(|| consumer.receive(POLL));
            assert_ne!(received.unwrap().1.handle, Handle::NONE);
            assert!(due);
            consumer.heal();
            assert!(!postpone_healing(|| consumer.receive(POLL)).1, "it was healed");
        },
    });
}

#[test]
fn a_credit_that_another_process_gave_back_tells_of_the_consumers_death() {
    at_each_point(&Case {
        pattern: Pattern::FanOut,
        dying: Side::Consumer,
        healer: Side::Consumer,
        before: producer_with_a_message,
        learn: |_, producer| assert!(producer.reclaim(POLL).unwrap().is_some()),
    });
}

#[test]
fn room_that_another_process_made_tells_of_the_consumers_death() {
    at_each_point(&Case {
        pattern: Pattern::FanOut,
        dying: Side::Consumer,
        healer: Side::Consumer,
        before: producer_with_a_message,
        learn: |_, producer| assert_eq!(producer.send(&Message::default(), 0, POLL).unwrap(), 1),
    });
}

#[test]
fn an_error_that_another_process_caused_tells_of_the_producers_death() {
    at_each_point(&Case {
        pattern: Pattern::WorkQueue,
        dying: Side::Producer,
        healer: Side::Consumer,
        before: |open, _| open(Side::Consumer),
        learn: |_, consumer| assert_eq!(consumer.receive(POLL).unwrap_err().status, Status::PeerDied),
    });
}

/// A cooperative item in memory that the processes of the test share. It belongs to the party 1; its holder is the
/// member that dies.
struct Item {
    world: Arc<World>,
    memory: ItemMemory,
}

impl Item {
    fn new(world: &Arc<World>) -> Self {
        let fd = memfd::create("crossdock-test-item", SIZE + 4096).unwrap();
        file::write_all_at(&fd, &new_cooperative_item(1, member(DEAD), OnDeath::Keep), 0).unwrap();
        let memory = ItemMemory::open(&fd, SIZE, Backing::Cooperative).unwrap();
        Self { world: world.clone(), memory }
    }

    fn take(&self, party: u32, counter: u64, within: Duration) -> ItemWaitOutcome {
        let host = self.world.host();
        self.memory.take(&[party], member(counter), host.liveness(), Deadline::after(within))
    }

    /// Opens the heap in the item as the member with this counter.
    fn heap(&self, counter: u64) -> Arc<Region> {
        let parts = MappedRegionParts {
            name: "test".into(),
            segment: SegmentId(8),
            file: SegmentId(8),
            writable: true,
            member: member(counter),
            host: self.world.host(),
        };
        Region::over(self.memory.data_again().unwrap(), None, parts).unwrap()
    }

    /// Releases the dead holder's lock on the roll; nothing else shows the death. Then this process takes the item. If
    /// `healed` is true, a third process, whose party does not own the item, heals the item before this process takes
    /// it.
    fn take_after_death(&self, healed: bool) {
        self.world.leave_roll(DEAD);
        if healed {
            let pid = self.world.spawn_bare(3, || {
                assert!(matches!(self.take(2, 3, Duration::from_millis(100)), ItemWaitOutcome::TimedOut { .. }));
                0
            });
            assert_eq!(self.world.wait_unseen(pid), 0, "the healing process");
            assert!(!self.memory.is_held_by(member(DEAD)), "the item is healed");
        }
        let taken = self.take(1, 1, SOON);
        assert!(matches!(taken, ItemWaitOutcome::Taken(_)), "healed: {healed}: {taken:?}");
    }
}

#[test]
fn who_takes_a_dead_holders_item_finds_the_holders_other_changes_finished() {
    for point in ["replace.begun", "replace.writing", "retire.freed"] {
        for healed in [false, true] {
            let world = World::new(SIZE);
            let peer = world.attach(1);
            let (vector, item) = (ten_numbers(&peer), Item::new(&world));
            let pid = world.spawn(DEAD, |region| {
                fault::arm(point, 1);
                region.vector_resize(vector, 8, 1000).unwrap();
                0
            });
            assert_eq!(world.wait_unseen(pid), SIGKILL, "{point}");
            item.take_after_death(healed);
            store_size(&peer, vector, 5);
            let seen = header_of(&peer, vector);
            world.liveness().set_dead(member(DEAD));
            peer.heal().unwrap();
            assert_eq!(header_of(&peer, vector), seen, "{point}, {healed}: healing undid the successor's change");
        }
    }
}

#[test]
fn who_takes_a_dead_holders_item_finds_the_holders_changes_of_its_heap_finished() {
    // If `healed` is false, this process itself proves the holder's death. After that, this process heals each region
    // that it opens, so it would heal the heap even if the item did not tell of the death. So the case with `healed`
    // true has to come first.
    for healed in [true, false] {
        for point in ["replace.begun", "replace.writing", "retire.freed"] {
            let world = World::new(SIZE);
            world.liveness().set_alive(member(1));
            let item = Item::new(&world);
            let vector = ten_numbers(&item.heap(1));
            let pid = world.spawn_bare(DEAD, || {
                let heap = item.heap(DEAD);
                fault::arm(point, 1);
                heap.vector_resize(vector, 8, 1000).unwrap();
                0
            });
            assert_eq!(world.wait_unseen(pid), SIGKILL, "{point}");
            item.take_after_death(healed);
            let heap = item.heap(1);
            store_size(&heap, vector, 5);
            let seen = header_of(&heap, vector);
            world.liveness().set_dead(member(DEAD));
            heap.heal().unwrap();
            assert_eq!(header_of(&heap, vector), seen, "{point}, {healed}: healing undid the successor's change");
        }
    }
}
