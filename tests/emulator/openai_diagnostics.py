"""Why a request missed the cache, compared with an earlier response (`prompt_cache_options.comparison_response_id`).

Source: openai SDK 3.57.0, `response.PromptCacheDiagnostics`. Which reason wins when several apply is not documented;
here it is the first in the SDK's order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from .openai_prefix import Body, Element, data_of, input_items, item_kind

_DEFAULT_EFFORT: Final = "medium"


@dataclass(frozen=True)
class Settings:
    """What divides OpenAI's cache: no entry is shared between two requests that differ in one of these."""

    model: str
    prompt_cache_key: str | None
    effort: str
    text_format: bytes
    verbosity: str
    service_tier: str


def settings(body: Body) -> Settings:
    """The settings of a Responses or Chat request; what is left out is its default."""
    text = body.get("text") or {}
    effort = (body.get("reasoning") or {}).get("effort") or body.get("reasoning_effort")
    tier = str(body.get("service_tier") or "auto")
    return Settings(
        str(body.get("model")),
        body.get("prompt_cache_key"),
        str(effort or _DEFAULT_EFFORT),
        data_of(text.get("format") or body.get("response_format") or {"type": "text"}),
        str(text.get("verbosity") or body.get("verbosity") or "medium"),
        {"auto": "default", "fast": "priority"}.get(tier, tier),
    )


@dataclass(frozen=True)
class Answered:
    """What is kept of an answered request. `reusable`: tokens up to its last breakpoint."""

    settings: Settings
    tools: bytes
    elements: Sequence[Element]
    compactions: frozenset[str]
    reusable: int


def answered(body: Body, elements: Sequence[Element], reusable: int) -> Answered:
    compactions = frozenset(str(item.get("id")) for item in input_items(body) if item_kind(item) == "compaction")
    return Answered(settings(body), data_of(list(body.get("tools") or [])), elements, compactions, reusable)


_BEFORE: Final = (("model", "model_changed"), ("prompt_cache_key", "prompt_cache_key_changed"))
_BETWEEN: Final = (
    ("text_format", "text_format_changed"),
    ("effort", "reasoning_effort_changed"),
    ("verbosity", "verbosity_changed"),
)


def diagnose(now: Answered, earlier: Answered | None, read: int) -> Mapping[str, Any]:
    """`prompt_cache_diagnostics` of a response that read `read` tokens from the cache."""
    if earlier is None:
        return {"type": "comparison_response_not_found"}
    total, common = sum(element.tokens for element in now.elements), _common(now, earlier)
    if (reason := _differs(now, earlier, _BEFORE)) is not None:
        return _miss(reason, total, earlier)
    if now.tools != earlier.tools:
        return _miss("tools_changed", total - common, earlier)
    if (reason := _differs(now, earlier, _BETWEEN)) is not None:
        return _miss(reason, total, earlier)
    if common < earlier.reusable:
        compacted = now.compactions - earlier.compactions
        return _miss("context_compacted" if compacted else "input_changed", total - common, earlier)
    if now.settings.service_tier != earlier.settings.service_tier:
        return _miss("service_tier_changed", total, earlier)
    if read >= earlier.reusable > 0:
        return {"type": "cache_hit"}
    return {"type": "unavailable"}  # nothing diverged, yet nothing was there: expired, evicted or below the minimum


def _differs(now: Answered, earlier: Answered, names: Sequence[tuple[str, str]]) -> str | None:
    for name, reason in names:
        if getattr(now.settings, name) != getattr(earlier.settings, name):
            return reason
    return None


def _common(now: Answered, earlier: Answered) -> int:
    """Tokens of the prefix that both requests share."""
    ends = accumulate(element.tokens for element in now.elements)
    common = 0
    for end, here, there in zip(ends, now.elements, earlier.elements, strict=False):
        if here.data != there.data:
            break
        common = end
    return common


def _miss(reason: str, missed: int, earlier: Answered) -> Mapping[str, Any]:
    return {
        "type": "cache_miss",
        "reason": reason,
        "cache_missed_tokens": missed,
        "comparison_reusable_tokens": earlier.reusable,
    }
