"""The programs of bindings/python/README.md run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import crossdock

README = Path(__file__).parents[3] / "bindings" / "python" / "README.md"


def programs_of_the_readme():
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(programs) == 4
    return programs


def test_solver_and_watcher(daemon):
    programs = programs_of_the_readme()[2:]
    both = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) for text in programs]
    try:
        said = [process.communicate(timeout=30)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        lines = [line.split() for line in said[1].splitlines()]
        steps = [int(step) for step, _ in lines]
        assert steps == sorted(set(steps)) and steps[-1] == 99
        assert all(float(mean) == 0.5 * (int(step) + 1) for step, mean in lines)
    finally:
        for process in both:
            process.kill()
        with crossdock.connect(private_daemon=False) as session:
            session.remove_series("field")


def test_producer_and_consumer(daemon):
    programs = programs_of_the_readme()[:2]
    both = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) for text in programs]
    try:
        said = [process.communicate(timeout=30)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        tags = [int(line.split()[0]) for line in said[1].splitlines()]
        assert tags == list(range(100))
    finally:
        for process in both:
            process.kill()
        with crossdock.connect(private_daemon=False) as session:
            session.remove_region("frames")
            session.remove_port("positions")
