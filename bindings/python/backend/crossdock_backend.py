"""Builds the wheel: maturin builds the module, this adds the library, its header and the command.

maturin builds one crate; whoever installs the wheel into an empty environment also needs the program, because a first
`crossdock.connect()` starts a private daemon with it.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import get_requires_for_build_editable, get_requires_for_build_wheel  # noqa: F401 (hooks as they are)

PYTHON = Path(__file__).resolve().parent.parent
WORKSPACE = PYTHON.parent.parent


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _bundle()
    return _here(maturin.build_wheel, wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _bundle()
    return _here(maturin.build_editable, wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return _here(maturin.prepare_metadata_for_build_wheel, metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("crossdock is built from its repository, whose other crates it needs: pip install path/to/it")


def _here(hook, folder, *rest):
    """Runs maturin in bindings/python, whichever pyproject.toml was asked: the repository's root has one that says less."""
    folder, before = os.path.abspath(folder), os.getcwd()
    os.chdir(PYTHON)
    try:
        return hook(folder, *rest)
    finally:
        os.chdir(before)


def _bundle():
    """Puts the program, the library and its header beside the module's Python files."""
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "build", "--release", "-p", "crossdock-cli", "-p", "crossdock-capi"]
    subprocess.run(command, cwd=WORKSPACE, check=True)
    metadata = subprocess.run(
        [cargo, "metadata", "--format-version=1", "--no-deps"], cwd=WORKSPACE, check=True, stdout=subprocess.PIPE
    )
    built = Path(json.loads(metadata.stdout)["target_directory"]) / "release"
    package = PYTHON / "python" / "crossdock"
    for source, folder in (
        (built / "crossdock", "bin"),
        (built / "libcrossdock.so", "lib"),
        (WORKSPACE / "crates" / "capi" / "include" / "crossdock.h", "include"),
    ):
        target = package / folder / source.name
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir()
        shutil.copy2(source, target)
        if folder != "include" and shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", target], check=True)
