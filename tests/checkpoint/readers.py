"""Checks the files that `run` made. Ends with `N passed, N failed`."""

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np

SCRATCH, RESTART = Path(sys.argv[1]), Path(sys.argv[2])
FILE = SCRATCH / "field-00000001.h5"
BYTES = bytes((i & 1) if i < 6 else i & 255 for i in range(6 * 32))
DTYPES = {
    "v00": "bool", "v01": "i1", "v02": "i2", "v03": "i4", "v04": "i8", "v05": "u1", "v06": "u2", "v07": "u4", "v08": "u8",
    "v09": "f4", "v10": "f8", "v11": "c8", "v12": "c16", "v13": ("f4", (3,)), "v14": ("i2", (2, 4)),
    "v15": np.dtype("i4,f8", align=True),
    "v16": np.dtype([("f0", "u1"), ("f1", "f4", 2), ("f2", np.dtype("i2,i8", align=True))], align=True),
    "v17": ("u1", (5,)),
}  # fmt: skip


def same(array, dtype):
    """Tells whether the elements have the bytes that were written. The padding of structs is not compared."""
    dtype = np.dtype(dtype)
    expected = np.frombuffer(BYTES[: 6 * dtype.itemsize], dtype=dtype).reshape((2, 3) + dtype.shape)
    if array.dtype.names:
        assert array.dtype == expected.dtype or array.dtype.itemsize == expected.dtype.itemsize, array.dtype
        return all(field(array, name) == field(expected, name) for name in array.dtype.names)
    return array.dtype == expected.dtype and array.shape == expected.shape and array.tobytes() == expected.tobytes()


def field(array, name):
    part = np.ascontiguousarray(array[name])
    return [field(part, inner) for inner in part.dtype.names] if part.dtype.names else part.tobytes()


def h5py_reads_every_type():
    with h5py.File(FILE) as file:
        for name, dtype in DTYPES.items():
            assert same(file["field/3"][name][...], dtype), name
        assert file["field/3/empty"].shape == (4, 0) and file["field/3/single"].shape == ()


def h5py_reads_attributes_and_constants():
    with h5py.File(FILE) as file:
        attributes = file["field/3"].attrs
        assert attributes["step"] == -12 and attributes["time"] == 0.125 and attributes["count"] == 2**64 - 1
        assert attributes["note"].decode() == "plate é" and attributes["nothing"] == b""
        assert attributes["crossdock.sequence"] == 17 and attributes["crossdock.time_ns"] == 5
        assert file["field/3/v10"].attrs["size"] == 8 and file["field/3/v10"].attrs["of"] == b"f64"


def checksums_are_zlibs():
    with h5py.File(FILE) as file:
        for name in ("v02", "v10", "v14", "empty"):
            dataset = file["field/3"][name]
            assert zlib.crc32(dataset[...].tobytes()) == dataset.attrs["crossdock.crc32"], name


def h5dump_reads_all_of_it():
    text = subprocess.run(["h5dump", FILE], capture_output=True, text=True, errors="replace")
    assert text.returncode == 0, text.stderr
    assert all(f'DATASET "{name}"' in text.stdout for name in DTYPES)
    step = subprocess.run(["h5dump", "-a", "/field/3/step", FILE], capture_output=True, text=True, check=True).stdout
    assert "H5T_STD_I64LE" in step and "-12" in step, step
    values = subprocess.run(["h5dump", "-d", "/field/3/v02", FILE], capture_output=True, text=True, check=True).stdout
    numbers = [int(n) for n in re.findall(r"-?\d+", values.split("DATA {")[1].split("ATTRIBUTE")[0]) if not n.startswith("(")]
    assert str(np.frombuffer(BYTES[:12], "i2")[5]) in values and numbers, values


def h5py_may_add_to_a_file_and_a_copy_of_it():
    copy = SCRATCH / "copy.h5"
    copy.write_bytes(FILE.read_bytes())
    with h5py.File(copy, "a") as file:
        file["field/3"].attrs["mine"] = 1
        file["field/3/more"] = np.arange(5)
    with h5py.File(copy) as file:
        assert same(file["field/3/v10"][...], "f8") and file["field/3/more"][4] == 4


def numpy_reads_every_type_of_the_archive():
    with np.load(SCRATCH / "sample.npz") as archive:
        for name, dtype in DTYPES.items():
            if name != "v17":
                assert same(archive[name], dtype), name
        assert archive["step"] == -12 and archive["note"] == "plate é" and archive["empty"].shape == (4, 0)
    subprocess.run([sys.executable, "-m", "zipfile", "-t", SCRATCH / "sample.npz"], check=True, capture_output=True)


def every_language_restarts_from_the_good_one_and_says_the_same():
    environment = {**os.environ, "PMI_RANK": "3"}
    total = np.frombuffer(BYTES[:48], "f8").sum()
    expected = f"field/3 17 -12 0.125 plate é 1 {total:.9e}"
    for words in (["restart-c"], ["restart-cpp"], ["restart-fortran"], [sys.executable, RESTART]):
        words = [SCRATCH / words[0]] if len(words) == 1 else words
        done = subprocess.run([*words, SCRATCH], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.returncode} {done.stderr}"
        assert done.stdout.strip() == expected, f"{words}: {done.stdout} instead of {expected}"


CLAIMS = [h5py_reads_every_type, h5py_reads_attributes_and_constants, checksums_are_zlibs, h5dump_reads_all_of_it,
          h5py_may_add_to_a_file_and_a_copy_of_it, numpy_reads_every_type_of_the_archive,
          every_language_restarts_from_the_good_one_and_says_the_same]  # fmt: skip


def main():
    failed = 0
    for claim in CLAIMS:
        try:
            claim()
            print(f"ok   {claim.__name__.replace('_', ' ')}")
        except Exception as e:  # noqa: BLE001 (a broken check is a failed one)
            failed += 1
            print(f"FAIL {claim.__name__.replace('_', ' ')}\n     {type(e).__name__}: {e}")
    print(f"{len(CLAIMS) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
