"""Runs the street application sequentially and over each transport, checks that all find the same, and compares.

Writes build/street/: for each transport its detections, video and contact sheet; street.json and pictures with the
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
from pathlib import Path

import figures
from places import BUILD, HERE, TOP, place
from processes import Watch

TRANSPORTS = ["crossdock", "tcp", "grpc"]


def main():
    options = parse_options()
    options.load = os.getloadavg()[0]
    BUILD.mkdir(parents=True, exist_ok=True)
    rows, truths = [], {lines: run_sequentially(lines, options) for lines in options.size}
    for nodes in options.nodes:
        with place(nodes, options.crossdock) as where:
            for lines in options.size:
                rows += compared(where, lines, truths[lines][0], options)
    figures.report({lines: alone for lines, (_, alone) in truths.items()}, rows, options, BUILD)
    prove_check(rows[-1]["transport"], truths[options.size[-1]][0])
    print(f"street: {2 * len(rows) + 1} passed, 0 failed")


def compared(where, lines, truth, options):
    for _ in range(options.repeat):
        # The transports alternate, so that a machine that becomes slower slows all of them down alike.
        for transport in options.transports:
            # First, one frame at a time is sent. So no frame waits for a detector, and the latency is only the time of
            # the hand-overs.
            single, _ = run(where, transport, lines, one_at_a_time(options, len(truth)), truth, subprocess.Popen.wait)
            full = run(where, transport, lines, options, truth, lambda launched: Watch(launched, where.roots))
            yield figures.of_runs(where.nodes, transport, lines, single, full)


def prove_check(transport, truth):
    """Tests the check itself: it must notice a box that is moved by one pixel."""
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
    parser.add_argument("--nodes", type=node_counts, default=[1], help="on how many hosts, as 3 or 1,2,3; more than one needs root")
    parser.add_argument("--transports", type=transports, default=TRANSPORTS, help="of crossdock, tcp, grpc; default: all")
    parser.add_argument("--items", type=int, default=5)
    parser.add_argument("--detectors", type=int, default=min(5, max(1, len(os.sched_getaffinity(0)))),
                        help="default: as many as there are CPUs, at most five")
    parser.add_argument("--size", type=sizes, default=sizes("272p,576p,720p,1080p,4K"), help="heights of a frame, as 272p,1080p,4K")
    parser.add_argument("--frames", type=int, help="default: 200, or 80 on several hosts; 0: the whole video, 795")
    parser.add_argument("--repeat", type=int, help="default: 3, or 1 on several hosts")
    options = parser.parse_args()
    spread = options.nodes != [1]
    options.frames = (80 if spread else 200) if options.frames is None else options.frames
    options.repeat = options.repeat or (1 if spread else 3)
    if not 1 <= options.detectors <= options.items:
        parser.error("there must be at least one detector, and at most as many as items")
    if spread and options.engine == "docker":
        parser.error("the hosts of --nodes have no docker engine; use bubblewrap, podman or process")
    return options


def one_at_a_time(options, frames):
    return argparse.Namespace(**{**vars(options), "items": 1, "detectors": 1, "frames": max(1, frames // 4)})


def sizes(text):
    """The number of lines for each frame size in the argument."""
    lines = [2160 if word.lower() == "4k" else int(word.lower().removesuffix("p")) for word in text.split(",")]
    if not all(64 <= count <= 4320 for count in lines):
        raise argparse.ArgumentTypeError("a frame has from 64 to 4320 lines")
    return lines


def node_counts(text):
    counts = [int(word) for word in text.split(",")]
    if not all(1 <= count <= 3 for count in counts):
        raise argparse.ArgumentTypeError("one, two or three hosts")
    return counts


def transports(text):
    if unknown := set(text.split(",")) - set(TRANSPORTS):
        raise argparse.ArgumentTypeError(f"no transport: {', '.join(unknown)}")
    return text.split(",")


def run_sequentially(lines, options):
    """Runs the application in one process. Returns its detections, with which those of all other runs are compared,
    and its figures."""
    out = fresh(BUILD / "sequential")
    python = TOP / "build/env/street/bin/python3"
    subprocess.run([python, "-B", HERE / "sequential.py", "--frames", str(options.frames), "--lines", str(lines), "--video",
                    BUILD / "street.avi", "--empty", BUILD / "empty.png", "--out", out], check=True)
    return json.loads((out / "detections.json").read_text()), json.loads((out / "sequential.json").read_text())


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def run(where, transport, lines, options, truth, wait):
    """Runs the application in containers. Returns the accounts of the tasks, and the result of `wait`, which waits for the run's end."""
    out, said, logs = fresh(where.folder / "out"), fresh(where.folder / "said"), BUILD / "logs" / transport
    workflow = where.folder / "workflow.yaml"
    workflow.write_text(where.text(adapted(where, transport, lines, options)))
    launched = where.start("run", workflow, "--engine", options.engine, "--logs", said)
    seen = wait(launched)
    shutil.rmtree(logs, ignore_errors=True)
    shutil.move(said, logs)
    if launched.returncode != 0:
        sys.exit(f"street over {transport} failed with {launched.returncode}; logs: {logs}")
    accounts = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json") if path.stem != "detections"}
    shutil.rmtree(BUILD / transport, ignore_errors=True)
    shutil.move(out, BUILD / transport)
    check(where, transport, lines, truth[: options.frames] if options.frames else truth)
    return accounts, seen


def adapted(where, transport, lines, options):
    """Adapts workflow.yaml to these options. The tasks get a network only for TCP and gRPC, because crossdock needs none."""
    text = (HERE / "workflow.yaml").read_text()
    more = ["--transport", transport, "--items", options.items, "--detectors", options.detectors, "--frames", options.frames,
            "--lines", lines, "--port", free_ports(options.detectors + 2), "--addresses", ",".join(where.addresses)]
    more = ", ".join(f'"{word}"' for word in more)
    text = text.replace('--transport, crossdock, --detectors, "2"', more).replace("ranks: 2", f"ranks: {options.detectors}")
    if transport != "crossdock":
        text = re.sub(r"\n *items: .*", "", text).replace("network: none", "network: host")
    return text


def free_ports(count):
    """Finds `count` successive ports at which no program listens, below the ports that the kernel gives out. Returns the first."""
    while True:
        first = random.randrange(20000, 32000)
        try:
            for socket_ in [socket.create_server(("127.0.0.1", first + n)) for n in range(count)]:
                socket_.close()
            return first
        except OSError:
            continue


def check(where, transport, lines, truth):
    """Checks that the detections of every frame are exactly those of the sequential run."""
    if wrong := differing(transport, truth):
        sys.exit(f"street over {transport}: {wrong}")
    people = sum(len(frame["boxes"]) for frame in truth)
    hosts = f" on {where.nodes} hosts" if where.nodes > 1 else ""
    print(f"{transport}{hosts}, {lines}p: {len(truth)} frames, {people} detections, all equal to the sequential run's", flush=True)


def differing(transport, truth):
    """Describes the first difference from the detections of the sequential run. Returns None if there is none."""
    found = json.loads((BUILD / transport / "detections.json").read_text())
    if len(found) != len(truth):
        return f"{len(found)} frames came out, {len(truth)} went in"
    for expected, got in zip(truth, found):
        if expected != got:
            return f"frame {expected['frame']} differs:\n  sequential: {expected}\n  {transport}: {got}"
    return None


if __name__ == "__main__":
    main()
