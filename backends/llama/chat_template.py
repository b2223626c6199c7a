"""What a model's chat template puts around messages, found once so that no message is ever rendered again.

A template renders a whole conversation, and many render an old message otherwise than they did when it was new: they
strip its reasoning, trim it, move the system text to the last message. That would end the common prefix with the KV
cache at the first such place. So the template renders one conversation of marker words instead, and what stands between
the markers are the junctions: strings that depend only on which role follows which. A prompt is then contents joined by
junctions, and turn n+1 continues turn n whatever the template does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from backends.base import BackendError, ErrorKind

if TYPE_CHECKING:
    from jinja2 import Template

# Letters only, so that no template trims, escapes or splits them.
_SYSTEM: Final = "KwSystemMarker"
_FIRST: Final = "KwFirstMarker"
_REPLY: Final = "KwReplyMarker"
_SECOND: Final = "KwSecondMarker"
_MOST_NUMBERS: Final = 100_000
_MERGED: Final = "\n\n"

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Junctions:
    """The text between contents.

    `open_system`: ahead of the system text. `open_user`: ahead of the first user text when there is no system text.
    `system_user`, `user_reply`, `reply_user`: between two contents of these roles; `user_reply` is also what asks the
    model for its reply. `merged`: between two texts that go into the same message.
    """

    open_system: str
    open_user: str
    system_user: str
    user_reply: str
    reply_user: str
    merged: str = _MERGED


_FAULTS: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError, MemoryError)
"""What a template can make Python raise: it divides by zero, calls itself without end, multiplies a text."""


class TemplateRefusalError(Exception):
    """The template does not render a conversation in a way that can be continued."""


def find_junctions(source: str, bos: str, eos: str, origin: str) -> Junctions:
    """The junctions of a Jinja chat template. `bos` and `eos` are the texts of these tokens.

    A template without a system role, or one that moves the system text behind later turns, gets it as the beginning of
    the first user message. Raises BackendError (LOCAL) with `origin`, the name of the model file, for a template that
    is broken or drops messages.
    """
    from jinja2 import TemplateError

    try:
        template = _compile(source)
        plain = _junctions(template, bos, eos, system=False)
    except (TemplateError, TemplateRefusalError, *_FAULTS) as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise BackendError(
            ErrorKind.LOCAL, f"The chat template in {origin} cannot be used: {reason}. Choose an instruct model."
        ) from error
    try:
        with_system = _junctions(template, bos, eos, system=True)
    except (TemplateError, TemplateRefusalError, *_FAULTS):
        return plain
    return replace(with_system, open_user=plain.open_user)


def _junctions(template: "Template", bos: str, eos: str, *, system: bool) -> Junctions:
    turns = [_message("user", _FIRST), _message("assistant", _REPLY), _message("user", _SECOND)]
    messages = [_message("system", _SYSTEM), *turns] if system else turns
    markers = [message["content"] for message in messages]
    waiting = _render(template, messages, bos, eos, ask=True)
    pieces = _split(waiting, markers)
    head, *between, ask = pieces
    if _render(template, messages, bos, eos, ask=False) == waiting:
        # The template knows no request for a reply: what stands in front of an old reply is one. A space at its end
        # belongs to the reply's first token in the vocabularies that such templates were made for.
        ask = between[-2].rstrip(" ")
    if ask.rstrip().endswith("<think>"):
        ask += "\n</think>\n\n"  # replies are tool calls from their first token on
    if system:
        return Junctions(head, head, between[0], ask, between[2])
    return Junctions(head, head, _MERGED, ask, between[1])


def _split(text: str, markers: Sequence[str]) -> list[str]:
    """`text` cut at the markers, which must all be there once and in order."""
    pieces = []
    for marker in markers:
        before, found, text = text.partition(marker)
        if not found or marker in text:
            raise TemplateRefusalError("it drops, repeats or moves messages")
        pieces.append(before)
    return [*pieces, text]


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _render(template: "Template", messages: Sequence[Message], bos: str, eos: str, *, ask: bool) -> str:
    return template.render(
        messages=messages,
        add_generation_prompt=ask,
        bos_token=bos,
        eos_token=eos,
        tools=None,
        enable_thinking=False,
    )


def _compile(source: str) -> "Template":
    from backends.llama.template_sandbox import TemplateSandbox

    environment = TemplateSandbox()
    environment.globals["raise_exception"] = _refuse
    environment.globals["range"] = _bounded_range()
    if "strftime_now is defined" not in source:
        # The system text knows no date (rule R3); the day of the epoch is in PROJECT. Templates that can do without a
        # date do so, the others get one that never changes.
        environment.globals["strftime_now"] = lambda _format: "26 Jul 2024"
    return environment.from_string(source)


def _bounded_range() -> Callable[..., range]:
    """`range`, with so many numbers in all that loops inside loops come to an end."""
    left = _MOST_NUMBERS

    def bounded(*bounds: int) -> range:
        nonlocal left
        numbers = range(*bounds)
        left -= len(numbers)
        if left < 0:
            raise TemplateRefusalError("its loops have no end")
        return numbers

    return bounded


def _refuse(message: str) -> Any:
    raise TemplateRefusalError(message)
