"""Notes on the models that were pulled from the hub: one JSON file beside the first file of each model.

They are entries as in the registry, so that a pulled model is verified and shown as those are.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = ".json"
_MOST_BYTES: Final = 1 << 20  # of a note; those of models with a hundred parts have 50 kB


def write(path: Path, entry: Mapping[str, Any]) -> None:
    """Replace the note at `path` in one step. Raises OSError."""
    os.makedirs(path.parent, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".note-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(entry, file, indent=1)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def read_all(models_dir: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """All notes below `models_dir` (in folders `org/name`), each with the path of the model file that it lies beside.
    Those that cannot be read are left out.
    """
    for path in models_dir.glob(f"*/*/**/*.gguf{SUFFIX}"):
        try:
            with path.open("rb") as file:
                entry = json.loads(file.read(_MOST_BYTES))
        except (OSError, ValueError):
            continue
        if isinstance(entry, dict):
            yield path.with_name(path.name.removesuffix(SUFFIX)), entry
