"""Runs one program with a time limit. However the program ends, nothing of it is left.

As root, the program gets PID, mount and IPC namespaces of its own. So all processes that it started end with it, and so do its
/dev/shm and the folder that iceoryx2 needs (/tmp/iceoryx2), which are file systems of its own. For another user, the processes
that the program leaves become children of this process, which kills them. The program's temporary folder is removed in both
cases.
"""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

SHARED = "/dev/shm"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Ended:
    """How a program ended; `problem` is empty if it ended well."""

    out: str
    err: str
    problem: str
    seconds: float


def adopt_orphans():
    """Makes this process the parent of its descendants whose own parent ends, so that it finds and kills them."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _namespaces():
    """Gives the words that start a command in namespaces of its own; no words if this user or machine cannot make them."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return []
    # The temporary folder is in memory, so that the daemon's folder is not on a disk.
    words = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             'mount -t tmpfs -o size=80% tmpfs /dev/shm && mkdir -p /tmp/iceoryx2 && mount -t tmpfs tmpfs /tmp/iceoryx2 && { [ -z "$BENCH_HOSTS" ] || mount --bind "$BENCH_HOSTS" /etc/hosts; } && mount -t tmpfs -o mode=700 tmpfs "$TMPDIR" && exec "$@"', "sh"]
    with tempfile.TemporaryDirectory(prefix="cdbench.") as scratch:
        environment = {**os.environ, "TMPDIR": scratch, "BENCH_HOSTS": ""}
        tried = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment)
    return words if tried.returncode == 0 else []


_words = None


def namespaces():
    global _words
    if _words is None:
        _words = _namespaces()
    return _words


def run(command, limit, environment=None, folder=None):
    """Runs the command (a list) for at most `limit` seconds."""
    scratch = tempfile.mkdtemp(prefix="cdbench.")
    shared = set(os.listdir(SHARED)) if not namespaces() else set()
    given = {**os.environ, "TMPDIR": scratch, "XDG_RUNTIME_DIR": scratch, "CROSSDOCK_RUNS": scratch, **(environment or {})}
    # If a program fails, the last lines of its output are reported. A backtrace would take the place of the reason.
    given["RUST_BACKTRACE"] = "0"
    given.pop("CROSSDOCK_SOCKET", None)
    given["BENCH_HOSTS"] = _hosts(scratch)
    begun, problem, out, err = time.monotonic(), "", "", ""
    process = None
    try:
        process = subprocess.Popen([*namespaces(), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", env=given, cwd=folder, start_new_session=True, preexec_fn=_die_with_parent)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            problem = f"not done after {limit:.0f} s"
            process.kill()
            _kill_descendants()
            out, err = _last_words(process)
        if not problem and process.returncode != 0:
            problem = f"ended with {process.returncode}: {last_lines(err or out, 3)}"
    except OSError as error:
        problem = f"cannot be started: {error}"
    finally:
        if process is not None and process.poll() is None:
            process.kill()
        _kill_descendants()
        if process is not None:
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
        _report_shared(shared)
    return Ended(out, err, problem, time.monotonic() - begun)


def _hosts(scratch):
    """Makes a file for /etc/hosts with the name of this machine, if the machine does not know the name `localhost`, which a peer
    may need. Returns the path of the file, or an empty text."""
    try:
        socket.gethostbyname("localhost")
        return ""
    except OSError:
        with open(f"{scratch}/hosts", "w") as file:
            file.write(f"127.0.0.1 localhost {socket.gethostname()}\n")
        return f"{scratch}/hosts"


def _last_words(process):
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        return "", ""


def last_lines(text, count):
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " / ".join(lines[-count:])[:400]


def _kill_descendants():
    """Kills all children of this process until none is left. The children of a killed process become children of this process."""
    for _ in range(200):
        children = _children(os.getpid())
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                pass
        time.sleep(0.01)


def _children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _report_shared(before):
    """Without namespaces, names the new entries of this user in /dev/shm that no process uses. They are not removed, because they
    may belong to another program."""
    if namespaces():
        return
    for name in sorted(set(os.listdir(SHARED)) - before):
        path = f"{SHARED}/{name}"
        try:
            if os.stat(path).st_uid == os.geteuid() and not _in_use(path):
                print(f"bench: {path} was left by a program; remove it if it is not yours", file=sys.stderr)
        except OSError:
            pass


def _in_use(path):
    """Tells whether any process of this user has the file, or a file in this folder, open or mapped."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if any(name == path or name.startswith(f"{path}/") for name in _held(f"/proc/{pid}")):
            return True
    return False


def _held(process):
    """Yields the paths that a process has mapped or open. Yields nothing for a process that has ended or belongs to another user."""
    try:
        with open(f"{process}/maps") as maps:
            yield from (line.split(maxsplit=5)[-1].strip() for line in maps)
        descriptors = os.listdir(f"{process}/fd")
    except OSError:
        return
    for descriptor in descriptors:
        try:
            yield os.readlink(f"{process}/fd/{descriptor}")
        except OSError:
            pass  # the descriptor was closed meanwhile
