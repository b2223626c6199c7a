"""Arguments of tool calls: parsed and checked against the spec's own schema, in one place for all tools.

Slips that models are known for, and that can only mean one thing, are put right (a number written as a string, an
optional argument given as null, the object encoded twice, XML-like parameters instead of JSON). Anything else is
refused with the name of the field and a short form of the schema, so that the next try can succeed.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from agent.tools.base import ToolError
from context.block import ToolSpec

_XML_PARAMETER: Final = re.compile(r"<parameter(?:=|\s+name=)\"?(\w+)\"?>\n?(.*?)\n?</parameter>", re.DOTALL)
_XML_FRAME: Final = re.compile(r"\s*(?:</?(?:tool_call|function|invoke)\b[^>]*>\s*)*")


def parse_arguments(spec: ToolSpec, text: str) -> Mapping[str, Any]:
    """The arguments that `text` (JSON, as the model wrote it) means under the schema of `spec`.

    Raises ToolError.
    """
    value = _decode(spec, text)
    if not isinstance(value, dict):
        raise _refusal(spec, f"arguments must be an object, not {_kind(value)}")
    properties = spec.schema["properties"]
    unknown = [name for name in value if name not in properties and value[name] is not None]
    if unknown:
        raise _refusal(spec, f"unknown argument `{unknown[0]}`")
    required = spec.schema.get("required", [])
    arguments = {
        name: _coerce(argument, properties[name])
        for name, argument in value.items()
        if name in properties and (argument is not None or name in required)
    }
    _validate(spec, arguments)
    return arguments


def short_schema(spec: ToolSpec) -> str:
    """The schema in one line: `{path: string, offset?: integer}`."""
    schema = spec.schema
    required = schema.get("required", [])
    fields = (
        f"{name}{'' if name in required else '?'}: {field.get('type', 'any')}"
        for name, field in schema["properties"].items()
    )
    return "{" + ", ".join(fields) + "}"


def _decode(spec: ToolSpec, text: str) -> object:
    if not text.strip():
        return {}
    try:
        value = _load(text)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = _load(value)
    except (ValueError, RecursionError) as error:
        if (parameters := _xml_parameters(text)) is not None:
            return parameters
        raise _refusal(spec, f"arguments are not valid JSON ({error})") from None
    return value


def _load(text: str) -> object:
    # Not strict: a raw newline or tab inside a string is a common slip and can only mean itself.
    return json.loads(text, strict=False, parse_constant=_no_constant)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _xml_parameters(text: str) -> dict[str, str] | None:
    """Parameters that a model wrote in the XML-like form of another agent's prompt; None if `text` is anything else."""
    if _XML_FRAME.fullmatch(_XML_PARAMETER.sub("", text)) is None:
        return None
    found = _XML_PARAMETER.findall(text)
    parameters = dict(found)
    return parameters if found and len(parameters) == len(found) else None


def _coerce(value: object, schema: Mapping[str, Any]) -> object:
    match schema.get("type"):
        case "integer" if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,15}\s*", value):
            return int(value)
        case "integer" if isinstance(value, float) and value.is_integer():
            return int(value)
        case "number" if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,15}(\.[0-9]+)?\s*", value):
            return float(value)
        case "boolean" if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
    return value


def _validate(spec: ToolSpec, arguments: dict[str, Any]) -> None:
    import fastjsonschema

    try:
        _validator(spec.parameters)(arguments)
    except fastjsonschema.JsonSchemaValueException as error:
        if error.rule == "required":
            absent = ", ".join(f"`{name}`" for name in error.rule_definition if name not in arguments)
            raise _refusal(spec, f"{absent} is missing") from None
        field = ".".join(error.path[1:])
        raise _refusal(spec, f"`{field}` {_expected(error)}, not {_kind(error.value)}") from None


@cache
def _validator(schema: str) -> Callable[[object], object]:
    import fastjsonschema

    validator: Callable[[object], object] = fastjsonschema.compile(json.loads(schema))
    return validator


def _expected(error: Any) -> str:
    match error.rule:
        case "type":
            return f"must be of type {error.rule_definition}"
        case "minimum":
            return f"must be at least {error.rule_definition}"
        case "maximum":
            return f"must be at most {error.rule_definition}"
        case "enum":
            return f"must be one of {json.dumps(error.rule_definition)}"
        case rule:
            return f"breaks the rule `{rule}`"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "a list"
        case dict():
            return "an object"
        case str() if len(value) > 40:
            return "a string"
        case _:
            return json.dumps(value)


def _refusal(spec: ToolSpec, problem: str) -> ToolError:
    return ToolError(f"{spec.name}: {problem}. Expected {short_schema(spec)}.")
