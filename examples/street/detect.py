"""Object detector: waits for its items, finds the people, labels them in the frame where it lies, and hands it on.

Several run side by side; each has every N-th frame.
"""

import os

import frames
import people
from tasks import Task, arguments, key_of

WAIT_S = 120


def main():
    options = arguments(__doc__)
    rank = int(os.environ.get("CROSSDOCK_RANK", "0"))
    detector = people.Detector()
    with Task(f"detect/{rank}", options) as task:
        number, stop, done = rank, None, 0
        while stop is None or number < stop:
            item = task.link.access(key_of(number, options), WAIT_S)
            if ends := work(item.memory, detector):
                stop = ends
            else:
                done += 1
            task.link.transfer(item, "combine")
            number += options.detectors
        task.account(frames=done)
    print(f"{done} frames looked at")


def work(memory, detector):
    """Finds and labels; at the end, how many frames and ends there are."""
    head = frames.header(memory)
    head["received"] = frames.now()
    if head["ends"]:
        return int(head["ends"])
    picture = frames.pixels(memory, head)
    boxes, weights = detector.find(picture)
    boxes, weights = boxes[: frames.PEOPLE_MAX], weights[: frames.PEOPLE_MAX]
    people.label(picture, boxes)
    head["people"] = len(boxes)
    head["boxes"][: len(boxes)] = boxes
    head["weights"][: len(boxes)] = weights
    head["detected"] = frames.now()
    return 0


if __name__ == "__main__":
    main()
