"""Draws the plate and its energy spectrum while the run goes on. Replaces the picture by a rename, so that a viewer never sees
half of one."""

import argparse
import os
import sys
import time

import crossdock
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend has to be chosen first)

plt.rcParams["font.size"] = 13
# The dark form of the picture, for dark pages.
DARK = ["dark_background", {"figure.facecolor": "#15181b", "axes.facecolor": "#15181b", "savefig.facecolor": "#15181b"}]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=".", help="folder of the picture")
    parser.add_argument("--draw-every", type=float, default=2.0, help="seconds between two pictures of a running run")
    options = parser.parse_args()
    history, drawn = History(), 0.0
    with crossdock.connect() as session:
        spectrum = session.observe("spectrum", timeout=60)
        try:
            for version in spectrum.each(timeout=60):
                history.add(version)
                if time.monotonic() - drawn >= options.draw_every:
                    history.draw(options.out)
                    drawn = time.monotonic()
        except (crossdock.ClosedError, crossdock.PeerDiedError):
            pass
    if not history.steps:
        sys.exit("error: no spectrum came; see what analyse says")
    history.draw(options.out)
    with plt.style.context(DARK):
        history.draw(options.out, "heat-dark.png")
    print(f"heat.png drawn from {len(history.steps)} versions; largest deviation of a mode from its exact decay {history.worst:.1e}")


class History:
    """The spectra and plates that have arrived so far."""

    def __init__(self):
        self.steps, self.spectra, self.total = [], [], []
        self.plate, self.worst = None, 0.0

    def add(self, version):
        energy = np.array(version["energy"])
        self.steps.append(version.attributes["step"])
        self.worst = version.attributes["worst"]
        self.total.append(energy[1:].sum())  # shell 0 is the mean, which does not change
        self.plate = np.array(version["plate"])
        self.spectra.append(energy)

    def draw(self, folder, name="heat.png"):
        # The plots are one below the other and have large letters, so that they can be read on a phone.
        figure, (plate, spectrum, energy) = plt.subplots(3, 1, figsize=(6.5, 12), height_ratios=(5, 4, 3), layout="constrained")
        plate.set(title=f"Temperature, step {self.steps[-1]}", xticks=[], yticks=[])
        figure.colorbar(plate.imshow(self.plate, origin="lower", cmap="inferno"), ax=plate)

        spectrum.set(title="Energy spectrum", xlabel="waves across the plate", ylabel="energy", xscale="log", yscale="log")
        chosen = sorted(set(np.linspace(0, len(self.spectra) - 1, 6).astype(int)))
        for i in chosen:
            # The colours leave out the ends of the scale, which cannot be seen on dark or on light paper.
            shade = plt.cm.viridis(0.3 + 0.5 * i / max(1, len(self.spectra) - 1))
            spectrum.plot(np.arange(1, len(self.spectra[i])), self.spectra[i][1:], color=shade, label=f"step {self.steps[i]}")
        spectrum.set_ylim(bottom=max(1e-12, self.spectra[0][1:].max() * 1e-14))
        spectrum.legend(frameon=False, loc="upper right")

        energy.set(title="Energy of all waves", xlabel="step", ylabel="energy", yscale="log")
        energy.plot(self.steps, self.total, ".-", color="tab:red")

        path = os.path.join(folder, name)
        figure.savefig(path + ".new", dpi=100, format="png")
        plt.close(figure)
        os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
