"""Draws plots as SVG text: lines over numbers (on a logarithmic axis), and bars over names. The colours are those of
the page, in its dark or light form. Every point shows the spread of its runs, and has a title with its numbers."""
import html
import math

from . import style
from .records import spread
from .table import number

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 290, 52, 18, 12, 38


class Axis:
    """Converts values into positions in the picture."""

    def __init__(self, values, low, high, log):
        values = [v for v in values if v is not None and (v > 0 or not log)]
        self.log, self.low, self.high = log, low, high
        least, most = (min(values), max(values)) if values else (1, 10)
        if log:
            self.a, self.b = math.log10(least), math.log10(most)
            pad = max(0.04 * (self.b - self.a), 0.05)
            self.a, self.b = self.a - pad, self.b + pad
        else:
            self.a, self.b = 0, most * 1.08 or 1

    def __call__(self, value):
        value = math.log10(max(value, 1e-300)) if self.log else value
        return round(self.low + (value - self.a) / (self.b - self.a or 1) * (self.high - self.low), 1)

    def ticks(self):
        if not self.log:
            step = 10 ** math.floor(math.log10(self.b / 3))
            step *= next(m for m in (1, 2, 5, 10) if self.b / (step * m) <= 6)
            return [i * step for i in range(int(self.b / step) + 1)]
        decades = range(math.ceil(self.a), math.floor(self.b) + 1)
        if len(decades) >= 2:
            return [10.0**d for d in decades]
        return [m * 10.0**d for d in range(math.floor(self.a), math.ceil(self.b) + 1) for m in (1, 2, 5) if self.a <= math.log10(m * 10.0**d) <= self.b]


def colours(names):
    """Gives each name a colour. crossdock's own names come first, so that they always have the same colours."""
    ordered = sorted(names, key=lambda n: (not n.startswith("crossdock"), n))
    return {name: f"var(--c{i % 16})" for i, name in enumerate(ordered)}


def lines(series, x_label, y_label, x_text):
    """Draws lines with a key below. `series` maps the name of each line to its pairs (x, runs)."""
    drawing, colour = _lines(series, x_label, y_label, x_text)
    return _svg(drawing) + _key(colour)


def lines_file(series, x_label, y_label, x_text, title):
    """Draws lines as `lines` does, as a file of its own that a page of the documentation shows as an image. The file has the
    colours for light and dark, and the key below the plot."""
    drawing, colour = _lines(series, x_label, y_label, x_text)
    columns = 4 if max(map(len, colour)) < 24 else 2
    key, top = [], HEIGHT + 17
    for place, (name, value) in enumerate(colour.items()):
        x, y = 8 + place % columns * (WIDTH - 12) // columns, top + place // columns * 18
        key.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{value}"/><text x="{x + 14}" y="{y}" font-size="10.5">{html.escape(name)}</text>')
    height = top + (len(colour) - 1) // columns * 18 + 10
    used = ["text", "soft", "line", *(c[6:-1] for c in colour.values())]
    look = f":root{{{_values(style.light(), used)}}}@media (prefers-color-scheme:dark){{:root{{{_values(style.dark(), used)}}}}}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
            f"<style>{look}text{{fill:var(--text);font-family:system-ui,sans-serif}}.soft{{fill:var(--soft)}}</style>{''.join([*drawing, *key])}</svg>\n")


def _values(colours_by_name, used):
    return ";".join(f"--{name}:{colours_by_name[name]}" for name in dict.fromkeys(used))


def _lines(series, x_label, y_label, x_text):
    colour = colours(series)
    xs = [x for points in series.values() for x, _ in points]
    ys = [v for points in series.values() for _, runs in points for v in spread(runs)]
    across, up = Axis(xs, LEFT, WIDTH - RIGHT, max(xs) / min(xs) > 20), Axis(ys, HEIGHT - BOTTOM, TOP, max(ys) / max(min(ys), 1e-9) > 8)
    if not across.log:
        across.a = min(xs) - 0.05 * (max(xs) - min(xs) or 1)
    parts = [*_frame(up, y_label), *_below([(across(x), x_text(x)) for x in sorted(set(xs))], x_label)]
    for name, points in sorted(series.items()):
        points = sorted(points)
        places = [(across(x), [up(v) for v in spread(runs)], x, runs) for x, runs in points]
        parts.append(f'<polyline fill="none" stroke="{colour[name]}" stroke-width="{2.6 if name.startswith("crossdock") else 1.6}" '
                     f'points="{" ".join(f"{x},{y[1]}" for x, y, _, _ in places)}"/>')
        for x, y, at, runs in places:
            parts.append(f'<line x1="{x}" x2="{x}" y1="{y[0]}" y2="{y[2]}" stroke="{colour[name]}" stroke-width="1.2"/>')
            parts.append(f'<circle cx="{x}" cy="{y[1]}" r="3.2" fill="{colour[name]}"><title>{_title(name, x_text(at), runs, y_label)}</title></circle>')
    return parts, colour


