"""The person's own slash commands: a Markdown file `NAME.md` is the command `/NAME`.

They lie in `commands/` of the person's configuration folder and in `.keepwarm/commands/` of the repository; the
person's own one wins. What a file says is text for the model. Nothing in it runs.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from agent.config import Folders
from agent.project_folder import project_folder
from context.names import show_name

FOLDER: Final = "commands"
_NAME: Final = re.compile(r"[^\W_][\w-]{0,39}")  # letters and digits of any script: /测试 is a name
_LARGEST: Final = 100_000  # bytes
_LONGEST_DESCRIPTION: Final = 80  # characters, where the text's first line has to do
_FRONT: Final = re.compile(r"---[ \t]*\n(?P<lines>.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_PLACEHOLDER: Final = re.compile(
    r"\\(?P<literal>\$(?:ARGUMENTS\b|[1-9](?!\d)))|\$(?:(?P<all>ARGUMENTS\b)|(?P<one>[1-9])(?!\d))"
)

Source = Literal["user", "project"]


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """`description` and `arguments` (what to type behind the name, "" for none) are one line each, for a list."""

    name: str
    description: str
    arguments: str
    text: str
    source: Source
    path: Path

    def expand(self, arguments: str) -> str:
        """What the model is told when the person types `arguments` behind the name."""
        return expand(self.text, arguments)


def own_commands(
    folders: Folders, directory: Path, warn: Callable[[str], None] = lambda line: None
) -> dict[str, OwnCommand]:
    """The commands for whoever works in `directory`, by name, sorted. `warn` hears of each file that is none."""
    found: dict[str, OwnCommand] = {}
    project = project_folder(directory, folders.config)
    if project is not None:
        found.update(_commands(project / FOLDER, "project", warn))
    found.update(_commands(folders.config / FOLDER, "user", warn))
    return dict(sorted(found.items()))


def expand(text: str, arguments: str) -> str:
    r"""`text` with `$ARGUMENTS` and `$1` to `$9` filled in; `\$1` stands for itself.

    Arguments are split as a shell does, quotes included; one that was not given is empty. A text without any
    placeholder gets the arguments at its end.
    """
    arguments = arguments.strip()
    words = _words(arguments)
    filled = False

    def fill(match: re.Match[str]) -> str:
        nonlocal filled
        if match["literal"]:
            return match["literal"]
        filled = True
        if match["all"]:
            return arguments
        number = int(match["one"])
        return words[number - 1] if number <= len(words) else ""

    expanded = _PLACEHOLDER.sub(fill, text)  # in one pass: what an argument says is not filled in again
    return f"{expanded}\n\n{arguments}" if arguments and not filled else expanded


def parse(name: str, content: str, source: Source, path: Path) -> OwnCommand:
    """The command that a file describes. Of its front matter `description` and `arguments` count; the rest does not."""
    content = content.removeprefix("\ufeff").replace("\r\n", "\n")
    front = _FRONT.match(content)
    facts = dict(_facts(front["lines"])) if front else {}
    text = content[front.end() :].strip() if front else content.strip()
    first = text.partition("\n")[0].lstrip("# ")
    if len(first) > _LONGEST_DESCRIPTION:
        first = first[: _LONGEST_DESCRIPTION - 1] + "…"
    return OwnCommand(
        name, show_name(facts.get("description") or first), show_name(facts.get("arguments", "")), text, source, path
    )


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # an apostrophe, as in don't
        return arguments.split()


def _facts(lines: str) -> Iterator[tuple[str, str]]:
    for line in lines.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            yield key.strip().lower(), value


def _commands(folder: Path, source: Source, warn: Callable[[str], None]) -> Iterator[tuple[str, OwnCommand]]:
    if source == "project" and folder.is_symlink():
        return
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".md")
    except OSError:  # there is none, or it is no folder
        return
    for path in paths:
        try:
            yield path.stem, parse(path.stem, _content(path, source), source, path)
        except _NoCommandError as error:
            warn(f"{show_name(str(path))} is no command: {error}")


class _NoCommandError(Exception):
    """Why a file cannot be a command."""


def _content(path: Path, source: Source) -> str:
    if not _NAME.fullmatch(path.stem):
        raise _NoCommandError("its name must be letters, digits, '-' and '_', at most 40.")
    if source == "project" and path.is_symlink():  # a stranger's link could show the model any file of this machine
        raise _NoCommandError("it is a link, which is not followed out of a repository.")
    try:
        if not path.is_file():
            raise _NoCommandError("it is no plain file.")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise _NoCommandError(f"it is longer than {_LARGEST:,} bytes.")
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise _NoCommandError("it is not UTF-8.") from None
    except OSError as error:
        raise _NoCommandError(f"it cannot be read ({error.strerror or error}).") from None
    if not parse("", text, source, path).text:
        raise _NoCommandError("it says nothing.")
    return text
