"""The people detector: OpenCV's histogram of oriented gradients with the support-vector machine that comes with it.

One thread, so that the same picture always gives the same boxes in the same order: any number of detectors must find
what one finds.
"""

import cv2
import numpy as np

cv2.setNumThreads(1)


class Detector:
    def __init__(self):
        self.hog = cv2.HOGDescriptor()
        self.hog.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())

    def find(self, picture):
        """Boxes (x, y, width, height) and weights of the people in it."""
        boxes, weights = self.hog.detectMultiScale(picture, hitThreshold=-0.2, winStride=(8, 8), padding=(16, 16), scale=1.05)
        return np.asarray(boxes, "i4").reshape(-1, 4), np.asarray(weights, "f8").reshape(-1)


def label(picture, boxes):
    """Draws the boxes into the picture, in place."""
    for number, (x, y, width, height) in enumerate(boxes.tolist(), 1):
        cv2.rectangle(picture, (x, y), (x + width, y + height), (0, 255, 255), 2)
        cv2.putText(picture, f"person {number}", (x, max(y - 4, 10)), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 255, 255), 1)
