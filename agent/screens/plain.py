"""Text of models, tools and files as it may go to a terminal: it must not command it, nor reorder what is read."""

import re
from typing import Final

# Control characters but newline and tab, the marks that reorder what is read, and halves of surrogate pairs.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HALVES: Final = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """`text` without what a terminal would obey; halves of surrogate pairs, which cannot be written, become a mark."""
    return _HALVES.sub("\ufffd", _UNSAFE.sub("", text))
