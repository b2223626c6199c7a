"""File names as people and models see them: printable, and unlike for unlike names.

File names are bytes. Python holds names that are not UTF-8 as text with surrogate escapes, which no wire format can
carry; names may also hold newlines or codes that command a terminal.
"""

import re
from typing import Final

# Control characters, line separators, the marks that turn the direction of writing, and what stands for stray bytes.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BYTE_ESCAPE: Final = 0xDC00  # Python holds an undecodable byte as this plus its value


def show_name(name: str) -> str:
    """`name` with undecodable bytes and unprintable characters written as escapes."""
    return _UNPRINTABLE.sub(lambda match: _escaped(match[0]), name)


def _escaped(char: str) -> str:
    byte = ord(char) - _BYTE_ESCAPE
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else char.encode("unicode_escape").decode()
