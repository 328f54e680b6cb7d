"""Tests rows F1 to F9 of the table in ../conformance.md: files of managed directories."""

import errno
import os
import signal
import time

import crossdock
from bench import Failed, check, heed, refused, say
from crossdock import NotFoundError, TimedOutError
from rows import role, row

SIZE = 100_000


def place(row, side, name):
    root = os.environ.get("CROSSDOCK_CONFORMANCE_FILES")
    if root is None:
        raise Failed("CROSSDOCK_CONFORMANCE_FILES is not set; tests/languages/python/run sets it")
    return os.path.join(root, row, side, name)


def write(row, name, byte=b"x"):
    with open(place(row, "stage", name), "wb") as file:
        file.write(byte * SIZE)


def holds(file, byte=b"x"):
    with file:
        check(f"content of {file.name}", file.read() == byte * SIZE, True)


def comes(row, name, byte=b"x"):
    holds(crossdock.open(place(row, "published", name), "rb"), byte)


def seen(row, name):
    return os.path.exists(place(row, "published", name))


def opened(t, row, name):
    """Process B writes the file, and process A opens it."""
    t.peer("writes", name).ok()
    return crossdock.open(place(row, "published", name), "rb")


def writes(t, name):
    write(t.row.lower(), name)


for number in ("F4", "F7", "F9"):
    # The decorator takes the number of the row from the function's name.
    writes.__name__ = f"{number}_writes"
    role(writes)


@role
def F1_later(_t):
    time.sleep(0.2)
    write("f1", "coming")


@row("a file that comes")
def F1(t):
    peer = t.peer("later")
    comes("f1", "coming")
    peer.ok()
    began = time.monotonic()
    crossdock.await_file("/nonexistent/file")
    check("a path elsewhere is not awaited", time.monotonic() - began < 2, True)


@row("deadline names the producer")
def F2(_t):
    path = place("f2", "published", "never")
    with refused(TimedOutError, "f2/published/never", "simulate", within=(0.3, 5)):
        crossdock.await_file(path)


@role
def F3_dies(_t):
    os.symlink(str(os.getpid()), place("f3", "stage", ".producer"))
    with open(place("f3", "stage", "half"), "wb", buffering=0) as file:
        file.write(b"x" * (SIZE // 2))
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)


@row("dead producer")
def F3(t):
    peer = t.peer("dies")
    with refused(NotFoundError, "half", "simulate failed", "killed"):
        crossdock.open(place("f3", "published", "half"), "rb")
    check("half is seen", seen("f3", "half"), False)
    check("end of the producer", peer.wait(), -signal.SIGKILL)


@role
def F4_again(_t):
    write("f4", "next", b"y")
    os.rename(place("f4", "stage", "next"), place("f4", "stage", "name"))
    write("f4", "after")


@row("published name written again")
def F4(t):
    held = opened(t, "f4", "name")
    t.peer("again").ok()
    comes("f4", "after")
    comes("f4", "name", b"y")
    holds(held)


@role
def F5_slowly(_t):
    with open(place("f5", "stage", "slow"), "wb", buffering=0) as file:
        file.write(b"x" * (SIZE // 2))
        say("half")
        heed("go on")
        file.write(b"x" * (SIZE // 2))


@row("never part of a file")
def F5(t):
    peer = t.peer("slowly")
    peer.expect("half")
    check("slow is seen", seen("f5", "slow"), False)
    peer.tell("go on")
    comes("f5", "slow")
    peer.ok()


@role
def F6_folder(_t):
    os.makedirs(place("f6", "stage", "a/b"), exist_ok=True)
    write("f6", "a/b/c")


@row("directories")
def F6(t):
    t.peer("folder").ok()
    comes("f6", "a/b/c")


@role
def F7_remove(_t):
    os.remove(place("f7", "stage", "gone"))
    write("f7", "after")


@row("removal")
def F7(t):
    held = opened(t, "f7", "gone")
    t.peer("remove").ok()
    comes("f7", "after")
    check("gone is seen", seen("f7", "gone"), False)
    holds(held)


@role
def F8_full(_t):
    big = place("f8", "stage", "big")
    try:
        with open(big, "wb", buffering=0) as file:
            while file.tell() < 2_000_000:
                file.write(b"x" * SIZE)
        raise Failed("2 000 000 bytes were written into 1 MiB")
    except OSError as error:
        check("errno", error.errno, errno.ENOSPC)
    os.remove(big)
    for _ in range(1000):
        room = os.statvfs(place("f8", "stage", ""))
        if room.f_bavail * room.f_bsize >= 2 * SIZE:
            break
        time.sleep(0.01)
    write("f8", "small")


@row("quota")
def F8(t):
    t.peer("full").ok()
    comes("f8", "small")
    check("big is seen", seen("f8", "big"), False)


@row("retention")
def F9(t):
    for name in ("1", "2", "3"):
        opened(t, "f9", name).close()
    check("1 is seen", seen("f9", "1"), False)
    comes("f9", "2")
