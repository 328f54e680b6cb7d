//! Descriptors for events: eventfd, timerfd, signalfd, and epoll over all of them.

use crate::bell::Bell;
use crate::deadline::Deadline;
use crate::error::{Context, OsError, OsResult};
use crate::sys;
use crate::sys::event::epoll;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::time::Duration;

/// The pause of [`wait_for_ends`] if the kernel refuses to wait. `poll` fails for good if the program has lowered its limit
/// of descriptors below the number of the polled descriptors, as a sandbox does.
const REFUSED: Duration = Duration::from_millis(50);
/// The pause of [`wait_readable_or_pause`] in the same case.
const LOOK: Duration = Duration::from_millis(2);

/// Makes an eventfd, a counter that can be polled. Reads of it do not block.
pub fn eventfd() -> OsResult<OwnedFd> {
    sys::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("eventfd", || "a counter".into())
}

/// Makes an eventfd readable. It does nothing if the counter is full, because then the eventfd is readable already. The
/// caller must know that the descriptor is an eventfd: into an ordinary file, the call would write eight bytes. If the
/// program may have closed the descriptor, the caller needs a [`Bell`](crate::bell::Bell) instead.
pub fn signal(fd: impl AsFd) {
    let _ = sys::io::write(fd, &1u64.to_ne_bytes());
}

/// Makes an eventfd or timerfd unreadable again. The caller must know that the descriptor is one of these.
pub fn clear(fd: impl AsFd) {
    let _ = sys::io::read(fd, &mut [0u8; 8]);
}

/// Makes a timer that can be polled and is not set yet. Reads of it do not block.
pub fn timerfd() -> OsResult<OwnedFd> {
    sys::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
        .context("timerfd_create", || "a timer".into())
}

/// Makes a timer readable once after `delay`. The delay is at least a microsecond, because zero would unset the timer.
pub fn set_timer(timer: impl AsFd, delay: Duration) -> OsResult<()> {
    let delay = delay.max(Duration::from_micros(1));
    let value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: delay.subsec_nanos().into() };
    let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec)
        .context("timerfd_settime", || format!("{delay:?}"))?;
    Ok(())
}

/// Makes a descriptor from which the signals are read. It also blocks these signals for this thread and for all threads
/// that it starts later.
pub fn signalfd(signals: &[i32]) -> OsResult<OwnedFd> {
    // SAFETY: sigemptyset takes an uninitialised set and initialises it. The calls write only to this set.
    let make = || unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    let fd = sys::raw("signalfd", make);
    if fd < 0 {
        return Err(OsError::last("signalfd", format!("{signals:?}")));
    }
    // SAFETY: the kernel has made the descriptor `fd` just now, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of the next signal that arrived at a [`signalfd`]; `None` if no signal has arrived.
pub fn next_signal(fd: impl AsFd) -> Option<i32> {
    let mut buffer = [0u8; size_of::<libc::signalfd_siginfo>()];
    match sys::io::read(fd, &mut buffer) {
        Ok(n) if n == buffer.len() => Some(u32::from_ne_bytes(buffer[..4].try_into().expect("four bytes")) as i32),
        _ => None,
    }
}

/// Sleeps until the bell rings or one of its ends is closed, until a socket has lost its peer, or until the deadline
/// passes. Gives for each socket whether its peer is gone. Readable data on a socket does not end the sleep. If the
/// kernel refuses to wait, the call only pauses for a moment.
pub fn wait_for_ends(bell: Option<&Bell>, sockets: &[BorrowedFd<'_>], deadline: Deadline) -> Vec<bool> {
    use rustix::event::{PollFd, PollFlags};
    let mut watched: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::empty())).collect();
    watched.extend(bell.map(|bell| PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)));
    let left = deadline.left();
    let timeout =
        Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
    if let Err(errno) = sys::event::poll(&mut watched, Some(&timeout)) {
        if errno != Errno::INTR {
            std::thread::sleep(left.min(REFUSED));
        }
        return vec![false; sockets.len()];
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    watched[..sockets.len()].iter().map(|socket| socket.revents().intersects(gone)).collect()
}

/// The largest number of events that one wait returns.
pub const ROUND: usize = 256;

/// A set of descriptors to wait for. Each descriptor has a number that the caller chose.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

/// What one descriptor of an [`Epoll`] is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The number that the caller gave when it added the descriptor to the set.
    pub token: u64,
    /// True if there is something to read, or if the peer is gone. Only a read shows which of the two is the case.
    pub readable: bool,
    /// True if the descriptor can be written to.
    pub writable: bool,
    /// True if the peer is gone, or if the descriptor is broken.
    pub hung_up: bool,
}

