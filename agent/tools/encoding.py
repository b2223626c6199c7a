"""What kind of bytes a file holds: text in which encoding, or something that is no text."""

import codecs
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from context.byte_order_marks import MARKS

CHUNK: Final = 1 << 20  # bytes
_HEAD: Final = 8_192  # bytes; where git, too, looks for a NUL to tell binary from text
_MOST_CONTROLS: Final = 0.1  # of the first bytes, in text that is not UTF-8
_CP1252_HOLES: Final = b"\x81\x8d\x8f\x90\x9d"  # bytes that cp1252 leaves undefined; Latin-1 defines all
_CONTROLS: Final = bytes(set(range(0x20)) - set(b"\t\n\r\f\x1b\b")) + b"\x7f"
_MAGIC: Final = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "an ELF program or library"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program or library"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "a WebAssembly module"),
    (b"GGUF", "a GGUF model"),
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """`codec` as Python names it, and the byte order mark in front of the text (empty: none)."""

    codec: str
    bom: bytes = b""

    @property
    def usual(self) -> bool:
        """UTF-8, which needs no mention."""
        return self.codec == "utf-8"


@dataclass(frozen=True, slots=True)
class Survey:
    """One pass over a file: `digest` of its bytes (as `context.canonical.digest`), `encoding`, number of `lines`.

    A last line without a line end counts as one.
    """

    digest: str
    encoding: Encoding
    lines: int


class BinaryFileError(Exception):
    """The file is no text; `str(error)` says what it seems to be."""


def survey(file: BinaryIO, size: int) -> Survey:
    """Read `file`, of `size` bytes, from its start, in pieces.

    Text is UTF-8, UTF-16 or UTF-32 if a byte order mark says so, else UTF-8 if it is valid throughout, else cp1252 or
    Latin-1. Raises BinaryFileError.
    """
    marked = _refuse_binary(file)
    hasher = hashlib.sha256(size.to_bytes(8, "big"))
    decoder = codecs.getincrementaldecoder(marked.codec if marked else "utf-8")()
    valid, newlines, bytes_of_newline, holes, last = True, 0, 0, False, b""
    skip = len(marked.bom) if marked else 0
    file.seek(0)
    while chunk := file.read(CHUNK):
        hasher.update(chunk)
        last = chunk
        try:
            newlines += decoder.decode(chunk[skip:]).count("\n") if valid else 0
        except UnicodeDecodeError:
            valid = False
        bytes_of_newline += chunk.count(b"\n")
        holes = holes or any(byte in chunk for byte in _CP1252_HOLES)
        skip = 0
    try:
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        valid = False
    if marked and not valid:
        raise BinaryFileError(f"damaged {marked.codec} text")
    encoding = marked or Encoding("utf-8" if valid else "latin-1" if holes else "cp1252")
    open_line = size > len(encoding.bom) and not last.endswith("\n".encode(encoding.codec))
    return Survey(hasher.hexdigest(), encoding, (newlines if valid else bytes_of_newline) + open_line)


def decoded(file: BinaryIO, encoding: Encoding) -> Iterator[str]:
    """The text of `file` from its start, without the mark, in pieces. Line ends are as they are in the file."""
    file.seek(len(encoding.bom))
    # The survey has seen only valid text; what is not valid now was written in between.
    decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
    while chunk := file.read(CHUNK):
        yield decoder.decode(chunk)
    yield decoder.decode(b"", True)


def _refuse_binary(file: BinaryIO) -> Encoding | None:
    """The encoding that a mark announces, if one does. Raises BinaryFileError."""
    head = file.read(_HEAD)
    for magic, kind in _MAGIC:
        if head.startswith(magic) and (b"\0" in head or not head.isascii()):
            raise BinaryFileError(kind)
    for bom, codec in MARKS:
        if head.startswith(bom):
            return Encoding(codec, bom)
    if b"\0" in head:
        raise BinaryFileError("binary data")
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if not head.isascii() and controls > len(head) * _MOST_CONTROLS:
        raise BinaryFileError("binary data")
    return None
