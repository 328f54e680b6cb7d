"""Tests that arrays over shared memory copy nothing, have the right dtype and order, and never point to memory that is
gone."""

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import crossdock

POINT = np.dtype([("id", "i4"), ("at", "f8", (3,))], align=True)


def test_a_vector_is_an_array_without_a_copy(region):
    vector = region.vector("v", "f8", 4)
    first, second = vector.array, vector.array
    first[:] = 1, 2, 3, 4
    assert second.tolist() == [1, 2, 3, 4]
    assert first.__array_interface__["data"] == second.__array_interface__["data"]
    assert first.flags["C_CONTIGUOUS"] and first.flags["ALIGNED"] and first.flags["WRITEABLE"]
    assert not first.flags["OWNDATA"]
    assert first.__array_interface__["data"][0] % 64 == 0


def test_slices_memoryviews_and_dlpack_look_at_the_same_bytes(region):
    vector = region.vector("v", "f8", 4)
    memory, exported = memoryview(vector.array), np.from_dlpack(vector.array)
    vector.array[1:3][0] = 7
    assert memory[1] == 7 and exported[1] == 7
    assert np.asarray(vector)[1] == 7


def test_asarray_copies_only_when_asked(region):
    vector = region.vector("v", "f8", 4)
    same, other = np.asarray(vector), np.asarray(vector, dtype="f4")
    copy = np.array(vector, copy=True)
    vector[0] = 9
    assert same[0] == 9 and other[0] == 0 and copy[0] == 0


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"])
def test_every_scalar_type_holds_its_values(region, dtype):
    values = np.array([0, 1, 1], dtype=dtype)
    region.vector("v", dtype, 3).array[:] = values
    again = region.vector("v").array
    assert again.dtype == np.dtype(dtype) and (again == values).all()


def test_a_vector_of_fixed_arrays_has_their_dimensions(region):
    positions = region.vector("positions", ("f8", 3), 5)
    assert positions.type == "vector<f64[3]>"
    assert positions.array.shape == (5, 3) and len(positions) == 5
    positions.resize(2)
    assert positions.array.shape == (2, 3)


def test_a_struct_keeps_the_callers_field_names_and_finds_generic_ones(region):
    points = region.vector("points", POINT, 2)
    points.array["at"][1] = 1, 2, 3
    assert points.type == "vector<{i32,f64[3]}>"
    assert region.vector("points").array["f1"][1].tolist() == [1, 2, 3]


def test_fortran_order_is_kept(region):
    wanted = np.arange(24, dtype="f4").reshape(2, 3, 4)
    made = region.ndarray("a", wanted.shape, "f4", order="F")
    made.array[...] = wanted
    found = region.ndarray("a")
    assert found.order == "F" and found.array.flags["F_CONTIGUOUS"]
    assert (found.array == wanted).all() and found.array.strides == (4, 8, 24)


def assert_that_elements_are_whole(array):
    """Checks an array of shape (2, 3) in Fortran order, whose elements are fixed arrays of shape (2, 4): an element
    lies in one piece and in C order, and element [1, 2] is the last one."""
    assert array.shape == (2, 3, 2, 4) and array.strides == (64, 128, 32, 8) and array.flags["ALIGNED"]
    array[...] = np.arange(48).reshape(array.shape)
    flat = np.ctypeslib.as_array((ctypes.c_double * 48).from_address(array.__array_interface__["data"][0]))
    assert flat[8:16].tolist() == list(range(24, 32)), "element [1, 0]"
    assert flat[16:24].tolist() == list(range(8, 16)), "element [0, 1]"
    assert flat[40:].tolist() == list(range(40, 48)), "element [1, 2]"


def test_fixed_arrays_in_fortran_order_are_whole(session, region, name):
    element = ("f8", (2, 4))
    ndarray = region.ndarray("a", (2, 3), element, order="F")
    assert_that_elements_are_whole(ndarray.array)
    producer, consumer = session.port(name, "producer"), session.port(name, "consumer")
    producer.send(ndarray.array, tag=1)
    with consumer.receive(timeout=5) as message:
        assert (message.load().array == ndarray.array).all()
    producer.close()
    consumer.close()
    session.remove_port(name)
    item = session.create_item(name, dtype=element, shape=(2, 3), order="F")
    assert_that_elements_are_whole(item.array())
    assert_that_elements_are_whole(item.array(element, (2, 3), order="F"))
    item.destroy()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (4,), (1, 4), (0, 4), (2, 3, 4)])
def test_arrays_have_the_strides_and_flags_of_numpys_own(region, shape, order):
    ours, numpys = region.ndarray("a", shape, "f4", order=order).array, np.empty(shape, "f4", order=order)
    assert ours.shape == shape and (ours.strides == numpys.strides or 0 in shape)
    for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "ALIGNED", "WRITEABLE"):
        assert ours.flags[flag] == numpys.flags[flag]


