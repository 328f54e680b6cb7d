"""Runs the street application sequentially and over each transport, checks that all find the same, and compares.

Writes build/street/: for each transport its detections, video and contact sheet; street.json and street.png with the
figures. Fails if any frame's detections differ from the sequential run's, in number, place, order or weight.
"""

import argparse
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = TOP / "build" / "street"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main():
    options = parse_options()
    BUILD.mkdir(parents=True, exist_ok=True)
    truth, alone = run_sequentially(options)
    rows = []
    for turn in range(options.repeat):
        # In turn, so that a machine that slows down slows all of them.
        for transport in options.transports:
            rows.append(run(transport, options))
            check(transport, truth)
    report(alone, rows, options)
    prove_check(options.transports[0], truth)
    print(f"street: {len(rows) + 1} passed, 0 failed")


def prove_check(transport, truth):
    """A check that cannot fail is none: one box, one pixel aside, has to be noticed."""
    wrong = json.loads(json.dumps(truth))
    boxes = next((frame["boxes"] for frame in wrong if frame["boxes"]), None)
    if boxes is None:
        sys.exit("street: no person is in these frames, so equal detections prove nothing; take more frames")
    boxes[0][0] += 1
    if differing(transport, wrong) is None:
        sys.exit("street: a box that is one pixel aside was not noticed")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crossdock", required=True, help="the command")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--transports", type=lambda text: text.split(","), default=["crossdock", "tcp", "grpc"])
    parser.add_argument("--items", type=int, default=5)
    parser.add_argument("--detectors", type=int, default=min(5, max(1, len(os.sched_getaffinity(0)))),
                        help="default: as many as there are processors, at most five")
    parser.add_argument("--frames", type=int, default=0, help="0: the whole video")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if not 1 <= options.detectors <= options.items:
        parser.error("there must be at least one detector, and at most as many as items")
    return options


def run_sequentially(options):
    """The truth, and what one process alone takes for it."""
    out = fresh("sequential")
    python = TOP / "build/env/street/bin/python3"
    subprocess.run([python, HERE / "sequential.py", "--frames", str(options.frames), "--video", BUILD / "bikes.mp4",
                    "--out", out], check=True)
    return json.loads((out / "detections.json").read_text()), json.loads((out / "sequential.json").read_text())


def fresh(name):
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def run(transport, options):
    """One run in containers; its figures."""
    out, workflow = fresh("out"), BUILD / "workflow.yaml"
    workflow.write_text(adapted(transport, options))
    command = [options.crossdock, "run", workflow, "--engine", options.engine, "--logs", BUILD / "logs" / transport]
    launched = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    daemon_cpu = watch_daemon(launched)
    if launched.returncode != 0:
        sys.exit(f"street over {transport} failed with {launched.returncode}; logs: {BUILD / 'logs' / transport}")
    accounts = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json") if path.stem != "detections"}
    shutil.rmtree(BUILD / transport, ignore_errors=True)
    out.rename(BUILD / transport)
    return figures(transport, accounts, daemon_cpu)


def adapted(transport, options):
    """workflow.yaml with what is asked for. TCP and gRPC need a network; crossdock has none."""
    text = (HERE / "workflow.yaml").read_text()
    more = ["--transport", transport, "--items", options.items, "--detectors", options.detectors, "--frames",
            options.frames, "--port", free_ports(options.detectors + 2)]
    more = ", ".join(f'"{word}"' for word in more)
    text = text.replace('--transport, crossdock, --detectors, "2"', more).replace("ranks: 2", f"ranks: {options.detectors}")
    if transport != "crossdock":
        text = re.sub(r"\n *items: .*", "", text).replace("network: none", "network: host")
    return text


def free_ports(count):
    """The first of so many ports in a row at which no program listens, below those that the kernel gives out."""
    while True:
        first = random.randrange(20000, 32000)
        try:
            for socket_ in [socket.create_server(("127.0.0.1", first + n)) for n in range(count)]:
                socket_.close()
            return first
        except OSError:
            continue


def watch_daemon(launched):
    """Waits for the run; processor seconds of its node daemon, which is a part of what crossdock costs."""
    most = {}
    while launched.poll() is None:
        for pid in descendants(launched.pid):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"serve" in words[:3] or b"keeper" in words[0] or b"broker" in words[0]:
                    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    most[pid] = (int(stat[11]) + int(stat[12])) * TICK_S
            except (OSError, IndexError):
                continue
        time.sleep(0.1)
    return sum(most.values())


