"""Arguments are checked against the tool's schema; slips that can mean only one thing are put right."""

import pytest
from tool_support import tool

from agent.tools.arguments import parse_arguments, short_schema
from agent.tools.base import ToolError

READ, EDIT, SHELL = tool("read").spec, tool("edit").spec, tool("shell").spec


@pytest.mark.parametrize(
    ("spec", "text", "expected"),
    [
        (READ, '{"path":"a.py"}', {"path": "a.py"}),
        (READ, '{"path":"a.py","offset":"12","limit":3.0}', {"path": "a.py", "offset": 12, "limit": 3}),
        (READ, '{"path":"a.py","numbers":"True"}', {"path": "a.py", "numbers": True}),
        (READ, '{"path":"a.py","offset":null,"reason":null}', {"path": "a.py"}),
        (READ, r'"{\"path\":\"a.py\"}"', {"path": "a.py"}),
        (EDIT, '{"path":"a","old":"x\ny","new":"z\tt"}', {"path": "a", "old": "x\ny", "new": "z\tt"}),
        (EDIT, '{"path":"a","old":"1","new":"null"}', {"path": "a", "old": "1", "new": "null"}),
    ],
    ids=["plain", "numbers", "boolean", "null", "encoded twice", "raw control characters", "strings stay strings"],
)
def test_accepted(spec, text, expected):
    assert parse_arguments(spec, text) == expected


@pytest.mark.parametrize(
    ("spec", "text", "named"),
    [
        (READ, "", "`path` is missing"),
        (READ, "{}", "`path` is missing"),
        (EDIT, '{"path":"a"}', "`old`, `new` is missing"),
        (READ, '{"path":"a","offset":"twelve"}', '`offset` must be of type integer, not "twelve"'),
        (READ, '{"path":"a","offset":true}', "`offset` must be of type integer, not true"),
        (READ, '{"path":"a","offset":1.5}', "`offset` must be of type integer, not 1.5"),
        (READ, '{"path":"a","offset":0}', "`offset` must be at least 1, not 0"),
        (SHELL, '{"command":"x","timeout":100000}', "`timeout` must be at most 3600"),
        (READ, '{"path":null}', "`path` must be of type string, not null"),
        (READ, '{"path":["a"]}', "`path` must be of type string, not a list"),
        (READ, '{"path":"a","lines":5}', "unknown argument `lines`"),
        (READ, '["a.py"]', "must be an object, not a list"),
        (READ, '"a.py"', "must be an object"),
        (READ, '{"path":"a.py"', "not valid JSON"),
        (READ, '{"path":"a","offset":NaN}', "not valid JSON"),
        (READ, "[" * 100_000, "not valid JSON"),
    ],
)
def test_refused_with_the_field_and_the_schema(spec, text, named):
    with pytest.raises(ToolError) as refusal:
        parse_arguments(spec, text)
    assert named in str(refusal.value)
    assert short_schema(spec) in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_the_short_schema_tells_what_is_optional():
    assert short_schema(READ) == "{path: string, offset?: integer, limit?: integer, numbers?: boolean}"


@pytest.mark.parametrize(
    "text",
    [
        "<parameter=path>a.py</parameter>",
        "<function=read>\n<parameter=path>\na.py\n</parameter>\n</function>",
        "<tool_call><function=read><parameter=path>a.py</parameter><parameter=offset>3</parameter></function></tool_call>",
        '<invoke name="read"><parameter name="path">a.py</parameter></invoke>',
    ],
)
def test_118_xml_like_parameters_are_understood(text):
    """Field report 118: a model writes `<parameter=…>` text where JSON is expected."""
    assert parse_arguments(READ, text)["path"] == "a.py"


@pytest.mark.parametrize(
    "text", ["<parameter=path>a</parameter><parameter=path>b</parameter>", "I call <parameter=path>a</parameter> now"]
)
def test_118_what_is_not_clear_is_refused_with_the_schema(text):
    """Field report 118: and what cannot be parsed tells the model what to write instead."""
    with pytest.raises(ToolError, match="path: string"):
        parse_arguments(READ, text)
