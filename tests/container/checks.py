"""Checks the claims about the demo, for each engine on the command line. Ends with `N passed, N failed, N skipped`.

Uses what is built already (tests/container/run builds it) and leaves nothing behind.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
CROSSDOCK = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "build/target")) / "release/crossdock"
ATOMS, BINS, STEPS, EVERY = 32_000, 100, 200, 10
FRAMES = STEPS // EVERY + 1
FRAME_BYTES = 2 * ATOMS * 3 * 8  # positions and velocities
# For each task: the objects that it may have mapped or open according to its grants in the workflow file.
GRANTED = {
    "simulate": {"region:frames", "region:reference", "port:positions", "port:reference"},
    "analyse": {"region:frames", "region:results", "port:positions", "port:results"},
    "plot": {"region:results", "region:reference", "port:results", "port:reference"},
}
# The granted objects that a task may only read, each with the task.
READ_ONLY = {("analyse", "region:frames"), ("plot", "region:results"), ("plot", "region:reference")}
# A program that tries to open the regions at each socket of the run, as the task to which the socket belongs.
OUTSIDER = """
import sys, crossdock
for socket in sys.argv[1:]:
    try:
        session = crossdock.connect(socket=socket, private_daemon=False)
    except crossdock.Error as error:
        print("no-task", "nothing", "any", type(error).__name__)
        continue
    for name in ("frames", "results", "reference"):
        try:
            session.region(name, mode="open_only", timeout=0)
            print(session.workflow, session.task, name, "open")
        except crossdock.Error as error:
            print(session.workflow, session.task, name, type(error).__name__)
    session.close()
"""
# A program that checks whether the kernel lets another user reach a socket at all. (That user need not be able to read
# our Python module.)
KNOCK = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(path)
        print("no-task", "nothing", path, "connected")
    except OSError as error:
        print("no-task", "nothing", path, type(error).__name__)
"""


