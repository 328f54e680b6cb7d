"""The object detector: waits for its items, finds the people, draws boxes around them into the frame in place, and hands the
item on. Several detectors run side by side. With N detectors, each gets every N-th frame.
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
    """Finds the people in a frame and labels them. Returns 0 and the CPU seconds that finding took. For an end mark, returns the
    number that the mark holds, and 0."""
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
