"""Writes the page build/bench/report.html, which is one file and fetches nothing."""
import html

from . import plot, summary, table
from .names import in_words
from .records import judged, spread, verdict
from .style import CSS

FIGURES = {
    "hand-over": ("P3: hand-over of one object, from ready until the other task has it", "size of the object"),
    "3": ("Figure 3: throughput of the three workflows, 10 MB, all data written and read", ""),
    "4": ("Figure 4: throughput when codes keep their own data and copy at the boundary", ""),
    "5": ("Figure 5: throughput over the number of tasks, 10 MB", "tasks"),
    "6": ("Figure 6: throughput over the size of the data", "size of the data"),
    "mpi-start": ("P20: an MPI job in containers and bare, to the end of", "ranks on each host"),
    "mpi-netpipe": ("P20: NetPIPE between two hosts", "size of a message"),
    "catalog": ("P15: the catalog of a site", "nodes"),
    "CDI, table II": ("Table II of the CDI paper: mean time from one host to another", "size of the data"),
    "nodes": ("P15: from a task on one node to a task on another node", "size of the object"),
    "dyad-2": ("Figure 2 of the DYAD paper: time from the start to the end of all tasks, 64 files for each pair of", "pairs of producer and consumer"),
    "tcasm-2": ("Figure 2 of the TCASM paper: time of producer and observer over that of the same work without sharing", "size of the data"),
}


def page(records, about):
    """Makes the page: five sentences, then plots, then tables."""
    e = html.escape
    parts = ["<main>", "<h1>crossdock: benchmarks</h1>", '<ul class="summary">', *(f"<li>{e(sentence)}</li>" for sentence in summary.sentences(records, about)), "</ul>",
             "<h2>Plots</h2>", *_plots(records), "<h2>Tables</h2>",
             "<p>The ratio is the value over its limit: at most 1 when the aim is met. The floor is what the machine itself needs.</p>", *_tables(records)]
    problems = [r for r in records if r.get("problem")]
    if problems:
        parts += ["<h3>Not measured</h3>", "<table><tr><th>what</th><th class=words>why</th></tr>",
                  *(f'<tr><td class="case">{e(r["id"])} {e(r["case"])}</td><td class="words" data-name="why">{e(r["problem"])}</td></tr>' for r in problems), "</table>"]
    parts += ["<h2>Machine and versions</h2>", f'<div class="about">{e(table.head(about)).replace(chr(10), "<br>")}<br>peers: {e(_peers(about))}</div>']
    body = "".join([*parts, "</main>"])
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>crossdock: benchmarks</title><style>{CSS}</style></head><body>{body}</body></html>\n")


def _plots(records):
    """Yields a plot that shows how near each figure is to its limit, and then the plots of the papers' figures."""
    found = judged(records)
    if found:
        yield "<figure><figcaption>How near each figure is to its limit: left of the line the aim is met</figcaption>" + plot.limits(_by_row(found)) + "</figure>"
    names = list(dict.fromkeys([*FIGURES, *(r["figure"] for r in records if r.get("figure"))]))
    drawn = [_figure(name, [r for r in records if r.get("figure") == name and r["runs"]]) for name in names]
    if any(drawn):
        yield "<p>Points and bars are medians. The strokes are the quartiles (least and most of fewer than four runs).</p>"
        yield '<div class="plots">' + "".join(drawn) + "</div>"


def _by_row(records):
    rows = {}
    for r in sorted(records, key=table.order):
        rows.setdefault(f"{r['id']}  {in_words(r['id'])}", []).append((r["case"], r["ratio"], verdict(r)))
    return rows


def _peers(about):
    return "; ".join(f"{name}: {version}" for name, version in about["versions"].get("peers", {}).items()) or "none in environments of their own"


def _tables(records):
    """Yields one table for each id. On a narrow page each row becomes a block, and each cell shows the name of its column."""
    e = html.escape
    rows = {}
    for r in sorted((r for r in table.aims(records) if not r.get("problem")), key=table.order):
        rows.setdefault(r["id"], []).append(r)
    for row, found in rows.items():
        yield f"<h3>{e(row)} · {e(in_words(row))}</h3>" if in_words(row) != row else f"<h3>{e(row)}</h3>"
        yield "<table><tr><th>case, aim and peers</th>" + "".join(f"<th>{name}</th>" for name in ("median", "quartiles", "floor", "ratio", "verdict")) + "</tr>"
        yield from (_row(r) for r in found)
        yield "</table>"


def _unbroken(x):
    """Writes a number so that no line break divides it."""
    return table.number(x).replace(" ", "&nbsp;")


def _row(r):
    e, number = html.escape, _unbroken
    low, _, high = spread(r["runs"])
    peers = ", ".join(f"{e(name)}&nbsp;{number(v)}" for name, v in r["peers"].items())
    word = verdict(r)
    more = f'<div class="more">aim: {e(r["aim"])}</div>' + (f'<div class="more">peers, {e(r["unit"])}: {peers}</div>' if peers else "")
    cells = (("median", f"{number(r['value'])} {e(r['unit'])}"), ("quartiles", f"{number(low)} – {number(high)}"), ("floor", number(r["floor"])), ("ratio", number(r["ratio"])))
    return (f'<tr><td class="case">{e(r["case"])}{more}</td>' + "".join(f'<td{_empty(text)} data-name="{name}">{text}</td>' for name, text in cells)
            + f'<td data-name="verdict" class="{word.replace("too ", "")}">{word}{table.agreement(r)}</td></tr>')


def _empty(text):
    """Marks an empty cell (`-`), which a narrow page leaves out."""
    return ' class="none"' if text == "-" else ""


def _figure(name, records):
    if not records:
        return ""
    title, x_label = FIGURES.get(name, (name, "x"))
    drawn = []
    for panel in dict.fromkeys(r.get("panel", "") for r in records):
        here = [r for r in records if r.get("panel", "") == panel]
        unit = here[0]["unit"]
        if all(isinstance(r["x"], (int, float)) for r in here):
            series = by_series(here)
            drawing = plot.lines(series, x_label, unit, x_text(x_label))
        else:
            series = {}
            for r in here:
                series.setdefault(r["series"], {})[str(r["x"])] = r["runs"]
            drawing = plot.bars(series, list(dict.fromkeys(str(r["x"]) for r in here)), unit)
        caption = html.escape(title + (f": {panel}" if panel else ""))
        drawn.append(f"<figure><figcaption>{caption}</figcaption>{drawing}</figure>")
    return "".join(drawn)


def by_series(records):
    """Gives the points of a plot as a dictionary from the name of a line to its pairs (x, runs)."""
    series = {}
    for r in records:
        series.setdefault(r["series"], []).append((r["x"], r["runs"]))
    return series


def x_text(label):
    if not label.startswith("size"):
        return lambda x: f"{x:g}"

    def text(x):
        # A power of two gets binary units, and other numbers get decimal units.
        for base, names in ((1024, ("B", "KiB", "MiB", "GiB")), (1000, ("B", "KB", "MB", "GB"))):
            power, rest = 0, x
            while rest >= base and power < 3:
                rest, power = rest / base, power + 1
            if rest == int(rest):
                return f"{int(rest)} {names[power]}"
        return f"{x:g}"

    return text
