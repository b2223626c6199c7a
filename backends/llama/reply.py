"""Reads a reply of a local model while it is being written: what is text, which tool is called, when it is complete.

The grammar of `tool_grammar` has seen to it that the text is a reply; here it is only cut into events.
"""

import json
from dataclasses import dataclass
from typing import Final

from backends.base import Event, TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted
from backends.llama.tool_grammar import ANSWER
from context.block import Part, Text, ToolCall

_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class StringDecoder:
    """Decodes the inside of one JSON string, as it arrives: escapes and surrogate pairs may be cut anywhere."""

    def __init__(self) -> None:
        self._held = ""  # an escape that is not complete yet
        self.ended = False

    def feed(self, text: str) -> tuple[str, str]:
        """The decoded characters, and what follows the closing quote."""
        text, self._held = self._held + text, ""
        out: list[str] = []
        index = 0
        while index < len(text):
            char = text[index]
            if char == '"':
                self.ended = True
                return "".join(out), text[index + 1 :]
            if char != "\\":
                out.append(char)
                index += 1
                continue
            decoded, length = self._escape(text[index : index + 12])
            if not length:
                self._held = text[index:]
                break
            out.append(decoded)
            index += length
        return "".join(out), ""

    @staticmethod
    def _escape(text: str) -> tuple[str, int]:
        """One escape at the start of `text`: its character and its length, 0 when more text is needed."""
        if len(text) < 2:
            return "", 0
        if text[1] != "u":
            return _ESCAPES.get(text[1], text[1]), 2
        if len(text) < 6:
            return "", 0
        unit = int(text[2:6], 16)
        if not 0xD800 <= unit < 0xDC00:
            return ("\N{REPLACEMENT CHARACTER}" if 0xDC00 <= unit < 0xE000 else chr(unit)), 6
        pair = text[6:12]
        if not "\\u".startswith(pair[:2]):
            return "\N{REPLACEMENT CHARACTER}", 6
        if len(pair) < 6:
            return "", 0
        low = int(pair[2:], 16)
        if not 0xDC00 <= low < 0xE000:
            return "\N{REPLACEMENT CHARACTER}", 6
        return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), 12


@dataclass(slots=True)
class _Span:
    """Finds the end of one JSON value."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False

    def end(self, text: str) -> int | None:
        """Index behind the object that `text` goes on with, None when it does not end here."""
        for index, char in enumerate(text):
            if self.in_string:
                if self.escaped:
                    self.escaped = False
                elif char == "\\":
                    self.escaped = True
                elif char == '"':
                    self.in_string = False
            elif char == '"':
                self.in_string = True
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                if self.depth == 0:
                    return index + 1
        return None


class ReplyReader:
    """Feed it the reply's text in pieces of any size; it gives the events. `call_id` names the tool call, if any."""

    def __init__(self, call_id: str) -> None:
        self._call_id: Final = call_id
        self._waiting = ""  # text of which nothing has been told yet
        self._name: str | None = None
        self._in_arguments = False
        self._arguments: list[str] = []
        self._span: Final = _Span()
        self._answer: StringDecoder | None = None
        self._said: list[str] = []
        self._call: ToolCall | None = None
        self.complete = False

    def feed(self, text: str) -> list[Event]:
        """The events that `text` brings about. What comes behind a complete reply is ignored."""
        self._waiting += text
        events: list[Event] = []
        if self._name is None:
            self._read_name(events)
        if self._name is not None and not self._in_arguments:
            self._skip_to_arguments()
        if self._in_arguments:
            (self._read_answer if self._name == ANSWER else self._read_arguments)(events)
        return events

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the reply said so far: its text, or its tool call once that is complete. Half a call is none."""
        if self._call is not None:
            return (self._call,)
        said = "".join(self._said)
        return (Text(said),) if said else ()

    def _read_name(self, events: list[Event]) -> None:
        """Wait for `{"tool":"name"` and take it away."""
        try:
            opening = self._waiting.index('"', self._waiting.index(":", self._waiting.index('"tool"')))
            name, length = json.JSONDecoder().raw_decode(self._waiting[opening:])
        except ValueError:  # not all of it is there yet
            return
        self._name, self._waiting = str(name), self._waiting[opening + length :]
        if self._name != ANSWER:
            events.append(ToolCallStarted(self._call_id, self._name))

    def _skip_to_arguments(self) -> None:
        """Wait for `,"args":{` and leave the brace."""
        brace = self._waiting.find("{")
        if brace >= 0:
            self._waiting, self._in_arguments = self._waiting[brace:], True

    def _read_arguments(self, events: list[Event]) -> None:
        if self.complete or not self._waiting:
            return
        if self._call is None:
            end = self._span.end(self._waiting)
            fragment, self._waiting = self._waiting[:end], "" if end is None else self._waiting[end:]
            self._arguments.append(fragment)
            events.append(ToolCallDelta(self._call_id, fragment))
            if end is None:
                return
            self._call = ToolCall(self._call_id, str(self._name), "".join(self._arguments))
            events.append(ToolCallFinished(self._call))
        self.complete = "}" in self._waiting

    def _read_answer(self, events: list[Event]) -> None:
        if self._answer is None:
            opening = self._waiting.find('"', self._waiting.find(":") + 1) if ":" in self._waiting else -1
            if opening < 0:
                return
            self._answer, self._waiting = StringDecoder(), self._waiting[opening + 1 :]
        if not self._answer.ended and self._waiting:
            said, self._waiting = self._answer.feed(self._waiting)
            if said:
                self._said.append(said)
                events.append(TextDelta(said))
        if self._answer.ended:
            self.complete = self._waiting.count("}") >= 2  # of the arguments and of the reply