def test_an_ndarray_of_another_shape_says_both(region):
    region.ndarray("a", (2, 3), "f4")
    with pytest.raises(crossdock.InvalidError, match=r"\[2, 3\].*\[3, 2\]"):
        region.ndarray("a", (3, 2), "f4")


def test_a_simple_object_has_a_value_and_a_view(region):
    number, row, point = region.simple("n", "f8"), region.simple("r", ("i4", (2, 3))), region.simple("p", POINT)
    number.value = 2.5
    row.value = [[1, 2, 3], [4, 5, 6]]
    point["at"] = 1, 2, 3
    assert number.value == 2.5 and number.array.shape == ()
    assert row.type == "i32[2][3]" and row.value.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert point["at"].tolist() == [1, 2, 3]


def test_strings_take_text_and_bytes(region):
    text = region.string("s", "naïve")
    assert text.value == "naïve" == str(region.open("s")) and len(text) == 6
    text.bytes = b"\xff\x00"
    assert text.bytes == b"\xff\x00"
    with pytest.raises(UnicodeDecodeError):
        text.value  # noqa: B018


@pytest.mark.parametrize(
    "dtype, says",
    [("O", "number"), ("U4", "string"), (">f8", "newbyteorder"), ("f2", "view"), ("M8[s]", "view"),
     (np.dtype([("a", "i1"), ("b", "f8")]), "align=True"), ("f64", "'f8'"), ("nothing", "nothing")],
)
def test_a_dtype_without_a_counterpart_is_refused_with_the_mend(region, dtype, says):
    with pytest.raises(crossdock.InvalidError, match=says):
        region.vector("v", dtype)


def test_what_is_viewed_is_not_resized(region):
    vector = region.vector("v", "f8", 4)
    part = vector.array[1:]
    with pytest.raises(crossdock.BusyError, match="'v'.*resized.*1 array"):
        vector.resize(100)
    with pytest.raises(crossdock.BusyError):
        region.vector("v").resize(100)
    del part
    vector.resize(100)
    assert len(vector) == 100


def test_what_is_viewed_is_not_removed_reshaped_or_reassigned(region):
    vector, array, text = region.vector("v", "f8", 4), region.ndarray("a", (2, 2), "f8"), region.string("s", "x")
    views = vector.array, array.array, text.array
    for change in (lambda: region.remove("v"), lambda: array.reshape((4,)), lambda: setattr(text, "value", "y")):
        with pytest.raises(crossdock.BusyError):
            change()
    del views
    region.remove("v")
    array.reshape((4,))
    text.value = "y"


