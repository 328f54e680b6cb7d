"""Tests waits beside other threads, in event loops and with Ctrl-C. Also tests what peers learn when a program ends."""

import asyncio
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import crossdock


@pytest.fixture
def ends(session, name):
    """Producer and consumer of a port of the test's own."""
    producer, consumer = session.port(name, "producer", capacity=2), session.port(name, "consumer", capacity=2)
    yield producer, consumer
    producer.close()
    consumer.close()
    session.remove_port(name)


def python(program, **more):
    """Starts another process that runs the text `program`, in which `crossdock` is imported and `s` is a session."""
    head = "import crossdock, sys, time\ns = crossdock.connect(task='peer', private_daemon=False)\n"
    command = [sys.executable, "-c", head + textwrap.dedent(program)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_a_message_carries_object_tag_and_bytes(ends, region):
    producer, consumer = ends
    vector = region.vector("v", "f8", 10)
    producer.send(vector.array, tag=2**64 - 1, inline=b"x" * 24)
    with consumer.receive() as message:
        assert (message.handle, message.tag, message.inline) == (vector.handle, 2**64 - 1, b"x" * 24)
        loaded = message.load()
        assert isinstance(loaded, crossdock.Vector) and loaded.array.shape == (10,)
    assert message.released
    with pytest.raises(crossdock.InvalidError, match="released"):
        message.release()
    with pytest.raises(crossdock.InvalidError, match="released"):
        message.load()
    with pytest.raises(crossdock.InvalidError, match="24"):
        producer.send(inline=b"x" * 25)
    assert producer.statistics["bytes_handed_over"] == 80 + 24
    producer.note_copied(80)
    assert producer.statistics["bytes_copied"] == 80


def test_a_forgotten_message_is_released_with_its_last_array(ends, region):
    producer, consumer = ends
    vector = region.vector("v", "f8", 10)
    producer.send(vector)
    array = consumer.receive().load().array
    assert producer.statistics["received"] == 0, "the array still needs it"
    del array
    assert producer.statistics["received"] == 1
    assert producer.reclaim() == vector.handle


def test_iterating_ends_when_the_producer_has_left(ends):
    producer, consumer = ends
    producer.send(tag=1)
    producer.send(tag=2)
    producer.close()
    assert [message.tag for message in consumer.messages(timeout=5)] == [1, 2]
    assert list(consumer) == []


def test_iterating_has_a_deadline_for_each_message(ends):
    producer, consumer = ends
    producer.send(tag=1)
    messages = consumer.messages(timeout=0.1)
    assert next(messages).tag == 1
    with pytest.raises(crossdock.TimedOutError):
        next(messages)


def test_polling_and_deadlines(ends):
    _, consumer = ends
    with pytest.raises(crossdock.NotYetError) as not_yet:
        consumer.receive(timeout=0)
    assert isinstance(not_yet.value, BlockingIOError)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        consumer.receive(timeout=0.35)
    assert 0.35 <= time.monotonic() - began < 1
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(crossdock.InvalidError, match="deadline"):
            consumer.receive(timeout=seconds)


def test_other_threads_run_while_one_waits(ends):
    producer, consumer = ends
    got = []
    thread = threading.Thread(target=lambda: got.append(consumer.receive(timeout=5).tag))
    thread.start()
    time.sleep(0.05)
    producer.send(tag=5)
    thread.join(timeout=5)
    assert got == [5]


def test_closing_ends_a_wait_of_another_thread(ends):
    _, consumer = ends
    errors = []

    def wait():
        try:
            consumer.receive(timeout=10)
        except crossdock.Error as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    consumer.close()
    thread.join(timeout=2)
    assert [type(e) for e in errors] == [crossdock.ClosedError]


def test_ctrl_c_ends_a_wait(ends, name):
    peer = python(f"""
        import signal
        p = s.port({name + "/2"!r}, "consumer")
        print("waiting", flush=True)
        try:
            p.receive(timeout=20)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        s.remove_port({name + "/2"!r})
    """)
    assert peer.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    began = time.monotonic()
    peer.send_signal(signal.SIGINT)
    assert peer.stdout.readline() == "interrupted\n"
    assert time.monotonic() - began < 1
    peer.communicate(timeout=5)


# How a program can end, and what its peers see then.
ENDINGS = [
    ("pass", crossdock.ClosedError),
    ("sys.exit(0)", crossdock.ClosedError),
    ("sys.exit(3)", crossdock.PeerDiedError),
    ("sys.exit('failed')", crossdock.PeerDiedError),
    ("raise RuntimeError('failed')", crossdock.PeerDiedError),
    ("raise KeyboardInterrupt", crossdock.PeerDiedError),
    ("import os; os._exit(0)", crossdock.PeerDiedError),
]


@pytest.mark.parametrize("ending, seen", ENDINGS)
@pytest.mark.parametrize("way", ["open", "with"])
def test_peers_see_how_a_program_ended(session, name, ending, seen, way):
    consumer = session.port(name, "consumer")
    with_block = f"with s, s.port({name!r}, 'producer') as p: p.send(tag=1); {ending}"
    left_open = f"p = s.port({name!r}, 'producer'); p.send(tag=1); {ending}"
    peer = python(with_block if way == "with" else left_open)
    assert consumer.receive(timeout=10).tag == 1
    with pytest.raises(seen) as error:
        consumer.receive(timeout=10)
    if seen is crossdock.PeerDiedError:
        assert "peer" in str(error.value)
    peer.communicate(timeout=5)
    consumer.close()
    session.remove_port(name)


@pytest.mark.parametrize("ending, seen", ENDINGS)
def test_observers_see_how_a_program_ended(session, name, ending, seen):
    peer = python(f"""
        p = s.publisher({name!r}, {{"u": ("f8", 10)}})
        p.publish()
        sys.stdin.readline()
        {ending}
    """)
    observer = session.observe(name, timeout=10)
    assert observer.next(timeout=10).sequence == 1
    peer.stdin.write("\n")
    peer.stdin.flush()
    with pytest.raises(seen):
        observer.next(timeout=10)
    peer.communicate(timeout=5)
    observer.close()
    session.remove_series(name)


def test_arrays_stay_until_the_interpreter_has_ended(session, name):
    program = f"""
        import atexit

        def late():
            print("late", array.sum())
            for use in (lambda: s.member, lambda: p.send(tag=2), lambda: v.array, lambda: f.publish()):
                try:
                    use()
                except crossdock.DisconnectedError as error:
                    print("the interpreter ends" in str(error))

        atexit.register(late)
        import crossdock
        s = crossdock.connect(task="peer", private_daemon=False)
        r = s.region({name!r}, size="1 MiB")
        v = r.vector("v", "f8", 10)
        array = v.array
        array[:] = 1
        p = s.port({name!r}, "producer")
        f = s.publisher({name!r}, {{"u": ("f8", 10)}})
        s.remove_region({name!r}); s.remove_port({name!r})
        atexit.register(lambda: print("early", array.sum() + v.array.sum(), p.send(tag=1)))
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=30)
    said = ["early 20.0 None", "late 10.0", "True", "True", "True", "True"]
    assert (run.returncode, run.stderr, run.stdout.splitlines()) == (0, "", said)
    session.remove_series(name)


@pytest.mark.parametrize("ending, seen", [("pass", crossdock.ClosedError), ("sys.exit(3)", crossdock.PeerDiedError)])
def test_daemon_threads_do_no_harm_when_a_program_ends(session, name, ending, seen):
    consumer = session.port(name, "consumer")
    peer = python(f"""
        import threading
        p, c = s.port({name!r}, "producer"), s.port({name + "/2"!r}, "consumer")
        f = s.publisher({name!r}, {{"u": ("f8", 10)}})
        s.remove_port({name + "/2"!r})

        def repeat(call):
            while True:
                call()

        for call in (lambda: p.send(tag=1), lambda: c.receive(timeout=30), f.publish, lambda: s.member):
            threading.Thread(target=repeat, args=(call,), daemon=True).start()
        sys.stdin.readline()
        {ending}
    """)
    observer = session.observe(name, timeout=10)
    peer.stdin.write("\n")
    peer.stdin.flush()
    with pytest.raises(seen):
        while True:
            consumer.receive(timeout=10).release()
    with pytest.raises(seen):
        while True:
            observer.next(timeout=10)
    peer.wait(timeout=10)
    assert (peer.returncode, peer.stderr.read()) == (0 if ending == "pass" else 3, "")
    consumer.close()
    observer.close()
    session.remove_port(name)
    session.remove_series(name)


def test_daemon_threads_get_no_error_from_objects_that_an_ending_program_cannot_use(session, name):
    program = f"""
        import atexit, threading, time
        atexit.register(lambda: time.sleep(0.5))  # runs after crossdock's own function, so the threads still run
        import crossdock
        s = crossdock.connect(task="peer", private_daemon=False)
        p, f = s.port({name!r}, "producer"), s.publisher({name!r}, {{"u": ("f8", 10)}})
        f.publish()
        version = s.observe({name!r}, timeout=10).latest()
        s.remove_port({name!r})

        def repeat(call):
            while True:
                call()

        for call in (lambda: p.statistics, lambda: p.send(tag=1), lambda: version.sequence, f.publish, lambda: s.member):
            threading.Thread(target=repeat, args=(call,), daemon=True).start()
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=30)
    assert (run.returncode, run.stderr) == (0, "")
    session.remove_series(name)


