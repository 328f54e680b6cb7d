"""Tests rows R1 to R17 of the table in ../conformance.md: regions and objects."""

import ctypes
import random
import time

import numpy as np

import crossdock
from bench import DEADLINE_S, MIB, Failed, check, heed, refused, say
from crossdock import (
    BadHandleError,
    ExistsError,
    Handle,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    TimedOutError,
    WrongTypeError,
)
from rows import role, row

STRUCT = np.dtype([("number", "i4"), ("value", "f8"), ("three", "i4", (3,))], align=True)


@row("modes")
def R1(t):
    with refused(NotFoundError, t.name()):
        t.region(mode="open_only")
    first = t.region(mode="create_only")
    first.simple("n", "i4")
    with refused(ExistsError, t.name()):
        t.region(mode="create_only")
    check("id, open_only", t.region(mode="open_only").segment, first.segment)
    check("id, open_or_create", t.region().segment, first.segment)
    second = t.region(mode="recreate")
    if second.segment == first.segment:
        raise Failed("recreate gave the same region")
    with refused(NotFoundError):
        second.simple("n", "i4", mode="open_only")


@row("simple")
def R2(t):
    n = t.region().simple("n", "i4", mode="create_only")
    check("a new n", n.value, 0)
    n.value = 123
    t.peer("B").ok()
    check("n after B", n.value, 370)


@role
def R2_B(t):
    n = t.region(mode="open_only").simple("n", "i4", mode="open_only")
    check("n in B", n.value, 123)
    n.value = 3 * n.value + 1


@row("struct and array")
def R3(t):
    region = t.region()
    check("type", crossdock.type_name(STRUCT), "{i32,f64,i32[3]}")
    s, a = region.simple("s", STRUCT), region.simple("a", ("f4", 512))
    s.value = (7, 2.5, [1, 2, 3])
    a.array[:] = np.arange(512) / 2
    t.peer("B").ok()
    check("s after B", (s["number"], s["value"], s["three"].tolist()), (7, -2.5, [1, 2, 3]))
    check("a after B", (a[510], a[511]), (255, 1))


@role
def R3_B(t):
    region = t.region(mode="open_only")
    s, a = region.simple("s"), region.simple("a")
    check("s", (s["f0"], s["f1"], s["f2"].tolist()), (7, 2.5, [1, 2, 3]))
    check("a", (a.array == np.arange(512) / 2).all(), True)
    s["f1"] = -2.5
    a[511] = 1


@row("vector")
def R4(t):
    v = t.region().vector("v", "f8", mode="create_only")
    check("size of a new one", len(v), 0)
    v.resize(1000)
    v.array[:] = np.arange(1000)
    t.peer("B").ok()
    check("size after B", len(v), 100_000)
    check("the first 1000", (v.array[:1000] == np.arange(1000)).all(), True)
    check("the others", v.array[1000:].any(), False)
    v.resize(10)
    check("size and v[9]", (len(v), v[9]), (10, 9))


@role
def R4_B(t):
    v = t.region(mode="open_only").vector("v", "f8", mode="open_only")
    check("size in B", len(v), 1000)
    check("elements in B", (v.array == np.arange(1000)).all(), True)
    v.resize(100_000)


@row("string")
def R5(t):
    s = t.region().string("s", mode="create_only")
    check("a new one", s.value, "")
    s.value = "crossdock"
    t.peer("B").ok()
    check("after B", s.bytes, b"x" * 1000)
    s.value = ""
    check("length", len(s), 0)


@role
def R5_B(t):
    s = t.region(mode="open_only").string("s", mode="open_only")
    check("in B", s.value, "crossdock")
    s.bytes = b"x" * 1000


@row("ndarray")
def R6(t):
    region = t.region()
    i, j, k = np.indices((3, 4, 5))
    for name, order in (("c", "C"), ("f", "F")):
        region.ndarray(name, (3, 4, 5), "f4", order=order).array[...] = 100 * i + 10 * j + k
    t.peer("B").ok()
    c = region.ndarray("c")
    check("rank and shape", (c.array.ndim, c.shape), (2, (6, 10)))


@role
def R6_B(t):
    region = t.region(mode="open_only")
    i, j, k = np.indices((3, 4, 5))
    for name, order in (("c", "C"), ("f", "F")):
        a = region.ndarray(name)
        check("shape and order", (a.shape, a.order), ((3, 4, 5), order))
        check(f"elements of {name}", (a.array == 100 * i + 10 * j + k).all(), True)
        check("NumPy's word", a.array.flags["F_CONTIGUOUS"], order == "F")
    region.ndarray("c").reshape((6, 10))


@row("wrong type")
def R7(t):
    region = t.region()
    n = region.simple("n", "i4")
    n.value = 7
    with refused(WrongTypeError, "n", "i32", "f64"):
        region.simple("n", "f8")
    check("n", n.value, 7)


@row("not found, with and without deadline")
def R8(t):
    region = t.region()
    with refused(NotFoundError, "late", within=(0, 0.1)):
        region.simple("late", "i4", mode="open_only")
    with refused(TimedOutError, "late", within=(0.2, 2)):
        region.simple("late", "i4", mode="open_only", timeout=0.2)
    b = t.peer("B")
    b.expect("ready")
    b.tell("go")
    check("late", region.simple("late", "i4", mode="open_only", timeout=DEADLINE_S).type, "i32")
    b.ok()


@role
def R8_B(t):
    region = t.region(mode="open_only")
    say("ready")
    heed("go")
    time.sleep(0.2)
    region.simple("late", "i4", mode="create_only")


