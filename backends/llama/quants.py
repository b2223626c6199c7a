"""Which models a hub repository offers, by the names of its files, and which of them is meant. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.llama.gguf import is_part

_LABEL: Final = re.compile(
    r"(?:^|[-._])(?P<label>(?:UD-)?(?:I?Q[1-8](?:_[A-Z0-9]+)*|TQ[12]_0|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4))$",
    re.IGNORECASE,
)
_NO_MODELS: Final = ("mmproj", "imatrix")  # image encoders and statistics for quantising come as GGUF too
_SHOWN: Final = 40


class QuantError(Exception):
    """The name does not lead to one model. `str(error)`: why, and what there is, in one line without a final stop."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A model in a repository. `label`: its quantisation (`Q4_K_M`), or the path of its first file where the name does
    not tell. `paths`: its files in the repository, in order.
    """

    label: str
    paths: tuple[str, ...]


def offered(paths: Iterable[str]) -> list[Offered]:
    """The models among the files of a repository, sorted by label. Split ones whose parts are not all there are no
    models.
    """
    there = {path for path in paths if path.lower().endswith(".gguf")}
    found = []
    for path in there:
        folder, slash, name = path.rpartition("/")
        if any(word in name.lower() for word in _NO_MODELS):
            continue
        part = is_part(name)
        if part is None:
            found.append(Offered(label_of(path), (path,)))
            continue
        stem, number, count = part
        if number == 1 and count <= len(there):
            parts = tuple(f"{folder}{slash}{stem}-{each:05}-of-{count:05}.gguf" for each in range(1, count + 1))
            if there.issuperset(parts):
                found.append(Offered(label_of(path), parts))
    return sorted(found, key=lambda each: (each.label, each.paths))


def label_of(path: str) -> str:
    """The quantisation that a file's name, or its folder's, ends with, in capitals; the path itself where none does."""
    folder, _, name = path.rpartition("/")
    part = is_part(name)
    stem = part[0] if part else name[: -len(".gguf")]
    match = _LABEL.search(stem) or _LABEL.search(folder.rpartition("/")[2])
    return match["label"].upper() if match else path


def choose(models: Sequence[Offered], wanted: str | None) -> Offered:
    """The one that `wanted` means: a label in any case, its end (`Q4_K_XL` for `UD-Q4_K_XL`), or a file name. None: the
    only one. Raises QuantError.
    """
    if not models:
        raise QuantError("it has no GGUF model files; repositories that have them are mostly called …-GGUF")
    labels = ", ".join(dict.fromkeys(each.label for each in models[:_SHOWN]))
    more = f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else ""
    if wanted is None:
        if len(models) == 1:
            return models[0]
        raise QuantError(f"it has several models, so name one behind a colon: {labels}{more}")
    want = wanted.lower()
    for fits in (
        [each for each in models if each.label.lower() == want],
        [each for each in models if want in (each.paths[0].lower(), each.paths[0].rpartition("/")[2].lower())],
        [each for each in models if each.label.lower().endswith(f"-{want}")],
    ):
        if len(fits) > 1:
            files = ", ".join(each.paths[0] for each in fits[:_SHOWN])
            raise QuantError(f"it has {len(fits)} models of {wanted}, so name the file behind the colon: {files}")
        if fits:
            return fits[0]
    raise QuantError(f"it has no {wanted}. There are: {labels}{more}")
