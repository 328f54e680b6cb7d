"""Updates the tables between the marks of docs/benchmarks.md from a results.json. The text around the tables is written by
people, and stays.

    <!-- bench P4 P5 -->  …  <!-- /bench -->      a table of these rows
    <!-- bench machine --> … <!-- /bench -->      when, and on what
    <!-- bench figure NAME --> … <!-- /bench -->  the points of this figure: a row for each line of each panel, a column for each x

The plots of FILES become files of docs/plots.

After a run with --only, just the tables that have a row of this run are renewed; the text around the tables says when
their figures were measured.
"""
import json
import re
import sys

from . import plot, table
from .records import spread, verdict
from .report import FIGURES, by_series, x_text
from .table import number

# The figures that the page shows as images: the file's name, the panel of the figure, and the title.
FILES = {
    "mpi-start": ("mpi-start.svg", "whole job", "Seconds of a whole MPI job over the ranks on each host"),
    "mpi-netpipe": ("mpi-netpipe.svg", "", "NetPIPE between two hosts: bandwidth over the size of a message"),
}

MARK = re.compile(r"(<!-- bench ([A-Za-z0-9, ]+?) -->\n).*?(<!-- /bench -->)", re.S)


def main(top, results):
    try:
        found = json.loads(results.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"bench/run --docs: {results}: {error}; `make bench` writes it")
    records = [r for r in found if r["id"] != "machine"]
    about = next(r for r in found if r["id"] == "machine")
    page = top / "docs/benchmarks.md"
    taken = {r["id"] for r in records}
    figures = {r["figure"] for r in records if r.get("figure")}
    renewed = 0

    def renew(mark):
        nonlocal renewed
        words = mark.group(2).split()
        figure = mark.group(2).removeprefix("figure ") if words[0] == "figure" else ""
        if about["only"] and not (figure in figures or taken.intersection(words)):
            return mark.group(0)
        renewed += 1
        return mark.group(1) + (_figure(figure, records) if figure else _inside(words, records, about)) + mark.group(3)

    page.write_text(MARK.sub(renew, page.read_text()))
    drawn = _draw(top / "docs/plots", records)
    print(f"{page.relative_to(top)}: {renewed} tables and {drawn} plots from {results}")
    return 0


def _draw(folder, records):
    """Writes the plots whose figures are in these records. Returns the number of plots."""
    drawn = 0
    for figure, (file, panel, title) in FILES.items():
        points = [r for r in records if r.get("figure") == figure and r.get("panel", "") == panel]
        if points:
            label = FIGURES[figure][1]
            (folder / file).write_text(plot.lines_file(by_series(points), label, points[0]["unit"], x_text(label), title))
            drawn += 1
    return drawn


def _inside(words, records, about):
    if words == ["machine"]:
        return _machine(records, about)
    rows = sorted((r for r in table.aims(records) if r["id"] in words), key=lambda r: words.index(r["id"]))
    if not rows:
        return "Not in the last run.\n"
    lines = ["| | case | median | quartiles | floor | peers | aim | ratio | |", "|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        if r.get("problem"):
            lines.append(f"| {r['id']} | {_cell(r['case'])} | not measured: {_cell(r['problem'])} | | | | | | |")
            continue
        low, _, high = spread(r["runs"])
        peers = ", ".join(f"{name} {number(v)}" for name, v in r["peers"].items())
        word = {"met": "met", "missed": "**missed**", "too close": "*too close*"}[verdict(r)] + table.agreement(r)
        lines.append(f"| {r['id']} | {_cell(r['case'])} | {number(r['value'])} {r['unit']} | {number(low)} – {number(high)} | {number(r['floor'])} | {_cell(peers)} | "
                     f"{_cell(r['aim'])} | {number(r['ratio'])} | {word if r['aim'] else ''} |")
    return "\n".join(lines) + "\n"


def _figure(name, records):
    """Gives the table of the values of a figure's points. A table of one panel has no column for panels."""
    points = [r for r in records if r.get("figure") == name]
    if not points:
        return "Not in the last run.\n"
    columns, panels = sorted({r["x"] for r in points}), list(dict.fromkeys(r.get("panel", "") for r in points))
    _, label = FIGURES.get(name, (name, ""))
    head = [x_text(label)(x) if label.startswith("size") else f"{number(x)} {label}" for x in columns]
    several = len(panels) > 1
    lines = ["| " + "".join("what | " * several) + " | ".join(["", *head]) + " |", "|---" * (len(columns) + 1 + several) + "|"]
    for panel in panels:
        for series in dict.fromkeys(r["series"] for r in points if r.get("panel", "") == panel):
            found = {r["x"]: r for r in points if (r.get("panel", ""), r["series"]) == (panel, series)}
            cells = [f"{number(found[x]['value'])} {found[x]['unit']}" if x in found else "" for x in columns]
            lines.append("| " + " | ".join([*[_cell(panel)] * several, _cell(series), *cells]) + " |")
    return "\n".join(lines) + "\n"


def _cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def _machine(records, about):
    peers = "; ".join(f"{name}: {version}" for name, version in about["versions"].get("peers", {}).items())
    kind = "short" if about["quick"] else "full"
    return (f"**Taken** {about['taken']}, a {kind} run of {about.get('seconds', 0):.0f} s: {table.head(about).splitlines()[0]}.\n"
            f"{table.head(about).splitlines()[1]}. Peers: {peers or 'none'}.\n"
            f"{table.summary(records)}.\n")
