"""What TCP and gRPC have in common: where tasks listen, and frames that have come and are waited for."""

import threading


class Frame:
    """A frame in memory of this process. Frames that were handed over have none."""

    def __init__(self, key, memory):
        self.key, self.memory = key, memory


def port_of(task, options):
    """The port that a task listens at."""
    name, _, rank = task.partition("/")
    return options.port + {"extract": 0, "combine": 1, "detect": 2}[name] + int(rank or 0)


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
