"""The switch: the same tasks on TCP, on gRPC or on crossdock's items.

A transport has five calls, in the words of the CDI paper:

    create(key, size)      a new frame, owned by this task; `frame.memory` is its writable memory
    access(key, timeout)   waits until this task owns the frame of that key
    transfer(frame, to)    hands it to another task, "combine" or "detect/1"; it cannot be used here afterwards
    destroy(frame)
    close()

Views of `frame.memory` must be gone before a frame is handed over: with crossdock it is the other task's memory then.
"""

import importlib


def connect(kind, task, options):
    """The transport of that name, for the task of that name."""
    return importlib.import_module(f".over_{kind}", __name__).Transport(task, options)
