"""Analyses the plate while it is being computed: joins the blocks of all ranks, takes the Fourier transform, and publishes the
energy at each wavelength as the series `spectrum`.

The program also proves that the plate is correct: on a periodic plate each Fourier mode decays in every step by a factor that
is known exactly. The analysis never delays the solver: if the solver is faster, versions are skipped.
"""

import argparse
import sys
import time

import crossdock
import numpy as np

R = 0.2  # the same value as in the solver
LIMIT = 1e-9
PICTURE = 128  # points on each side of the picture
KEPT = 128  # spectra that are kept for a slow reader, such as the plot


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two looks: CPUs are the solver's first")
    options = parser.parse_args()
    names = [f"field/{rank}" for rank in range(options.ranks)]
    with crossdock.connect() as session:
        blocks = [session.observe(name, timeout=60) for name in names]
        modes, count = None, 0
        for versions in common_versions(blocks):
            plate, step = join(blocks, versions), versions[0].attributes["step"]
            del versions
            if modes is None:
                modes = Modes(plate, step)
                spectrum = session.publisher("spectrum", modes.variables(), keep=KEPT)
            modes.take(plate, step, spectrum)
            spectrum.publish(step=step, first=modes.first, worst=modes.worst)
            count += 1
            time.sleep(options.pause)
            print(f"step {step}: largest deviation of a mode from its exact decay {modes.worst:.1e}", flush=True)
        if not count:
            sys.exit("error: no version came that all ranks have")
        spectrum.end()
    print(f"{count} versions analysed", flush=True)
    sys.exit(0 if modes.worst <= LIMIT else f"error: a mode decayed differently by {modes.worst:.1e} (limit {LIMIT:.0e})")


def common_versions(blocks):
    """Yields one version of each block, all with the same number, again and again until the solver ends."""
    while True:
        try:
            versions = [block.next(timeout=60) for block in blocks]
            while len({version.sequence for version in versions}) > 1:  # the blocks with older versions catch up
                top = max(version.sequence for version in versions)
                versions = [v if v.sequence == top else b.next(timeout=60) for b, v in zip(blocks, versions)]
        except (crossdock.ClosedError, crossdock.PeerDiedError) as end:
            print(f"no more versions: {end}", flush=True)
            return
        yield versions


def join(blocks, versions):
    """The plate without ghost cells, [y, x]. Fortran's u(x, y) is u[y, x] here."""
    parts = []
    for block, version in zip(blocks, versions):
        constants = block.variables["u"].constants
        parts.append((constants["y"], constants["x"], version["u"][1:-1, 1:-1]))
    n = max(y + part.shape[0] for y, _, part in parts)
    plate = np.empty((n, n))
    for y, x, part in parts:
        plate[y : y + part.shape[0], x : x + part.shape[1]] = part
    return plate


class Modes:
    """The Fourier modes of the first state, and their exact decay."""

    def __init__(self, plate, step):
        n = len(plate)
        self.first, self.worst = step, 0.0
        self.start = np.fft.rfft2(plate)
        y, x = np.fft.fftfreq(n)[:, None], np.fft.rfftfreq(n)[None, :]
        self.decay = 1 + 2 * R * (np.cos(2 * np.pi * y) + np.cos(2 * np.pi * x) - 2)
        self.shell = np.rint(np.hypot(y, x) * n).astype(int)
        self.shells = n // 2
        self.weight = np.full(self.start.shape, 2.0)  # twice each mode, because rfft2 leaves out half of them
        self.weight[:, 0] = 1
        if n % 2 == 0:
            self.weight[:, -1] = 1

    def variables(self):
        return {"energy": ("f8", (self.shells,)), "plate": ("f4", (PICTURE, PICTURE))}

    def take(self, plate, step, spectrum):
        now = np.fft.rfft2(plate)
        exact = self.start * self.decay ** (step - self.first)
        # Rounding leaves noise of about 1e-16 of the largest mode. Modes that are so small that the noise matters are
        # left out.
        clear = np.abs(exact) > 1e-5 * np.abs(exact).max()
        self.worst = max(self.worst, float(np.max(np.abs(now - exact)[clear] / np.abs(exact)[clear])))
        energy = np.bincount(self.shell.ravel(), (self.weight * np.abs(now) ** 2).ravel(), self.shells)[: self.shells]
        spectrum.energy[:] = energy / now.size**2
        places = np.arange(PICTURE) * len(plate) // PICTURE
        spectrum.plate[:] = plate[np.ix_(places, places)]


if __name__ == "__main__":
    main()
