"""The figures of the street example: the costs of a run, the table over hosts, sizes and transports, and the plots."""

import datetime
import json
import os
import statistics

from processes import PARTS

# The dark form of the picture, for dark pages.
DARK = ["dark_background", {"figure.facecolor": "#15181b", "axes.facecolor": "#15181b", "savefig.facecolor": "#15181b"}]
COLOURS = {"crossdock": "#2a6f97", "tcp": "#e07a5f", "grpc": "#5b8f6b"}
# The columns of the table. For each figure: its heading, its number of digits, and whether a greater (max) or a smaller (min)
# value is better.
COLUMNS = {
    "frames_per_s": ("frames/s", 1, max),
    "hand_overs_ms": ("a frame's two hand-overs, ms", 2, min),
    "hand_overs_95_ms": ("95 %", 2, min),
    "cpu_ms": ("CPU ms a frame besides finding people", 2, min),
    "memory_mb": ("memory of tasks and daemons, MB", 0, min),
}
COMPARED = ("frames_per_s", "hand_overs_ms", "cpu_ms", "memory_mb")
SPEED = COMPARED[:2]
# The figures that are shown for each part of a run, as in figures 3 (one host) and 4 (several hosts) of the paper. For each of
# them: its heading, and the parts.
BY_PART = {"cpu_ms": ("CPU ms a frame", PARTS), "memory_mb": ("memory, MB", (*PARTS, "shared"))}
# The opacity of the colour of each part in a bar, in the order of the parts in BY_PART.
SHADES = (1, 0.7, 0.45, 0.85, 0.3)


def of_runs(nodes, transport, lines, single, full):
    """Computes the costs from the tasks' accounts of two runs: `single` with one frame in flight at a time, and `full` with all
    items.

    Finding people takes most of the time and is the same for all transports, so its time is measured separately and subtracted.
    The rest is decoding, resizing, drawing, encoding, and the transport."""
    accounts, watch = full
    times = accounts["combine"]["times"]
    # The time from the first stored frame to the last combined one. The start of the containers is not counted.
    begin, end = times[0][0], times[-1][3]
    cpu_s = {part: sum(account["cpu_s"] - account.get("finding_cpu_s", 0) for name, account in accounts.items() if name.startswith(part))
             for part in PARTS} | {"daemons": watch.daemon_cpu_s(begin)}
    cpu_ms = {part: used / len(times) * 1e3 for part, used in cpu_s.items()}
    looks = watch.memory(begin, end)
    memory_mb = {part: statistics.median(look[part] for look in looks) / 1e6 for part in looks[0]}
    passing = sorted((received - stored + combined - detected) * 1e3 for stored, received, detected, combined in single["combine"]["times"])
    return {
        "nodes": nodes, "transport": transport, "lines": lines, "frames": len(times), "frames_per_s": len(times) / (end - begin),
        "hand_overs_ms": statistics.median(passing), "hand_overs_95_ms": passing[int(0.95 * (len(passing) - 1))],
        "finding_ms": sum(account.get("finding_cpu_s", 0) for account in accounts.values()) / len(times) * 1e3,
        "cpu_ms": sum(cpu_ms.values()), "cpu_ms_of": cpu_ms, "memory_mb": sum(memory_mb.values()), "memory_mb_of": memory_mb,
    }


def report(alone, rows, options, folder):
    """Writes the table and the plots. street.json and street.md have what the documentation shows."""
    middle = {}
    for row in rows:
        middle.setdefault((row["nodes"], row["lines"], row["transport"]), []).append(row)
    middle = {key: medians(rows) for key, rows in middle.items()}
    text = "\n".join([conditions(rows, options), "", *table(alone, middle, options), "", *ahead(middle, options)])
    print(f"\n{text}")
    (folder / "street.json").write_text(json.dumps({"sequential": alone, "runs": rows}, indent=1))
    (folder / "street.md").write_text(text + "\n")
    for suffix, style in (("", ()), ("-dark", DARK)):
        plot_speed(middle, options, folder / f"street-speed{suffix}.svg", style)
        plot_cost(middle, options, folder / f"street-cost{suffix}.svg", style)
    print(f"\nvideo, contact sheet: build/street/{rows[-1]['transport']}/ · figures: build/street/street.json, street.md, street-speed.svg, street-cost.svg")


def conditions(rows, options):
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    runs = f"medians of {options.repeat} runs" if options.repeat > 1 else "one run each"
    return (f"Taken on {when}, load {options.load:.1f} at the start: {options.items} items, {options.detectors} detectors, {rows[0]['frames']} frames, {runs}; "
            f"{os.cpu_count()} CPUs, which all hosts share.")


def medians(rows):
    middle = {name: statistics.median(row[name] for row in rows) for name in COLUMNS}
    for name in BY_PART:
        middle[f"{name}_of"] = {part: statistics.median(row[f"{name}_of"][part] for row in rows) for part in rows[0][f"{name}_of"]}
    return middle


