"""Does in Python what forks.c does: forks while other threads use the library. Each child uses a session of its own.

    forks.py CHILDREN
"""
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np

import crossdock

DEADLINE, AT_ONCE = 60, 4
over = threading.Event()
broken = []


def connect():
    return crossdock.connect(private_daemon=False, timeout=DEADLINE / 2)


def repeats(work):
    def loop():
        try:
            while not over.is_set():
                work()
        except BaseException as error:  # a thread's error must fail the test
            broken.append(f"{work.__name__}: {type(error).__name__}: {error}")

    return threading.Thread(target=loop)


def child(number):
    """Uses every kind of object, with a session of the child's own."""
    session = connect()
    region = session.region("heap", size=64 << 20)
    name = f"child-{number}"
    array = region.ndarray(name, dtype="u8", shape=(100,))
    array.array[...] = number
    if not np.all(np.asarray(array.array) == number):
        raise AssertionError("the array is not as it was written")
    region.remove(name)
    if number % 4 == 0:
        publisher = session.publisher(name, {"u": ("u8", (1000,))})
        publisher.publish()
        publisher.end()
        session.remove_series(name)
        session.create_item(name, 4096).destroy()
    session.close()


def fork(number):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(DEADLINE)
        child(number)
        status = 0
    except BaseException as error:
        print(f"forks: child {number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def main(children):
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
    session = connect()
    heap = session.region("heap", size=64 << 20)

    def allocates():
        vector = heap.vector("allocates", dtype="u8")
        vector.resize(1000)
        vector.resize(10)
        heap.remove("allocates")

    def attaches():
        session.region("other", size=1 << 20).close()

    def connects():
        with connect() as own:
            own.region("heap", size=64 << 20)

    def publishes():
        publisher = session.publisher("series", {"u": ("u8", (1000,))})
        for _ in range(5):
            publisher.publish()
        publisher.end()
        session.remove_series("series")

    threads = [repeats(work) for work in (allocates, attaches, connects, publishes)]
    for thread in threads:
        thread.start()
    failed, running = 0, 0

    def reap():
        nonlocal failed
        pid, status = os.wait()
        if status:
            failed += 1
            print(f"forks: child {pid} ended with {status}", file=sys.stderr)

    for number in range(children):
        time.sleep(number * 7919 % 500 / 1e6)
        fork(number)
        running += 1
        if running == AT_ONCE:
            reap()
            running -= 1
        if failed or broken:
            break
    for _ in range(running):
        reap()
    over.set()
    for thread in threads:
        thread.join(DEADLINE)
    for text in broken:
        print(f"forks: thread: {text}", file=sys.stderr)
    bad = failed + len(broken) > 0
    print(f"python: {int(not bad)} passed, {int(bad)} failed", flush=True)
    return int(bad)


sys.exit(main(int(sys.argv[1])))
