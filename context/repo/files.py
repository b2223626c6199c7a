"""Which files a working directory holds, as git sees them, or by walking where there is no git."""

import os
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from context.repo.deleted import DeletedFiles, folder_states, folders_of

if TYPE_CHECKING:
    import pathspec

WALK_LIMIT: Final = 20_000  # files, and folders; a walk of a whole home directory must end
_NEVER_WALKED: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox"})
_GIT_TIMEOUT_S: Final = 20
_COMMITS: Final = 30
# Listing files must not run code of the repository, whose configuration names programs: a file system monitor, and what
# fetches the objects that a partial clone lacks (git 2.39: `git help config`, core.fsmonitor, remote.<name>.uploadpack,
# core.sshCommand; `git help git`, GIT_ALLOW_PROTOCOL, which no configuration overrides), and what verifies signatures
# whenever a log is shown (log.showSignature, gpg.program).
_AS_IT_SHOULD_BE: Final = b"H "  # git ls-files -t
_NOT_CHECKED_OUT: Final = b"S "
_NO_FOREIGN_CODE: Final = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")
_NO_FETCHING: Final = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}


@dataclass(frozen=True, slots=True)
class Listing:
    """Paths relative to the working directory, sorted by their bytes, `/` between folders.

    `complete` is False at WALK_LIMIT.

    `git` tells whether git made the list. Names that are not UTF-8 carry surrogate escapes, as Python's own file
    functions give them.
    """

    paths: tuple[str, ...]
    git: bool
    complete: bool = True


def list_files(root: Path, env: Mapping[str, str], deleted: DeletedFiles | None = None) -> Listing:
    """The files below `root`: tracked ones that are there and untracked ones that are not ignored. `env`: the
    environment of git. `deleted`: remembers which are not there (None: git is asked).
    """
    with ThreadPoolExecutor(1) as beside:  # git looks at all folders meanwhile
        others = beside.submit(_git_names, root, env, "ls-files", "--others", "--exclude-standard")
        names = _present(root, env, deleted)
    untracked = others.result()
    if names is not None and untracked is not None:
        if untracked:
            parents = set(folders_of(untracked))
            if parents & set(names):  # a folder took the place of a file
                names = [name for name in names if name not in parents]
            names = sorted(names + untracked)  # quick: both are sorted already
        return Listing(tuple(os.fsdecode(b"\0".join(names)).split("\0")) if names else (), git=True)
    folders, complete = _walked(root)
    found = [prefix + name for prefix, names in folders for name in names]
    return Listing(tuple(sorted(found, key=os.fsencode)), git=False, complete=complete)


def branch(root: Path, env: Mapping[str, str]) -> str | None:
    """What is checked out: `on branch NAME`, `at COMMIT, on no branch`; None where there is no repository."""
    name = _git(root, env, "symbolic-ref", "--short", "-q", "HEAD")
    if name is not None:
        return f"on branch {os.fsdecode(name).strip()}"
    commit = _git(root, env, "rev-parse", "--short", "HEAD")
    return None if commit is None else f"at {os.fsdecode(commit).strip()}, on no branch"


def head_commit(root: Path, env: Mapping[str, str]) -> str | None:
    """The commit that is checked out, None where there is none."""
    commit = _git(root, env, "rev-parse", "--verify", "-q", "HEAD^{commit}")
    return None if commit is None else os.fsdecode(commit).strip()


def is_ignored(root: Path, folder: Path, env: Mapping[str, str]) -> bool:
    """Whether git ignores a folder below `root`; without git, what is never walked."""
    if _NEVER_WALKED.intersection(folder.relative_to(root).parts):
        return True
    return _git(root, env, "check-ignore", "-q", "--", f"{folder}/") is not None


def unignored_folders(root: Path, env: Mapping[str, str]) -> list[Path]:
    """The folders below `root` that are not ignored, parents first; those too that hold no files yet."""
    listed = _git_names(root, env, "ls-files", "--cached", "--others", "--exclude-standard")
    if listed is None:
        return [root / prefix for prefix in sorted(prefix for prefix, _ in _walked(root)[0]) if prefix]
    found: set[str] = set()
    for path in map(os.fsdecode, listed):
        while (path := path.rpartition("/")[0]) and path not in found:  # of one that is known, the parents are too
            found.add(path)
    found |= _empty_folders(root, env, found)
    return [root / folder for folder in sorted(found)]


def _empty_folders(root: Path, env: Mapping[str, str], known: AbstractSet[str]) -> set[str]:
    """Folders without files that are not ignored. Git names an untracked folder and nothing in it, so that what is
    below is looked at, a level at a time.
    """
    told = _git(root, env, "ls-files", "-z", "--others", "--exclude-standard", "--directory")
    level = {os.fsdecode(name).rstrip("/") for name in (told or b"").split(b"\0") if name.endswith(b"/")}
    found: set[str] = set()
    while level:
        found |= level
        below = {f"{folder}/{name}" for folder in level for name in _subfolders(root / folder)}
        new = below - known
        level = (below & known) | (new - _ignored_ones(root, env, new))
    return found


def _subfolders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [e.name for e in entries if e.is_dir(follow_symlinks=False) and e.name not in _NEVER_WALKED]
    except OSError:  # closed to us, or gone by now
        return []


