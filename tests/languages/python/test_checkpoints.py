"""Tests of checkpoints that are read into arrays of a publisher."""

import subprocess
import time

import numpy as np
import pytest

import crossdock
from crossdock._command import path as program


@pytest.fixture
def checkpoint(session, name, tmp_path):
    """A publisher and a checkpoint of its series. Elements of `x` are fixed arrays."""
    with session.publisher(name, {"x": (("f8", (2, 3)), 4), "y": ("f8", 4)}) as publisher:
        publisher.x[...] = np.arange(24).reshape(4, 2, 3)
        publisher.y[...] = 5
        command = [program(), "checkpoint", name, "--every", "1", "--to", tmp_path, "--name", "fields"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as writer:
            try:
                stored = _first_checkpoint(publisher, tmp_path)
            finally:
                writer.kill()
        yield publisher, stored


def _first_checkpoint(publisher, folder):
    deadline = time.monotonic() + 50
    while True:
        publisher.publish()
        try:
            return crossdock.restart(folder)
        except crossdock.NotFoundError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_variable_is_read_into_the_array_of_its_publisher(checkpoint):
    publisher, stored = checkpoint
    for variable in ("x", "y"):
        array = publisher[variable]
        saved = array.copy()
        array[...] = 0
        assert stored.read(variable, into=array) is array
        assert (array == saved).all() and (stored.read(variable) == saved).all()


def test_an_array_of_another_shape_or_dtype_is_refused(checkpoint):
    _, stored = checkpoint
    for shape, dtype in (((4, 3, 2), "f8"), ((4,), "f8"), ((4, 2, 3), "i8")):
        with pytest.raises(crossdock.WrongTypeError, match=r"float64 and shape \(4, 2, 3\)"):
            stored.read("x", into=np.empty(shape, dtype))
