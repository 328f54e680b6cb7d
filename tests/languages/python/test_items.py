"""What Python's items promise beyond the conformance list: views, DLPack, sessions, forks, Ctrl-C, threads."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import crossdock
import numpy as np
import pytest
from crossdock._command import path as program


@pytest.fixture
def item(session, name):
    item = session.create_item(name, 4096)
    yield item
    try:
        item.destroy()
    except crossdock.Error:
        pass


def test_arrays_describe_themselves_to_later_owners(session, name):
    made = session.create_item(name, dtype="f4", shape=(3, 5), order="F")
    made.array()[:] = np.arange(15).reshape(3, 5)
    made.close()
    got = session.access_item(name)
    array = got.array()
    assert (array.dtype, array.shape, array.flags.f_contiguous) == (np.dtype("f4"), (3, 5), True)
    assert (np.asarray(got) == np.arange(15).reshape(3, 5)).all()
    assert got.array("u1").shape == (60,)
    del array
    got.destroy()


def test_every_kind_of_view_holds_the_item_back(item):
    for view in (item.array(), item.array()[10:20], np.asarray(item), np.frombuffer(item.memory, "u2"),
                 memoryview(item.array()), np.from_dlpack(item)):
        with pytest.raises(crossdock.BusyError, match="view"):
            item.transfer("absent")
        del view
        gc.collect()
    assert item.array()[0] == 0, "it is still ours"


def test_a_dlpack_view_is_the_items_memory(item):
    item.array()[:4] = [1, 2, 3, 4]
    assert np.from_dlpack(item)[:4].tolist() == [1, 2, 3, 4]
    assert item.__dlpack_device__() == (1, 0)


def test_an_item_is_a_buffer_where_python_lets_classes_be_one(item):
    if sys.version_info < (3, 12):
        with pytest.raises(TypeError):
            memoryview(item)
    with memoryview(item if sys.version_info >= (3, 12) else item.memory) as view:
        view[0] = 7
        assert item.array()[0] == 7


def test_a_memoryview_is_released_by_the_transfer(session, item, name):
    memory = item.memory
    memory[0] = 5
    assert item.memory is memory
    item.transfer("absent")
    with pytest.raises(ValueError, match="released"):
        memory[0]
    with pytest.raises(crossdock.ClosedError, match="absent"):
        item.array()
    assert "closed" in repr(item) and item.closed


def test_objects_and_what_does_not_fit_are_refused(session, item, name):
    with pytest.raises(crossdock.InvalidError, match="Python objects"):
        item.array("O")
    with pytest.raises(crossdock.InvalidError, match="4096"):
        item.array("f8", (513,))
    with pytest.raises(crossdock.InvalidError, match="Python objects"):
        session.create_item(name + "-2", dtype="O", shape=3)
    for wrong in ({}, {"dtype": "f8"}, {"size": 8, "dtype": "f8", "shape": 2}, {"shape": (2**40, 2**40)}):
        with pytest.raises(crossdock.InvalidError):
            session.create_item(name + "-2", **wrong)


def test_who_does_not_own_may_do_nothing(session, item, name):
    item.array()[:] = 6
    with pytest.raises(crossdock.InvalidError):
        item.transfer("test")
    with pytest.raises(crossdock.InvalidError, match="not shared"):
        item.unshare()
    item.share()
    with pytest.raises(crossdock.BusyError, match="unshare"):
        item.transfer("peer")
    with crossdock.connect(task="peer", private_daemon=False) as peer:
        with pytest.raises(crossdock.NotYetError):
            peer.access_item(name, timeout=0)
        with pytest.raises(crossdock.ExistsError, match="test"):
            peer.create_item(name, 10)
        with peer.read_item(name, timeout=5) as read:
            for refused in (lambda: read.transfer("peer"), lambda: read.copy(name + "-2"), read.destroy, read.share,
                            read.unshare, lambda: read.resize(10), lambda: read.region("create_only")):
                with pytest.raises(crossdock.DeniedError, match="owner"):
                    refused()
            with pytest.raises(ValueError):
                read.array()[0] = 1
            with pytest.raises(TypeError):
                read.memory[0] = 1
            assert int(read.array().sum()) == 6 * 4096
        with pytest.raises(crossdock.NotFoundError, match=name + "-none"):
            peer.find_item(name + "-none")
    item.unshare(timeout=5)
    assert item.writable


def test_a_refused_change_leaves_the_memoryview_usable(session, name):
    item = session.create_item(name, 4096)
    memory, array = item.memory, item.array()
    for change in (lambda: item.transfer("peer"), item.share, item.destroy, lambda: item.resize(10)):
        with pytest.raises(crossdock.BusyError, match="1 array"):
            change()
    memory[0] = 5
    assert array[0] == 5
    del array
    item.share()
    with pytest.raises(ValueError):
        memory[0]
    item.unshare(timeout=5)
    item.destroy()


def test_a_with_block_lets_go_and_arrays_keep_the_memory(session, name):
    with session.create_item(name, 4096) as item:
        array = item.array()
        array[:] = 3
    assert item.closed
    assert int(array.sum()) == 3 * 4096, "it never dangles"
    with pytest.raises(crossdock.BusyError):
        session.access_item(name, timeout=0)
    del array
    session.access_item(name).destroy()


def test_a_handle_leads_to_the_heap_of_an_open_item_only(session, name):
    with session.create_item(name, 1 << 20) as item:
        region = item.region("create_only")
        vector = region.vector("v", "f8", 1)
        assert session.load(vector.handle).array[0] == 0
    with pytest.raises(crossdock.BadHandleError):
        session.load(vector.handle)
    assert vector.array[0] == 0, "the program still has the heap"
    del vector
    region.close()
    session.access_item(name, timeout=5).destroy()


def test_a_session_that_leaves_keeps_its_tasks_items(name):
    with crossdock.connect(task="test", private_daemon=False) as first:
        first.create_item(name, 4096).array()[:] = 9
    with crossdock.connect(task="test", private_daemon=False) as second:
        item = second.access_item(name, timeout=5)
        assert item.array()[0] == 9
        item.destroy()


def test_a_forked_child_is_refused_and_harms_nothing(item):
    item.array()[:] = 4
    child = os.fork()
    if child == 0:
        try:
            item.array()
        except crossdock.DisconnectedError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert item.array()[0] == 4


def test_a_heap_that_a_forked_child_has_from_its_parent_does_not_count_there(session, name):
    item = session.create_item(name, 1 << 20, level="cooperative", on_death="keep")
    heap = item.region("create_only")
    item.close()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with crossdock.connect(task="test", private_daemon=False) as own:
                own.access_item(name, timeout=5).transfer("peer")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    heap.close()
    with crossdock.connect(task="peer", private_daemon=False) as peer:
        peer.access_item(name, timeout=5).destroy()


def test_ctrl_c_ends_a_wait(session, name):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        session.access_item(name, timeout=20)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("call", ["access_item", "read_item"])
def test_ctrl_c_ends_a_call_that_does_not_wait_if_the_daemon_is_stopped(call):
    folder = tempfile.mkdtemp(prefix="crossdock-stopped-")
    socket = os.path.join(folder, "endpoint.sock")
    server = subprocess.Popen([program(), "serve", "--socket", socket], stdout=subprocess.DEVNULL)
    try:
        while not os.path.exists(socket):
            time.sleep(0.01)
        session = crossdock.connect(socket, task="test", timeout=4)
        with open(f"/proc/{server.pid}/task/{server.pid}/children") as children:
            broker = int(children.read().split()[0])
        os.kill(broker, signal.SIGSTOP)
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                getattr(session, call)("k", timeout=0)
            assert time.monotonic() - began < 2
        finally:
            os.kill(broker, signal.SIGCONT)
        session._leave()
    finally:
        server.terminate()
        server.wait(timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


def test_other_threads_run_while_one_waits(session, name):
    def make():
        time.sleep(0.2)
        with crossdock.connect(task="other", private_daemon=False) as other:
            other.create_item(name, 64).transfer("test")

    thread = threading.Thread(target=make)
    thread.start()
    session.access_item(name, timeout=10).destroy()
    thread.join()


def test_a_thousand_round_trips_leak_nothing(session, name):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    item = session.create_item(name, 1 << 16)
    item.close()
    # From the first access on, the session keeps one place in the descriptor table for the descriptors of items.
    session.access_item(name, timeout=10).close()
    before = descriptors()
    for _ in range(1000):
        with session.access_item(name, timeout=10) as item:
            item.array("u4")[0] += 1
    # There may be fewer descriptors than before, because a session of an earlier test may close its last descriptor
    # meanwhile.
    assert descriptors() <= before
    item = session.access_item(name, timeout=10)
    assert item.array("u4")[0] == 1000
    item.destroy()
