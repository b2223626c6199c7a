"""What a setting may be: from what a file, the environment or a flag says to the value in force."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from agent.errors import USAGE, UserError

MODES: Final = ("plan", "ask", "edits", "auto")
EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": MODES,
    "effort": EFFORTS,
    "cache_ttl": ("auto", "short", "long"),
    "keepalive": ("auto", "always", "off"),
    "compact": ("auto", "off"),
    "kv_type": ("f16", "q8_0", "q4_0"),
    "lookup": ("auto", "off"),
    "repetition_guard": ("on", "off"),
    "sandbox": ("auto", "off"),
}
_OR_NONE: Final = frozenset({"kv_disk", "gpu_layers", "top_k", "seed"})  # whole numbers that may be 0
_LARGEST: Final = 2**31 - 1  # what llama.cpp and SQLite take alike
_RANGES: Final[Mapping[str, tuple[float, float]]] = {  # numbers that need not be whole
    "temperature": (0, 5),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repeat_penalty": (0.1, 10),
    "frequency_penalty": (-5, 5),
    "presence_penalty": (-5, 5),
    "dry_multiplier": (0, 100),
    "dry_base": (1, 10),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
}


def convert(name: str, value: object, place: str) -> object:
    """`value` as the setting `name` holds it. Raises UserError naming `place` where it makes no sense."""

    def wrong(expected: str) -> UserError:
        return UserError(f"{place}: {name} must be {expected}, not {value!r}.", USAGE)

    match name:
        case "model":
            if not isinstance(value, str) or not value.strip():
                raise wrong("the name of a model")
            return value.strip()
        case "exact" | "lens" | "sandbox_network":
            if (told := str(value).lower()) not in _YES + _NO:
                raise wrong("true or false")
            return told in _YES
        case "dry_breakers":
            return _texts(value, wrong("a list of texts"))
        case "permissions_allow" | "permissions_ask" | "permissions_deny":
            return _rules(_texts(value, wrong("a list of rules")), f"{place}: {name}")
        case _ if name in _RANGES:
            return _number(value, *_RANGES[name], wrong)
        case _ if name in _CHOICES:
            if value not in _CHOICES[name]:
                raise wrong(f"one of {', '.join(_CHOICES[name])}")
            return value
        case "max_cost_session" | "max_cost_day" if value == "off":
            return None
        case "max_cost" | "max_cost_session" | "max_cost_day" | "keepalive_session" | "keepalive_day":
            try:
                cost = Decimal(str(value))
            except InvalidOperation:
                raise wrong("an amount in USD") from None
            if not cost.is_finite() or cost <= 0:
                raise wrong("an amount above 0 in USD")
            return cost
        case _:
            try:
                number = int(str(value))
            except ValueError:
                raise wrong("a whole number") from None
            least = 0 if name in _OR_NONE else 1
            if isinstance(value, bool) or number < least:
                raise wrong(f"a whole number {'from 0 on' if name in _OR_NONE else 'above 0'}")
            if number > _LARGEST:
                raise wrong(f"a whole number up to {_LARGEST}")
            return number


def _number(value: object, least: float, most: float, wrong: Callable[[str], UserError]) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise wrong(f"a number from {least:g} to {most:g}") from None
    if isinstance(value, bool) or not least <= number <= most:
        raise wrong(f"a number from {least:g} to {most:g}")
    return number


def _texts(value: object, wrong: UserError) -> tuple[str, ...]:
    if isinstance(value, str):  # from the environment
        try:
            value = json.loads(value)
        except ValueError:
            raise wrong from None
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise wrong
    return tuple(value)


def _rules(rules: tuple[str, ...], place: str) -> tuple[str, ...]:
    from agent.permission_rules import RuleError, parse_rule  # few have rules, and `agent --help` needs none of it

    for rule in rules:
        try:
            parse_rule(rule)
        except RuleError as error:
            raise UserError(f"{place}: {error}", USAGE) from None
    return rules