@pytest.fixture
def switching():
    """Makes Python switch between threads far more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def beside(change, look, seconds=2):
    """Calls `look` in this thread while another thread calls `change` again and again. Each of the two calls may get
    BusyError."""
    end = time.monotonic() + seconds

    def until_end(call):
        while time.monotonic() < end:
            try:
                call()
            except crossdock.BusyError:
                pass

    thread = threading.Thread(target=until_end, args=(change,))
    thread.start()
    try:
        until_end(look)
    finally:
        end = 0
        thread.join()


def test_an_array_is_never_over_elements_that_another_thread_moves(region, switching):
    vector, sizes = region.vector("v", "f8", 4), [4, 1000]

    def change():
        sizes.reverse()
        vector.resize(sizes[0])

    def look():
        first = vector.array
        # While the first array is alive, the vector cannot be resized.
        assert vector.array.size == first.size

    beside(change, look)


def test_the_bytes_of_a_string_are_never_those_of_two_texts(region, switching):
    text, texts = region.string("s", "a"), [b"a" * 10, b"b" * 100000]

    def change():
        texts.reverse()
        text.bytes = texts[0]

    def look():
        assert text.bytes in (b"a", b"a" * 10, b"b" * 100000)

    beside(change, look)


def test_a_region_or_session_with_views_is_not_closed(session, name):
    region = session.region(name, size="1 MiB")
    view = region.vector("v", "f8", 4).array
    with pytest.raises(crossdock.BusyError, match="array is"):
        region.close()
    with pytest.raises(crossdock.BusyError):
        session.close()
    view[0] = 1
    del view
    region.close()
    region.close()
    with pytest.raises(crossdock.ClosedError):
        region.vector("v")
    session.remove_region(name)


def test_an_array_outlives_everything_that_it_was_made_through(session, name):
    region = session.region(name, size="1 MiB")
    view = region.vector("v", "f8", 4).array[1:]
    view[:] = 5
    session.remove_region(name)
    session._leave()
    del region
    gc.collect()
    assert view.tolist() == [5, 5, 5]
    view[0] = 6
    assert view[0] == 6


def test_a_with_block_leaves_the_arrays_alone(name):
    with crossdock.connect(task="test") as session, session.region(name, size="1 MiB") as region:
        view = region.vector("v", "f8", 4).array
        session.remove_region(name)
    view[:] = 1
    with pytest.raises(crossdock.ClosedError):
        session.region(name)


def assert_that_v_stays(region):
    """Checks that the vector `v`, of which an array is alive, can be neither moved nor removed through `region`."""
    vector = region.vector("v")
    for change in (lambda: vector.resize(1000), lambda: vector.reserve(1000), lambda: region.remove("v"),
                   lambda: region.vector("v", "f8", 10, mode="recreate")):
        with pytest.raises(crossdock.BusyError, match="1 array"):
            change()


def test_an_array_of_a_region_that_was_closed_still_counts(session, name):
    with session.region(name, "create_only", "1 MiB") as region:
        vector = region.vector("v", "f8", 10)
        array, handle = vector.array, vector.handle
    loaded = session.load(handle)
    with pytest.raises(crossdock.BusyError, match="1 array"):
        loaded.resize(1000)
    region = session.region(name)
    assert_that_v_stays(region)
    array[:] = 7
    del array
    region.vector("v").resize(1000)
    assert region.vector("v").array[:10].tolist() == 10 * [7]
    session.remove_region(name)


def test_an_array_counts_in_all_sessions_of_the_process(session, name):
    region = session.region(name, "create_only", "1 MiB")
    with crossdock.connect(task="test", private_daemon=False) as other:
        array = other.region(name).vector("v", "f8", 10).array
        assert_that_v_stays(region)
    assert_that_v_stays(region)
    region.close()
    region = session.region(name)
    assert_that_v_stays(region)
    del array
    region.vector("v").resize(1000)
    session.remove_region(name)


def test_an_array_that_a_forked_child_has_from_its_parent_counts_there(session, name):
    array = session.region(name, "create_only", "1 MiB").vector("v", "f8", 10).array
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with crossdock.connect(task="child", private_daemon=False) as own:
                region = own.region(name)
                assert_that_v_stays(region)
                del array
                region.vector("v").resize(1000)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del array
    session.remove_region(name)


@pytest.mark.parametrize("level", ["verified", "cooperative"])
def test_an_array_in_an_items_heap_counts_as_long_as_the_heap_is_in_this_memory(session, name, level):
    item = session.create_item(name, 1 << 20, level=level)
    with item.region("create_only") as heap:
        array = heap.vector("v", "f8", 10).array
    assert_that_v_stays(item.region())
    item.close()
    item = session.access_item(name, timeout=5)
    if level == "cooperative":
        for change in (lambda: item.region("recreate"), lambda: item.transfer("peer"), item.destroy):
            with pytest.raises(crossdock.BusyError, match="heap is still in use"):
                change()
    heap = item.region()
    if level == "cooperative":
        assert_that_v_stays(heap)
        array[:] = 7
        assert heap.vector("v").array.tolist() == 10 * [7]
        del array
    # A verified item is in other memory now, because the array keeps the former memory.
    heap.vector("v").resize(1000)
    heap.close()
    item.destroy()


def test_objects_of_a_closed_region_say_so(session, name):
    region = session.region(name, size="1 MiB")
    vector = region.vector("v", "f8", 4)
    region.close()
    for use in (lambda: vector.array, lambda: len(vector), lambda: vector.resize(1), lambda: vector.handle):
        with pytest.raises(crossdock.ClosedError, match="closed"):
            use()
    session.remove_region(name)


def test_a_removed_object_says_so(region):
    vector = region.vector("v", "f8", 4)
    region.remove("v")
    with pytest.raises(crossdock.BadHandleError):
        vector.array  # noqa: B018


def test_handles_of_whole_arrays_only(region):
    vector = region.vector("v", "f8", 4)
    array = vector.array
    assert region.save(array) == vector.handle == region.save(vector)
    with pytest.raises(crossdock.InvalidError, match="whole"):
        region.save(array[1:])
    with pytest.raises(crossdock.InvalidError, match="no region"):
        region.save(np.zeros(3))


def test_load_finds_the_type_by_itself(region):
    for made in (region.vector("v", "f8", 2), region.ndarray("a", (2, 2), "f4"), region.string("s", "x"),
                 region.simple("n", POINT)):
        found = region.load(made.handle)
        assert type(found) is type(made) and found.type == made.type
    with pytest.raises(crossdock.WrongTypeError, match="f64.*f32|f32.*f64"):
        region.load(region.vector("v").handle, "vector<f32>")


def test_a_region_lists_what_it_holds(region):
    region.vector("v", "f8", 2)
    region.simple("n", "i4")
    assert [(o.name, o.type, o.size) for o in region.objects()] == [("n", "i32", 4), ("v", "vector<f64>", 32)]
    assert "v" in region and "w" not in region
    assert region.statistics["objects"] == 2


def test_a_full_region_is_an_error_and_not_a_signal(region):
    vector = region.vector("v", "f8", 10)
    with pytest.raises(crossdock.NoSpaceError):
        vector.resize(1 << 40)
    with pytest.raises(MemoryError):
        region.vector("w", "f8", 1 << 24)
    assert len(vector) == 10 and "w" not in region


@pytest.mark.parametrize("recreate", [
    lambda r: r.vector("o", "f8", 1 << 40, mode="recreate"),
    lambda r: r.ndarray("o", (1 << 20, 1 << 20), "f8", mode="recreate"),
    lambda r: r.simple("o", ("u1", (1 << 30,)), mode="recreate"),
])
def test_recreate_without_room_in_the_whole_region_keeps_the_old_object(region, recreate):
    region.vector("o", "f8", 10)
    with pytest.raises(crossdock.NoSpaceError):
        recreate(region)
    assert len(region.vector("o")) == 10


@pytest.mark.parametrize("call, says", [
    (lambda r: r.vector("v", "f8", -1), "2\\*\\*64"),
    (lambda r: r.vector("v", "f8", 4).resize(-1), "2\\*\\*64"),
    (lambda r: r.ndarray("a", (2, -1), "f8"), "shape"),
    (lambda r: r.ndarray("a", (1,) * 9, "f8"), "8"),
    (lambda r: r.ndarray("a", (2, 2), "f8", order="A"), "none of C, F"),
    (lambda r: r.vector("v", "f8", mode="w"), "create_only"),
    (lambda r: r.vector("v", mode="create_only"), "dtype"),
    (lambda r: r.vector("v", "f8", timeout=-1), "deadline"),
    (lambda r: r.load(crossdock.Handle(1, 2), "vector<f65>"), "f65"),
    (lambda r: crossdock.Handle.from_bytes(b"123"), "16"),
])
def test_bad_arguments_are_value_errors_that_say_the_mend(region, call, says):
    with pytest.raises(ValueError, match=says) as error:
        call(region)
    assert isinstance(error.value, crossdock.InvalidError)


@pytest.mark.parametrize("size", ["1 XB", "", "GiB", "1.5 GiB", -1, 1 << 70, "99999999999 TiB"])
def test_bad_sizes_are_value_errors(session, size):
    with pytest.raises(crossdock.InvalidError):
        session.region("never", "create_only", size)


def test_sizes_have_units(session, name):
    for text, size in (("2 MiB", 2 << 20), ("2MB", 2000000), ("3145728", 3 << 20), (1 << 20, 1 << 20)):
        region = session.region(name, "recreate", text)
        assert size <= region.capacity < size + 4096
    session.remove_region(name)


def test_shapes_that_fit_nowhere_are_errors(region):
    for shape in ((1 << 40, 1 << 40), (1 << 33,)):
        with pytest.raises(crossdock.Error) as error:
            region.ndarray("a", shape, "f8")
        assert isinstance(error.value, (crossdock.InvalidError, crossdock.NoSpaceError))
    assert "a" not in region


def test_a_scribbled_header_is_an_error_and_not_a_crash(region):
    vector = region.vector("v", "f8", 10)
    # A process that maps the region can reach all of it. Here the test reaches the vector through the address of the
    # object `other`.
    other = region.simple("other", "u8")
    base = other.array.__array_interface__["data"][0] - other.handle.offset
    words = np.frombuffer((ctypes.c_uint64 * 4).from_address(base + vector.handle.offset), "u8")
    before = words.copy()
    for lie in ((before[0], 1 << 60, 10, 10), (before[0], before[1], 1 << 60, 10), (before[0], before[1] + 1, 10, 10),
                (before[0], 0, 10, 10)):
        words[:] = lie
        with pytest.raises(crossdock.CorruptError):
            vector.array  # noqa: B018
    words[:] = before
    assert vector.array.shape == (10,)


def test_an_interpreter_that_ends_with_everything_open_ends_well(daemon, name):
    program = f"""
        import crossdock, threading
        s = crossdock.connect(task="test")
        r = s.region({name!r}, size="1 MiB")
        v = r.vector("v", "f8", 10)
        a = v.array
        p, c = s.port({name!r}, "producer"), s.port({name!r}, "consumer")
        p.send(v)
        m = c.receive()
        b = m.load().array
        t = threading.Thread(target=lambda: c.receive(timeout=30), daemon=True)
        t.start()
        s.remove_region({name!r}); s.remove_port({name!r})
        globals()["cycle"] = [a, b, m, s]; cycle.append(cycle)
    """
    run = subprocess.run([sys.executable, "-X", "dev", "-c", textwrap.dedent(program)], capture_output=True, timeout=20)
    assert (run.returncode, run.stderr) == (0, b"")
