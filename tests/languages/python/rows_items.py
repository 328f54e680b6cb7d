"""Tests rows I1 to I16 of the table in ../conformance.md: items."""

import os
import signal
import time

import numpy as np

from bench import DEADLINE_S, Failed, check, heed, refused, say
from crossdock import (
    BusyError,
    ClosedError,
    DeniedError,
    ExistsError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    NotYetError,
    TimedOutError,
)
from rows import role, row


def create(t, size, suffix="", value=None, **more):
    item = t.session.create_item(t.name(suffix), size, **more)
    if value is not None:
        item.array()[:] = value
    return item


def take(t, suffix=""):
    return t.session.access_item(t.name(suffix), timeout=DEADLINE_S)


def all_are(item, value, first=0, last=None):
    part = item.array()[first:last]
    if not (part == value).all():
        raise Failed(f"bytes {first} to {last} should all be {value}: {np.unique(part)}")


def there(t, suffix=""):
    try:
        t.session.find_item(t.name(suffix))
        return True
    except NotFoundError:
        return False


def belongs_to(t, task, suffix=""):
    info = t.session.find_item(t.name(suffix))
    check("owner", info.owner.split("/")[0], task)
    check("mine", info.mine, task == "test")


@row("create, find, destroy")
def I1(t):
    with refused(NotFoundError, t.name()):
        t.session.find_item(t.name())
    item = create(t, 10_000)
    all_are(item, 0)
    check("item", (item.size, item.writable, item.key), (10_000, True, t.name()))
    check("size", t.session.find_item(t.name()).size, 10_000)
    belongs_to(t, "test")
    with refused(ExistsError, t.name(), "test"):
        create(t, 10_000)
    item.destroy()
    check("there", there(t), False)
    create(t, 10_000).destroy()


LEVELS = (("", "verified"), ("b", "strict"), ("c", "cooperative"))


@row("transfer there and back")
def I2(t):
    b = t.peer("B")
    for suffix, level in LEVELS:
        create(t, 1_000_000, suffix, 7, level=level).transfer("peer")
        item = take(t, suffix)
        check("first", item.array()[0], 9)
        all_are(item, 7, 1)
        item.destroy()
    b.ok()


@role
def I2_B(t):
    for suffix, _ in LEVELS:
        item = take(t, suffix)
        check("size", item.size, 1_000_000)
        all_are(item, 7)
        item.array()[0] = 9
        item.transfer("test")


@row("to a task that is not there yet")
def I3(t):
    create(t, 5000, value=4).transfer("peer")
    belongs_to(t, "peer")
    t.peer("B").ok()


@role
def I3_B(t):
    item = take(t)
    all_are(item, 4)
    item.destroy()


@row("a waiting task gets it")
def I4(t):
    b = t.peer("B")
    b.expect("made")
    b.tell("go")
    began = time.monotonic()
    item = take(t)
    check("took 200 ms to 2 s", 0.15 <= time.monotonic() - began <= 2, True)
    item.destroy()
    b.ok()


@role
def I4_B(t):
    item = create(t, 4096)
    say("made")
    heed("go")
    time.sleep(0.2)
    item.transfer("test")


@row("deadline names the owner")
def I5(t):
    b = t.peer("B")
    b.expect("made")
    with refused(NotYetError):
        t.session.access_item(t.name(), timeout=0)
    with refused(TimedOutError, t.name(), "peer", within=(0.19, 2)):
        t.session.access_item(t.name(), timeout=0.2)
    b.tell("done")
    b.ok()


@role
def I5_B(t):
    item = create(t, 4096)
    say("made")
    heed("done")
    item.destroy()


@row("a spent item is nothing")
def I6(t):
    item = create(t, 4096, value=8)
    memory, array = item.memory, item.array()
    # While an array over the memory exists, the item cannot be handed to another task.
    with refused(BusyError, t.name()):
        item.transfer("peer")
    check("still there", int(array.sum()), 8 * 4096)
    del array
    item.transfer("peer")
    for use in (item.array, lambda: item.transfer("test"), lambda: item.copy(t.name("b")), lambda: item.resize(10),
                item.share, item.unshare, item.region, item.destroy, lambda: item.size, lambda: item.memory,
                lambda: np.asarray(item)):
        with refused(ClosedError):
            use()
    with refused(ClosedError, "peer"):
        item.transfer("test")
    # A memoryview that was taken before is released. Using it is an error, and never shows the bytes of another owner.
    try:
        memory[0]
    except ValueError:
        pass
    else:
        raise Failed("a view was used after the transfer")
    t.peer("B").ok()


@role
def I6_B(t):
    item = take(t)
    all_are(item, 8)
    item.destroy()


@row("copy")
def I7(t):
    item = create(t, 100_000, value=5)
    copy = item.copy(t.name("b"))
    with refused(ExistsError, t.name("b")):
        item.copy(t.name("b"))
    item.array()[:] = 6
    all_are(copy, 5)
    item.destroy()
    all_are(copy, 5)
    belongs_to(t, "test", "b")
    copy.destroy()


@row("share and unshare")
def I8(t):
    item = create(t, 50_000, value=3)
    item.share()
    check("writable", (item.writable, item.array().flags.writeable, item.memory.readonly), (False, False, True))
    all_are(item, 3)
    b = t.peer("B")
    b.expect("reading")
    info = t.session.find_item(t.name())
    check("info", (info.state, info.readers), ("shared", 2))
    b.tell("let go")
    b.expect("gone")
    item.unshare(timeout=DEADLINE_S)
    check("writable", item.writable, True)
    all_are(item, 3)
    item.array()[:] = 4
    b.tell("again")
    b.ok()
    item.destroy()