def test_a_message_of_a_failed_program_is_delivered_again(session, name):
    producer = session.port(name, "producer")
    producer.send(tag=7)
    peer = python(f"""
        with s.port({name!r}, "consumer") as port, port.receive(timeout=5) as message:
            raise RuntimeError("in the middle of it")
    """)
    assert "in the middle" in peer.communicate(timeout=10)[1]
    with session.port(name, "consumer", timeout=5).receive(timeout=5) as message:
        assert message.tag == 7
    producer.close()
    session.remove_port(name)


def test_await_leaves_the_loop_running(ends):
    producer, consumer = ends

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticker = asyncio.ensure_future(tick())
        waiting = asyncio.ensure_future(consumer.areceive(timeout=5))
        await asyncio.sleep(0.2)
        producer.send(tag=3)
        message = await waiting
        ticker.cancel()
        assert message.tag == 3 and ticks >= 8
        message.release()
        with pytest.raises(crossdock.TimedOutError):
            await consumer.areceive(timeout=0.1)
        with pytest.raises(crossdock.NotYetError):
            await consumer.areceive(timeout=0)

    asyncio.run(main())


def test_async_for_ends_when_the_producer_has_left(session, name):
    consumer = session.port(name, "consumer")
    peer = python(f"""
        with s.port({name!r}, "producer") as port:
            for tag in range(20):
                port.send(tag=tag)
                time.sleep(0.005)
    """)

    async def main():
        tags = []
        async for message in consumer:
            with message:
                tags.append(message.tag)
        return tags

    assert asyncio.run(main()) == list(range(20))
    assert peer.communicate(timeout=5) == ("", "")
    consumer.close()
    session.remove_port(name)


