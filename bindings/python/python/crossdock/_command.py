"""The `crossdock` command of this wheel: hands over to the program beside this file."""

import os
import sys


def path() -> str:
    """Where the bundled program lies."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "crossdock")


def main() -> None:
    """Becomes the bundled program, with the same arguments."""
    program = path()
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"crossdock: the program of the wheel, {program}, cannot be started ({error}); install the wheel anew")
