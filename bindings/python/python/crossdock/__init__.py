"""Shared memory for workflows whose tasks live in containers of their own.

    import crossdock

    with crossdock.connect() as session:
        region = session.region("frames", size="512 MiB")
        positions = region.vector("positions", ("f8", 3), 32000)
        positions.array[:] = 0.5                      # NumPy on the shared memory itself
        with session.port("positions", "producer") as port:
            port.send(positions, tag=1)               # sixteen bytes; nothing is copied

Every call that waits takes a timeout in seconds and lets other threads run. Every error is a `crossdock.Error`, whose
message names the object, what happened, and a hint.
"""

import atexit as _atexit
import io as _io
import os as _os
import sys as _sys

from . import _native
from ._errors import (
    BadHandleError,
    BusyError,
    ClosedError,
    CorruptError,
    DeniedError,
    DisconnectedError,
    Error,
    ExistsError,
    IncompatibleError,
    InvalidError,
    KernelError,
    NoSpaceError,
    NotFoundError,
    NotYetError,
    PeerDiedError,
    TimedOutError,
    WrongTypeError,
)
from ._native import (
    Checkpoint,
    Handle,
    Item,
    Message,
    Messages,
    Ndarray,
    Object,
    Observer,
    Port,
    Publisher,
    Region,
    Session,
    Simple,
    String,
    Vector,
    Version,
    __version__,
    await_file,
    connect,
    diff,
    dtype_of,
    ranked,
    restart,
    type_name,
)

__all__ = [
    "BadHandleError",
    "BusyError",
    "Checkpoint",
    "ClosedError",
    "CorruptError",
    "DeniedError",
    "DisconnectedError",
    "Error",
    "ExistsError",
    "Handle",
    "IncompatibleError",
    "InvalidError",
    "Item",
    "ItemInfo",
    "KernelError",
    "Listing",
    "MemberInfo",
    "Message",
    "Messages",
    "Ndarray",
    "NoSpaceError",
    "NotFoundError",
    "NotYetError",
    "Object",
    "ObjectInfo",
    "Observer",
    "PeerDiedError",
    "Port",
    "Publisher",
    "Region",
    "SegmentInfo",
    "Session",
    "Simple",
    "String",
    "TimedOutError",
    "VariableInfo",
    "Vector",
    "Version",
    "WorkflowInfo",
    "WrongTypeError",
    "__version__",
    "await_file",
    "connect",
    "diff",
    "dtype_of",
    "ranked",
    "restart",
    "type_name",
]


# The modules that few programs need are imported when they are first used, so that this module is imported faster. The
# only public names that are not imported above are the classes of `_records`.
def __getattr__(name):
    if name in __all__:
        from . import _records

        return getattr(_records, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})


def _repr_html_(self):
    from . import _show

    return _show.table(self)


for _class in (Session, Port, Observer, Publisher, Version):
    _class._repr_html_ = _repr_html_

if _sys.version_info >= (3, 12):
    # Item is a class of the native module. Python uses the buffer protocol of such a class only after the attribute
    # `__buffer__` was set on the class.
    Item.__buffer__ = Item._buffer


def open(file, mode="r", *args, **kwargs):  # noqa: A001: named as what it stands in for
    """Works like the built-in `open`. If the file is opened for reading only, it first calls `await_file`, which waits
    for a file of a managed directory."""
    if isinstance(file, (str, bytes, _os.PathLike)) and not set(mode) & set("wxa+"):
        await_file(_os.fsdecode(file))
    return _io.open(file, mode, *args, **kwargs)


# While the interpreter ends, the status of the program is not known yet, so nothing is closed. If the status is 0, the
# library closes the ports and ends the series a moment later. If not, peers see that the program died.
_atexit.register(_native._ending)
