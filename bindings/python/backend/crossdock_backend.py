"""Builds the wheel. maturin builds the module; this file adds the library, its headers and the command.

maturin builds only one crate. But an environment with nothing except the wheel also needs the program `crossdock`,
because the first `crossdock.connect()` starts this program as a private daemon.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path


PYTHON = Path(__file__).resolve().parent.parent
WORKSPACE = PYTHON.parent.parent


def get_requires_for_build_wheel(config_settings=None):
    return []  # the build needs no package beyond those in pyproject.toml


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _bundle()
    return _here("build_wheel", wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _bundle()
    return _here("build_editable", wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return _here("prepare_metadata_for_build_wheel", metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("crossdock is built from its repository, whose other crates it needs: pip install path/to/it")


def _here(hook, folder, *rest):
    """Runs this hook of maturin in bindings/python, even if the build was started in the repository's root, whose
    pyproject.toml is less complete."""
    import maturin  # imported here, because making only the bundle of files does not need it

    folder, before = os.path.abspath(folder), os.getcwd()
    os.chdir(PYTHON)
    try:
        return getattr(maturin, hook)(folder, *rest)
    finally:
        os.chdir(before)


def _bundle():
    """Puts the program, the library, its headers and the Fortran sources beside the module's Python files.

    CROSSDOCK_BUILT names a folder with a program and a library that were built before, possibly for another kind
    of machine.
    """
    built = os.environ.get("CROSSDOCK_BUILT")
    if not built:
        cargo = os.environ.get("CARGO", "cargo")
        subprocess.run([cargo, "build", "--release", "-p", "crossdock-cli", "-p", "crossdock-capi", "-p", "crossdock-preload"], cwd=WORKSPACE, check=True)
        metadata = subprocess.run(
            [cargo, "metadata", "--format-version=1", "--no-deps"], cwd=WORKSPACE, check=True, stdout=subprocess.PIPE
        )
        built = Path(json.loads(metadata.stdout)["target_directory"]) / "release"
    package = PYTHON / "python" / "crossdock"
    for folder in ("bin", "lib", "include", "share"):
        shutil.rmtree(package / folder, ignore_errors=True)
    install = [WORKSPACE / "packaging" / "install-tree", "--from", built, "--prefix", package, "--no-links"]
    subprocess.run([*install, "command", "library", "devel", "fortran"], check=True)
    # A program for another kind of machine needs that machine's `strip`. If there is none, the program is not stripped,
    # and the wheel is larger.
    strip = shutil.which(os.environ.get("CROSSDOCK_STRIP", "strip"))
    for file in (package / "bin" / "crossdock", *(package / "lib").glob("libcrossdock.so.*")):
        if strip:
            subprocess.run([strip, "--strip-unneeded", file], check=True)


if __name__ == "__main__":
    _bundle()
