"""The common part of the three tasks: their arguments, their place in the ring of items, and the account of their costs."""

import argparse
import json
import os
import resource
import time

import transports


def arguments(about):
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", default="crossdock", help="crossdock, tcp or grpc")
    parser.add_argument("--items", type=int, default=5, help="items that go round")
    parser.add_argument("--detectors", type=int, default=2)
    parser.add_argument("--frames", type=int, default=0, help="frames of the video to take (0: all)")
    parser.add_argument("--video", default="/task/street.avi")
    parser.add_argument("--empty", default="/task/empty.png", help="the same street without people")
    parser.add_argument("--lines", type=int, default=0, help="height of a frame (0: the video's); the width follows")
    parser.add_argument("--out", default="/out", help="folder for results")
    parser.add_argument("--port", type=int, default=38500, help="first of the ports that tcp and grpc listen at")
    parser.add_argument("--addresses", type=lambda text: text.split(","), default=["127.0.0.1"] * 3,
                        help="where tcp and grpc find the extractor, the detectors and the combiner")
    return parser.parse_args()


def key_of(number, options):
    """Gives the key of the item for a frame. Frames use the items in turn."""
    return f"frame.{number % options.items}"


def detector_of(number, options):
    """Gives the number of the detector for a frame. Frames go to the detectors in turn, whatever item they are in."""
    return f"detect/{number % options.detectors}"


class Task:
    """The transport of a task, and the account of its costs that the task writes at its end."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.link = transports.connect(options.transport, name, options)
        # The CPU time that the interpreter and its libraries took before the first frame is the same for all
        # transports, so it is not counted.
        self.cpu, self.begun = time.process_time(), time.monotonic()
        self.frames, self.memory = 0, 0

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _trace):
        if kind is None:
            self.link.close()

    def sample(self):
        """Called while a frame is held. At the tenth frame, measures the task's memory."""
        self.frames += 1
        if self.frames == 10:
            self.memory = proportional_bytes()

    def account(self, **more):
        used = resource.getrusage(resource.RUSAGE_SELF)
        figures = {
            "task": self.name,
            "transport": self.options.transport,
            "cpu_s": time.process_time() - self.cpu,
            "wall_s": time.monotonic() - self.begun,
            "peak_resident_bytes": used.ru_maxrss * 1024,
            "proportional_bytes": self.memory or proportional_bytes(),
            "switches": used.ru_nvcsw + used.ru_nivcsw,
            **more,
        }
        path = os.path.join(self.options.out, self.name.replace("/", "-") + ".json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


def proportional_bytes():
    """The memory of this process: its private pages, and its share of common pages."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
