//! Opening a port, removing its name, and looking at it from outside.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crossdock_core::error::status_of;
use crossdock_core::liveness::Living;
use crossdock_core::queue::{self, Ring, Shape};
use crossdock_layout::wire::{OpenMode, SegmentKind};
use crossdock_layout::{Rights, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping};

use super::kept::Kept;
use super::{End, Port, PortOptions, PortReport, Shared};
use crate::segment::{Lease, OpenRequest, OpenedSegment};
use crate::{Error, Region, Result, Session};

/// How long an open waits for whoever is formatting a fresh port; that takes microseconds, but a member may be stopped.
const FORMAT_WAIT: Duration = Duration::from_secs(5);

/// What a port needs of its session; it keeps both the session and the daemon's count of openings.
struct SessionHooks {
    session: Session,
    _lease: Lease,
}

impl queue::Hooks for SessionHooks {
    fn liveness(&self) -> &dyn Living {
        self.session.liveness()
    }
}

impl Session {
    /// Makes a port without taking an end of it, for tasks that leave its options open (the launcher).
    ///
    /// # Errors
    /// `EXISTS`, `INVALID` (name, capacity), `DENIED`, `NO_SPACE`.
    pub fn make_port(&self, name: &str, options: &PortOptions) -> Result<()> {
        let shape = Shape::from(*options);
        shape.check().map_err(|error| Error::new(error.status, format!("port {name}: {}", error.message)))?;
        let access = Rights::PRODUCE.with(Rights::CONSUME);
        self.open_segment(&request(name, OpenMode::CreateOnly, access, shape, options.persistent)).map(drop)
    }

    /// Opens one end of a port; whoever comes first makes it, so producer and consumer may start in any order.
    /// Waits for nobody, but for a place at a taken end: up to `timeout` (`None` = do not wait).
    ///
    /// # Errors
    /// `INVALID` (name, capacity, or options that differ from the port's: the text prints both), `BUSY` (names who
    /// holds the end), `DENIED`, `NO_SPACE`.
    pub fn port(&self, name: &str, end: End, options: &PortOptions, timeout: Option<Duration>) -> Result<Port> {
        let named = |error: crossdock_core::Error| Error::new(error.status, format!("port {name}: {}", error.message));
        let shape = Shape::from(*options);
        shape.check().map_err(named)?;
        let access = match end {
            End::Producer => Rights::PRODUCE,
            End::Consumer => Rights::CONSUME,
        };
        let opened = self.open_segment(&request(name, OpenMode::OpenOrCreate, access, shape, options.persistent))?;
        let shape = agreed(name, &opened, options)?;
        let mapping = map(name, &opened, Access::ReadWrite)?;
        let alive = self.liveness();
        let deadline = Deadline::after(timeout.unwrap_or(FORMAT_WAIT).max(FORMAT_WAIT));
        let ring = Ring::open(mapping, shape, self.member(), alive, deadline).map_err(named)?;
        let hooks = Arc::new(SessionHooks { session: self.clone(), _lease: opened.lease });
        let end = queue::End::open(ring, end, self.member(), &self.label(), hooks, timeout.unwrap_or_default())
            .map_err(named)?;
        let shared = Arc::new(Shared {
            end,
            name: name.to_owned(),
            id: opened.id,
            bell: OnceLock::new(),
            kept: Kept::default(),
        });
        remember(self.serial(), &shared);
        Ok(Port { shared })
    }

    /// Takes a port's name away; members that have it open keep it.
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED`.
    pub fn remove_port(&self, name: &str) -> Result<()> {
        self.remove_segment(SegmentKind::Port, name)
    }

    /// What goes on in a port, read without taking an end of it (launcher, `inspect`).
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED`, `WRONG_TYPE` (not a port), `NOT_YET` (nobody has formatted it), `CORRUPT`.
    pub fn port_report(&self, id: SegmentId) -> Result<PortReport> {
        let opened = self.attach_segment(id)?;
        if opened.kind != SegmentKind::Port {
            return Err(Error::new(
                Status::WrongType,
                format!("{} is {} {}, not a port", opened.id, opened.kind.word(), opened.name),
            ));
        }
        let mapping = map(&opened.name, &opened, Access::Read)?;
        let ring = Ring::inspect(mapping)
            .map_err(|error| Error::new(error.status, format!("port {}: {}", opened.name, error.message)))?;
        Ok(ring.report(self.liveness()).into())
    }
}

fn request(name: &str, mode: OpenMode, access: Rights, shape: Shape, persistent: bool) -> OpenRequest<'_> {
    OpenRequest {
        kind: SegmentKind::Port,
        name,
        mode,
        access,
        size: shape.size(),
        reserve: shape.size(),
        // The maker's options travel with the segment, so that they are known even before anybody has formatted it.
        attribute: u64::from(shape.capacity) << 8 | shape.pattern as u64,
        persistent,
        timeout: None,
    }
}

/// What the port was made with, if that is what was asked for.
fn agreed(name: &str, opened: &OpenedSegment, wanted: &PortOptions) -> Result<Shape> {
    let pattern = queue::Pattern::from_number((opened.attribute & 0xff) as u32);
    let capacity = u32::try_from(opened.attribute >> 8).unwrap_or(0);
    let found = pattern.map(|pattern| Shape { pattern, capacity }).filter(|shape| shape.check().is_ok());
    let Some(found) = found.filter(|shape| shape.size() <= opened.size) else {
        let text = format!("port {name}: it is something that is no port of this version; remove it");
        return Err(Error::new(Status::Incompatible, text));
    };
    let pattern_agrees = wanted.pattern.is_none_or(|pattern| pattern == found.pattern);
    if pattern_agrees && (wanted.capacity == 0 || wanted.capacity == found.capacity) {
        return Ok(found);
    }
    let wanted = Shape::from(*wanted);
    Err(Error::new(
        Status::Invalid,
        format!(
            "port {name}: it exists as {found}, and was opened here as {wanted}; make the options of its tasks (and of \
             the workflow file) agree, or leave them open in all tasks but one"
        ),
    ))
}

fn map(name: &str, opened: &OpenedSegment, access: Access) -> Result<Mapping> {
    let length = usize::try_from(opened.size).unwrap_or(usize::MAX);
    Mapping::new(&opened.descriptor, length, access)
        .map_err(|error| Error::new(status_of(&error), format!("port {name}: {error}")))
}

/// Ports that are open, by their session's serial number, so that a session that leaves can close them in order first.
static OPEN: Mutex<Vec<(u64, Weak<Shared>)>> = Mutex::new(Vec::new());

fn remember(serial: u64, shared: &Arc<Shared>) {
    let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    open.retain(|(_, port)| port.strong_count() > 0);
    open.push((serial, Arc::downgrade(shared)));
}

/// Closes all ports of a session, in order; later calls on them give `CLOSED`.
pub(crate) fn close_ports(serial: u64) {
    let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut own = Vec::new();
    open.retain(|(of, port)| {
        if *of == serial {
            own.extend(port.upgrade());
        }
        *of != serial && port.strong_count() > 0
    });
    drop(open);
    for shared in own {
        shared.close();
    }
}

/// A region was opened because a handle named it: the ports that such handles come by keep it open for the next one.
pub(crate) fn keep_region(serial: u64, region: &Region) {
    let open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let own: Vec<_> = open.iter().filter(|(of, _)| *of == serial).filter_map(|(_, port)| port.upgrade()).collect();
    drop(open);
    for shared in own {
        shared.kept.keep(region);
    }
}