@row("create only")
def R9(t):
    region = t.region()
    n = region.simple("n", "i4", mode="create_only")
    n.value = 9
    with refused(ExistsError, "n"):
        region.simple("n", "i4", mode="create_only")
    check("n", n.value, 9)


@row("save and load")
def R10(t):
    region = t.region()
    v = region.vector("v", "f8", 3)
    v.array[:] = 1, 2, 3
    handle = region.save(v)
    b = t.peer("B", handle.to_bytes().hex())
    b.expect(handle.to_bytes().hex())
    b.ok()


@role
def R10_B(t, said):
    handle = Handle.from_bytes(bytes.fromhex(said))
    region = t.region(mode="open_only")
    v = region.load(handle, "vector<f64>")
    check("elements", v.array.tolist(), [1, 2, 3])
    say(region.save(v).to_bytes().hex())
    with refused(WrongTypeError):
        region.load(handle, "vector<i32>")


@row("bad handles")
def R11(t):
    region, other = t.region(), t.region("b")
    good, gone = region.vector("v", "f8", 8).handle, region.vector("gone", "f8", 8).handle
    region.remove("gone")
    bad = {
        "of another region": other.vector("v", "f8", 8).handle,
        "of a removed object": gone,
        "moved by 8": Handle(good.segment, good.offset + 8),
        "far away": Handle(good.segment, 1 << 40),
        "random": Handle(random.getrandbits(64), random.getrandbits(64)),
        "zero": Handle(0, 0),
    }
    for what, handle in bad.items():
        try:
            with refused(BadHandleError):
                region.load(handle)
        except Exception as error:
            raise Failed(f"handle {what}: {error!r}") from error
    check("the good one", len(region.load(good)), 8)


@row("remove and reuse")
def R12(t):
    region = t.region()
    with refused(NotFoundError):
        region.remove("o")
    # The first object of a member takes a slice of the region's memory, which later objects use as well. So the first
    # object is made before the measurement.
    region.vector("o", "f8", 1000)
    region.remove("o")
    before = region.statistics
    for _ in range(100):
        region.vector("o", "f8", 1000, mode="create_only")
        region.remove("o")
        region.simple("o", "i4", mode="create_only")
        region.remove("o")
    after = region.statistics
    check("used and objects", (after["used"], after["objects"]), (before["used"], before["objects"]))


@row("region full")
def R13(t):
    region = t.region(size=MIB)
    v = region.vector("v", "u1", 1000)
    v.array[:] = 3
    with refused(NoSpaceError):
        v.resize(4 * MIB)
    check("v", (len(v), (v.array == 3).all()), (1000, True))
    made = []
    try:
        for n in range(64):
            region.simple(f"o{n}", ("u1", 65536), mode="create_only")
            made.append(n)
        raise Failed("64 objects of 64 KiB went into 1 MiB")
    except NoSpaceError:
        pass
    for n in made[::2]:
        region.remove(f"o{n}")
    region.simple("more", ("u1", 65536), mode="create_only")


@row("removed region")
def R14(t):
    region = t.region()
    n = region.simple("n", "i4")
    handle, old = n.handle, region.segment
    t.session.remove_region(region.name)
    n.value = 5
    check("n in the removed region", n.value, 5)
    with refused(NotFoundError, t.name()):
        t.region(mode="open_only")
    new = t.region(mode="create_only")
    if new.segment == old:
        raise Failed("the new region has the old one's id")
    with refused(BadHandleError):
        new.load(handle)


@row("size")
def R15(t):
    made = t.session.region(t.name(), size=16 * MIB)
    check("capacity", made.capacity, 16 * MIB)
    check("id", t.session.region(t.name(), size=16 * MIB).segment, made.segment)
    with refused(InvalidError, "16777216"):
        t.session.region(t.name(), size=16 * MIB + 4096)
    with refused(InvalidError, "16781312"):
        t.session.region(t.name(), size=16 * MIB + 4096)


@row("move")
def R16(t):
    region = t.region("b", "create_only")
    v = region.vector("v", "f8", 3)
    v.array[:] = 1, 2, 3
    said = region.save(v).to_bytes().hex()
    del v
    region.close()
    t.peer("B", said).ok()


@role
def R16_B(t, said):
    handle = Handle.from_bytes(bytes.fromhex(said))
    moved = t.session.move_region(t.name("b"), timeout=DEADLINE_S)
    check("elements", moved.load(handle, "vector<f64>").array.tolist(), [1, 2, 3])
    check("id", t.session.move_region(t.name("b")).segment, moved.segment)
    with refused(InvalidError, t.name("b")):
        t.session.copy_region(t.name("b"), t.name("b"))
    with refused(NotFoundError, t.name("c")):
        t.session.move_region(t.name("c"), timeout=0.1)
    t.session.remove_region(t.name("b"))


def fixed_arrays():
    """The elements of row R17's array."""
    i, j, k = np.indices((2, 3, 3))
    return 100.0 * i + 10 * j + k


@row("ndarray of fixed arrays")
def R17(t):
    f = t.region().ndarray("f", (2, 3), ("f8", 3), order="F")
    f.array[...] = fixed_arrays()
    t.peer("B").ok()
    check("the last element", f.array[1, 2].tolist(), [-1, -2, -3])


@role
def R17_B(t):
    f = t.region(mode="open_only").ndarray("f")
    check("shape and order", (f.shape, f.order), ((2, 3), "F"))
    check("elements", f.array.tolist(), fixed_arrays().tolist())
    numbers = (ctypes.c_double * 18).from_address(f.array.__array_interface__["data"][0])
    check("numbers in memory", list(numbers), fixed_arrays().transpose(1, 0, 2).ravel().tolist())
    f.array[1, 2] = -1, -2, -3
