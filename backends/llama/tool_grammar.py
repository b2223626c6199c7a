"""The reply format of local models, and the grammar that holds them to it.

A reply is one JSON object, `{"tool":"<name>","args":{…}}`. Small models keep to one shape better than to two (measured
2026-12-01, reference: local backend, section 4), so text for the user has the same shape: the pseudo tool `answer`
ends the turn. The grammar is GBNF (llama.cpp, `grammars/README.md`). Arguments come in the order of the schema; what is
required must come, what is optional may. One space may follow a colon or a comma, no more, so that white space ends.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from context.block import Layer, ToolCall, ToolSpec
from context.prompt import Prompt

ANSWER: Final = "answer"
ANSWER_TEXT: Final = "text"
REPLY_START: Final = '{"tool":"'
"""How every reply begins: given to the model instead of drawn from it."""

_BASE: Final = r"""
sp ::= " "?
char ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" unit)
unit ::= [0-9a-cA-Ce-fE-F] hex hex hex | [dD] [0-7] hex hex
hex ::= [0-9a-fA-F]
string ::= "\"" char* "\""
positive ::= [1-9] [0-9]{0,15}
natural ::= "0" | positive
integer ::= "-"? natural
number ::= integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?
boolean ::= "true" | "false"
null ::= "null"
value ::= object | array | string | number | boolean | null
object ::= "{" (string ":" sp value ("," sp string ":" sp value)*)? "}"
array ::= "[" (value ("," sp value)*)? "]"
"""
# `unit` leaves out the surrogates: a pair could be cut in half, and the character itself may be written instead.

_PLAIN: Final = {"string", "integer", "number", "boolean", "null", "object", "array"}


def reply_grammar(tools: Iterable[ToolSpec]) -> str:
    """GBNF for a reply that calls one of `tools`, or answers.

    Understood of a schema: `type`, `properties`, `required`, `items`, `minItems`, `maxItems`, `enum`, `const`, `anyOf`,
    `oneOf`; of an integer's `minimum`, whether 0 and negative ones are allowed. What else it says is left to the tool's
    own check of its arguments.
    """
    grammar = _Grammar()
    calls = [grammar.call(tool.name, tool.schema) for tool in tools if tool.name != ANSWER]
    answer = {"type": "object", "properties": {ANSWER_TEXT: {"type": "string"}}, "required": [ANSWER_TEXT]}
    calls.append(grammar.call(ANSWER, answer))
    # Some vocabularies put a space in front of the first word.
    root = f'root ::= sp "{{" "\\"tool\\"" ":" sp "\\"" ({" | ".join(calls)}) "}}"'
    return "\n".join([root, *grammar.rules, _BASE.strip()]) + "\n"


def prompt_grammar(prompt: Prompt) -> str:
    """The grammar of the reply to `prompt`, which names the tools."""
    blocks = prompt.head(Layer.SYSTEM)
    return _of_tools(tuple(part for block in blocks for part in block.parts if isinstance(part, ToolSpec)))


@lru_cache(maxsize=4)
def _of_tools(tools: tuple[ToolSpec, ...]) -> str:
    return reply_grammar(tools)


def reply_text(call: ToolCall) -> str:
    """The reply that makes `call`, as the model would have written it."""
    return f'{REPLY_START}{json.dumps(call.name, ensure_ascii=False)[1:-1]}","args":{call.arguments or "{}"}}}'


def answer_text(text: str) -> str:
    """The reply that answers with `text`."""
    return reply_text(ToolCall("", ANSWER, compact_json({ANSWER_TEXT: text})))


def compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tool_list(tools: Iterable[ToolSpec]) -> str:
    """How the system message tells a local model of its tools: one line each, arguments in the shape of the reply."""
    lines = [
        f"{tool.name} {_signature(tool.schema)} {' '.join(tool.description.split())}"
        for tool in tools
        if tool.name != ANSWER
    ]
    lines.append(f'{ANSWER} {{"{ANSWER_TEXT}":string}} End the turn with text for the user.')
    return 'Each reply is one JSON object: {"tool":"<name>","args":{…}}\nTools:\n' + "\n".join(lines)


def _signature(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    fields = []
    for name, field in schema.get("properties", {}).items():
        note = " ".join(str(field.get("description", "")).split())
        optional = "" if name in required else "?"
        fields.append(f'"{name}"{optional}:{_type_name(field)}' + (f" ({note})" if note else ""))
    return "{" + ",".join(fields) + "}"


def _type_name(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(compact_json(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"[{_type_name(schema.get('items', {}))}]"
    if schema.get("type") == "object" and schema.get("properties"):
        return _signature(schema)
    kind = schema.get("type", "any")
    return "|".join(kind) if isinstance(kind, list) else str(kind)


class _Grammar:
    """Rules by number, in the order in which they are made."""

    def __init__(self) -> None:
        self.rules: list[str] = []

    def call(self, name: str, schema: Mapping[str, Any]) -> str:
        """From behind the opening quote of the tool's name to the end of its arguments."""
        quoted = json.dumps(name, ensure_ascii=False)[1:]
        return self._rule(f'{_literal(quoted)} "," sp "\\"args\\"" ":" sp {self._object(schema)}')

    def _rule(self, body: str) -> str:
        name = f"r{len(self.rules)}"
        self.rules.append(f"{name} ::= {body}")
        return name

    def _value(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            return "value"
        if "const" in schema:
            return _literal(compact_json(schema["const"]))
        if "enum" in schema:
            return self._choice([_literal(compact_json(value)) for value in schema["enum"]])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._choice([self._value(option) for option in schema[key]])
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._choice([self._value({**schema, "type": one}) for one in kind])
        if kind == "object" and schema.get("properties"):
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "integer" and schema.get("minimum", -1) >= 0:
            return "positive" if schema["minimum"] >= 1 else "natural"
        return kind if kind in _PLAIN else "value"

    def _choice(self, options: Sequence[str]) -> str:
        return self._rule(" | ".join(options)) if options else "value"

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self._value(schema.get("items"))
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        if most == 0:
            return '"[]"'
        more = f"{{{max(0, least - 1)},{'' if most is None else int(most) - 1}}}"
        items = f'{item} ("," sp {item}){more}'
        return self._rule(f'"[" {items} "]"' if least else f'"[" ({items})? "]"')

    def _object(self, schema: Mapping[str, Any]) -> str:
        """An object with its properties in order. From the last to the first: `first` matches the remaining ones where
        none has come yet, `rest` where one has, so that a comma is due.
        """
        required = set(schema.get("required", ()))
        first = rest = '""'
        for name, field in reversed(schema.get("properties", {}).items()):
            pair = f'{_literal(compact_json(name))} ":" sp {self._value(field)}'
            if name in required:
                first, rest = self._rule(f"{pair} {rest}"), self._rule(f'"," sp {pair} {rest}')
            else:
                first, rest = self._rule(f"{pair} {rest} | {first}"), self._rule(f'("," sp {pair})? {rest}')
        return self._rule(f'"{{" {first} "}}"')


def _literal(text: str) -> str:
    """A GBNF literal for `text`."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'