def megabytes(lines):
    """Gives the megabytes of a frame with this many lines. Frames have the video's shape, four to three."""
    return lines * round(lines * 4 / 3 / 2) * 2 * 3 / 1e6


def hosts(nodes):
    return "1 host" if nodes == 1 else f"{nodes} hosts"


def table(alone, middle, options):
    yield "| hosts | frame | transport | " + " | ".join(heading for heading, _, _ in COLUMNS.values()) + " |"
    yield "|---|---|---|" + "---|" * len(COLUMNS)
    for nodes in options.nodes:
        for lines in options.size:
            for transport in options.transports:
                row = middle[nodes, lines, transport]
                numbers = " | ".join(f"{row[name]:.{digits}f}" for name, (_, digits, _) in COLUMNS.items())
                yield f"| {nodes} | {lines}p, {megabytes(lines):.1f} MB | {transport} | {numbers} |"
            if nodes == 1:
                one = alone[lines]
                yield f"| | | one process | {one['frames'] / one['wall_s']:.1f} | | | | {one['proportional_bytes'] / 1e6:.0f} |"


def ahead(middle, options):
    """Gives a line for each number of hosts and each size, which names the figures in which crossdock is best and those in which
    it is not."""
    if "crossdock" not in options.transports or len(options.transports) < 2:
        return
    for nodes in options.nodes:
        for lines in options.size:
            best = {name: COLUMNS[name][2](options.transports, key=lambda transport: middle[nodes, lines, transport][name]) for name in COMPARED}
            won = [COLUMNS[name][0] for name, transport in best.items() if transport == "crossdock"]
            lost = [f"{COLUMNS[name][0]} ({transport})" for name, transport in best.items() if transport != "crossdock"]
            yield (f"- {hosts(nodes)}, {lines}p: crossdock is ahead in {'; '.join(won) or 'nothing'}"
                   + (f". Another transport, named in brackets, is ahead in {'; '.join(lost)}" if lost else ""))


def pyplot(style):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.style.use(["default", *style])
    # The plots are one below the other and have large letters, so that they can be read on a phone.
    plt.rcParams.update({"font.size": 12, "svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "street"})
    return plt


def save(plt, figure, path):
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def bars(axis, middle, options, nodes, name):
    """Prepares an axis for a group of bars for each size, with a bar for each transport. Yields, for
    each bar, its position, its width, its transport and its figures."""
    width = 0.84 / len(options.transports)
    for group, lines in enumerate(options.size):
        for n, transport in enumerate(options.transports):
            yield group - 0.42 + (n + 0.5) * width, width * 0.92, transport, middle[nodes, lines, transport]
    axis.margins(y=0.16)
    axis.set_xticks(range(len(options.size)), [f"{lines}p\n{megabytes(lines):.1f} MB" for lines in options.size])
    axis.set_axisbelow(True)
    axis.grid(axis="y", alpha=0.3)


def label(axis, at, value):
    axis.annotate(f"{value:.{value < 9.95:d}f}", (at, value), (0, 1), textcoords="offset points", ha="center", fontsize=8)


def plot_speed(middle, options, path, style=()):
    """Frame rate and time of the hand-overs, for each number of hosts."""
    plt = pyplot(style)
    shown = [(nodes, name) for nodes in options.nodes for name in SPEED]
    figure, axes = panels(plt, shown)
    for axis, (nodes, name) in zip(axes, shown):
        for at, width, transport, row in bars(axis, middle, options, nodes, name):
            axis.bar(at, row[name], width, color=COLOURS[transport])
            label(axis, at, row[name])
        better = "less is better" if COLUMNS[name][2] is min else "more is better"
        axis.set_title(f"{hosts(nodes)}: {COLUMNS[name][0]} ({better})", fontsize=11)
    legend(plt, axes[1], options)
    save(plt, figure, path)


def plot_cost(middle, options, path, style=()):
    """CPU time and memory by tasks and daemons: figures 3 and 4 of the CDI paper, made again."""
    plt = pyplot(style)
    shown = [(nodes, name) for nodes in options.nodes for name in BY_PART]
    figure, axes = panels(plt, shown)
    for axis, (nodes, name) in zip(axes, shown):
        heading, parts = BY_PART[name]
        for at, width, transport, row in bars(axis, middle, options, nodes, name):
            below = 0
            for shade, part in zip(SHADES, parts):
                axis.bar(at, row[f"{name}_of"][part], width, bottom=below, color=COLOURS[transport], alpha=shade)
                below += row[f"{name}_of"][part]
            label(axis, at, below)
        axis.set_title(f"{hosts(nodes)}: {heading}\nfrom below: {', '.join(parts)}", fontsize=11)
    legend(plt, axes[0], options)
    save(plt, figure, path)


def panels(plt, shown):
    figure, axes = plt.subplots(len(shown), 1, figsize=(6.4, 3.1 * len(shown)), layout="constrained", squeeze=False)
    return figure, axes.flat


def legend(plt, axis, options):
    keys = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[transport]) for transport in options.transports]
    axis.legend(keys, options.transports, frameon=False)
