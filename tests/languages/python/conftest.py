"""A node daemon for these tests, unless tests/languages/run has started one. All files of the
daemon are removed at the end."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import crossdock  # noqa: E402
from crossdock._command import path as program  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def daemon():
    """The socket of a daemon that belongs to these tests."""
    given = os.environ.get("CROSSDOCK_SOCKET")
    if given:
        yield given
        return
    folder = tempfile.mkdtemp(prefix="crossdock-python-")
    socket = os.path.join(folder, "endpoint.sock")
    server = subprocess.Popen([program(), "serve", "--socket", socket], stdout=subprocess.DEVNULL)
    os.environ["CROSSDOCK_SOCKET"] = socket
    try:
        _wait_for(socket, server)
        yield socket
    finally:
        server.terminate()
        try:
            server.wait(timeout=5)
        finally:
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)


def _wait_for(socket, server):
    deadline = time.monotonic() + 10
    while not os.path.exists(socket):
        assert server.poll() is None, f"crossdock serve ended with status {server.returncode}"
        assert time.monotonic() < deadline, f"crossdock serve made no {socket} within 10 s"
        time.sleep(0.01)


@pytest.fixture
def session():
    """A session that leaves at the end of the test, even if objects of the test are still alive."""
    session = crossdock.connect(task="test", private_daemon=False)
    yield session
    session._leave()


@pytest.fixture
def name(request):
    """A name that no other test uses."""
    return f"python-{os.getpid()}/{re.sub('[^A-Za-z0-9_]+', '-', request.node.name)}"


@pytest.fixture
def region(session, name):
    """A region that no other test uses."""
    region = session.region(name, "create_only", "16 MiB")
    yield region
    try:
        session.remove_region(name)
    except crossdock.Error:
        pass