def _ignored_ones(root: Path, env: Mapping[str, str], folders: AbstractSet[str]) -> set[str]:
    if not folders:
        return set()
    asked = b"".join(os.fsencode(f"{folder}/") + b"\0" for folder in folders)
    told = _git(root, env, "check-ignore", "-z", "--stdin", given=asked)  # fails where none is ignored
    return {os.fsdecode(name).rstrip("/") for name in (told or b"").split(b"\0")}


def recent_changes(root: Path, env: Mapping[str, str]) -> dict[str, int]:
    """In how many of the last commits each file below `root` was changed (adding it is no change)."""
    told = _git(
        root,
        env,
        "log",
        f"-{_COMMITS}",
        "--format=",
        "--name-only",
        "--diff-filter=M",
        "--no-renames",
        "--relative",
        "-z",
    )
    names = [os.fsdecode(name).strip("\n") for name in (told or b"").split(b"\0")]
    return dict(Counter(name for name in names if name))


def _present(root: Path, env: Mapping[str, str], deleted: DeletedFiles | None) -> list[bytes] | None:
    """Names of the tracked files that are there, None where git does not say: without those that were deleted or not
    checked out, and without what a link in the place of a folder leads to, which could be any file of the person's.
    """

    def ask() -> list[bytes] | None:
        # Not `diff-files`, which reads a file whose time says too little, through the filters of the repository.
        return _git_names(root, env, "ls-files", "--deleted")

    tracked = _git(root, env, "ls-files", "--cached", "-t", "-z")
    if tracked is None:
        return None
    names = _checked_out(tracked)
    folders = folder_states(root, names)
    gone = ask() if deleted is None else deleted.names(root, tracked, folders, ask)
    if gone is None:
        return None
    if gone:
        left_out = set(gone)
        names = [name for name in names if name not in left_out]
    if folders.links:
        behind = tuple(link + b"/" for link in folders.links)
        names = [name for name in names if not name.startswith(behind)]
    return names


def _checked_out(tagged: bytes) -> list[bytes]:
    """The names in what `git ls-files -t -z` prints, each once."""
    names = tagged.removeprefix(_AS_IT_SHOULD_BE)[:-1].split(b"\0" + _AS_IT_SHOULD_BE)
    if tagged.startswith(_AS_IT_SHOULD_BE) and len(names) == tagged.count(b"\0"):  # so are all of them
        return names
    entries = tagged.split(b"\0")
    return list(dict.fromkeys(entry[2:] for entry in entries if entry and not entry.startswith(_NOT_CHECKED_OUT)))


def _git_names(root: Path, env: Mapping[str, str], command: str, *which: str) -> list[bytes] | None:
    """None when git is missing, the folder is no repository, or git refuses (another owner, a broken repository)."""
    listed = _git(root, env, command, "-z", *which)
    return None if listed is None else [name for name in listed.split(b"\0") if name]


def _git(root: Path, env: Mapping[str, str], *arguments: str, given: bytes = b"") -> bytes | None:
    """What git prints when it reads `given`; None when it fails or cannot be run."""
    command = ["git", *_NO_FOREIGN_CODE, "-C", str(root), *arguments]
    safe = {**_without_git(env), **_NO_FETCHING}
    try:
        result = subprocess.run(
            command, input=given, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False, env=safe
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def _without_git(env: Mapping[str, str]) -> dict[str, str]:
    """Inside a git hook, GIT_DIR and others name the repository of the hook, wherever one looks."""
    return {name: value for name, value in env.items() if not name.startswith("GIT_")}


def _walked(root: Path) -> tuple[list[tuple[str, list[str]]], bool]:
    """What `_walk` gives, up to WALK_LIMIT, and whether that is all."""
    found, left = list[tuple[str, list[str]]](), WALK_LIMIT
    for prefix, names in _walk(root):
        if len(names) > left or len(found) == WALK_LIMIT:
            return [*found, (prefix, names[:left])], False
        found.append((prefix, names))
        left -= len(names)
    return found, True


def _walk(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Folders, as prefixes of paths, and their files, in a deterministic order, honouring each `.gitignore`.
    Unreadable folders are left out.
    """
    rules: dict[str, pathspec.GitIgnoreSpec] = {}  # by the folder that holds them, as a prefix of paths
    for folder, folders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        prefix = "" if relative == "." else relative.replace(os.sep, "/") + "/"
        if ".gitignore" in names and (spec := _gitignore(Path(folder) / ".gitignore")) is not None:
            rules[prefix] = spec
        folders[:] = sorted(
            name for name in folders if name not in _NEVER_WALKED and not _ignored(f"{prefix}{name}/", rules)
        )
        yield prefix, [name for name in sorted(names) if not _ignored(prefix + name, rules)]


def _ignored(path: str, rules: "Mapping[str, pathspec.GitIgnoreSpec]") -> bool:
    """By the innermost rules that say something of it (gitignore's documentation, "Pattern format")."""
    parts = path.rstrip("/").split("/")
    for depth in range(len(parts) - 1, -1, -1):
        prefix = "".join(f"{part}/" for part in parts[:depth])
        if (spec := rules.get(prefix)) is not None:
            said = spec.check_file(path.removeprefix(prefix)).include
            if said is not None:
                return said
    return False


def _gitignore(path: Path) -> "pathspec.GitIgnoreSpec | None":
    import pathspec  # only where there is no git

    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a pipe would never end; git follows no link here either
            return None
        return pathspec.GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except (OSError, ValueError):
        return None
