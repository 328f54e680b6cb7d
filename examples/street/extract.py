"""The frame extractor: decodes the video, resizes each frame to the size that a camera would give, and hands the frame to a
detector in one of five items (CDI paper, section III-C).

An item is filled again only after the combiner has handed it back.
"""

import cv2

import frames
from tasks import Task, arguments, detector_of, key_of

WAIT_S = 120


def main():
    options = arguments(__doc__)
    video = cv2.VideoCapture(options.video)
    shape = shape_in(video, options.lines)
    size = frames.size_of(*shape)
    with Task("extract", options) as task:
        number = 0
        for picture in pictures(video, options.frames):
            item = next_item(task.link, number, size, options)
            frames.store(item.memory, number, picture, shape)
            task.sample()
            task.link.transfer(item, detector_of(number, options))
            number += 1
        # There are as many end marks as items, and at least as many items as detectors. The end marks go to the
        # detectors in turn, so every detector gets one. Each end mark then goes on to the combiner.
        for end in range(number, number + options.items):
            item = next_item(task.link, end, size, options)
            head = frames.header(item.memory)
            head["number"], head["ends"] = end, number + options.items
            del head
            task.link.transfer(item, detector_of(end, options))
        task.account(frames=number)
    print(f"{number} frames handed out")


def shape_in(video, lines):
    """Gives the height and the width of the frames of a camera with `lines` lines."""
    return frames.shape_of(int(video.get(cv2.CAP_PROP_FRAME_HEIGHT)), int(video.get(cv2.CAP_PROP_FRAME_WIDTH)), lines)


def pictures(video, most):
    taken = 0
    while not most or taken < most:
        there, picture = video.read()
        if not there:
            return
        taken += 1
        yield picture


def next_item(link, number, size, options):
    """Makes a new item in the first round. After that, waits for an item that the combiner has handed back."""
    if number < options.items:
        return link.create(key_of(number, options), size)
    return link.access(key_of(number, options), WAIT_S)


if __name__ == "__main__":
    main()