def bars(series, groups, y_label):
    """Draws bars with a key. `series` maps the name of each series to a dictionary from the group to the runs."""
    colour = colours(series)
    names = sorted(series, key=lambda n: (not n.startswith("crossdock"), n))
    up = Axis([v for of in series.values() for runs in of.values() for v in spread(runs)], HEIGHT - BOTTOM, TOP, False)
    slot = (WIDTH - LEFT - RIGHT) / len(groups)
    width = slot * 0.86 / len(names)
    parts = [*_frame(up, y_label), *_below([(LEFT + slot * (g + 0.5), group) for g, group in enumerate(groups)], "")]
    for n, name in enumerate(names):
        for g, group in enumerate(groups):
            runs = series[name].get(group)
            if not runs:
                continue
            low, middle, high = spread(runs)
            x = LEFT + slot * (g + 0.07) + n * width
            parts.append(f'<rect x="{x:.1f}" y="{up(middle)}" width="{width * 0.9:.1f}" height="{up(0) - up(middle):.1f}" fill="{colour[name]}">'
                         f"<title>{_title(name, group, runs, y_label)}</title></rect>")
            parts.append(f'<line x1="{x + width * 0.45:.1f}" x2="{x + width * 0.45:.1f}" y1="{up(low)}" y2="{up(high)}" stroke="var(--text)" stroke-width="1"/>')
    return _svg(parts) + _key(colour)


def limits(rows):
    """Draws a row of dots for each name, and a line for the limit. `rows` maps a name to triples: the case, the ratio of its value
    to the limit, and the verdict. The name stands above its dots, so that it can be read on a narrow page."""
    ratios = [ratio for cases in rows.values() for _, ratio, _ in cases if ratio and ratio > 0]
    least = min(ratios, default=1)
    across = Axis([*ratios, 0.5, 2], 8, WIDTH - 8, True)
    step, top = 34, 6
    bottom = top + step * len(rows)
    # Every second row has a background, so that the dots of one row are not taken for the dots of the next row.
    parts = [f'<rect x="0" y="{top + step * n}" width="{WIDTH}" height="{step}" fill="var(--line)" fill-opacity=".35"/>' for n in range(0, len(rows), 2)]
    for tick in across.ticks():
        x = across(tick)
        # The lines of the grid are drawn beside the dots only, because a line through a name would make the name hard to read.
        parts += [f'<line x1="{x}" x2="{x}" y1="{top + step * n + 17}" y2="{top + step * (n + 1)}" stroke="var(--{"text" if tick == 1 else "soft"})" stroke-width="{1.4 if tick == 1 else 0.5}"/>' for n in range(len(rows))]
        parts.append(f'<text class="soft" x="{x}" y="{bottom + 14}" font-size="11" text-anchor="middle">{tick:g}</text>')
    for n, (name, cases) in enumerate(rows.items()):
        y = top + step * n
        parts.append(f'<text x="4" y="{y + 13}" font-size="12.5">{html.escape(name)}</text>')
        for case, ratio, word in cases:
            if ratio is not None:
                # A cost below 0 is noise and has no logarithm, so it is drawn at the left end.
                colour = {"met": "var(--good)", "missed": "var(--bad)"}.get(word, "var(--soft)")
                parts.append(f'<circle cx="{across(max(ratio, least))}" cy="{y + 25}" r="4" fill="{colour}" fill-opacity=".75"><title>{html.escape(f"{case}: {number(ratio)}, {word}")}</title></circle>')
    parts.append(f'<text class="soft" x="{WIDTH / 2}" y="{bottom + 30}" font-size="11" text-anchor="middle">value over its limit</text>')
    key = {"met": "var(--good)", "missed": "var(--bad)", "too close to call": "var(--soft)"}
    return _svg(parts, bottom + 36) + _key(key)


def _title(name, x, runs, unit):
    low, middle, high = spread(runs)
    return html.escape(f"{name}, {x}: {number(middle)} {unit} ({number(low)} - {number(high)}, {len(runs)} runs)")


def _frame(up, label):
    parts = [f'<text class="soft" x="4" y="{TOP + 4}" font-size="11">{html.escape(label)}</text>']
    for tick in up.ticks():
        y = up(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="var(--line)" stroke-width="1"/>')
        if y > TOP + 10:
            parts.append(f'<text class="soft" x="{LEFT - 5}" y="{y + 4}" font-size="11" text-anchor="end">{number(tick)}</text>')
    return parts


def _below(ticks, label):
    parts, last = [], -100
    for x, text in ticks:
        if x - last >= 7 * len(text) + 6:
            parts.append(f'<text class="soft" x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" font-size="11" text-anchor="middle">{html.escape(text)}</text>')
            last = x
    return [*parts, f'<text class="soft" x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" font-size="11" text-anchor="middle">{html.escape(label)}</text>']


def _svg(parts, height=HEIGHT):
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _key(colour):
    return '<div class="key">' + "".join(f'<span><i style="background:{c}"></i>{html.escape(n)}</span>' for n, c in colour.items()) + "</div>"
