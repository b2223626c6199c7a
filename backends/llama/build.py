"""Which build of llama.cpp runs on which machine: what holds for one need not hold for another."""

import hashlib
import importlib.util
import platform
from pathlib import Path


def build_key(*parts: str) -> str:
    """In hex, names this build, this machine's processor, and `parts`."""
    spec = importlib.util.find_spec("llama_cpp")
    library = Path(str(spec.origin)).parent / "lib" if spec else Path()
    files = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(library.glob("*"))]
    text = repr((files if spec else [], platform.machine(), platform.processor(), _cpu(), parts))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _cpu() -> str:
    """The CPU's features where the system tells: a folder of notes may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
