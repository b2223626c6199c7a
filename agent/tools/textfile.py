"""A whole text file in memory, and its replacement on disk in one step (rule R7).

What a change does not touch keeps every byte: encoding, byte order mark, line ends, and the file's mode bits.
"""

import os
import secrets
import shutil
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Final

from agent.tools.base import ToolError
from agent.tools.encoding import BinaryFileError, Encoding, survey
from agent.tools.pages import is_regular
from agent.tools.paths import failure

LARGEST: Final = 16 << 20  # bytes; what is larger is edited by a program, not by a model
UTF8: Final = Encoding("utf-8")


@dataclass(frozen=True)
class TextFile:
    """Content as read: `text` with the line ends of the file, `digest` of the bytes, `stat` at the time of reading."""

    path: Path
    text: str
    encoding: Encoding
    digest: str
    stat: os.stat_result

    @cached_property
    def view(self) -> str:
        """The text as models see it: every CRLF is a LF."""
        return self.text.replace("\r\n", "\n")

    def offset(self, position: int) -> int:
        """The place in `text` of a place in `view`. The place of a line end is that of its first character."""
        return position + bisect_left(self._crlf, position)

    @cached_property
    def line_ends(self) -> frozenset[str]:
        """The kinds of line ends that occur."""
        kinds = {"\r\n"} if self._crlf else set[str]()
        return frozenset(kinds | ({"\n"} if self.view.count("\n") > len(self._crlf) else set()))

    def encode(self, text: str) -> bytes:
        """The bytes of `text` in this file. Raises ToolError when its encoding has no such character."""
        return encode(text, self.encoding)

    @cached_property
    def _crlf(self) -> list[int]:
        """The places in `view` of the line ends that are CRLF in `text`."""
        places, start = list[int](), 0
        while (found := self.text.find("\r\n", start)) >= 0:
            places.append(found - len(places))
            start = found + 2
        return places


def encode(text: str, encoding: Encoding) -> bytes:
    """`text` with its byte order mark. Raises ToolError when the encoding has no such character."""
    try:
        return encoding.bom + text.encode(encoding.codec)
    except UnicodeEncodeError as error:
        wrong = ascii(text[error.start : error.end][:10])
        raise ToolError(f"The file is in {encoding.codec}, which cannot hold {wrong}. Nothing was changed.") from None


def load(path: Path, name: str) -> TextFile:
    """Read the text file `path`, called `name` in messages. Raises ToolError, and FileNotFoundError as it is."""
    try:
        if path.is_dir():
            raise ToolError(f"{name} is a directory.")
        if not is_regular(path):
            raise ToolError(f"{name} is no regular file (a device, pipe or socket).")
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_size > LARGEST:
                raise ToolError(f"{name} has {stat.st_size:,} bytes, too many for this tool. Change it by a command.")
            data = file.read()
        found = survey(BytesIO(data), len(data))
    except BinaryFileError as error:
        raise ToolError(f"{name} is no text: {error}. Nothing was changed.") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failure(error, name) from None
    text = data[len(found.encoding.bom) :].decode(found.encoding.codec)
    return TextFile(path, text, found.encoding, found.digest, stat)


def replace(path: Path, name: str, data: bytes, before: os.stat_result | None) -> None:
    """Make `data` the content of `path` in one step: readers see the old content or the new, also after a kill.

    `before` is the state of the file that `data` was made from (None: there was none); mode bits, owner and extended
    attributes are carried over from it. Raises ToolError, with the file as it was, when the state is another by now
    or the disk refuses.
    """
    temporary = path.with_name(f".keepwarm-{secrets.token_hex(8)}")
    try:
        if before is not None and not os.access(path, os.W_OK):
            raise ToolError(f"{name} is read-only. Nothing was changed.")
        try:
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if before is None else 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if before is not None:
                _carry_over(path, temporary, before)
            if _state(path) != (None if before is None else _signature(before)):
                raise ToolError(f"{name} was changed by someone else just now. Nothing was changed. Read it again.")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ToolError(f"{failure(error, name)} Nothing was changed.") from None


def _carry_over(path: Path, temporary: Path, before: os.stat_result) -> None:
    made = os.stat(temporary)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):  # only root may keep another's ownership; the content matters more
            os.chown(temporary, before.st_uid, before.st_gid)
    shutil.copystat(path, temporary)
    os.utime(temporary)  # copystat took the old times along, but the content is new


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        return _signature(os.stat(path))
    except FileNotFoundError:
        return None


def _signature(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
