"""What a typed text is: a message, a slash command or a shell line, and which files a message mentions. Pure."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

_COMMAND_LIKE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_:-]*")
# A letter or digit before the @ makes it an e-mail address, or a version such as pkg@1.2; a CJK character does not.
_MENTION: Final = re.compile(
    r"""(?<![A-Za-z0-9_.+\-@/\\`])@(?:
        "(?P<double>(?:\\.|[^"\\\n])+)" | '(?P<single>(?:\\.|[^'\\\n])+)' |
        (?P<bare>(?:\\[\s\\"'@]|[^\s"'@，。；：、！？])+)
    )""",
    re.VERBOSE,
)
_ESCAPED: Final = re.compile(r"""\\([\s\\"'@])""")
_PLAIN: Final = re.compile(r"""[^\s\\"'@，。；：、！？]+""")
_LINE_NUMBER: Final = re.compile(r"(:\d+(-\d+)?|#L\d+(-L?\d+)?)$")
_LOOKS_LIKE_FILE: Final = re.compile(r"[^/]+/(?:.*/)?[^/]*\.[A-Za-z0-9_]+")
_SENTENCE_END: Final = ".,;:!?)]}>`*…）】》」』”’"


@dataclass(frozen=True, slots=True)
class Message:
    """For the model. `paths`: the files it mentions, as written, each once."""

    text: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shell:
    """A command line for the shell."""

    command: str


@dataclass(frozen=True, slots=True)
class SlashCommand:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """Looks like a slash command, and none has this name. `suggestion`: the name that is nearest."""

    name: str
    suggestion: str | None


Typed = Message | Shell | SlashCommand | UnknownCommand


def parse(text: str, names: Collection[str], exists: Callable[[str], bool] = lambda _: False) -> Typed:
    """What `text` is. `names`: the slash commands, without the slash. `exists`: whether there is a file or folder.

    A blank before `/` or `!` makes it a message. `@name` is a file when `exists` says so, when it is quoted, or when it
    has a slash and a suffix (`@src/new.py`), so that decorators and e-mail addresses are none.
    """
    said = text.strip("\r\n").rstrip()
    if said.startswith("!") and said[1:].strip():
        return Shell(said[1:].strip())
    if said.startswith("/"):
        first, *rest = said[1:].split(maxsplit=1) or [""]
        if not said[1:2].isspace():
            if first in names:
                return SlashCommand(first, rest[0] if rest else "")
            if _COMMAND_LIKE.fullmatch(first) and not exists(f"/{first}"):
                near = difflib.get_close_matches(first.lower(), sorted(names), 1)
                return UnknownCommand(first, near[0] if near else None)
    return Message(said, tuple(dict.fromkeys(_mentioned(said, exists))))


def mention(path: str) -> str:
    """How `path` is written in a message, so that `parse` finds it again."""
    if _PLAIN.fullmatch(path) and path[-1] not in _SENTENCE_END and not _LINE_NUMBER.search(path):
        return f"@{path}"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{escaped}"'


def _mentioned(text: str, exists: Callable[[str], bool]) -> Iterator[str]:
    for match in _MENTION.finditer(text):
        quoted = match["double"] or match["single"]
        if quoted:
            yield _ESCAPED.sub(r"\1", quoted)
            continue
        candidates = list(_candidates(_ESCAPED.sub(r"\1", match["bare"])))
        found = next((path for path in candidates if exists(path)), None)
        if found is None and _LOOKS_LIKE_FILE.fullmatch(candidates[-1]):
            found = candidates[-1]
        if found is not None:
            yield found


def _candidates(written: str) -> Iterator[str]:
    """The paths that `written` may mean, the longest first: a sentence may go on behind it, in CJK without a blank."""
    yield written
    for place in range(len(written) - 1, 0, -1):
        if written[place] > "\x7f" and written[place - 1] <= "\x7f":
            yield written[:place]
    bare = written.rstrip(_SENTENCE_END) or written
    yield bare
    yield _LINE_NUMBER.sub("", bare).rstrip(_SENTENCE_END) or bare
