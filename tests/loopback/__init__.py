"""A server on loopback that speaks Anthropic's Messages API over real sockets and plays a scripted model.

Tests (and other processes, by its URL) run the unmodified SDK against it. It records every request, holds requests to
the API's rules, and bills them by a small prefix cache.
"""

from .bodies import assert_extends, markers, prefix_bytes, raw_prefix, without_markers
from .cache import PrefixCache
from .script import Call, Failure, Part, Redacted, Reply, Say, Think, html_page
from .server import Recorded, ScriptedServer

__all__ = [
    "Call",
    "Failure",
    "Part",
    "PrefixCache",
    "Recorded",
    "Redacted",
    "Reply",
    "Say",
    "ScriptedServer",
    "Think",
    "assert_extends",
    "html_page",
    "markers",
    "prefix_bytes",
    "raw_prefix",
    "without_markers",
]
