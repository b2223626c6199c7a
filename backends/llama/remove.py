"""Removing a model file that was downloaded, with what lies beside it."""

from pathlib import Path

from backends.base import ErrorKind
from backends.llama import pulled
from backends.llama.models import BY_PATH, ModelError, UnknownModelError, resolve


def remove_model(name: str, models_dir: Path) -> int:
    """Remove the files of `local/…`, its note and what a broken-off download has left. Returns the bytes freed.

    Raises UnknownModelError for a model that is not here and for a file of one's own, ModelError when the disk refuses.
    """
    if name.startswith(BY_PATH):
        raise UnknownModelError(f"{name} is a file of your own. Nothing was removed. Remove it as any other file.")
    model = resolve(name, models_dir)
    freed = 0
    try:
        for file in model.files:
            beside = file.path.parent.glob(f"{_literal(file.path.name)}.*.part") if model.spec else ()
            for path in (file.path, *beside):
                if path.is_relative_to(models_dir) and path.is_file():
                    freed += path.lstat().st_size
                    path.unlink()
        note = model.path.with_name(model.path.name + pulled.SUFFIX)
        if model.from_hub and note.is_file():
            note.unlink()
    except OSError as error:
        what = f"{model.path} cannot be removed ({error.strerror or error})."
        raise ModelError(f"{what} What was removed before it is gone.", ErrorKind.LOCAL) from error
    if not freed:
        raise UnknownModelError(f"{name} is not on this machine. Nothing was removed. `agent models list` shows all.")
    return freed


def _literal(name: str) -> str:
    """`name` as a pattern that matches it alone."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
