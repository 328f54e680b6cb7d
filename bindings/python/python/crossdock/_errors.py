"""Exceptions: one class for each status of the library. If Python has a fitting exception, the class is
derived from it as well.

Every message names the object, what happened, the task or member that was involved, and a hint.
"""


class Error(Exception):
    """Base of all errors of crossdock. `status` is the same number in every language."""

    status = 0


class NotYetError(Error, BlockingIOError):
    """A call with ``timeout=0`` found nothing. This is no fault: call again later, or with a longer timeout."""

    status = 1


class TimedOutError(Error, TimeoutError):
    """The deadline passed. The message names the member that the call waited for."""

    status = 2


class ClosedError(Error, EOFError):
    """The other end was closed and everything that it sent was received; or this process has closed the object."""

    status = 3


class PeerDiedError(Error, ConnectionError):
    """The member that the call waited for is dead. The message has its task, its rank and the time when it was last seen."""

    status = 4


class NotFoundError(Error, LookupError):
    """There is no region, port, item, series or object of this name."""

    status = 5


class ExistsError(Error):
    """The object exists already, but the call asked for a new one."""

    status = 6


class WrongTypeError(Error, TypeError):
    """The object has another type. The message has both types."""

    status = 7


class InvalidError(Error, ValueError):
    """An argument has a value that the call does not accept."""

    status = 8


class BadHandleError(Error):
    """The handle names no object that is in use, or an object of another segment."""

    status = 9


class DeniedError(Error, PermissionError):
    """No grant of this task allows the call."""

    status = 10


class NoSpaceError(Error, MemoryError):
    """The region, the quota or the node is full."""

    status = 11


class BusyError(Error):
    """The object is still in use, for example by an array that is alive or by another producer."""

    status = 12


class CorruptError(Error):
    """Shared memory has contents that no correct member writes."""

    status = 13


class DisconnectedError(Error, ConnectionError):
    """The node daemon cannot be reached, or this process is a forked child of the one that connected."""

    status = 14


class IncompatibleError(Error):
    """The two sides were built with different layouts or protocols."""

    status = 15


class KernelError(Error, OSError):
    """The kernel refused a call. The message has the kernel's reason."""

    status = 16


BY_STATUS = (
    Error,
    NotYetError,
    TimedOutError,
    ClosedError,
    PeerDiedError,
    NotFoundError,
    ExistsError,
    WrongTypeError,
    InvalidError,
    BadHandleError,
    DeniedError,
    NoSpaceError,
    BusyError,
    CorruptError,
    DisconnectedError,
    IncompatibleError,
    KernelError,
)
for _status, _class in enumerate(BY_STATUS):
    _class.__module__ = "crossdock"
    assert _class.status == _status