def test_await_sees_a_peer_die(session, name):
    consumer = session.port(name, "consumer")
    peer = python(f"""
        p = s.port({name!r}, "producer"); p.send(tag=0)
        sys.stdin.readline()
    """)

    async def main():
        with await consumer.areceive(timeout=10) as message:
            assert message.tag == 0
        began = time.monotonic()
        peer.kill()
        with pytest.raises(crossdock.PeerDiedError):
            await consumer.areceive(timeout=10)
        assert time.monotonic() - began < 1

    asyncio.run(main())
    peer.communicate(timeout=5)
    consumer.close()
    session.remove_port(name)


@pytest.mark.parametrize("use", [
    lambda region, vector, handle: vector.array,
    lambda region, vector, handle: vector.nbytes,
    lambda region, vector, handle: region.load(handle),
    lambda region, vector, handle: "v" in region,
    lambda region, vector, handle: region.objects(),
    lambda region, vector, handle: region.remove("v"),
])
def test_other_threads_run_while_a_call_waits_until_a_region_can_be_healed(session, region, use):
    vector, number = region.vector("v", "f8", 4), region.simple("n", "i8")
    handle = vector.handle
    header = number.array.__array_interface__["data"][0] - number.handle.offset
    lock, directory_version = (ctypes.c_uint64.from_address(header + offset) for offset in (64, 192))
    with crossdock.connect(task="holder", private_daemon=False) as holder:
        dead = python("print(flush=True); sys.stdin.readline()")
        dead.stdout.readline()
        dead.kill()
        dead.communicate(timeout=10)
        while any(member.pid == dead.pid for member in session.list().members):
            time.sleep(0.01)
        # From here on the region looks as if `holder` had been stopped while it changed the directory.
        lock.value = holder.member
        directory_version.value |= 1
        timer = threading.Timer(0.2, setattr, (lock, "value", 0))
        timer.start()
        use(region, vector, handle)  # BusyError after 10 s if the timer's thread did not run
        timer.join()


