"""What is claimed of the demo, for each engine given on the command line. Ends with `N passed, N failed, N skipped`.

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
ATOMS, BINS, STEPS, EVERY = 32_000, 100, 100, 20
FRAMES = STEPS // EVERY + 1
FRAME_BYTES = 2 * ATOMS * 3 * 8  # positions and velocities
# What each task may have mapped, by the names in the workflow file.
GRANTED = {
    "simulate": {"frames", "reference", "positions"},
    "analyse": {"frames", "results", "positions"},
    "plot": {"results", "reference"},
}


def main():
    passed = failed = 0
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    for engine in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="melt-", dir=TOP / "build") as folder:
            run = Run(engine, Path(folder))
            for claim in CLAIMS:
                trouble = run.check(claim)
                name = f"{engine} as {who}: {claim.__doc__}"
                passed, failed = passed + (not trouble), failed + bool(trouble)
                print(f"{'FAIL' if trouble else 'ok  '} {name}" + (f"\n     {trouble}" if trouble else ""), flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


class Run:
    """One run of the workflow, watched while it goes on."""

    def __init__(self, engine, folder):
        self.folder, self.engine = folder, engine
        note = folder / "before.json"
        left = TOP / "scripts/check-nothing-left"
        programs = ["--program", CROSSDOCK, "--program", TOP / "build/melt", "--program", TOP / "build/roots"]
        subprocess.run([sys.executable, left, "before", note, *programs], check=True)
        self.audits, self.outsider = [], None
        self.begun = time.monotonic()
        process = subprocess.Popen([CROSSDOCK, "run", self.workflow(), "--engine", engine, "--json", "--logs", folder / "logs"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.watch(process)
        try:
            self.said, self.complained = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.terminate()
            self.said, self.complained = process.communicate()
        self.code = process.returncode
        self.left = subprocess.run([sys.executable, left, "after", note], capture_output=True, text=True)

    def workflow(self):
        """The example's file with fewer steps, and its paths made absolute."""
        text = (TOP / "examples/melt/workflow.yaml").read_text()
        text = text.replace('"1000"', f'"{STEPS}"').replace("../../build/demo", str(self.folder / "out"))
        text = text.replace("../../", f"{TOP}/")
        (self.folder / "out").mkdir()
        path = self.folder / "workflow.yaml"
        path.write_text(text)
        return path

    def watch(self, process):
        """Asks `crossdock audit` again and again, as the tasks come and go, and tries to get in from outside."""
        while process.poll() is None and time.monotonic() - self.begun < 100:
            audit = subprocess.run([CROSSDOCK, "audit", "--json"], capture_output=True, text=True, timeout=30)
            self.audits.append(audit)
            if self.outsider is None and time.monotonic() - self.begun > 1:
                self.outsider = outsider()
            time.sleep(0.1)

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


def outsider():
    raise NotImplementedError


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
        assert port["messages"] == port["received"] == FRAMES, port
    assert positions["bytes_copied"] == FRAMES * FRAME_BYTES, positions
    assert positions["bytes_handed_over"] >= FRAMES * FRAME_BYTES, positions
    assert results["bytes_copied"] == 0, results
    assert results["bytes_handed_over"] >= FRAMES * BINS * 3 * 8, results


def nothing_left(run):
    """nothing is left behind"""
    assert run.left.returncode == 0, run.left.stdout + run.left.stderr


CLAIMS = [ends_well, is_proved, picture, copies, nothing_left]

if __name__ == "__main__":
    main()