impl Epoll {
    /// Makes an empty set of descriptors.
    pub fn new() -> OsResult<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create1", || "a set".into())?;
        Ok(Self { fd })
    }

    /// Starts to watch a descriptor for reading, and for writing if `also_write` is true. The watch is
    /// level-triggered.
    pub fn add(&self, fd: impl AsFd, token: u64, also_write: bool) -> OsResult<()> {
        epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), flags(also_write))
            .context("epoll_ctl", || format!("number {token}"))
    }

    /// Changes whether a descriptor is watched for writing. Reading is watched in any case.
    pub fn change(&self, fd: impl AsFd, token: u64, also_write: bool) -> OsResult<()> {
        epoll::modify(&self.fd, fd, epoll::EventData::new_u64(token), flags(also_write))
            .context("epoll_ctl", || format!("number {token}"))
    }

    /// Stops watching a descriptor.
    pub fn remove(&self, fd: impl AsFd) -> OsResult<()> {
        epoll::delete(&self.fd, fd).context("epoll_ctl", || "removing a descriptor".into())
    }

    /// Waits until a descriptor is ready or the deadline passes. Gives at most [`ROUND`] ready descriptors; an empty
    /// list if the deadline passed or a signal came.
    pub fn wait(&self, deadline: Deadline) -> OsResult<Vec<Ready>> {
        let mut events = [std::mem::MaybeUninit::uninit(); ROUND];
        let timeout = timeout(deadline);
        let ready = match epoll::wait(&self.fd, &mut events, Some(&timeout)) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => &mut [],
            Err(errno) => return Err(OsError::new("epoll_wait", "a set", errno)),
        };
        let tell = |event: &epoll::Event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR),
                writable: flags.contains(epoll::EventFlags::OUT),
                hung_up: flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR),
            }
        };
        Ok(ready.iter().map(tell).collect())
    }
}

fn flags(also_write: bool) -> epoll::EventFlags {
    if also_write { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN }
}

/// Waits until `fd` is readable or the deadline passes. Gives `true` if it is readable.
pub fn wait_readable(fd: impl AsFd, deadline: Deadline) -> OsResult<bool> {
    wait_for(fd, rustix::event::PollFlags::IN, deadline)
}

/// Works like [`wait_readable`], for a caller that looks at the descriptor again and again. If the kernel refuses to
/// wait, the call pauses for a moment and gives `true`, so that the caller looks at the descriptor and does not spin.
pub fn wait_readable_or_pause(fd: impl AsFd, deadline: Deadline) -> bool {
    wait_readable(fd, deadline).unwrap_or_else(|_| {
        std::thread::sleep(deadline.left().min(LOOK));
        true
    })
}

/// Waits until `fd` is writable or the deadline passes. Gives `true` if it is writable.
pub fn wait_writable(fd: impl AsFd, deadline: Deadline) -> OsResult<bool> {
    wait_for(fd, rustix::event::PollFlags::OUT, deadline)
}

/// Waits until one of these descriptors is readable or has lost its other end, or until the deadline passes. Gives for
/// each descriptor whether it is ready. If a signal arrives, the wait ends early and no descriptor counts as ready. If
/// the deadline is `None`, the wait has no limit.
pub fn wait_any(fds: &[BorrowedFd<'_>], deadline: Option<Deadline>) -> OsResult<Vec<bool>> {
    let mut polled: Vec<_> =
        fds.iter().map(|fd| rustix::event::PollFd::from_borrowed_fd(*fd, rustix::event::PollFlags::IN)).collect();
    match sys::event::poll(&mut polled, deadline.map(timeout).as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(errno) => Err(OsError::new("poll", format!("{} descriptors", fds.len()), errno)),
    }
}

fn timeout(deadline: Deadline) -> Timespec {
    let left = deadline.left();
    Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() }
}

fn wait_for(fd: impl AsFd, what: rustix::event::PollFlags, deadline: Deadline) -> OsResult<bool> {
    loop {
        let timeout = timeout(deadline);
        let mut fds = [rustix::event::PollFd::new(&fd, what)];
        match sys::event::poll(&mut fds, Some(&timeout)) {
            Ok(n) => return Ok(n > 0),
            Err(Errno::INTR) if !deadline.passed() => {}
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(OsError::new("poll", "a descriptor", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_is_readable_from_signal_to_clear() {
        let fd = eventfd().unwrap();
        let readable = || wait_readable(&fd, Deadline::after(Duration::ZERO)).unwrap();
        assert!(!readable());
        signal(&fd);
        signal(&fd);
        assert!(readable());
        clear(&fd);
        assert!(!readable());
        let (one, other) = (fd.as_fd(), eventfd().unwrap());
        signal(&other);
        let soon = Some(Deadline::after(Duration::from_secs(10)));
        assert_eq!(wait_any(&[one, other.as_fd()], soon).unwrap(), [false, true]);
    }

    #[test]
    fn epoll_tells_which_descriptor_is_ready() {
        let (epoll, one, other) = (Epoll::new().unwrap(), eventfd().unwrap(), timerfd().unwrap());
        epoll.add(&one, 1, false).unwrap();
        epoll.add(&other, 2, false).unwrap();
        assert!(epoll.wait(Deadline::after(Duration::ZERO)).unwrap().is_empty());
        set_timer(&other, Duration::from_millis(1)).unwrap();
        let ready = epoll.wait(Deadline::after(Duration::from_secs(10))).unwrap();
        assert_eq!(ready, [Ready { token: 2, readable: true, writable: false, hung_up: false }]);
    }
}
