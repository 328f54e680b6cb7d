"""Draws g(r) and the mean-square displacement while the run goes on, and compares them with those that LAMMPS computed itself.

Reads the results of the C++ task and LAMMPS' reference as NumPy views of shared memory, without a copy. The picture is replaced
by a rename, so that a viewer never sees half of one.
"""

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

LIMIT = 1e-6
TIME_STEP = 0.005  # LAMMPS' default in Lennard-Jones units


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=".", help="folder of the picture")
    parser.add_argument("--draw-every", type=float, default=1.0, help="seconds between two pictures of a running run")
    options = parser.parse_args()
    print(f"NumPy {np.__version__}, matplotlib {matplotlib.__version__}")

    curves, drawn = Curves(), time.monotonic()
    with crossdock.connect() as session:
        ours, theirs = session.port("results", "consumer"), session.port("reference", "consumer")
        while True:
            try:
                reference = theirs.receive(timeout=60)
            except crossdock.ClosedError:
                break
            with reference, ours.receive(timeout=60) as result:
                curves.add(result, reference)
            if time.monotonic() - drawn >= options.draw_every:
                curves.draw(options.out)
                drawn = time.monotonic()
        if not curves.steps:
            sys.exit("error: no frame came; see what simulate says")
        curves.check_histories(ours)
    curves.draw(options.out)
    with plt.style.context(DARK):
        curves.draw(options.out, "melt-dark.png")
    curves.save(options.out)
    sys.exit(curves.prove(options.out))


def difference(ours, theirs):
    """Gives the largest relative difference of two tables. A bin that has a value only in `ours` makes the difference
    infinite."""
    ours, theirs = np.atleast_1d(ours), np.atleast_1d(theirs)
    unequal = ours != theirs
    with np.errstate(divide="ignore"):
        return float(np.max(np.abs(ours - theirs)[unequal] / np.abs(theirs[unequal]), initial=0.0))


class Curves:
    """The results that have arrived so far."""

    def __init__(self):
        self.steps, self.temperature, self.displacement, self.tables = [], [], [], []
        self.radius = self.latest = self.reference = self.sum = None
        self.worst = {"g(r)": 0.0, "temperature": 0.0, "mean-square displacement": 0.0}

    def add(self, result, reference):
        if result.tag != reference.tag:
            sys.exit(f"error: result of step {result.tag} met the reference of step {reference.tag}")
        ours, theirs = result.load().array, reference.load().array
        temperature, displacement = np.frombuffer(result.inline[:16])
        their_temperature, their_displacement = np.frombuffer(reference.inline[:16])
        self.worst["g(r)"] = max(self.worst["g(r)"], difference(ours, theirs))
        self.worst["temperature"] = max(self.worst["temperature"], difference(temperature, their_temperature))
        self.worst["mean-square displacement"] = max(
            self.worst["mean-square displacement"], difference(displacement, their_displacement))

        # These are copies for the picture, because the buffers go back to their writers.
        self.tables.append(ours.copy())
        self.radius, self.latest, self.reference = ours[:, 0].copy(), ours[:, 1].copy(), theirs[:, 1].copy()
        if result.tag > 0:  # step 0 is the lattice, before the melt
            self.sum = self.latest.copy() if self.sum is None else self.sum + self.latest
        self.steps.append(result.tag)
        self.temperature.append(temperature)
        self.displacement.append(displacement)

    def check_histories(self, port):
        """Receives the vectors with the analysis's histories, which the analysis sends after its last table. These
        histories must equal the values that arrived with the tables."""
        for name, streamed in (("temperature", self.temperature), ("displacement", self.displacement)):
            with port.receive(timeout=60) as kept:
                if not np.array_equal(kept.load().array, streamed):
                    sys.exit(f"error: the vector {name} of the analysis is not what it streamed")

    def draw(self, folder, name="melt.png"):
        # The plots are one below the other and have large letters, so that they can be read on a phone.
        figure, (upper, lower) = plt.subplots(2, 1, figsize=(6.5, 9), layout="constrained")
        upper.set(title=f"Radial distribution, step {self.steps[-1]}:\nours and LAMMPS' differ by {self.worst['g(r)']:.0e} at most", xlabel="r / σ", ylabel="g(r)", xlim=(0, self.radius[-1]))
        if self.sum is not None:
            upper.plot(self.radius, self.sum / (len(self.steps) - 1), color="0.6", alpha=0.5, linewidth=5, label="mean of all frames")
        upper.plot(self.radius, self.latest, color="tab:blue", label="analyse (C++)")
        upper.plot(self.radius[::2], self.reference[::2], "o", markersize=3.5, color="tab:red", label="LAMMPS' compute rdf")
        upper.axhline(1, color="0.6", linewidth=0.8, linestyle=":")
        upper.legend(frameon=False)

        times = np.array(self.steps) * TIME_STEP
        lower.set(title="Mean-square displacement (MSD) and temperature", xlabel="t / τ")
        # Each axis has the colour of its curve.
        lower.set_ylabel("MSD / σ²", color="tab:green")
        lower.plot(times, self.displacement, color="tab:green", label="MSD")
        heat = lower.twinx()
        heat.plot(times, self.temperature, color="tab:orange", linewidth=1, label="temperature")
        heat.set(ylim=(0, None))
        heat.set_ylabel("T / (ε/k)", color="tab:orange")
        lower.legend(handles=lower.lines + heat.lines, loc="lower right", frameon=False)

        path = os.path.join(folder, name)
        figure.savefig(path + ".new", dpi=110, format="png")
        plt.close(figure)
        os.replace(path + ".new", path)

    def save(self, folder):
        """Saves all numbers of the picture. The same numbers give the same bytes."""
        np.savez(os.path.join(folder, "melt.npz"), step=self.steps, temperature=self.temperature, displacement=self.displacement,
                 tables=self.tables)

    def prove(self, folder):
        """Prints the result of the comparison with LAMMPS, writes it to proof.txt, and returns the exit code."""
        for what in ("temperature", "mean-square displacement"):
            print(f"{what}: largest relative difference to LAMMPS' own {self.worst[what]:.1e}")
        good = max(self.worst.values()) <= LIMIT
        line = (f"{'proved' if good else 'WRONG'}: largest relative difference between our g(r) and LAMMPS' compute rdf over "
                f"{len(self.steps)} frames of {len(self.radius)} bins: {self.worst['g(r)']:.1e} (limit {LIMIT:.0e})")
        print(line)
        with open(os.path.join(folder, "proof.txt"), "w") as file:
            file.write(line + "\n")
        return 0 if good else 1


if __name__ == "__main__":
    main()
