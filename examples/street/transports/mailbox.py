"""The common part of TCP and gRPC: where tasks listen, and a mailbox for the frames that have arrived."""

import threading

# For each task: the index of its host's address, and the index of the port at which its first rank listens.
PLACES = {"extract": (0, 0), "detect": (1, 2), "combine": (2, 1)}

class Frame:
    """A frame in the memory of this process. A frame that was handed over has no memory any more."""

    def __init__(self, key, memory):
        self.key, self.memory = key, memory


def address_of(task, options):
    """The host and the port at which a task listens."""
    name, _, rank = task.partition("/")
    host, port = PLACES[name]
    return options.addresses[host], options.port + port + int(rank or 0)


class Mailbox:
    """A map from keys to frames. Receiving threads put them in, and the task's own thread takes them out."""

    def __init__(self):
        self.frames, self.changed, self.failed = {}, threading.Condition(), None

    def put(self, key, memory):
        with self.changed:
            self.frames[key] = memory
            self.changed.notify_all()

    def fail(self, why):
        with self.changed:
            self.failed = why
            self.changed.notify_all()

    def take(self, key, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.frames or self.failed, timeout):
                raise TimeoutError(f"{key} did not come within {timeout} s")
            if key not in self.frames:
                raise ConnectionError(self.failed)
            return Frame(key, self.frames.pop(key))
