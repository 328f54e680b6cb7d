"""Object detector: waits for its items, finds the people, labels them in the frame where it lies, and hands it on.

Several run side by side; each has every N-th frame.
"""

import os
import time

import frames
import people
from tasks import Task, arguments, key_of

WAIT_S = 120


def main():
    options = arguments(__doc__)
    rank = int(os.environ.get("CROSSDOCK_RANK", "0"))
    detector = people.Detector(options.empty)
    with Task(f"detect/{rank}", options) as task:
        number, stop, done, finding = rank, None, 0, 0.0
        while stop is None or number < stop:
            item = task.link.access(key_of(number, options), WAIT_S)
            ends, took = work(item.memory, detector)
            if ends:
                stop = ends
            else:
                done, finding = done + 1, finding + took
                task.sample()
            task.link.transfer(item, "combine")
            number += options.detectors
        task.account(frames=done, finding_cpu_s=finding)
    print(f"{done} frames looked at")


def work(memory, detector):
    """Finds and labels. At the end, how many frames and ends there are; and the CPU seconds that finding took."""
    head = frames.header(memory)
    head["received"] = frames.now()
    if head["ends"]:
        return int(head["ends"]), 0.0
    picture = frames.pixels(memory, head)
    begun = time.thread_time()
    boxes, weights = detector.find(picture)
    took = time.thread_time() - begun
    boxes, weights = boxes[: frames.PEOPLE_MAX], weights[: frames.PEOPLE_MAX]
    people.label(picture, boxes)
    head["people"] = len(boxes)
    head["boxes"][: len(boxes)] = boxes
    head["weights"][: len(boxes)] = weights
    head["detected"] = frames.now()
    return 0, took


if __name__ == "__main__":
    main()
