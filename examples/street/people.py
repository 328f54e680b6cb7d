"""The people detector. It finds what differs from the empty street and looks like a person to OpenCV's classifier (a histogram of
oriented gradients with the support-vector machine that the wheel contains).

The camera stands still. So the detector looks only where something is in front of the empty street, and enlarges small
people until the classifier, which needs 96 pixels, can see them. It works on a copy of 576 lines, whatever the frame's size.

The detector uses one thread, so that the same picture always gives the same boxes in the same order. Any number of detectors
must find the same people as a single one.

    python3 people.py VIDEO EMPTY      writes the empty street of a video as a PNG file
"""

import os
import sys

import cv2
import numpy as np

import frames

cv2.setNumThreads(1)

LINES = 576             # the lines of the copy that is searched
DIFFERS = 28            # a larger difference in any colour (of 255) is something in front of the empty street
LEAST_LINES = 28        # the least number of lines of a person
PERSON = 120            # the number of lines to which small things are enlarged
SURE = 0.3              # the least weight of the classifier for a person
OVERLAP = 0.5           # two boxes are one person if they share a larger part of the smaller box


class Detector:
    def __init__(self, empty):
        """Makes a detector. `empty` is the file that `empty_street` made."""
        picture = cv2.imread(empty)
        if picture is None:
            raise SystemExit(f"error: {empty} is not a picture of the empty street; scripts/build-street makes it from the video")
        self.shape = frames.shape_of(*picture.shape[:2], LINES)
        self.empty = cv2.GaussianBlur(frames.resized(picture, self.shape), (5, 5), 0)
        self.hog = cv2.HOGDescriptor()
        self.hog.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())

    def find(self, picture):
        """Gives the boxes of people (x, y, width, height) in pixels of the picture, and their weights. The surest comes first."""
        small = picture if picture.shape[:2] == self.shape else frames.resized(picture, self.shape)
        height, width = self.shape
        found = []
        for thing in self._things(small):
            found += self._people(small, thing)
        kept = distinct(found)
        scale = picture.shape[0] / height
        boxes = [clipped(box, width, height) for box, _ in kept]
        return (np.rint(np.asarray(boxes, "f8").reshape(-1, 4) * scale).astype("i4"),
                np.asarray([weight for _, weight in kept], "f8"))

    def _things(self, picture):
        """Gives the boxes of everything that is in front of the empty street."""
        differs = (cv2.absdiff(cv2.GaussianBlur(picture, (5, 5), 0), self.empty).max(axis=2) > DIFFERS).astype("u1")
        differs = cv2.morphologyEx(differs, cv2.MORPH_OPEN, np.ones((3, 3), "u1"))
        differs = cv2.morphologyEx(differs, cv2.MORPH_CLOSE, np.ones((13, 5), "u1"))
        _, _, things, _ = cv2.connectedComponentsWithStats(differs)
        return [tuple(thing[:4].tolist()) for thing in things[1:] if thing[3] >= LEAST_LINES and thing[4] >= 200]

    def _people(self, picture, thing):
        """Finds people in the box `thing` and around it, because the classifier's window is wider and higher than a person."""
        x, y, width, height = thing
        aside, above = int(0.4 * height) + 16, int(0.3 * height) + 12
        part, left, top = cut(picture, x - aside, y - above, x + width + aside, y + height + above)
        larger = max(1.0, PERSON / height, 140 / part.shape[0], 70 / part.shape[1])
        part = cv2.resize(part, None, fx=larger, fy=larger, interpolation=cv2.INTER_LINEAR)
        boxes, weights = self.hog.detectMultiScale(part, hitThreshold=0.0, winStride=(4, 4), padding=(0, 0), scale=1.05)
        people = [(person_in(left + bx / larger, top + by / larger, bw / larger, bh / larger), float(weight))
                  for (bx, by, bw, bh), weight in zip(boxes, np.ravel(weights)) if weight > SURE]
        at_edge = x == 0 or y == 0 or x + width == picture.shape[1] or y + height == picture.shape[0]
        if not people and at_edge and 1.5 * width < height < 6 * width and height > 40:
            # The thing is upright, at the edge of the picture, and the classifier has found no person in it. It may be
            # a person who is only half in the picture: the classifier has not learnt to find such people.
            people.append(((x, y, width, height), 0.0))
        return people


def cut(picture, left, top, right, bottom):
    """Cuts a part out of a picture, and gives its left and top edge. Where the part reaches beyond the picture, the pixels of the
    picture's edge are repeated."""
    height, width = picture.shape[:2]
    inner = picture[max(0, top):min(height, bottom), max(0, left):min(width, right)]
    return cv2.copyMakeBorder(inner, max(0, -top), max(0, bottom - height), max(0, -left), max(0, right - width),
                              cv2.BORDER_REPLICATE), left, top


def person_in(x, y, width, height):
    """Gives the box of the person in a window of the classifier, which has a margin on all sides."""
    return x + 0.18 * width, y + 0.09 * height, 0.64 * width, 0.82 * height


def clipped(box, width, height):
    x, y, w, h = box
    left, top, right, bottom = max(0, x), max(0, y), min(width, x + w), min(height, y + h)
    return left, top, right - left, bottom - top


def distinct(found):
    """Keeps, of boxes that overlap, only the surest one."""
    kept = []
    for box, weight in sorted(found, key=lambda one: (-one[1], one[0])):
        if all(shared(box, other) <= OVERLAP for other, _ in kept):
            kept.append((box, weight))
    return kept


def shared(a, b):
    """Gives the common area of two boxes, as a fraction of the area of the smaller box."""
    across = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    down = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(0, across) * max(0, down) / min(a[2] * a[3], b[2] * b[3])


def label(picture, boxes):
    """Draws the boxes into the picture, in place."""
    scale = picture.shape[0] / LINES
    line = max(1, round(2 * scale))
    for number, (x, y, width, height) in enumerate(boxes.tolist(), 1):
        cv2.rectangle(picture, (x, y), (x + width, y + height), (0, 255, 255), line)
        at = (x, y - 2 * line if y > 16 * scale else y + height + round(14 * scale))
        cv2.putText(picture, f"{number}", at, cv2.FONT_HERSHEY_SIMPLEX, 0.5 * scale, (0, 255, 255), max(1, round(scale)), cv2.LINE_AA)


def empty_street(path, count=41):
    """Gives a picture with the median of each pixel over the whole video, in which people who walk do not appear."""
    video = cv2.VideoCapture(path)
    frames = int(video.get(cv2.CAP_PROP_FRAME_COUNT))
    wanted, pictures = set(np.linspace(0, frames - 1, count).astype(int).tolist()), []
    for number in range(frames):
        if not video.grab():
            break
        if number in wanted:
            pictures.append(video.retrieve()[1])
    if not pictures:
        raise SystemExit(f"error: {path} is not a video that OpenCV reads")
    return np.median(np.stack(pictures), axis=0).astype("u1")


if __name__ == "__main__":
    _, source, target = sys.argv
    cv2.imwrite(target + ".new.png", empty_street(source))
    os.replace(target + ".new.png", target)
