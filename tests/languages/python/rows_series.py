"""Tests rows S1 to S19 of the table in ../conformance.md: series."""

import asyncio
import os
import signal
import time

import numpy as np

import crossdock
from bench import DEADLINE_S, check, heed, refused, say
from crossdock import (
    BusyError,
    ClosedError,
    ExistsError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    NotYetError,
    PeerDiedError,
    TimedOutError,
    WrongTypeError,
)
from rows import role, row

U = {"u": ("f8", (4, 5))}


def publish(t, variables=U, suffix="", **more):
    return t.session.publisher(t.name(suffix), variables, **more)


def observe(t):
    return t.session.observe(t.name(), timeout=DEADLINE_S)


def shows(version, value):
    check(f"version {version.sequence}", bool((version["u"] == value).all()), True)


def three(t, killed):
    with publish(t) as p:
        for k in range(1, 4):
            p.u[:] = k
            p.publish()
        say("three")
        heed("go")
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)


@row("describe and read")
def S1(t):
    p = publish(t, {**U, "n": "i4"}, constants={"u": {"dx": 0.5}}, attributes={"step": int, "time": float})
    p.u[:] = np.arange(20).reshape(4, 5)
    p["n"][...] = 7
    check("sequence", p.publish(step=3, time=0.25, note="ab"), 1)
    t.peer("B").ok()


@role
def S1_B(t):
    o = observe(t)
    u, n = o.variables["u"], o.variables["n"]
    check("u", (u.type, u.dtype, u.shape, u.order, u.constants), ("f64", np.dtype("f8"), (4, 5), "C", {"dx": 0.5}))
    check("n", (n.type, n.shape), ("i32", ()))
    v = o.latest()
    check("sequence", v.sequence, 1)
    check("u", v["u"].tolist(), np.arange(20.0).reshape(4, 5).tolist())
    check("n", int(v["n"]), 7)
    check("attributes", v.attributes, {"step": 3, "time": 0.25, "note": "ab"})
    check("types", [type(v.attributes[a]) for a in ("step", "time", "note")], [int, float, str])
    check("names", (list(v), len(v), "u" in v, "v" in v), (["u", "n"], 2, True, False))
    check("time", abs(v.time - time.time()) < 60, True)
    # The array cannot be made writable in any way.
    u = v["u"]
    check("writeable", (u.flags.writeable, memoryview(u).readonly), (False, True))
    for write in (lambda: u.__setitem__(0, 1), lambda: u.setflags(write=True)):
        try:
            write()
        except ValueError:
            continue
        raise AssertionError("a version's array was written")


@row("a version stays as it was")
def S2(t):
    p, o = publish(t), observe(t)
    p.u[:] = np.arange(20).reshape(4, 5)
    p.publish()
    held = o.latest()
    array = held["u"]
    for k in range(1, 21):
        p.u[:] = 100 * k
        p.publish()
    check("held", array.ravel().tolist(), list(range(20)))
    newest = o.latest()
    check("newest", newest.sequence, 21)
    shows(newest, 2000)
    # An array keeps its version alive, even if the version object is gone.
    one = o.at(21)["u"]
    p.u[:] = 0
    p.publish()
    check("an array alone", bool((one == 2000).all()), True)
    held.refresh()
    check("refreshed", (held.sequence, bool((array == 0).all())), (22, True))


@row("next waits")
def S3(t):
    b = t.peer("B")
    b.expect("one")
    o = observe(t)
    o.latest()
    with refused(TimedOutError, t.name(), within=(0.2, 2)):
        o.next(timeout=0.2)
    with refused(NotYetError):
        o.next(timeout=0)
    b.tell("two")
    v = o.next(timeout=DEADLINE_S)
    check("sequence", v.sequence, 2)
    shows(v, 2)
    b.tell("three")

    async def wait():
        return await o.anext(timeout=DEADLINE_S)

    shows(asyncio.run(wait()), 3)
    b.tell("end")
    check("iterated to the end", [v.sequence for v in o], [])
    b.ok()


@role
def S3_B(t):
    with publish(t) as p:
        p.publish()
        say("one")
        for word, k in (("two", 2), ("three", 3)):
            heed(word)
            time.sleep(0.2)
            p.u[:] = k
            p.publish()
        heed("end")


@row("at")
def S4(t):
    p, o = publish(t, keep=2), observe(t)
    for k in range(1, 6):
        p.u[:] = k
        p.publish()
    for k in (5, 4, 3):
        check("sequence", o.at(k).sequence, k)
        shows(o.at(k), k)
    with refused(NotFoundError, "1"):
        o.at(1)
    with refused(NotYetError):
        o.at(9)


