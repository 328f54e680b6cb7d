"""Exceptions: one class per status of the library, each also one of Python's own where there is a fitting one.

Every message names the object, what happened, who was involved, and a hint.
"""


class Error(Exception):
    """Base of all errors of crossdock. `status` is the same number in every language."""

    status = 0


class NotYetError(Error, BlockingIOError):
    """A poll (``timeout=0``) found nothing. Neither success nor failure: ask again, or wait."""

    status = 1


class TimedOutError(Error, TimeoutError):
    """The deadline passed before it happened; says who was waited for."""

    status = 2


class ClosedError(Error, EOFError):
    """The other end left in order and nothing is left to come; or the object was closed here."""

    status = 3


class PeerDiedError(Error, ConnectionError):
    """The member that was waited for is dead; says task, rank and when it was last seen."""

    status = 4


class NotFoundError(Error, LookupError):
    """There is no such region, port or object."""

    status = 5


class ExistsError(Error):
    """There is one already, and a new one was asked for."""

    status = 6


class WrongTypeError(Error, TypeError):
    """The object is of another type; prints both."""

    status = 7


class InvalidError(Error, ValueError):
    """An argument is outside what the call takes."""

    status = 8


class BadHandleError(Error):
    """The handle names nothing that is in use, or something of another segment."""

    status = 9


class DeniedError(Error, PermissionError):
    """The task was not granted this."""

    status = 10


class NoSpaceError(Error, MemoryError):
    """Region, quota or node has no room for it."""

    status = 11


class BusyError(Error):
    """It is still in use: by a view that is alive, or a second producer."""

    status = 12


class CorruptError(Error):
    """Shared memory holds what no honest member writes there."""

    status = 13


class DisconnectedError(Error, ConnectionError):
    """The node daemon cannot be reached, or this process was forked from the one that connected."""

    status = 14


class IncompatibleError(Error):
    """The two sides were built with different layouts or protocols."""

    status = 15


class KernelError(Error, OSError):
    """The kernel refused; the text has its words."""

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