def test_a_cancelled_await_leaves_the_port_usable(ends):
    producer, consumer = ends

    async def main():
        waiting = asyncio.ensure_future(consumer.areceive(timeout=5))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        producer.send(tag=9)
        assert (await consumer.areceive(timeout=5)).tag == 9

    asyncio.run(main())


def test_a_port_that_is_closed_during_an_await_costs_no_other_connection_its_reader(ends):
    _, consumer = ends

    async def main():
        waiting = asyncio.ensure_future(consumer.areceive(timeout=5))
        await asyncio.sleep(0.02)
        number = consumer.fileno()
        consumer.close()
        # The thread that writes to the descriptor closes it when it has ended. Until the awaiting coroutine looks
        # again, no other coroutine runs here, so it has not undone its registration.
        _wait_until(lambda: not os.path.exists(f"/proc/self/fd/{number}"))
        near, far = socket.socketpair()
        assert number in (near.fileno(), far.fileno())
        connections = [await asyncio.open_connection(sock=one) for one in (near, far)]
        with pytest.raises(crossdock.ClosedError):
            await waiting
        for (_, writer), (reader, _) in (connections, connections[::-1]):
            writer.write(b"x")
            assert await asyncio.wait_for(reader.readexactly(1), 5) == b"x"
        for _, writer in connections:
            writer.close()

    asyncio.run(main())


