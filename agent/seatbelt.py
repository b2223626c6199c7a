"""The profile of macOS's sandbox-exec. Pure: text only."""

from collections.abc import Iterable
from pathlib import Path


def seatbelt_profile(
    root: Path, temporary: Path, secrets: Iterable[Path], readable: Iterable[Path], network: bool
) -> str:
    """What a command may do, in the language of `sandbox-exec -p`. The last rule that fits counts."""
    git = root / ".git"
    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        f"(allow file-write* {_below(root)} {_below(temporary)})",
        '(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (regex #"^/dev/fd/"))',
        f"(deny file-write* (literal {_text(git)}) {_below(git / 'hooks')} {_file(git / 'config')})",
        f"(deny file-write* {_file(git / 'config.worktree')})",
        *(f"(deny file-read* file-write* {_below(path)})" for path in secrets if not root.is_relative_to(path)),
        *(f"(allow file-read* {_below(path)})" for path in readable),
        # They run programs, or hold keys, outside of the sandbox.
        '(deny mach-lookup (global-name "com.apple.SecurityServer") (global-name "com.apple.securityd.xpc"))',
        "(deny appleevent-send)",
        *([] if network else ["(deny network*)"]),
    ]
    return "\n".join(lines) + "\n"


def _below(path: Path) -> str:
    return f"(subpath {_text(path)})"


def _file(path: Path) -> str:
    return f"(literal {_text(path)})"


def _text(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
