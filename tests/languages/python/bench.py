"""The tools that the tests of all rows of the conformance list use: names, other processes (peers), and checks."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

import crossdock

DEADLINE_S = 10.0
MIB = 1 << 20


class Failed(AssertionError):
    """Raised if the library does not behave as the row of the test says."""


def check(what, got, wanted):
    """Fails the test unless `got` equals `wanted`."""
    if got != wanted:
        raise Failed(f"{what}: expected {wanted!r}, got {got!r}")


@contextmanager
def refused(error, *says, within=None):
    """Fails the test unless the block raises this class of error with these words in its message."""
    began = time.monotonic()
    try:
        yield
    except error as e:
        took = time.monotonic() - began
        check(f"class of {e!r}", type(e), error)
        for word in says:
            if word not in str(e):
                raise Failed(f"message should say {word!r}: {e}") from None
        if not str(e):
            raise Failed(f"{error.__name__} without a message") from None
        low, high = within or (0, DEADLINE_S)
        if not low <= took <= high:
            raise Failed(f"{error.__name__} came after {took:.3f} s, not {low} to {high} s") from None
    else:
        raise Failed(f"expected {error.__name__}, and nothing failed")


class Bench:
    """The tools of one test in one of its processes: the process's session, names and peers."""

    def __init__(self, row, prefix=None, task="test"):
        self.row = row
        self.prefix = prefix or f"python-{os.getpid()}"
        self.session = crossdock.connect(task=task, private_daemon=False, timeout=DEADLINE_S)
        self.peers = []
        self.regions = set()
        self.ports = set()

    def name(self, suffix=""):
        return f"{self.prefix}/{self.row.lower()}{suffix}"

    def region(self, suffix="", mode="open_or_create", size=16 * MIB, **more):
        self.regions.add(self.name(suffix))
        return self.session.region(self.name(suffix), mode, size, **more)

    def port(self, end, suffix="", **more):
        self.ports.add(self.name(suffix))
        return self.session.port(self.name(suffix), end, **more)

    def peer(self, role, *arguments):
        """Starts this program again as another process of the test."""
        peer = Peer(self.row, role, self.prefix, [str(a) for a in arguments])
        self.peers.append(peer)
        return peer

    def close(self):
        for peer in self.peers:
            peer.end()
        for name in self.regions:
            self._remove(self.session.remove_region, name)
        for name in self.ports:
            self._remove(self.session.remove_port, name)
        self.session._leave()

    @staticmethod
    def _remove(remove, name):
        try:
            remove(name)
        except crossdock.NotFoundError:
            pass


class Peer:
    """Another process of a test. It prints lines, and the first process of the test checks that they are the expected
    ones."""

    def __init__(self, row, role, prefix, arguments):
        self.role = f"{row} {role}"
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conformance.py")
        command = [sys.executable, program, row, role, prefix, *arguments]
        # If the suite runs across nodes, the other process of the test connects to the daemon of another node.
        socket = os.environ.get("CROSSDOCK_PEER_SOCKET", os.environ.get("CROSSDOCK_SOCKET", ""))
        environment = {**os.environ, "CROSSDOCK_SOCKET": socket} if socket else None
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def expect(self, line):
        """Waits for the line that the peer says next."""
        got = self.process.stdout.readline().rstrip("\n")
        check(f"what {self.role} says", got, line)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ok(self):
        """Waits until the peer ends, and checks that its exit status is 0."""
        check(f"exit status of {self.role}", self.wait(), 0)

    def wait(self):
        return self.process.wait(timeout=DEADLINE_S)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def say(line):
    """In a peer: sends a line to the first process of the test."""
    print(line, flush=True)


def heed(line):
    """In a peer: waits for this line from the first process of the test."""
    check("what the test says", sys.stdin.readline().rstrip("\n"), line)
