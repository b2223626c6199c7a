from textkit.dates import days_in_month, is_leap
from textkit.slug import slugify
from textkit.wrap import wrap

__all__ = ["days_in_month", "is_leap", "slugify", "wrap"]
