"""One worker of the soak test, in Python. worker.c describes what it does.

    worker.py NUMBER SECONDS

On SIGUSR1 the worker prints its stack.
"""
import faulthandler
import os
import signal
import sys
import time

import numpy as np

import crossdock

N, ITEM, SHORT, WAIT, SLOW = 4096, 50000, 0.2, 10.0, 4.0
EXPLAINED = tuple(
    getattr(crossdock, name)
    for name in ("NotYetError", "TimedOutError", "ClosedError", "PeerDiedError", "NotFoundError", "ExistsError", "NoSpaceError", "BusyError", "DisconnectedError")
)


def is_over(error):
    """Tells whether the error says that the session is over. A session must outlive all kills, stops and restarts, so this
    error is not an expected one."""
    return "cannot be made again" in str(error)


def wrong(what):
    print(f"WRONG {what}", flush=True)
    os._exit(3)


def pattern(count, stamp):
    z = np.arange(count, dtype=np.uint64) + np.uint64(stamp % 2**64)
    with np.errstate(over="ignore"):
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def check(what, words, stamp):
    if not np.array_equal(words, pattern(len(words), int(stamp))):
        wrong(what)


class Worker:
    def __init__(self, number, session):
        self.number, self.half, self.session = number, number % 2, session
        self.region = self.vector = self.port = self.publisher = self.observer = None
        self.names = [f"{kind}{number // 2}" for kind in "psi"]
        self.sent, self.received, self.sender = 0, 0, 0
        self.arrays = {}

    def heap(self, stamp):
        if self.region is None:
            self.region = self.session.region("heap", size=256 << 20)
        name = f"a{self.number}-{stamp % 20}"
        if name in self.arrays:
            check("array", np.asarray(self.arrays.pop(name).array), stamp % 20 + self.number * 1000)
        if name in self.region:
            # The worker made this object in an earlier round, or a killed worker with the same number left it.
            self.region.remove(name)
        array = self.region.ndarray(name, dtype="u8", shape=(1 + stamp % 300,))
        array.array[...] = pattern(len(array), stamp % 20 + self.number * 1000)
        self.arrays[name] = array
        if self.vector is None:
            self.vector = self.region.vector(f"v{self.number}", dtype="u8")
        vector = self.vector
        # The first element is the number from which the other elements were computed, or 0 while they are being
        # written.
        if len(vector) > 1:
            words = vector.array
            if words[0]:
                check("vector", words[1:], words[0])
            words[0] = 0
            del words
        vector.resize(2 + stamp % 5000)
        words = vector.array
        words[1:] = pattern(len(words) - 1, stamp | 1)
        words[0] = stamp | 1

    def message(self):
        if self.port is None:
            end = "consumer" if self.half else "producer"
            self.port = self.session.port(self.names[0], end, capacity=8, pattern="one-to-one", persistent=True, timeout=SHORT)
        try:
            if not self.half:
                tag = os.getpid() << 32 | (self.sent + 1)
                body = np.array([tag, pattern(1, tag)[0]], dtype=np.uint64).tobytes()
                self.port.send(inline=body, tag=tag, timeout=SHORT)
                self.sent += 1
                return
            with self.port.receive(timeout=SHORT) as message:
                tag, body = message.tag, np.frombuffer(bytes(message.inline), dtype=np.uint64)
                if int(body[0]) != tag or body[1] != pattern(1, tag)[0]:
                    wrong("message")
                if tag >> 32 == self.sender and tag & 0xFFFFFFFF != self.received + 1:
                    wrong("order of messages")
                self.sender, self.received = tag >> 32, tag & 0xFFFFFFFF
        except (crossdock.ClosedError, crossdock.DisconnectedError):
            self.port.close()
            self.port, self.sender = None, 0
            raise

    def series(self, stamp):
        if not self.half:
            if self.publisher is None:
                self.publisher = self.session.publisher(self.names[1], {"u": ("i8", (N,))})
            self.publisher["u"][...] = pattern(N, stamp).view(np.int64)
            self.publisher.publish(stamp=stamp)
            return
        if self.observer is None:
            self.observer = self.session.observe(self.names[1], timeout=SHORT)
        try:
            version = self.observer.next(timeout=SHORT)
            check("version", np.asarray(version["u"]).view(np.uint64), version.attributes["stamp"])
        except (crossdock.NotYetError, crossdock.TimedOutError):
            raise
        except EXPLAINED:
            self.observer = None
            raise

    def item(self, stamp):
        key = self.names[2]
        if self.half:
            item = self.session.access_item(key, timeout=SHORT)
            words = np.frombuffer(item.memory, dtype=np.uint64)
            if len(words) != ITEM // 8:
                wrong("size of the item")
            check("item", words[1:], words[0])
            del words
            item.destroy()
            return
        try:
            item = self.session.create_item(key, ITEM)
        except crossdock.ExistsError:
            item = self.session.access_item(key, timeout=0)
        words = np.frombuffer(item.memory, dtype=np.uint64)
        words[1:] = pattern(ITEM // 8 - 1, stamp | 1)
        words[0] = stamp | 1
        del words
        item.transfer(f"w{self.number ^ 1}")


def main(number, seconds):
    until = time.monotonic() + seconds
    session = None
    while session is None:
        try:
            session = crossdock.connect(task=f"w{number}", private_daemon=False, timeout=WAIT)
        except EXPLAINED:
            if time.monotonic() > until:
                return
            time.sleep(0.02)
    worker = Worker(number, session)
    told, longest, rounds, stamp = time.monotonic(), 0.0, 0, int(pattern(1, os.getpid())[0] >> np.uint64(2))
    while time.monotonic() < until:
        began = time.monotonic()
        parts = {"heap": lambda: worker.heap(stamp), "message": worker.message, "series": lambda: worker.series(stamp), "item": lambda: worker.item(stamp)}
        for name, part in parts.items():
            part_began, outcome = time.monotonic(), "worked"
            try:
                part()
            except EXPLAINED as error:
                if is_over(error):
                    raise
                outcome = f"{type(error).__name__}: {error}"
            if time.monotonic() - part_began > SLOW:
                print(f"SLOW {name} took {time.monotonic() - part_began:.1f} s: {outcome}", flush=True)
        stamp, rounds = stamp + 1, rounds + 1
        longest = max(longest, time.monotonic() - began)
        if time.monotonic() - told > 1:
            print(f"{rounds} {1000 * longest:.3f}", flush=True)
            told, longest = time.monotonic(), 0.0
    print(f"DONE {rounds}", flush=True)


faulthandler.register(signal.SIGUSR1)
try:
    main(int(sys.argv[1]), float(sys.argv[2]))
except crossdock.Error as error:
    print(f"UNEXPLAINED {type(error).__name__}: {error}", flush=True)
    os._exit(4)
