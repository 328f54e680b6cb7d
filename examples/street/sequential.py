"""Makes the truth with which all runs are compared: the same video and the same detector in one process, one frame after the
other, without a transport."""

import json
import os
import time

import cv2

import frames
import people
from extract import pictures, shape_in
from tasks import arguments, proportional_bytes


def main():
    options = arguments(__doc__)
    detector, detections = people.Detector(options.empty), []
    begun, cpu = time.monotonic(), time.process_time()
    video = cv2.VideoCapture(options.video)
    shape = shape_in(video, options.lines)
    for number, picture in enumerate(pictures(video, options.frames)):
        boxes, weights = detector.find(frames.resized(picture, shape))
        detections.append({"frame": number, "boxes": boxes.tolist(), "weights": weights.tolist()})
    wall, cpu = time.monotonic() - begun, time.process_time() - cpu
    with open(os.path.join(options.out, "detections.json"), "w", encoding="utf-8") as file:
        json.dump(detections, file)
    with open(os.path.join(options.out, "sequential.json"), "w", encoding="utf-8") as file:
        json.dump({"frames": len(detections), "wall_s": wall, "cpu_s": cpu, "proportional_bytes": proportional_bytes()}, file)
    print(f"{len(detections)} frames in {wall:.1f} s, one after the other")


if __name__ == "__main__":
    main()
