"""A Jinja environment for the chat templates of foreign model files, in which no text grows without bounds.

Jinja's own sandbox keeps a template away from Python's insides, and lets it fill the memory with one multiplication.
Here operators, filters and methods are looked at before they work, and `~` and what macros, blocks and the template put
together while they do.
"""

import re
from collections.abc import Callable, Iterable, Sized
from functools import wraps
from typing import Any, Final

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.filters import do_format
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from backends.llama.chat_template import TemplateRefusalError

_MOST: Final = 200_000
"""Characters and items of one value. A conversation of marker words takes some thousands."""
_MOST_PRODUCT: Final = 50_000_000
"""What a filter or method can make of what it is given is at most the product of their sizes: a text that is put in
place of each letter, a width.
"""
_MOST_BITS: Final = 1_000  # of a number
_WIDTH: Final = re.compile(r"\d{6}|\*|\{[^{}]*\{\w*\}")  # in a format


class _Joins(CodeGenerator):
    """`a ~ b` is put together by the environment, like everything else."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 (Jinja's name)
        self.write("concat(map(str, map(environment.finalize, (")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))))")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Raises TemplateRefusalError for a template that makes too much."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})
    code_generator_class = _Joins

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], finalize=_require_small
        )
        self.filters = {name: _bounded(made) for name, made in self.filters.items()}
        self.filters["format"] = _format
        del self.globals["lipsum"]

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """As `"".join`, which Jinja puts everything together with."""
        kept, length = [], 0
        for piece in pieces:
            length += len(piece)
            _require(length <= _MOST)
            kept.append(piece)
        return "".join(kept)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str | bytes):
            _require_format(left)
        elif isinstance(left, Sized) or isinstance(right, Sized):
            one, other = (len(side) if isinstance(side, Sized) else _size(side) for side in (left, right))
            _require((one + other if operator == "+" else one * other) <= _MOST)
        elif isinstance(left, int) and isinstance(right, int) and operator != "%":
            factor = right if operator == "**" else 1
            _require(left.bit_length() * abs(factor) + right.bit_length() <= _MOST_BITS)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:  # a text's method `format` or `format_map`
            _require_format(value.__self__)
        return wrapped

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (Jinja's)
        if __obj is not __self.globals["range"]:  # which has bounds of its own
            _require_product((getattr(__obj, "__self__", ""), *args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)


def _bounded(made: Callable[..., Any]) -> Callable[..., Any]:
    """The same filter, which refuses what it could make too much of."""

    @wraps(made)  # with what Jinja notes of it: whether it gets the context
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _require_product((*args, *kwargs.values()))
        return made(*args, **kwargs)

    return bounded


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    _require_format(value)
    return do_format(value, *args, **kwargs)


def _require_product(values: Iterable[Any]) -> None:
    product = 1
    for value in values:
        product *= max(1, _size(value))
        _require(product <= _MOST_PRODUCT)


def _require_format(text: str | bytes) -> None:
    """A width in a format makes a long text of a short one."""
    _require(not _WIDTH.search(text if isinstance(text, str) else text.decode(errors="replace")))


def _require_small(value: Any) -> Any:
    """Before it becomes text: lists in lists can be small and yet say the same thing a million times."""
    _size(value)
    return value


def _size(value: Any) -> int:
    """Characters and items in all; a number is as large as the width that it may stand for."""
    if isinstance(value, int):
        return abs(value)
    left, size = [value], 0
    while left:
        each = left.pop()
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, dict):
            size += len(each)
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set):
            size += len(each)
            left += each
        _require(size <= _MOST and len(left) <= _MOST)
    return size


def _require(holds: bool) -> None:
    if not holds:
        raise TemplateRefusalError("it makes a text without end")
