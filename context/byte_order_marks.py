"""The marks that text files may begin with, and the encoding that each stands for (The Unicode Standard, 23.8)."""

import codecs
from typing import Final

# UTF-32 stands before UTF-16: its little-endian mark begins with that of UTF-16.
MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
