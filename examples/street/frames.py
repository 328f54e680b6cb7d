"""The bytes of a frame: a header, then the pixels. These bytes are the same with every transport."""

import time

import cv2
import numpy as np

PEOPLE_MAX = 32
PIXELS_AT = 4096
HEADER = np.dtype([
    ("number", "<i8"),          # the number of the frame in the video, from 0
    ("height", "<i4"), ("width", "<i4"),
    ("ends", "<i4"),            # 0 for a frame; in an end mark, the number of frames and end marks in all
    ("people", "<i4"),          # the number of valid boxes
    ("stored", "<f8"), ("received", "<f8"), ("detected", "<f8"),   # seconds of the node's monotonic clock
    ("boxes", "<i4", (PEOPLE_MAX, 4)),                             # x, y, width, height
    ("weights", "<f8", (PEOPLE_MAX,)),
])
assert HEADER.itemsize <= PIXELS_AT


def size_of(height, width):
    """Gives the bytes that an item needs for a frame of this size with three colours."""
    return PIXELS_AT + height * width * 3


def header(memory):
    """Gives a view of the item's first bytes as the header, whose fields can be set."""
    return np.ndarray((), HEADER, memory)


def pixels(memory, head):
    """Gives a view of the item's other bytes as the picture."""
    return np.ndarray((int(head["height"]), int(head["width"]), 3), "u1", memory, offset=PIXELS_AT)


def store(memory, number, picture, shape):
    """Puts a picture into an item, enlarged or reduced to the height and width in `shape`."""
    head = header(memory)
    head["number"], head["ends"], head["people"] = number, 0, 0
    head["height"], head["width"] = shape
    resized(picture, shape, pixels(memory, head))
    head["stored"] = now()


def shape_of(height, width, lines):
    """Gives the height and the width of a frame that is resized to `lines` lines; with 0 lines, the size stays. The new width is
    even, because encoders need that."""
    return (lines, round(width * lines / height / 2) * 2) if lines else (height, width)


def resized(picture, shape, into=None):
    """Resizes the picture to this shape. The result is written to `into` if that is given."""
    into = np.empty((*shape, 3), "u1") if into is None else into
    if picture.shape[:2] == tuple(shape):
        into[:] = picture
    else:
        way = cv2.INTER_AREA if shape[0] < picture.shape[0] else cv2.INTER_LINEAR
        cv2.resize(picture, (shape[1], shape[0]), dst=into, interpolation=way)
    return into


def now():
    """The time of a clock that is the same in every container of a node."""
    return time.monotonic()