@role
def I8_B(t):
    with t.session.read_item(t.name(), timeout=DEADLINE_S) as item:
        all_are(item, 3)
        check("writable", (item.writable, item.array().flags.writeable), (False, False))
        with refused(DeniedError):
            item.transfer("peer")
        say("reading")
        heed("let go")
    say("gone")
    heed("again")
    with refused(NotYetError):
        t.session.read_item(t.name(), timeout=0)


@row("resize")
def I9(t):
    item = create(t, 4096, value=5)
    item.resize(1_000_000)
    all_are(item, 5, 0, 4096)
    all_are(item, 0, 4096)
    item.resize(100)
    check("size", (item.size, len(item.array())), (100, 100))
    all_are(item, 5)
    with refused(InvalidError, "0"):
        item.resize(0)
    all_are(item, 5)
    item.destroy()


@row("bad arguments")
def I10(t):
    with refused(InvalidError, "0"):
        create(t, 0)
    try:
        create(t, 1 << 60)
    except (NoSpaceError, InvalidError):
        pass
    else:
        raise Failed("an item of 2**60 bytes was made")
    for key in ("a b", ""):
        with refused(InvalidError):
            t.session.create_item(key, 10)
    with refused(InvalidError, "careless"):
        create(t, 10, level="careless")
    with refused(InvalidError, "cremate"):
        create(t, 10, on_death="cremate")
    item = create(t, 4096, value=2)
    for to in ("", "a b", "#x"):
        with refused(InvalidError):
            item.transfer(to)
    all_are(item, 2)
    belongs_to(t, "test")
    with refused(InvalidError, "4096"):
        item.array("f8", 513)
    with refused(NotFoundError, t.name("b")):
        t.session.find_item(t.name("b"))
    with refused(NotFoundError, t.name("b")):
        t.session.access_item(t.name("b"), timeout=0)
    item.destroy()


@row("access twice")
def I11(t):
    item = create(t, 4096, value=6)
    with refused(BusyError, t.name()):
        t.session.access_item(t.name(), timeout=0)
    item.close()
    item = take(t)
    all_are(item, 6)
    item.destroy()


@row("destroyed while others wait")
def I12(t):
    item = create(t, 4096)
    b = t.peer("B")
    b.expect("waiting")
    time.sleep(0.2)
    item.destroy()
    b.ok()


@role
def I12_B(t):
    say("waiting")
    with refused(NotFoundError, t.name(), within=(0, 3)):
        take(t)


@row("the first of several")
def I13(t):
    b = t.peer("B")
    b.expect("made")
    item = t.session.access_any([t.name(), t.name("b"), t.name("c")], timeout=DEADLINE_S)
    check("key", item.key, t.name("b"))
    with refused(InvalidError):
        t.session.access_any([], timeout=DEADLINE_S)
    b.tell("done")
    item.destroy()
    b.ok()


@role
def I13_B(t):
    first, second, third = (create(t, 4096, suffix) for suffix in ("", "b", "c"))
    say("made")
    time.sleep(0.2)
    second.transfer("test")
    heed("done")
    first.destroy()
    third.destroy()


@row("a heap in an item")
def I14(t):
    item = create(t, 4 << 20)
    with item.region("create_only") as heap:
        heap.vector("v", "f8", 1000).array[:] = np.arange(1, 1001)
        with refused(BusyError, t.name()):
            item.transfer("peer")
    item.transfer("peer")
    b = t.peer("B")
    item = take(t)
    with item.region("open_only") as heap:
        v = heap.vector("v", "f8", mode="open_only")
        check("v", (len(v), float(v[1000])), (1001, -1.0))
    item.destroy()
    b.ok()


@role
def I14_B(t):
    item = take(t)
    with item.region("open_only") as heap:
        v = heap.vector("v", "f8", mode="open_only")
        check("v", (len(v), float(v.array.sum())), (1000, 500500.0))
        v.resize(1001)
        v[1000] = -1
    item.transfer("test")


@row("owner's death")
def I15(t):
    for suffix, policy in (("", "keep"), ("b", "return"), ("c", "destroy")):
        create(t, 4096, suffix, on_death=policy).transfer("peer")
    b = t.peer("B")
    b.expect("taken")
    b.wait()
    began = time.monotonic()
    take(t, "b").destroy()
    while there(t, "c") and time.monotonic() - began < 2:
        time.sleep(0.01)
    check("c is there", there(t, "c"), False)
    belongs_to(t, "peer")
    t.peer("C").ok()


@role
def I15_B(t):
    items = [take(t, suffix) for suffix in ("", "b", "c")]
    check("taken", len(items), 3)
    say("taken")
    os.kill(os.getpid(), signal.SIGKILL)


@role
def I15_C(t):
    take(t).destroy()


@row("numbers")
def I16(t):
    number = 4000 + os.getpid()
    t.session.register_number(number)
    b = t.peer("B", f"#{number}")
    item = take(t)
    all_are(item, 1)
    b.ok()
    item.transfer(f"#{number + 1}")
    with refused(NotYetError):
        t.session.access_item(t.name(), timeout=0)
    t.session.register_number(number + 1)
    take(t).destroy()


@role
def I16_B(t, to):
    create(t, 4096, value=1).transfer(to)
