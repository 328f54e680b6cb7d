"""The conformance list (../conformance.md) in Python.

    conformance.py            all rows
    conformance.py P3         one row
    conformance.py ROW ROLE PREFIX ...   (a row's other process; the program calls itself so)
"""

import sys

import rows_errors  # noqa: F401 (registers its rows)
import rows_files  # noqa: F401
import rows_items  # noqa: F401
import rows_ports  # noqa: F401
import rows_regions  # noqa: F401
import rows_series  # noqa: F401
from bench import Bench
from rows import ROLES, ROWS


def run(row):
    """Runs the test of one row. Raises an error if the library does not behave as the row says."""
    bench = Bench(row)
    try:
        ROWS[row][1](bench)
    finally:
        bench.close()


def main(arguments):
    if len(arguments) >= 3:
        row, role, prefix, *rest = arguments
        bench = Bench(row, prefix, task="peer")
        ROLES[row, role](bench, *rest)
        bench.session._leave()
        return 0
    failed = 0
    wanted = arguments or list(ROWS)
    for row in wanted:
        try:
            run(row)
            print(f"ok {row} {ROWS[row][0]}", flush=True)
        except Exception as error:  # noqa: BLE001 (any error means that the row has failed)
            failed += 1
            print(f"FAILED {row} {ROWS[row][0]}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
