"""What TCP and gRPC have in common: where tasks listen, and frames that have come and are waited for."""

import threading

# Task → which of the addresses is its host's, and which of the ports is its (first rank's).
PLACES = {"extract": (0, 0), "detect": (1, 2), "combine": (2, 1)}

class Frame:
    """A frame in memory of this process. Frames that were handed over have none."""

    def __init__(self, key, memory):
        self.key, self.memory = key, memory


def address_of(task, options):
    """The host and the port at which a task listens."""
    name, _, rank = task.partition("/")
    host, port = PLACES[name]
    return options.addresses[host], options.port + port + int(rank or 0)


class Mailbox:
    """Frames by key, put by receiving threads, taken by the task's own."""

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
