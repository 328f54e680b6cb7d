"""The `crossdock` command of this installation: hands over to the program beside this file, or to the distribution's."""

import os
import sys


def path() -> str:
    """Where the program lies: in the wheel, else where a distribution's package puts it."""
    here = os.path.dirname(os.path.abspath(__file__))
    bundled = os.path.join(here, "bin", "crossdock")
    system = os.path.join(sys.prefix, "bin", "crossdock")
    return system if not os.path.exists(bundled) and os.path.exists(system) else bundled


def main() -> None:
    """Becomes that program, with the same arguments."""
    program = path()
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"crossdock: the program {program} cannot be started ({error}); install crossdock again")
