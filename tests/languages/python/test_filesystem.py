"""`crossdock://` addresses: managed directories as an fsspec file system."""

import errno
import os
import subprocess
import sys
import time

import pytest
from rows_files import SIZE, place

fsspec = pytest.importorskip("fsspec")

WRITER = "import sys, time; time.sleep(0.2); open(sys.argv[1], 'wb').write(b'x' * 100_000)"


@pytest.fixture
def written():
    """Starts a program that writes a file after a short time. Gives the path at which consumers find the file."""
    begun = []

    def start(name):
        begun.append(subprocess.Popen([sys.executable, "-c", WRITER, place("f1", "stage", name)]))
        return place("f1", "published", name)

    yield start
    for process in begun:
        assert process.wait(timeout=30) == 0


def test_an_address_waits_for_its_file(written):
    path = written("by-address")
    with fsspec.open(f"crossdock://{path}", "rb") as file:
        assert file.read() == b"x" * SIZE


def test_size_and_existence_are_those_of_the_file_that_comes(written):
    files = fsspec.filesystem("crossdock")
    path = written("by-info")
    assert files.info(path)["size"] == SIZE
    assert files.exists(written("by-existence"))
    assert files.cat_file(f"crossdock://{path}", 0, 3) == b"xxx"


def test_a_wait_that_ends_without_the_file_is_the_usual_error_with_the_whole_story():
    files = fsspec.filesystem("crossdock")
    path = place("f2", "published", "nothing")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="simulate") as told:
        files.open(path, "rb")
    assert told.value.errno == errno.ETIMEDOUT and time.monotonic() - began < 10
    assert not files.exists(path)


def test_files_elsewhere_are_ordinary(tmp_path):
    with fsspec.open(f"crossdock://{tmp_path}/a", "wb") as file:
        file.write(b"abc")
    assert os.listdir(tmp_path) == ["a"]
    assert fsspec.filesystem("crossdock").cat(f"{tmp_path}/a") == b"abc"
    with pytest.raises(FileNotFoundError):
        fsspec.open(f"crossdock://{tmp_path}/b", "rb").open()