def descendants(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return children + [below for child in children for below in descendants(child)]


def check(transport, truth):
    """Every frame's detections are exactly the sequential run's."""
    if wrong := differing(transport, truth):
        sys.exit(f"street over {transport}: {wrong}")
    people = sum(len(frame["boxes"]) for frame in truth)
    print(f"{transport}: {len(truth)} frames, {people} detections, all equal to the sequential run's")


def differing(transport, truth):
    """The first difference, in words; None if there is none."""
    found = json.loads((BUILD / transport / "detections.json").read_text())
    if len(found) != len(truth):
        return f"{len(found)} frames came out, {len(truth)} went in"
    for expected, got in zip(truth, found):
        if expected != got:
            return f"frame {expected['frame']} differs:\n  sequential: {expected}\n  {transport}: {got}"
    return None


def figures(transport, accounts, daemon_cpu):
    times = accounts["combine"]["times"]
    detectors = [account for name, account in accounts.items() if name.startswith("detect")]
    of = lambda name: sum(d[name] for d in detectors)
    passing = [(received - stored) * 1e3 for stored, received, _, _ in times]
    whole = sorted((combined - stored) * 1e3 for stored, _, _, combined in times)
    # From the first frame stored to the last one combined: starting containers is not counted.
    span = times[-1][3] - times[0][0]
    return {
        "transport": transport, "frames": len(times), "frames_per_s": len(times) / span,
        "latency_ms": statistics.median(whole), "latency_95_ms": whole[int(0.95 * (len(whole) - 1))],
        "passing_ms": statistics.median(passing),
        "cpu_s": {"extract": accounts["extract"]["cpu_s"], "detectors": of("cpu_s"),
                  "combine": accounts["combine"]["cpu_s"], "daemon": daemon_cpu},
        "memory_mb": {"extract": accounts["extract"]["proportional_bytes"] / 1e6,
                      "each detector": of("proportional_bytes") / len(detectors) / 1e6,
                      "combine": accounts["combine"]["proportional_bytes"] / 1e6},
    }


def report(alone, rows, options):
    middle = {}
    for transport in options.transports:
        mine = sorted((row for row in rows if row["transport"] == transport), key=lambda row: row["frames_per_s"])
        middle[transport] = mine[len(mine) // 2]
    print(f"\n{options.items} items, {options.detectors} detectors, {alone['frames']} frames; sequential, one process: "
          f"{alone['frames'] / alone['wall_s']:.2f} frames/s, {alone['cpu_s']:.1f} CPU s, "
          f"{alone['proportional_bytes'] / 1e6:.0f} MB")
    names = ["frames/s", "latency ms", "95 %", "until its detector begins, ms", "CPU s: extract", "detectors", "combine", "daemon",
             "MB: extract", "each detector", "combine"]
    print("| transport | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    for transport, row in middle.items():
        numbers = [f"{row['frames_per_s']:.2f}", f"{row['latency_ms']:.0f}", f"{row['latency_95_ms']:.0f}",
                   f"{row['passing_ms']:.2f}", *(f"{v:.2f}" for v in row["cpu_s"].values()),
                   *(f"{v:.0f}" for v in row["memory_mb"].values())]
        print(f"| {transport} | " + " | ".join(numbers) + " |")
    (BUILD / "street.json").write_text(json.dumps({"sequential": alone, "runs": rows}, indent=1))
    plot(alone, middle)
    print(f"\nvideo, contact sheet: build/street/{options.transports[0]}/ · figures: build/street/street.json, street.png")


def plot(alone, middle):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (speed, passing, cpu, memory) = plt.subplots(1, 4, figsize=(15, 4))
    names = list(middle)
    colours = ["#2a6f97", "#e07a5f", "#81b29a"]
    speed.bar(names, [row["frames_per_s"] for row in middle.values()], color=colours)
    speed.axhline(alone["frames"] / alone["wall_s"], color="black", linestyle=":", label="sequential")
    speed.set_title("frames per second")
    speed.legend()
    passing.bar(names, [row["passing_ms"] for row in middle.values()], color=colours)
    passing.set_title("stored until its detector begins, ms")
    for axis, key, title in ((cpu, "cpu_s", "CPU seconds"), (memory, "memory_mb", "memory, MB (proportional)")):
        parts = list(middle[names[0]][key])
        for index, name in enumerate(names):
            places = [part + 0.26 * (index - 1) for part in range(len(parts))]
            axis.bar(places, [middle[name][key][part] for part in parts], 0.25, label=name, color=colours[index % 3])
        axis.set_xticks(range(len(parts)), parts, fontsize=8)
        axis.set_title(title)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(BUILD / "street.png", dpi=110)


if __name__ == "__main__":
    main()
