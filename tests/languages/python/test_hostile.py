"""What a lying member writes into a region gives others errors, never a crash and never a hang."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("seed", range(4))
def test_a_scribbling_member_gives_errors_and_no_crash(daemon, name, seed):
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("scribbler.py")), name, str(seed), "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith(" refused\n") and not run.stdout.startswith("0 ")
