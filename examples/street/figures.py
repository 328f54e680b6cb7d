"""The figures of the street example: what one run cost, the table over sizes and transports, who is ahead, the plot."""

import json
import statistics

# The dark form of the picture, for dark pages.
DARK = ["dark_background", {"figure.facecolor": "#15181b", "axes.facecolor": "#15181b", "savefig.facecolor": "#15181b"}]
COLOURS = {"crossdock": "#2a6f97", "tcp": "#e07a5f", "grpc": "#5b8f6b"}
# name → (heading, number of digits, which values are better)
COLUMNS = {
    "frames_per_s": ("frames/s", 1, max),
    "hand_overs_ms": ("a frame's two hand-overs, ms", 2, min),
    "hand_overs_95_ms": ("95 %", 2, min),
    "cpu_ms": ("CPU ms a frame besides finding people", 2, min),
    "memory_mb": ("memory of all tasks, MB", 0, min),
}
COMPARED = ("frames_per_s", "hand_overs_ms", "cpu_ms", "memory_mb")


def of_runs(transport, lines, single, full):
    """What two runs cost, from the tasks' accounts: one with a single frame on its way at a time, one with all items.

    Finding people takes most of the time and is the same for all: what it takes is measured apart, and what remains is decoding,
    resizing, drawing, encoding, and the transport."""
    accounts, daemon_cpu = full
    times = accounts["combine"]["times"]
    finding = sum(account.get("finding_cpu_s", 0) for account in accounts.values())
    cpu = sum(account["cpu_s"] for account in accounts.values()) + daemon_cpu
    # The time from the first stored frame to the last combined one. The start of the containers is not counted.
    span = times[-1][3] - times[0][0]
    passing = sorted((received - stored + combined - detected) * 1e3 for stored, received, detected, combined in single[0]["combine"]["times"])
    return {
        "transport": transport, "lines": lines, "frames": len(times), "frames_per_s": len(times) / span,
        "hand_overs_ms": statistics.median(passing), "hand_overs_95_ms": passing[int(0.95 * (len(passing) - 1))],
        "finding_ms": finding / len(times) * 1e3, "cpu_ms": (cpu - finding) / len(times) * 1e3,
        "daemon_ms": daemon_cpu / len(times) * 1e3,
        "memory_mb": sum(account["proportional_bytes"] for account in accounts.values()) / 1e6,
        "cpu_ms_of": {name: (account["cpu_s"] - account.get("finding_cpu_s", 0)) / len(times) * 1e3 for name, account in accounts.items()},
    }


def report(alone, rows, options, folder):
    middle = {(lines, transport): medians([row for row in rows if (row["lines"], row["transport"]) == (lines, transport)])
              for lines in options.size for transport in options.transports}
    print(f"\n{options.items} items, {options.detectors} detectors, {rows[0]['frames']} frames; medians of {options.repeat}\n")
    print("\n".join(table(alone, middle, options)))
    print()
    print("\n".join(ahead(middle, options)))
    (folder / "street.json").write_text(json.dumps({"sequential": alone, "runs": rows}, indent=1))
    plot(middle, options, folder / "street.png")
    plot(middle, options, folder / "street-dark.png", DARK)
    print(f"\nvideo, contact sheet: build/street/{options.transports[0]}/ · figures: build/street/street.json, street.png")


def medians(rows):
    return {name: statistics.median(row[name] for row in rows) for name in COLUMNS}


def megabytes(lines):
    """Of one frame of the video's shape, four to three."""
    return lines * round(lines * 4 / 3 / 2) * 2 * 3 / 1e6


def table(alone, middle, options):
    yield "| frame | transport | " + " | ".join(heading for heading, _, _ in COLUMNS.values()) + " |"
    yield "|---|---|" + "---|" * len(COLUMNS)
    for lines in options.size:
        for transport in options.transports:
            row = middle[lines, transport]
            numbers = " | ".join(f"{row[name]:.{digits}f}" for name, (_, digits, _) in COLUMNS.items())
            yield f"| {lines}p, {megabytes(lines):.1f} MB | {transport} | {numbers} |"
        one = alone[lines]
        yield f"| | one process | {one['frames'] / one['wall_s']:.1f} | | | | {one['proportional_bytes'] / 1e6:.0f} |"


def ahead(middle, options):
    """A line for each size: in what crossdock is the best of all, and in what it is not."""
    if "crossdock" not in options.transports or len(options.transports) < 2:
        return
    for lines in options.size:
        best = {name: COLUMNS[name][2](options.transports, key=lambda transport: middle[lines, transport][name]) for name in COMPARED}
        won = [COLUMNS[name][0] for name, transport in best.items() if transport == "crossdock"]
        lost = [f"{COLUMNS[name][0]} ({transport})" for name, transport in best.items() if transport != "crossdock"]
        yield f"{lines}p: crossdock is ahead in {'; '.join(won) or 'nothing'}" + (f". Another is in {'; '.join(lost)}" if lost else "")


def plot(middle, options, path, style=()):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.style.use(["default", *style])
    # The plots are one below the other and have large letters, so that they can be read on a phone.
    plt.rcParams["font.size"] = 12
    figure, axes = plt.subplots(len(COMPARED), 1, figsize=(6, 12), layout="constrained", sharex=True)
    places = range(len(options.size))
    width = 0.8 / len(options.transports)
    for axis, name in zip(axes.flat, COMPARED):
        for n, transport in enumerate(options.transports):
            values = [middle[lines, transport][name] for lines in options.size]
            left = [place - 0.4 + (n + 0.5) * width for place in places]
            bars = axis.bar(left, values, width * 0.92, color=COLOURS.get(transport), label=transport)
            axis.bar_label(bars, [f"{value:.{value < 9.95:d}f}" for value in values], fontsize=9, padding=1)
        better = "less is better" if COLUMNS[name][2] is min else "more is better"
        axis.set_title(f"{COLUMNS[name][0]} ({better})")
        axis.margins(y=0.16)
        axis.set_xticks(places, [f"{lines}p\n{megabytes(lines):.1f} MB" for lines in options.size])
        axis.tick_params(labelbottom=True)
        axis.set_axisbelow(True)
        axis.grid(axis="y", alpha=0.3)
    axes[1].legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
