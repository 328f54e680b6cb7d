"""`python -m crossdock …` is the `crossdock` command; `python -m crossdock --prefix` prints where C, C++ and Fortran find
this installation: a CMAKE_PREFIX_PATH, and below it `lib/pkgconfig`."""

import os
import sys

from ._command import main

if __name__ == "__main__":
    if sys.argv[1:] == ["--prefix"]:
        print(os.path.dirname(os.path.abspath(__file__)))
    else:
        main()
