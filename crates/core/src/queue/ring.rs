//! A port's segment, as this process sees it.
//!
//! The shape and the addresses are checked once, when the segment is opened, and are kept here. If another process
//! changes the header later, the changed values are not used.

use crossdock_layout::queue::{
    CELLS_AT, Cell, END_SLOTS, ENDS_AT, EndSlot, MAX_CAPACITY, MAX_PRODUCERS, PORT_FINGERPRINT, PORT_MAGIC, PORT_READY,
    Pattern, PortHeader, Side, Signal, port_size,
};
use crossdock_layout::{LAYOUT_VERSION, MemberId, Status};
use crossdock_os::{Deadline, Mapping};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use super::cell::CellRef;
use super::error::{Error, corrupt};
use super::slot::SlotRef;
use crate::error::Reason;
use crate::liveness::LivenessSource;

/// The properties of a port on which all tasks that open it must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The pattern: which tasks may send, and which get each message.
    pub pattern: Pattern,
    /// The number of cells, a power of two.
    pub capacity: u32,
}

impl Shape {
    /// Checks that a port can have this capacity.
    pub fn check(self) -> Result<(), Error> {
        if self.capacity.is_power_of_two() && self.capacity <= MAX_CAPACITY {
            return Ok(());
        }
        Err(Error::new(
            Status::Invalid,
            format!("a capacity of {} is not a power of two from 1 to {MAX_CAPACITY}", self.capacity),
        ))
    }

    /// The size in bytes of the segment of a port with this shape.
    pub fn size(self) -> u64 {
        port_size(self.capacity)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {} cells", self.pattern.word(), self.capacity)
    }
}

enum RingMemory {
    Mapped(Mapping),
    #[cfg(loom)]
    Boxed(Box<PortHeader>, Box<[EndSlot]>, Box<[Cell]>),
}

impl RingMemory {
    #[cfg(not(loom))]
    fn into_mapping(self) -> Mapping {
        let Self::Mapped(mapping) = self;
        mapping
    }

    #[cfg(loom)]
    fn into_mapping(self) -> Mapping {
        match self {
            Self::Mapped(mapping) => mapping,
            Self::Boxed(..) => unreachable!("models do not inspect"),
        }
    }
}

/// A port's segment that this process has mapped and checked.
pub struct Ring {
    header: NonNull<PortHeader>,
    slots: NonNull<EndSlot>,
    cells: NonNull<Cell>,
    pub(super) shape: Shape,
    mask: u64,
    shift: u32,
    #[allow(dead_code, reason = "owns the memory that the pointers point into")]
    memory: RingMemory,
}

// SAFETY: the pointers lead into `memory`, which belongs to the same value and stays mapped until the value is dropped.
// The memory that they point to consists of atomics.
unsafe impl Send for Ring {}
// SAFETY: threads that share the value share only atomics and values that never change.
unsafe impl Sync for Ring {}

impl Ring {
    /// Opens a port's segment. If no member has formatted the segment, this call formats it. If another member is
    /// formatting it, this call waits. After that, the call checks that the port has this shape.
    ///
    /// # Errors
    /// `INVALID` if the capacity is not allowed, or if the port has another shape (the error names both shapes).
    /// `CORRUPT` or `INCOMPATIBLE` if the memory does not hold a port that this build understands. `TIMED_OUT` if
    /// another member does not finish the formatting in time.
    pub fn open(
        memory: Mapping,
        shape: Shape,
        me: MemberId,
        alive: &dyn LivenessSource,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        shape.check()?;
        let ring = Self::over(memory, shape)?;
        ring.format(me, alive, deadline)?;
        let found = ring.read_identity()?;
        if found != shape {
            let reason = Reason::OtherOptions { found: found.to_string(), wanted: shape.to_string() };
            return Err(Error::because(Status::Invalid, reason));
        }
        Ok(ring)
    }

    /// Opens the segment of a formatted port for reading, without taking an end. The port may have any shape, and the
    /// mapping may be read-only.
    ///
    /// # Errors
    /// `NOT_YET` if the port is not formatted yet. `CORRUPT` or `INCOMPATIBLE` if the memory does not hold a port
    /// that this build understands.
    pub fn inspect(memory: Mapping) -> Result<Self, Error> {
        let smallest = Shape { pattern: Pattern::OneToOne, capacity: 1 };
        let ring = Self::over(memory, smallest)?;
        if ring.header().identity.init.load(Acquire) != PORT_READY {
            return Err(Error::new(Status::NotYet, "no member has formatted it yet"));
        }
        let found = ring.read_identity()?;
        Self::over(ring.memory.into_mapping(), found)
    }

    fn over(memory: Mapping, shape: Shape) -> Result<Self, Error> {
        let at = |offset: u64| memory.at(offset, shape.size() - offset);
        let (Some(header), Some(slots), Some(cells)) = (at(0), at(ENDS_AT as u64), at(CELLS_AT as u64)) else {
            let (found, wanted) = (format!("{} bytes", memory.length()), format!("{shape} ({} bytes)", shape.size()));
            return Err(Error::because(Status::Invalid, Reason::OtherOptions { found, wanted }));
        };
        Ok(Self {
            header: header.cast(),
            slots: slots.cast(),
            cells: cells.cast(),
            shape,
            mask: u64::from(shape.capacity) - 1,
            shift: shape.capacity.trailing_zeros(),
            memory: RingMemory::Mapped(memory),
        })
    }

