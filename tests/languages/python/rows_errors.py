"""Tests rows E1 to E4 of the table in ../conformance.md: which calls are refused, and with which errors."""

import os
import tempfile
import time

import crossdock
from bench import MIB, Failed, check, refused
from crossdock import InvalidError, NoSpaceError, NotFoundError
from rows import row


@row("bad names")
def E1(t):
    region = t.region()
    for name in ("", 128 * "x", "a b", "/a", "a/../b"):
        with refused(InvalidError):
            t.session.region(name, "create_only", MIB)
        with refused(InvalidError):
            region.simple(name, "i4")
        with refused(InvalidError):
            t.session.port(name, "producer")


@row("bad sizes and types")
def E2(t):
    with refused(InvalidError):
        t.region("zero", "create_only", 0)
    try:
        t.region("huge", "create_only", 1 << 60)
        raise Failed("a region of 2^60 bytes was made")
    except (InvalidError, NoSpaceError) as error:
        check("message", bool(str(error)), True)
    t.region("s", size="1 MiB")
    t.region("s", size=None)
    with refused(InvalidError):
        t.region("s", size="2 MiB")
    region = t.region()
    handle = region.simple("n", "i4").handle
    with refused(InvalidError, "f65"):
        region.load(handle, "f65")
    with refused(InvalidError, "f65"):
        region.simple("m", "f65")


@row("no daemon")
def E3(_t):
    path = os.path.join(tempfile.gettempdir(), f"crossdock-nothing-{os.getpid()}", "endpoint.sock")
    with refused(NotFoundError, path, within=(0, 2)):
        crossdock.connect(path, private_daemon=False)


def reported(t, wanted):
    """Waits until the daemon lists this progress for the session."""
    end = time.monotonic() + 5
    while True:
        listed = next(m.progress for m in t.session.list().members if m.id == t.session.member)
        if listed == wanted:
            return
        if time.monotonic() > end:
            raise Failed(f"the daemon lists {listed}, not {wanted}")
        time.sleep(0.01)


@row("progress")
def E4(t):
    with refused(InvalidError, "11 of 10"):
        t.session.progress(11, 10)
    for n in range(1, 1001):
        t.session.progress(n, 1000)
    reported(t, (1000, 1000))
    t.session.progress(0, 0)
    reported(t, None)
