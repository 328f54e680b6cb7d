"""Brings docs/benchmarks.md up to date from the last run of the street example: the table, the list of figures in which
crossdock is best, and the plots.

The table is between `<!-- street -->` and `<!-- /street -->`. The words around it are written by people.
"""

import re
import shutil
import sys

from places import BUILD, TOP

PAGE = TOP / "docs/benchmarks.md"
PLOTS = [f"street-{kind}{suffix}.svg" for kind in ("speed", "cost") for suffix in ("", "-dark")]


def main():
    try:
        table = (BUILD / "street.md").read_text()
    except OSError as error:
        sys.exit(f"street: {error}; `make street NODES=1,2,3` writes it")
    page, found = re.subn(r"(<!-- street -->\n).*?(<!-- /street -->)", lambda mark: mark[1] + table + mark[2], PAGE.read_text(), flags=re.S)
    if found != 1:
        sys.exit(f"street: {PAGE} has {found} places for the table")
    PAGE.write_text(page)
    for plot in PLOTS:
        shutil.copy(BUILD / plot, TOP / "docs/plots" / plot)
    print(f"docs/benchmarks.md and {', '.join(PLOTS)} in docs/plots are those of the last run")


if __name__ == "__main__":
    main()
