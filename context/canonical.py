"""One byte form for each value, so that equal content always has an equal digest and an equal wire form."""

import hashlib
import json

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


def canonical_json(value: object) -> str:
    """JSON text with sorted keys and no spaces.

    Raises ValueError for NaN and infinities, TypeError for non-JSON values.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def digest(*pieces: bytes) -> str:
    """SHA-256 in hex over the pieces; each piece is framed by its length, so that no two lists of pieces collide by
    joining.
    """
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(len(piece).to_bytes(8, "big"))
        hasher.update(piece)
    return hasher.hexdigest()


def clean_text(text: str) -> str:
    """`text` without lone surrogates, which file names in legacy encodings bring along and which no wire format can
    carry.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape" if _only_escapes(text) else "replace").decode(errors="replace")
    return text


def _only_escapes(text: str) -> bool:
    return all(0xDC80 <= ord(char) <= 0xDCFF for char in text if 0xD800 <= ord(char) <= 0xDFFF)
