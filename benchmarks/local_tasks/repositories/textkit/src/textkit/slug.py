import re
import unicodedata

SEPARATOR = "-"


def slugify(text):
    """A form of `text` that can be part of a URL: lower case, no accents, words joined by a hyphen."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", SEPARATOR, plain.lower()).strip(SEPARATOR)


def unique_slug(text, taken):
    """Like `slugify`, with a number at the end if the slug is taken already."""
    slug = slugify(text)
    if slug not in taken:
        return slug
    number = 2
    while f"{slug}-{number}" in taken:
        number += 1
    return f"{slug}-{number}"
