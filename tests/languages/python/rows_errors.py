"""Rows E1 to E3: what is refused, and how."""

import os
import tempfile

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