@row("observing waits")
def S5(t):
    with refused(NotFoundError, t.name()):
        t.session.observe(t.name())
    with refused(TimedOutError, t.name(), within=(0.2, 2)):
        t.session.observe(t.name(), timeout=0.2)
    b = t.peer("B")
    observe(t)
    b.tell("end")
    b.ok()


@role
def S5_B(t):
    time.sleep(0.2)
    p = publish(t)
    p.publish()
    heed("end")


@row("one publisher")
def S6(t):
    b = t.peer("B")
    b.expect("up")
    with refused(ExistsError, t.name(), "peer"):
        publish(t)
    b.tell("end")
    b.ok()


@role
def S6_B(t):
    p = publish(t)
    say("up")
    heed("end")
    p.end()


@row("publisher ends")
def S7(t):
    b = t.peer("B")
    b.expect("three")
    before = observe(t)
    b.tell("go")
    b.ok()
    for o in (before, observe(t)):
        v = o.next(timeout=DEADLINE_S)
        check("sequence", v.sequence, 3)
        shows(v, 3)
        with refused(ClosedError, t.name()):
            o.next(timeout=DEADLINE_S)
        check("state", o.state, "ended")


@role
def S7_B(t):
    three(t, False)


@row("publisher killed")
def S8(t):
    b = t.peer("B")
    b.expect("three")
    o = observe(t)
    b.tell("go")
    check("exit status", b.wait(), -signal.SIGKILL)
    check("sequence", o.next(timeout=DEADLINE_S).sequence, 3)
    with refused(PeerDiedError, "peer", within=(0, 2)):
        o.next(timeout=DEADLINE_S)
    check("state", o.state, "died")
    shows(o.latest(), 3)
    p = publish(t)
    p.u[:] = 9
    p.publish()
    fresh = observe(t)
    check("another series", fresh.id != o.id, True)
    check("sequence", fresh.latest().sequence, 1)
    shows(fresh.latest(), 9)
    shows(o.latest(), 3)


@role
def S8_B(t):
    three(t, True)


@row("begin and abandon")
def S9(t):
    p, o = publish(t), observe(t)
    p.u[:] = 1
    p.publish()
    with p.begin(step=2) as begun:
        begun.u[:] = 2
    check("sequence and attributes", (o.latest().sequence, o.latest().attributes), (2, {"step": 2}))
    shows(o.latest(), 2)
    p.begin()
    with refused(BusyError, t.name()):
        p.begin()
    p.u[:] = 3
    # An array of a begun version must not survive `publish`, because the memory of a published version must not change.
    array = p.u
    with refused(BusyError, "arrays"):
        p.publish()
    del array
    p.abandon()
    check("latest", o.latest().sequence, 2)
    shows(o.latest(), 2)
    check("in place", bool((p.u == 2).all()), True)
    try:
        with p.begin():
            raise KeyError("on purpose")
    except KeyError:
        pass
    check("after a failure", p.publish(), 3)


@row("growing variable")
def S10(t):
    p, o = publish(t, {"u": ("f8", 10)}, max_shape={"u": 1000}), observe(t)
    p.publish()
    first = o.latest()
    p.resize("u", 20)
    check("new elements", p.u[10:].tolist(), [0.0] * 10)
    p.u[19] = 5
    p.publish()
    second = o.latest()
    check("shapes", (first["u"].shape, second["u"].shape), ((10,), (20,)))
    check("u[19]", second["u"][19], 5.0)
    with refused(InvalidError, "u"):
        p.resize("u", 1001)
    array = first["u"]
    with refused(BusyError, "arrays"):
        first.refresh()
    del array
    first.refresh()
    check("refreshed", first["u"].shape, (20,))