def main():
    passed = failed = 0
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    for engine in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="melt-", dir=TOP / "build") as folder, \
             tempfile.TemporaryDirectory(prefix="cd") as runs:  # a short path, because sockets lie in the folder
            run = Run(engine, Path(folder), Path(runs))
            for claim in CLAIMS:
                trouble = run.check(claim)
                name = f"{engine} as {who}: {claim.__doc__}"
                passed, failed = passed + (not trouble), failed + bool(trouble)
                print(f"{'FAIL' if trouble else 'ok  '} {name}" + (f"\n     {trouble}" if trouble else ""), flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


class Run:
    """One run of the workflow. `watch` audits the run until it ends."""

    def __init__(self, engine, folder, runs):
        self.folder, self.engine, self.runs = folder, engine, runs
        self.environment = {**os.environ, "CROSSDOCK_RUNS": str(runs)}
        # The name contains the process id, so that another demo on this machine is not mistaken for this one.
        self.name = f"melt-{os.getpid()}-{engine}"
        note = folder / "before.json"
        left = TOP / "scripts/check-nothing-left"
        programs = ["--program", CROSSDOCK, "--program", TOP / "build/melt", "--program", TOP / "build/roots"]
        subprocess.run([sys.executable, left, "before", note, *programs], check=True)
        self.audits, self.outsiders = [], []
        self.begun = time.monotonic()
        process = subprocess.Popen([CROSSDOCK, "run", self.workflow(), "--engine", engine, "--json", "--logs", folder / "logs"],
                                   env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.watch(process)
        try:
            self.said, self.complained = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.terminate()
            self.said, self.complained = process.communicate()
        self.code = process.returncode
        self.left = subprocess.run([sys.executable, left, "after", note], capture_output=True, text=True)

    def workflow(self):
        """Writes the example's workflow file with fewer steps and with absolute paths. Returns the path of the new
        file."""
        text = (TOP / "examples/melt/workflow.yaml").read_text()
        text = text.replace('"500"', f'"{STEPS}"').replace("../../build/demo", str(self.folder / "out"))
        text = text.replace("../../", f"{TOP}/").replace("workflow: melt", f"workflow: {self.name}")
        (self.folder / "out").mkdir()
        path = self.folder / "workflow.yaml"
        path.write_text(text)
        return path

    def watch(self, process):
        """Calls `crossdock audit` again and again until the run ends. When all tasks have their segments, also tries
        once to open regions from outside."""
        while process.poll() is None and time.monotonic() - self.begun < 100:
            audit = subprocess.run([CROSSDOCK, "audit", "--json"], env=self.environment, capture_output=True, text=True, timeout=30)
            self.audits.append(json.loads(audit.stdout) if audit.returncode == 0 else {"processes": []})
            if not self.outsiders and len(self.holders()) >= len(GRANTED):
                sockets = [path for path in self.runs.rglob("*.sock") if path.is_socket()]
                self.outsiders = ask_from_outside(sockets)
            time.sleep(0.1)

    def holders(self):
        """Gives, for each task of this workflow, the segments that an audit saw mapped or open. Each segment is mapped
        to a process of the task that could write it, or to "" if none could.

        If an audit does not know the task of a process yet, the task's name comes from a later audit."""
        tasks, held = {}, {}
        for audit in self.audits:
            for process in audit["processes"]:
                tasks[process["pid"]] = process["task"] or tasks.get(process["pid"], f"process {process['pid']}")
                for access in process["access"]:
                    workflow, _, name = access["segment"].partition("/")
                    if workflow == self.name:
                        name, names = f"{access['kind']}:{name}", held.setdefault(process["pid"], {})
                        writes = "w" in access["mapped"] + access["descriptor"]
                        names[name] = f"{process['program']} {process['pid']}: {access}" if writes else names.get(name, "")
        named = {}
        for pid, names in held.items():
            if tasks[pid] not in ("daemon", "launcher"):
                task = named.setdefault(tasks[pid], {})
                for name, writer in names.items():
                    task[name] = writer or task.get(name, "")
        return named

    def check(self, claim):
        try:
            claim(self)
        except AssertionError as e:
            return f"{e}".replace("\n", "\n     ") or "(no reason given)"
        except Exception as e:  # noqa: BLE001 (a broken check is a failed one)
            return f"{type(e).__name__}: {e}"
        return None

    def summary(self):
        return json.loads(self.said)

    def port(self, name):
        return next(port for port in self.summary()["ports"] if port["port"] == name)


def ask_from_outside(sockets):
    """Tries to open regions at the sockets, as the same user and, if this user is root, also as another user. Returns rows of
    workflow, task, region and answer."""
    commands = [[sys.executable, "-c", OUTSIDER, *sockets]]
    if os.geteuid() == 0:
        commands.append(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/env", "python3", "-c", KNOCK, *sockets])
    rows = []
    for command in commands:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd="/")
        rows += [line.split() for line in answer.stdout.splitlines()]
        if answer.returncode != 0:
            rows.append(["it", "failed", "and said", answer.stderr[-500:]])
    return rows


def ends_well(run):
    """the run ends well and says so"""
    assert run.code == 0, f"exit code {run.code}\n{run.complained[-1500:]}\n{run.said[-1500:]}"
    assert run.summary()["engine"] == run.engine


def is_proved(run):
    """our g(r) is LAMMPS' own, within 1e-6"""
    proof = (run.folder / "out/proof.txt").read_text()
    worst = re.search(r"^proved: .* (\S+) \(limit", proof)
    assert worst and float(worst.group(1)) <= 1e-6, proof


def picture(run):
    """the picture is a PNG with something on it"""
    data = (run.folder / "out/melt.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 10_000, data[:8]


def copies(run):
    """LAMMPS' buffer is copied in once, and nothing is copied after that"""
    positions, results = run.port("positions"), run.port("results")
    for port in (positions, results):
        # To the port `results`, the analysis sends a table for each frame, and two histories at its end.
        messages = FRAMES + 2 * (port is results)
        assert port["messages"] == port["received"] == messages, port
    assert positions["bytes_copied"] == FRAMES * FRAME_BYTES, positions
    assert positions["bytes_handed_over"] >= FRAMES * FRAME_BYTES, positions
    assert results["bytes_copied"] == 0, results
    assert results["bytes_handed_over"] >= FRAMES * BINS * 3 * 8, results


def grants_hold(run):
    """audit sees each task hold what it was granted and nothing else"""
    seen = run.holders()
    assert set(seen) == set(GRANTED), f"holders of the workflow's segments: {seen}"
    for task, granted in GRANTED.items():
        assert set(seen[task]) <= granted, f"{task} holds {set(seen[task]) - granted}"
        ports = {name for name in granted if name.startswith("port:")}
        assert ports <= set(seen[task]), f"{task} was never seen with {ports - set(seen[task])}"
        for name, writer in seen[task].items():
            assert not writer or (task, name) not in READ_ONLY, f"{task} can write {name}: {writer}"
    assert seen["simulate"]["region:frames"], "simulate was never seen to hold its own region for writing"


def no_way_in(run):
    """who is outside of the workflow gets nothing, and a task only what it was granted"""
    assert run.outsiders, "no socket of the run was found to try"
    for workflow, task, region, answer in run.outsiders:
        what = f"{workflow}/{task} asked for {region}: {answer}"
        if workflow == "no-task":
            assert answer == "PermissionError", what
        elif workflow != run.name:
            assert answer == "NotFoundError", what
        elif task in GRANTED:
            expected = "open" if f"region:{region}" in GRANTED[task] else "DeniedError"
            assert answer == expected, what
    assert {task for _, task, _, _ in run.outsiders} >= set(GRANTED), run.outsiders


def nothing_left(run):
    """nothing is left behind"""
    assert run.left.returncode == 0, run.left.stdout + run.left.stderr


CLAIMS = [ends_well, is_proved, picture, copies, grants_hold, no_way_in, nothing_left]

if __name__ == "__main__":
    main()
