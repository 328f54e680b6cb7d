"""The wheel itself: import time, the bundled command and library, docstrings."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import crossdock


def run(*command, **more):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, **more)


def test_import_costs_at_most_60_ms_beyond_numpy():
    def best(program):
        head = "import time; import numpy; began = time.perf_counter();"
        tail = "; print(time.perf_counter() - began)"
        return min(float(run("-c", head + program + tail).stdout) for _ in range(5))

    assert best("import crossdock") <= 0.060


def test_everything_public_says_what_it_does():
    silent = []
    for name in crossdock.__all__:
        thing = getattr(crossdock, name)
        if not (getattr(thing, "__doc__", None) or "").strip():
            silent.append(name)
        if isinstance(thing, type) and thing.__module__ == "crossdock":
            silent += [f"{name}.{key}" for key, value in vars(thing).items()
                       if not key.startswith("_") and callable(value) and not value.__doc__]
    assert silent == []


def test_every_error_is_found_in_the_page_about_messages_by_words_that_messages_have():
    top = Path(__file__).parents[3]
    rows = [line.split("|") for line in (top / "docs/troubleshooting.md").read_text().splitlines() if line.startswith("| `")]
    listed = {row[1].strip().strip("`") for row in rows}
    assert listed == {error.__name__ for error in crossdock.Error.__subclasses__()}
    folders = [*(top / "crates").glob("*/src"), top / "bindings/python/src"]
    # A text may continue in the next line of the source after a backslash.
    sources = "\n".join(re.sub(r"\\\n\s*", "", file.read_text()) for folder in folders for file in folder.rglob("*.rs"))
    assert [words for row in rows for words in re.findall("`([^`]+)`", row[2]) if words not in sources] == []


def test_the_command_is_in_the_wheel():
    from crossdock._command import path

    assert os.access(path(), os.X_OK)
    found = run("-c", "import sys; sys.argv = ['crossdock', '--version']; import crossdock._command as c; c.main()")
    assert found.stdout.split() == ["crossdock", crossdock.__version__]


def test_the_library_is_in_the_wheel():
    bundle = Path(crossdock.__file__).parent
    library = ctypes.CDLL(str(bundle / "lib" / "libcrossdock.so.0"))
    library.crossdock_version_string.restype = ctypes.c_char_p
    assert library.crossdock_version_string().decode() == crossdock.__version__
    assert "crossdock_session_connect" in (bundle / "include" / "crossdock.h").read_text()


def test_a_private_daemon_starts_from_the_wheel_alone(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    program = "import crossdock; s = crossdock.connect(); r = s.region('r', size='1 MiB'); print(r.vector('v', 'f8', 3).array)"
    try:
        found = run("-c", program, env=environment)
        assert (found.stdout, found.returncode) == ("[0. 0. 0.]\n", 0), found.stderr
        assert daemons(tmp_path), "it ends by itself only when it was idle for a while"
    finally:
        end_daemons(tmp_path)


def end_daemons(folder):
    """Ends both processes of the daemon. When the keeper ends, the broker ends, too."""
    deadline = time.monotonic() + 5
    while (left := daemons(folder)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    assert not daemons(folder)


def daemons(folder):
    """Gives the processes that were started with a socket in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if b"serve" in words and any(word.startswith(os.fsencode(folder)) for word in words):
            found.append(int(entry.name))
    return found
