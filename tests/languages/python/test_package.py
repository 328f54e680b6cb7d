"""The wheel itself: import time, the bundled command and library, docstrings."""

import ctypes
import os
import subprocess
import sys
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


def test_the_command_is_in_the_wheel():
    from crossdock._command import path

    assert os.access(path(), os.X_OK)
    found = run("-c", "import sys; sys.argv = ['crossdock', '--version']; import crossdock._command as c; c.main()")
    assert found.stdout.split() == ["crossdock", crossdock.__version__]


def test_the_library_is_in_the_wheel():
    bundle = Path(crossdock.__file__).parent
    library = ctypes.CDLL(str(bundle / "lib" / "libcrossdock.so"))
    library.crossdock_version_string.restype = ctypes.c_char_p
    assert library.crossdock_version_string().decode() == crossdock.__version__
    assert "crossdock_session_connect" in (bundle / "include" / "crossdock.h").read_text()


def test_a_private_daemon_starts_from_the_wheel_alone(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    program = "import crossdock; s = crossdock.connect(); r = s.region('r', size='1 MiB'); print(r.vector('v', 'f8', 3).array)"
    found = run("-c", program, env=environment)
    assert (found.stdout, found.returncode) == ("[0. 0. 0.]\n", 0), found.stderr
