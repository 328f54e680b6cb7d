"""Chooses the transport: the same tasks run over TCP, over gRPC, or with crossdock's items.

A transport has five calls, whose names are those of the CDI paper:

    create(key, size)      a new frame, owned by this task; `frame.memory` is its writable memory
    access(key, timeout)   waits until this task owns the frame of that key
    transfer(frame, to)    hands the frame to another task, such as "combine" or "detect/1"; this task cannot use the frame afterwards
    destroy(frame)
    close()

All views of `frame.memory` must be gone before the frame is handed over, because with crossdock the memory then belongs to the
other task.
"""

import importlib


def connect(kind, task, options):
    """Connects the transport `kind` for the task `task`."""
    return importlib.import_module(f".over_{kind}", __name__).Transport(task, options)
