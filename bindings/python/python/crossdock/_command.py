"""The `crossdock` command of this installation. It starts the program that lies beside this file, or the
one that the distribution's package installed."""

import os
import sys


def path() -> str:
    """The path of the program: the program of the wheel, or the one that a distribution's package has installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    bundled = os.path.join(here, "bin", "crossdock")
    system = os.path.join(sys.prefix, "bin", "crossdock")
    return system if not os.path.exists(bundled) and os.path.exists(system) else bundled


def main() -> None:
    """Replaces this process by the program, with the same arguments."""
    program = path()
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"crossdock: the program {program} cannot be started ({error}); install crossdock again")
