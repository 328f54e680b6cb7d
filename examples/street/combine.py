"""The frame combiner: takes the items in the order of the frames, makes a video and a contact sheet of the frames, and hands
each item back to the extractor."""

import json
import os

import cv2
import numpy as np

import frames
from tasks import Task, arguments, key_of

WAIT_S = 120
SHEET = (4, 5)          # the numbers of pictures across and down
SHOWN = 576             # the maximum number of lines of the combined video
RATE = 10


def main():
    options = arguments(__doc__)
    with Task("combine", options) as task:
        output = Output(options.out)
        times, number, ended = [], 0, 0
        while ended < options.items:
            item = task.link.access(key_of(number, options), WAIT_S)
            number += 1
            if took := output.add(item.memory):
                times.append(took)
                task.sample()
                task.link.transfer(item, "extract")
            else:
                ended += 1
                task.link.destroy(item)
        output.close()
        task.account(frames=len(times), times=times)
    print(f"{len(times)} frames combined, {sum(output.people)} people in them")


class Output:
    """The video, the detections as a file, and pictures for the contact sheet."""

    def __init__(self, folder):
        self.folder, self.video = folder, None
        self.detections, self.people, self.pictures, self.every = [], [], [], 1

    def add(self, memory):
        """Adds a frame to the video. Returns the times when it was stored, received, detected and combined; None for an end mark."""
        head = frames.header(memory)
        if head["ends"]:
            return None
        combined = frames.now()
        picture = frames.pixels(memory, head)
        count = int(head["people"])
        assert int(head["number"]) == len(self.detections), "a frame out of its order"
        if picture.shape[0] > SHOWN:
            picture = frames.resized(picture, frames.shape_of(*picture.shape[:2], SHOWN))
        if self.video is None:
            height, width = picture.shape[:2]
            self.video = cv2.VideoWriter(os.path.join(self.folder, "street.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), RATE, (width, height))
        self.video.write(picture)
        self.people.append(count)
        self.detections.append({"frame": int(head["number"]), "boxes": head["boxes"][:count].tolist(),
                                "weights": head["weights"][:count].tolist()})
        self.keep(picture)
        return [float(head["stored"]), float(head["received"]), float(head["detected"]), combined]

    def keep(self, picture):
        """Keeps pictures at equal distances for the contact sheet, never more than twice as many as the sheet shows."""
        if (len(self.detections) - 1) % self.every:
            return
        self.pictures.append(cv2.resize(picture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA))
        if len(self.pictures) > 2 * SHEET[0] * SHEET[1]:
            self.pictures, self.every = self.pictures[::2], 2 * self.every

    def close(self):
        with open(os.path.join(self.folder, "detections.json"), "w", encoding="utf-8") as file:
            json.dump(self.detections, file)
        if self.video is None:
            return
        self.video.release()
        across, down = SHEET
        chosen = np.linspace(0, len(self.pictures) - 1, min(across * down, len(self.pictures))).astype(int)
        height, width = self.pictures[0].shape[:2]
        sheet = np.zeros((-(-len(chosen) // across) * height, across * width, 3), "u1")
        for place, index in enumerate(chosen):
            row, column = divmod(place, across)
            sheet[row * height:(row + 1) * height, column * width:(column + 1) * width] = self.pictures[index]
        cv2.imwrite(os.path.join(self.folder, "contact-sheet.png"), sheet)


if __name__ == "__main__":
    main()