@row("full pool")
def S11(t):
    n = 65536
    p, o = publish(t, {"u": ("f8", n)}, capacity=5 * n * 8 // 2, full="fail"), observe(t)
    held = []
    with refused(NoSpaceError, t.name()):
        for k in range(1, 13):
            p.u[:] = k
            p.publish()
            held.append(o.latest()["u"])
    for k, array in enumerate(held, 1):
        check(f"held {k}", bool((array == k).all()), True)
    count = len(held)
    held.clear()
    del array
    p.publish()
    shows(o.latest(), count + 1)


@row("diff")
def S12(t):
    p, o = publish(t, {"u": ("f8", 262144)}, chunk=4096), observe(t)
    p.publish()
    one = o.latest()
    p.u[100] = 1
    p.touched("u", 800, 808)
    p.publish()
    two = o.latest()
    changes = crossdock.diff(one, two)
    check("variables", {c[0] for c in changes}, {"u"})
    check("little", sum(stop - start for _, start, stop in changes) <= 8192, True)
    check("what changed", any(start <= 800 < stop for _, start, stop in changes), True)
    check("nothing", crossdock.diff(two, two), [])


@row("misuse")
def S13(t):
    p = publish(t)
    with refused(NotFoundError, "velocity"):
        p["velocity"]
    p.publish(step=1)
    with refused(WrongTypeError, "step"):
        p.publish(step="one")
    with refused(InvalidError):
        p.publish(note="x" * 64)
    with refused(InvalidError):
        publish(t, {}, "b")
    with refused(InvalidError):
        publish(t, {"u": ("U4", 4)}, "b")
    with refused(InvalidError, "several"):
        publish(t, U, "b", full="several")


@row("a session is not left behind a series' back")
def S14(t):
    other = crossdock.connect(private_daemon=False)
    p, o = other.publisher(t.name(), U), observe(t)
    p.u[:] = 1
    p.publish()
    shows(o.next(timeout=DEADLINE_S), 1)
    other.close()
    with refused(ClosedError, t.name()):
        o.next(timeout=DEADLINE_S)
    check("state", o.state, "ended")


N = 65536
LARGE = {"u": ("f8", N)}


def filled(p, value):
    p.u[:] = value
    return p.publish()


@row("a publisher is not stopped by its observers")
def S15(t):
    p, o = publish(t, LARGE, capacity=5 * N * 8 // 2), observe(t)
    held, withheld = [], 0
    for k in range(1, 13):
        if filled(p, k) == 0:
            withheld += 1
        else:
            held.append(o.latest()["u"])
    check("withheld", (withheld >= 9, p.statistics["withheld"], p.statistics["no_space"]), (True, withheld, 0))
    check("why", "observer" in p.statistics["withheld_why"], True)
    for k, array in enumerate(held, 1):
        check(f"held {k}", bool((array == k).all()), True)
    count = len(held)
    held.clear()
    del array
    check("the next", p.publish(), count + 1)
    shows(o.latest(), 12)
    p.end()
    p = publish(t, LARGE, keep=9)
    for k in range(1, 13):
        check("number", filled(p, k), k)
    shows(observe(t).at(3), 3)


@row("what was taken back is an error, or stays")
def S16(t):
    p, o = publish(t, LARGE, capacity=5 * N * 8 // 2, full="take_back"), observe(t)
    filled(p, 1)
    read = o.latest()["u"]
    filled(p, 2)
    two = o.latest()
    for k in range(3, 15):
        check("number", filled(p, k), k)
    check("what was read", bool((read == 1).all()), True)
    with refused(NotFoundError, "take_back"):
        two["u"]


@row("each, and at with a deadline")
def S17(t):
    p, o = publish(t, keep=2), observe(t)
    for count, given in ((3, [(1, 0), (2, 0), (3, 0)]), (5, [(6, 2), (7, 0), (8, 0)])):
        with refused(NotYetError):
            next(o.each(timeout=0))
        for _ in range(count):
            p.publish()
        every = o.each(timeout=DEADLINE_S)
        for expected in given:
            v = next(every)
            check("version and missed", (v.sequence, v.missed), expected)
    with refused(TimedOutError, t.name(), within=(0.2, 2)):
        o.at(9, timeout=0.2)
    p.end()
    check("the end", list(o.each()), [])


@row("a normal end ends what is open")
def S18(t):
    b = t.peer("B")
    b.expect("three")
    o = observe(t)
    b.tell("go")
    b.ok()
    check("sequence", o.next(timeout=DEADLINE_S).sequence, 3)
    with refused(ClosedError, t.name()):
        o.next(timeout=DEADLINE_S)


left_open = []


@role
def S18_B(t):
    left_open.append(publish(t))
    for k in range(1, 4):
        filled(left_open[0], k)
    say("three")
    heed("go")


@row("a stuck observer costs one version")
def S19(t):
    p = publish(t, LARGE)
    filled(p, 1)
    b = t.peer("B")
    b.expect("held")
    for k in range(2, 42):
        check("number", filled(p, k), k)
    check("withheld", p.statistics["withheld"], 0)
    b.tell("go")
    b.ok()


@role
def S19_B(t):
    o = observe(t)
    held = o.latest()
    say("held")
    heed("go")
    # If the suite runs across nodes, a new observer waits here until the newest version has arrived on its node.
    check("another observer's latest", observe(t).latest().sequence, 41)
    shows(held, 1)
    newest = o.next(timeout=DEADLINE_S)
    check("sequence", newest.sequence, 41)
    shows(newest, 41)