def test_an_await_needs_no_free_descriptor(ends, monkeypatch):
    producer, consumer = ends

    def dup(_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main():
        consumer.fileno()
        monkeypatch.setattr(os, "dup", dup)
        waiting = asyncio.ensure_future(consumer.areceive(timeout=10))
        await asyncio.sleep(0.05)
        producer.send(tag=7)
        assert (await waiting).tag == 7

    asyncio.run(main())


def _wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_forked_child_gets_errors_and_does_its_parent_no_harm(ends, region):
    producer, consumer = ends
    vector = region.vector("v", "f8", 4)
    array = vector.array
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for use in (lambda: producer.send(tag=1), lambda: consumer.receive(timeout=0), lambda: vector.resize(9),
                        lambda: region.vector("w", "f8"), lambda: vector.array):
                try:
                    use()
                except crossdock.DisconnectedError as error:
                    assert "connect()" in str(error)
                else:
                    raise AssertionError("a child used its parent's session")
            producer.close()
            del producer, consumer, vector, array, region
            with crossdock.connect(task="child", private_daemon=False) as own:
                assert own.member
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.send(vector, tag=4)
    with consumer.receive(timeout=5) as message:
        assert message.tag == 4
    array[:] = 1
    assert np.asarray(vector).sum() == 4


@pytest.mark.parametrize("kind", ["publisher", "observer", "version", "item"])
def test_a_forked_child_gets_errors_for_what_another_thread_was_using(session, name, kind):
    publisher = session.publisher(name, {"u": ("f8", 1_000_000)}, detect="copy_all")
    publisher.publish()
    observer = session.observe(name, timeout=5)
    version, other = observer.latest(), observer.latest()
    item = session.create_item(name, 1 << 20)

    def copy_item():
        item.copy(f"{name}/copy").destroy()

    work, uses = {
        "publisher": (publisher.publish, (publisher.publish, lambda: publisher.u, lambda: publisher.sequence,
                                          lambda: publisher.statistics, publisher.begin, publisher.end)),
        "observer": (observer.latest, (observer.latest, observer.next, lambda: observer.state)),
        "version": (version.refresh, (version.refresh, lambda: version["u"], lambda: version.sequence,
                                      lambda: crossdock.diff(version, other))),
        "item": (copy_item, (item.array, item.share, copy_item, lambda: item.size)),
    }[kind]
    stop = threading.Event()

    def use():
        while not stop.is_set():
            work()

    thread = threading.Thread(target=use)
    thread.start()
    try:
        for _ in range(20):
            time.sleep(0.005)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    # If a call does not return, the signal ends the child.
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    signal.alarm(20)
                    for one in uses:
                        try:
                            one()
                        except crossdock.DisconnectedError as error:
                            assert "connect()" in str(error)
                        else:
                            raise AssertionError("a child used an object of its parent")
                    observer.close()
                    item.close()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
    item.destroy()
    publisher.end()


def test_multiprocessing_with_spawn_shares_a_region(region, tmp_path):
    program = textwrap.dedent("""
        import multiprocessing, sys
        import crossdock
        def work(args):
            name, n = args
            with crossdock.connect(task="worker") as s:
                s.region(name, "open_only").vector("v", "f8")[n] = n
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                pool.map(work, [(sys.argv[1], n) for n in range(4)])
    """)
    vector = region.vector("v", "f8", 4)
    (tmp_path / "spawned.py").write_text(program)
    subprocess.run([sys.executable, tmp_path / "spawned.py", region.name], check=True, timeout=20)
    assert vector.array.tolist() == [0, 1, 2, 3]


def test_the_message_of_a_wait_for_a_name_states_the_whole_time_and_no_other(session, name):
    with pytest.raises(crossdock.TimedOutError, match="after 0.3 s: series .* before the deadline") as error:
        session.observe(name, timeout=0.3)
    assert " ms" not in str(error.value)


@pytest.fixture
def series(session, name):
    """Publisher and observer of a series of the test's own."""
    publisher = session.publisher(name, {"u": ("f8", (10,))}, keep=4)
    observer = session.observe(name)
    yield publisher, observer
    observer.close()
    publisher.end()
    session.remove_series(name)


def test_a_cancelled_coroutine_loses_no_version(series):
    publisher, observer = series

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(observer.anext(), 0.03)
        publisher.publish()
        await asyncio.sleep(0.3)  # longer than the thread of the cancelled coroutine waits
        return (await observer.anext(timeout=5)).sequence

    assert asyncio.run(main()) == 1


def test_an_observer_can_be_used_while_another_thread_waits_with_it(series):
    publisher, observer = series
    got = []
    thread = threading.Thread(target=lambda: got.append(observer.next(timeout=20).sequence))
    thread.start()
    took = []
    for _ in range(11):
        time.sleep(0.03)
        began = time.monotonic()
        assert observer.state == "live"
        with pytest.raises(crossdock.NotYetError):
            observer.next(timeout=0)
        took.append(time.monotonic() - began)
    publisher.publish()
    thread.join(timeout=5)
    assert got == [1]
    assert sorted(took)[5] < 0.03, "the wait of the other thread delays these calls"


def test_a_version_is_compared_with_itself_while_another_thread_refreshes_it(session, name):
    peer = python(f"""
        import faulthandler, threading
        faulthandler.dump_traceback_later(15, exit=True)
        publisher, end = s.publisher({name!r}, {{"u": ("f8", (10,))}}), time.monotonic() + 2
        publisher.publish()
        version = s.observe({name!r}).latest()
        def refresh():
            while time.monotonic() < end:
                version.refresh()
        thread = threading.Thread(target=refresh)
        thread.start()
        while time.monotonic() < end:
            assert crossdock.diff(version, version) == []
        thread.join()
        publisher.end()
        s.remove_series({name!r})
    """)
    peer.communicate(timeout=20)
    assert peer.returncode == 0