    /// Formats fresh memory as a port. If several members open the port at the same time, one of them formats it. If
    /// that member dies while it formats the memory, another one formats it.
    fn format(&self, me: MemberId, alive: &dyn LivenessSource, deadline: Deadline) -> Result<(), Error> {
        let identity = &self.header().identity;
        loop {
            let seen = identity.init.load(Acquire);
            if seen == PORT_READY {
                return Ok(());
            }
            let is_free = seen == 0 || alive.is_dead(MemberId(seen));
            if is_free && identity.init.compare_exchange(seen, me.0, AcqRel, Acquire).is_ok() {
                crate::fault_point!("queue.format.claimed");
                identity.magic.store(PORT_MAGIC, Relaxed);
                identity.version.store(LAYOUT_VERSION, Relaxed);
                crate::fault_point!("queue.format.half");
                identity.fingerprint.store(PORT_FINGERPRINT, Relaxed);
                identity.pattern.store(self.shape.pattern as u32, Relaxed);
                identity.capacity.store(self.shape.capacity, Relaxed);
                // Fresh memory is zero, and end slots and cells of zeros are valid, so they need not be written. No
                // member touches them before the port is ready.
                identity.init.store(PORT_READY, Release);
                crate::fault_point!("queue.format.done");
                return Ok(());
            }
            if deadline.passed() && !is_free {
                return Err(Error::new(
                    Status::TimedOut,
                    format!("{} has been formatting it and lives; is it stopped?", MemberId(seen)),
                ));
            }
            std::thread::sleep(Duration::from_micros(200).min(deadline.left()));
        }
    }

    fn read_identity(&self) -> Result<Shape, Error> {
        let identity = &self.header().identity;
        if identity.magic.load(Relaxed) != PORT_MAGIC {
            return Err(corrupt("its first word is not that of a port"));
        }
        let (version, fingerprint) = (identity.version.load(Relaxed), identity.fingerprint.load(Relaxed));
        if (version, fingerprint) != (LAYOUT_VERSION, PORT_FINGERPRINT) {
            let reason = Reason::Layout { version, fingerprint, ours: PORT_FINGERPRINT };
            return Err(Error::because(Status::Incompatible, reason));
        }
        let pattern = Pattern::from_number(identity.pattern.load(Relaxed));
        let capacity = identity.capacity.load(Relaxed).check(|n| n.is_power_of_two() && n <= MAX_CAPACITY);
        match (pattern, capacity) {
            (Some(pattern), Some(capacity)) => Ok(Shape { pattern, capacity }),
            _ => Err(corrupt("its header has a pattern or capacity that no port has")),
        }
    }

    /// The shape of the port: its pattern and capacity.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    #[inline]
    pub(super) fn header(&self) -> &PortHeader {
        // SAFETY: `over` checked that the header lies within `memory`. The header is aligned, because mappings begin at
        // pages. All its fields are atomics.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    pub(super) fn slots(&self, side: Side) -> impl Iterator<Item = SlotRef<'_>> {
        // SAFETY: `over` checked that the table of END_SLOTS slots lies within `memory`; all fields are atomics.
        let all = unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), END_SLOTS) };
        let side_at = side as usize * MAX_PRODUCERS;
        all[side_at..side_at + self.shape.pattern.places(side)].iter().map(SlotRef::new)
    }

    /// Gives the index that slot `slot` of a side has among all end slots of the port.
    pub(super) fn slot_index(&self, side: Side, slot: u8) -> u8 {
        side as u8 * MAX_PRODUCERS as u8 + slot
    }

    /// Gives the end slot with this index. The address is computed without a search, because every send and receive
    /// needs the slot.
    #[inline]
    pub(super) fn slot(&self, slot_index: u8) -> SlotRef<'_> {
        assert!(usize::from(slot_index) < END_SLOTS);
        // SAFETY: the index lies within the table of END_SLOTS slots, which lies within `memory`; all fields are
        // atomics.
        SlotRef::new(unsafe { &*self.slots.as_ptr().add(usize::from(slot_index)) })
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        // SAFETY: `over` checked that `capacity` cells lie within `memory`; all fields are atomics.
        let all = unsafe { std::slice::from_raw_parts(self.cells.as_ptr(), self.shape.capacity as usize) };
        all.iter().map(CellRef::new)
    }

    #[inline]
    pub(super) fn cell(&self, position: u64) -> CellRef<'_> {
        // SAFETY: the mask keeps the index below `capacity`, and `capacity` cells lie within `memory`; all fields are
        // atomics.
        CellRef::new(unsafe { &*self.cells.as_ptr().add((position & self.mask) as usize) })
    }

    /// The lap of a position: how many times the ring was gone through before it. The result has 52 bits, as the lap in
    /// a state word has.
    #[inline]
    pub(super) fn lap(&self, position: u64) -> u64 {
        (position >> self.shift) & (u64::MAX >> 12)
    }

    pub(super) fn capacity(&self) -> u64 {
        u64::from(self.shape.capacity)
    }

    /// The word on which members of `side` sleep.
    #[inline]
    pub(super) fn signal(&self, side: Side) -> &Signal {
        match side {
            Side::Producer => &self.header().space,
            Side::Consumer => &self.header().data,
        }
    }
}

#[cfg(loom)]
impl Ring {
    /// Makes a fresh port with loom's atomics, for the models.
    pub fn model(shape: Shape) -> Self {
        let header = Box::<PortHeader>::default();
        let slots: Box<[EndSlot]> = (0..END_SLOTS).map(|_| EndSlot::default()).collect();
        let cells: Box<[Cell]> = (0..shape.capacity).map(|_| Cell::default()).collect();
        Self {
            header: NonNull::from(&*header),
            slots: NonNull::new(slots.as_ptr().cast_mut()).expect("a box has an address"),
            cells: NonNull::new(cells.as_ptr().cast_mut()).expect("a box has an address"),
            shape,
            mask: u64::from(shape.capacity) - 1,
            shift: shape.capacity.trailing_zeros(),
            memory: RingMemory::Boxed(header, slots, cells),
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({})", self.shape)
    }
}
