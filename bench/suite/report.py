"""build/bench/report.html: one file, nothing fetched."""
import html

from . import plot, table
from .records import spread, verdict
from .style import CSS
from .table import number

FIGURES = {
    "hand-over": ("P3: hand-over of one object, from ready until the other task has it", "size of the object"),
    "3": ("Figure 3: throughput of the three workflows, 10 MB, all data written and read", ""),
    "4": ("Figure 4: throughput when codes keep their own data and copy at the boundary", ""),
    "5": ("Figure 5: throughput over the number of tasks, 10 MB", "tasks"),
    "6": ("Figure 6: throughput over the size of the data", "size of the data"),
    "tcasm-2": ("Figure 2 of the TCASM paper: time of producer and observer over that of the same work without sharing", "size of the data"),
}


def page(records, about):
    e = html.escape
    parts = ["<main>", "<h1>crossdock: benchmarks</h1>", f"<p>{e(table.text(records).splitlines()[_summary_line(records)])}</p>",
             f'<div class="about">{e(table.head(about)).replace(chr(10), "<br>")}<br>peers: {e(_peers(about))}<br>'
             f'{"a short run" if about["quick"] else "a full run"}, {about.get("seconds", 0):.0f} s, load {about["machine"]["load_at_start"]} at its start. '
             "Compare ratios, not nanoseconds.</div>", "<h2>Aims</h2>", _table(records)]
    problems = [r for r in records if r.get("problem")]
    if problems:
        parts += ["<h2>Not measured</h2>", '<div class="wide"><table>', *(f'<tr><td>{e(r["id"])}</td><td class="words">{e(r["case"])}</td><td class="words">{e(r["problem"])}</td></tr>' for r in problems), "</table></div>"]
    names = list(dict.fromkeys([*FIGURES, *(r["figure"] for r in records if r.get("figure"))]))
    drawn = [_figure(name, [r for r in records if r.get("figure") == name and r["runs"]]) for name in names]
    if any(drawn):
        parts += ["<h2>Figures</h2>", "<p>Points and bars are medians; the strokes are the quartiles (least and most of fewer than four runs).</p>", *drawn]
    body = "".join([*parts, "</main>"])
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>crossdock: benchmarks</title><style>{CSS}</style></head><body>{body}</body></html>\n")


def _summary_line(records):
    lines = table.text(records).splitlines()
    return next(i for i, line in enumerate(lines) if "figures with an aim" in line)


def _peers(about):
    return "; ".join(f"{name}: {version}" for name, version in about["versions"].get("peers", {}).items()) or "none in environments of their own"


def _table(records):
    e = html.escape
    rows = []
    for r in sorted((r for r in table.aims(records) if not r.get("problem")), key=table.order):
        low, _, high = spread(r["runs"])
        peers = ", ".join(f"{e(name)} {number(v)}" for name, v in r["peers"].items())
        word = verdict(r)
        cell = f'<td class="{word.replace("too ", "")}">{word}{table.agreement(r)}</td>'
        rows.append(f'<tr><td>{e(r["id"])}</td>{cell}<td class="words">{e(r["case"])}</td><td>{number(r["value"])} {e(r["unit"])}</td><td>{number(low)} – {number(high)}</td>'
                    f'<td>{number(r["floor"])}</td><td class="peers">{peers}</td><td class="words">{e(r["aim"])}</td><td>{number(r["ratio"])}</td></tr>')
    head = "".join(f"<th{' class=words' if n in ('case', 'aim', 'peers') else ''}>{n}</th>" for n in ("id", "", "case", "median", "quartiles", "floor", "peers", "aim", "ratio"))
    return f'<p>The ratio is the value over its limit: at most 1 when the aim is met.</p><div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _figure(name, records):
    if not records:
        return ""
    title, x_label = FIGURES.get(name, (name, "x"))
    drawn = []
    for panel in dict.fromkeys(r.get("panel", "") for r in records):
        here = [r for r in records if r.get("panel", "") == panel]
        unit = here[0]["unit"]
        if all(isinstance(r["x"], (int, float)) for r in here):
            series = {}
            for r in here:
                series.setdefault(r["series"], []).append((r["x"], r["runs"]))
            drawing = plot.lines(series, x_label, unit, _x_text(x_label))
        else:
            series = {}
            for r in here:
                series.setdefault(r["series"], {})[str(r["x"])] = r["runs"]
            drawing = plot.bars(series, list(dict.fromkeys(str(r["x"]) for r in here)), unit)
        caption = html.escape(title + (f": {panel}" if panel else ""))
        drawn.append(f"<figure><figcaption>{caption}</figcaption>{drawing}</figure>")
    return "".join(drawn)


def _x_text(label):
    if not label.startswith("size"):
        return lambda x: f"{x:g}"

    def text(x):
        # Powers of two where it is one, else of ten.
        for base, names in ((1024, ("B", "KiB", "MiB", "GiB")), (1000, ("B", "KB", "MB", "GB"))):
            power, rest = 0, x
            while rest >= base and power < 3:
                rest, power = rest / base, power + 1
            if rest == int(rest):
                return f"{int(rest)} {names[power]}"
        return f"{x:g}"

    return text
