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
import subprocess
import sys
import time
from pathlib import Path

import figures

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = TOP / "build" / "street"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main():
    options = parse_options()
    BUILD.mkdir(parents=True, exist_ok=True)
    rows, alone = [], {}
    for lines in options.size:
        truth, alone[lines] = run_sequentially(lines, options)
        for _ in range(options.repeat):
            # The transports alternate, so that a machine that becomes slower slows all of them down alike.
            for transport in options.transports:
                # First, one frame at a time is sent. Only then is the latency that of the hand-overs, and not the time
                # that a frame waits for a detector.
                single, full = (run(transport, lines, ring, truth) for ring in (one_at_a_time(options, len(truth)), options))
                rows.append(figures.of_runs(transport, lines, single, full))
    figures.report(alone, rows, options, BUILD)
    prove_check(options.transports[-1], truth)
    print(f"street: {2 * len(rows) + 1} passed, 0 failed")


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
                        help="default: as many as there are CPUs, at most five")
    parser.add_argument("--size", type=sizes, default=sizes("272p,576p,720p,1080p,4K"), help="heights of a frame, as 272p,1080p,4K")
    parser.add_argument("--frames", type=int, default=200, help="0: the whole video, 795")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if not 1 <= options.detectors <= options.items:
        parser.error("there must be at least one detector, and at most as many as items")
    return options


def one_at_a_time(options, frames):
    return argparse.Namespace(**{**vars(options), "items": 1, "detectors": 1, "frames": max(1, frames // 4)})


def sizes(text):
    """The lines of each size."""
    lines = [2160 if word.lower() == "4k" else int(word.lower().removesuffix("p")) for word in text.split(",")]
    if not all(64 <= count <= 4320 for count in lines):
        raise argparse.ArgumentTypeError("a frame has from 64 to 4320 lines")
    return lines


def run_sequentially(lines, options):
    """The truth, and what one process alone takes for it."""
    out = fresh("sequential")
    python = TOP / "build/env/street/bin/python3"
    subprocess.run([python, "-B", HERE / "sequential.py", "--frames", str(options.frames), "--lines", str(lines), "--video",
                    BUILD / "street.avi", "--empty", BUILD / "empty.png", "--out", out], check=True)
    return json.loads((out / "detections.json").read_text()), json.loads((out / "sequential.json").read_text())


def fresh(name):
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def run(transport, lines, options, truth):
    """One run in containers: what the tasks account for, and the CPU seconds of the node daemon."""
    out, workflow = fresh("out"), BUILD / "workflow.yaml"
    workflow.write_text(adapted(transport, lines, options))
    command = [options.crossdock, "run", workflow, "--engine", options.engine, "--logs", BUILD / "logs" / transport]
    launched = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    daemon_cpu = watch_daemon(launched)
    if launched.returncode != 0:
        sys.exit(f"street over {transport} failed with {launched.returncode}; logs: {BUILD / 'logs' / transport}")
    accounts = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json") if path.stem != "detections"}
    shutil.rmtree(BUILD / transport, ignore_errors=True)
    out.rename(BUILD / transport)
    check(transport, lines, truth[: options.frames] if options.frames else truth)
    return accounts, daemon_cpu


def adapted(transport, lines, options):
    """workflow.yaml with what is asked for. TCP and gRPC need a network; crossdock has none."""
    text = (HERE / "workflow.yaml").read_text()
    more = ["--transport", transport, "--items", options.items, "--detectors", options.detectors, "--frames", options.frames,
            "--lines", lines, "--port", free_ports(options.detectors + 2)]
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
    """Waits for the run; CPU seconds of its node daemon, which is a part of what crossdock costs."""
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


def check(transport, lines, truth):
    """Every frame's detections are exactly the sequential run's."""
    if wrong := differing(transport, truth):
        sys.exit(f"street over {transport}: {wrong}")
    people = sum(len(frame["boxes"]) for frame in truth)
    print(f"{transport}, {lines}p: {len(truth)} frames, {people} detections, all equal to the sequential run's", flush=True)


def differing(transport, truth):
    """The first difference, in words; None if there is none."""
    found = json.loads((BUILD / transport / "detections.json").read_text())
    if len(found) != len(truth):
        return f"{len(found)} frames came out, {len(truth)} went in"
    for expected, got in zip(truth, found):
        if expected != got:
            return f"frame {expected['frame']} differs:\n  sequential: {expected}\n  {transport}: {got}"
    return None


if __name__ == "__main__":
    main()
