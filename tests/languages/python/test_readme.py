"""The README's first example, as printed: it runs on a used daemon as on a fresh one, whichever program starts first."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import crossdock

README = Path(__file__).resolve().parents[3] / "README.md"
STEPS = 100


def block(file):
    """Gives the code block of the README whose first line names this file."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    found = [code for code in blocks if code.startswith(f"# {file},")]
    assert len(found) == 1, f"the README has {len(found)} blocks that begin with `# {file},`"
    return found[0]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    for file in ("produce.py", "consume.py"):
        (folder / file).write_text(block(file))
    return folder


def start(folder, file):
    return subprocess.Popen([sys.executable, file], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder, first, second):
    programs = {first: start(folder, first)}
    time.sleep(0.5)
    programs[second] = start(folder, second)
    try:
        outputs = {file: program.communicate(timeout=60) for file, program in programs.items()}
    finally:
        for program in programs.values():
            program.kill()
    for file, (_, errors) in outputs.items():
        assert programs[file].returncode == 0, f"{file}: {errors}"
    lines = outputs["consume.py"][0].splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(STEPS))


ORDERS = [("produce.py", "consume.py"), ("consume.py", "produce.py")]


@pytest.mark.parametrize("notebook", [False, True], ids=["alone", "with a session that stays"])
@pytest.mark.parametrize("order", ORDERS, ids=["producer first", "consumer first"])
def test_first_example_runs_three_times(daemon, scripts, order, notebook):
    stays = crossdock.connect(daemon, task="notebook") if notebook else None
    for _ in range(3):
        run(scripts, *order)
    if stays:
        stays.close()
        with crossdock.connect(daemon) as session:
            session.remove_region("frames")


@pytest.mark.parametrize("order", ORDERS, ids=["producer first", "consumer first"])
def test_first_example_runs_after_one_that_was_killed(daemon, scripts, order):
    producer = start(scripts, "produce.py")
    time.sleep(0.5)
    os.kill(producer.pid, 9)
    producer.communicate(timeout=10)
    run(scripts, *order)
