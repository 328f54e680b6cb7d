"""Describes the machine on which the figures are measured."""
import datetime
import os
import platform
import re
import shutil
import subprocess


def machine():
    return {"processor": _first(r"model name\s*:\s*(.+)", "/proc/cpuinfo") or platform.machine(), "processors": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
            "system": _first(r'PRETTY_NAME="(.+)"', "/etc/os-release"), "page_bytes": os.sysconf("SC_PAGE_SIZE"),
            "transparent_huge_pages": _first(r"\[(\w+)\]", "/sys/kernel/mm/transparent_hugepage/enabled"),
            "caches": caches(), "load_at_start": round(os.getloadavg()[0], 2)}


def kernel():
    return platform.release()


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def versions(top):
    """Gives the versions of the compilers, of crossdock and of the peers. peers.py gives those of the peers that have Python
    environments."""
    found = {"gcc": _says(["c++", "-dumpfullversion"]), "rustc": _says(["rustc", "--version"], r"(\d\S+)"),
             "MPICH": _says(["mpichversion"], r"Version:\s*(\S+)"), "Open MPI": _says(["mpirun.openmpi", "--version"], r"(\d+\.\d+\.\d+)"),
             "Boost": _boost(), "python": platform.python_version(), "commit": _says(["git", "-C", str(top), "describe", "--always", "--dirty"])}
    return {name: version for name, version in found.items() if version}


def caches():
    found = []
    for index in range(5):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        level, size, kind = (_first(r"(.+)", f"{folder}/{name}") for name in ("level", "size", "type"))
        if level and kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def available_bytes():
    kib = _first(r"MemAvailable:\s+(\d+)", "/proc/meminfo")
    return int(kib) * 1024 if kib else 1 << 30


def _boost():
    found = _first(r"#define BOOST_VERSION (\d+)", "/usr/include/boost/version.hpp")
    return f"{int(found) // 100000}.{int(found) // 100 % 1000}" if found else None


def _first(pattern, path):
    try:
        with open(path, errors="replace") as file:
            found = re.search(pattern, file.read())
        return found.group(1).strip() if found else None
    except OSError:
        return None


def _says(command, pattern=r"(.+)"):
    if not shutil.which(command[0]):
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, done.stdout + done.stderr)
    return found.group(1).strip() if found else None
