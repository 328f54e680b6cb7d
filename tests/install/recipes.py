#!/usr/bin/env python3
"""Runs the recipes for Spack and Conda without Spack and Conda: the recipe's own commands put a prefix into a folder.

    tests/install/recipes.py spack|conda LIBRARY FOLDER

LIBRARY is the folder with what cargo built. The recipe's `cargo build` and `pip install` are replaced: in place of
`cargo build`, the test checks that the named packages exist; in place of `pip install`, it checks that the folder to be
installed exists.
"""

import contextlib
import os
import re
import subprocess
import sys
import types
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def check(condition, what):
    if not condition:
        sys.exit(f"recipes.py: {what}")


def version():
    return re.search(r'^version = "(.*)"', (TOP / "Cargo.toml").read_text(), re.M)[1]


def source(library, folder):
    """The repository as a recipe sees it after its `cargo build`: target/release has what was built."""
    place = folder / "source"
    place.mkdir(parents=True)
    for entry in TOP.iterdir():
        if entry.name not in {"target", "build"}:
            (place / entry.name).symlink_to(entry)
    (place / "target").mkdir()
    (place / "target/release").symlink_to(library)
    return place


def cargo(*words):
    """Takes the place of `cargo build`: checks that the named packages exist, and builds nothing."""
    named = [words[at + 1] for at, word in enumerate(words) if word == "-p"]
    there = {re.search(r'^name = "(.*)"', file.read_text(), re.M)[1] for file in TOP.glob("crates/*/Cargo.toml")}
    check(words[0] == "build" and named and set(named) <= there, f"cargo {' '.join(words)}: no such packages")


def pip(*words):
    """Takes the place of `pip install`: checks that the folder has a Python package, and installs nothing."""
    check(words[:3] == ("-m", "pip", "install") and (TOP / words[-1] / "pyproject.toml").is_file(), f"python {' '.join(words)}")


class Prefix(str):
    def __getattr__(self, name):
        return Prefix(f"{self}/{name}")


def spack(library, folder):
    place, prefix = source(library, folder), Prefix(folder / "prefix")

    @contextlib.contextmanager
    def when(_condition):
        yield

    def nothing(*_, **__):
        return lambda function: function

    def program(path):
        return lambda *words: subprocess.run([path, *words], check=True)

    api = types.ModuleType("spack.package")
    for name in ("license", "version", "variant", "depends_on", "extends", "run_after", "on_package_attributes"):
        setattr(api, name, nothing)
    api.Package, api.when, api.join_path, api.Executable, api.python = object, when, os.path.join, program, pip
    api.which = lambda name, required: cargo if name == "cargo" else sys.exit(f"recipes.py: which {name}")
    api.make = lambda *words: subprocess.run(["make", "-s", "-C", place, *words], check=True)
    sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), api
    recipe = {}
    exec(compile((TOP / "packaging/spack/packages/crossdock/package.py").read_text(), "package.py", "exec"), recipe)
    package = recipe["Crossdock"]()
    package.stage = types.SimpleNamespace(source_path=str(place))
    package.prefix = prefix
    package.install(types.SimpleNamespace(satisfies=lambda _condition: True), prefix)
    package.check_install()


def conda(library, folder):
    place, prefix, tools = source(library, folder), folder / "prefix", folder / "tools"
    meta = (TOP / "packaging/conda/meta.yaml").read_text()
    check(f'version: "{version()}"' in meta, f"meta.yaml is not of version {version()}")
    tools.mkdir()
    for name, kind in (("cargo", "cargo"), ("python", "pip")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {kind} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}:{prefix}/bin:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PREFIX": str(prefix), "PYTHON": str(tools / "python"), "SP_DIR": str(folder / "site")}
    script = re.search(r"^  script: (.*)$", meta, re.M)[1]
    subprocess.run(script, shell=True, check=True, cwd=place, env=environment)
    commands = re.search(r"^  commands:\n((?:    - .*\n)+)", meta, re.M)[1]
    for line in commands.splitlines():
        subprocess.run(line.strip()[2:], shell=True, check=True, cwd=folder, env=environment)


def main():
    kind, words = sys.argv[1], sys.argv[2:]
    if kind in {"cargo", "pip"}:
        {"cargo": cargo, "pip": pip}[kind](*words)
    else:
        {"spack": spack, "conda": conda}[kind](Path(words[0]).resolve(), Path(words[1]).resolve())


main()
