"""Brings docs/benchmarks.md up to date: the tables between its marks, from a results.json. The words around them are
written by people.

    <!-- bench P4 P5 -->  …  <!-- /bench -->      a table of these rows
    <!-- bench machine --> … <!-- /bench -->      when, and on what
"""
import json
import re
import sys

from . import table
from .records import spread, verdict
from .table import number

MARK = re.compile(r"(<!-- bench ([A-Za-z0-9 ]+?) -->\n).*?(<!-- /bench -->)", re.S)


def main(top, results):
    try:
        found = json.loads(results.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"bench/run --docs: {results}: {error}; `make bench` writes it")
    records = [r for r in found if r["id"] != "machine"]
    about = next(r for r in found if r["id"] == "machine")
    page = top / "docs/benchmarks.md"
    text = MARK.sub(lambda m: m.group(1) + _inside(m.group(2).split(), records, about) + m.group(3), page.read_text())
    page.write_text(text)
    print(f"{page.relative_to(top)}: {len(MARK.findall(text))} tables from {results}")
    return 0


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


def _cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def _machine(records, about):
    peers = "; ".join(f"{name}: {version}" for name, version in about["versions"].get("peers", {}).items())
    kind = "short" if about["quick"] else "full"
    return (f"**Taken** {about['taken']}, a {kind} run of {about.get('seconds', 0):.0f} s: {table.head(about).splitlines()[0]}.\n"
            f"{table.head(about).splitlines()[1]}. Peers: {peers or 'none'}.\n"
            f"{table.summary(records)}.\n")
