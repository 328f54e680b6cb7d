"""Draws table I of the CDI paper from what `bench/exchange --json` prints.

    bench/exchange --json > build/exchange.json
    build/env/plot/bin/python3 bench/exchange_plot.py build/exchange.json docs/plots/cdi-table-1.png
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"grpc": "#e07a5f", "tcp": "#c9a227", "strict": "#6d597a", "verified": "#2a6f97", "cooperative": "#81b29a"}


def main(source, target):
    with open(source, encoding="utf-8") as file:
        points = json.load(file)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axis, panel in zip(axes, ("whole", "hand-over only")):
        for way, colour in COLOURS.items():
            here = sorted((p["x"], p["value"] / 1e3) for p in points if (p["panel"], p["series"]) == (panel, way))
            axis.plot(*zip(*here), marker="o", color=colour, label=way)
        floors = sorted({(p["x"], p["floor"] / 1e3) for p in points if p["panel"] == panel and p["floor"]})
        if floors:
            axis.plot(*zip(*floors), color="black", linestyle=":", label="floor: written and read by one process")
        axis.set(xscale="log", yscale="log", xlabel="bytes", title=panel)
        axis.grid(True, alpha=0.3)
        axis.legend(fontsize=8)
    axes[0].set_ylabel("milliseconds, median")
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
