"""Tests that the typed stubs declare exactly what the module has, and that mypy finds a wrong type in a program. Needs
mypy."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(*command, **more):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, **more)


def test_stubs_are_what_the_module_has(tmp_path):
    found = run("-m", "mypy.stubtest", "crossdock", "--allowlist", str(HERE / "stubtest-allow"), cwd=tmp_path)
    assert found.returncode == 0, found.stdout


def test_typed_programs_pass_a_strict_check(tmp_path):
    found = run("-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(HERE / "typed_program.py"))
    assert found.returncode == 0, found.stdout


def test_a_wrongly_typed_program_does_not(tmp_path):
    (tmp_path / "wrong.py").write_text("import crossdock\ncrossdock.connect().port('p', 'sender')\n")
    assert run("-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(tmp_path / "wrong.py")).returncode == 1
