"""What the models are told about the tools: fixed, small, and true."""

import fastjsonschema
import pytest
from tool_support import tool

from agent.tools import registry, specs
from context.layers.system import system_blocks
from context.tokens import count_parts


def test_the_order_is_fixed():
    assert [tool.spec.name for tool in registry()] == ["read", "edit", "write", "shell", "search", "find"]


@pytest.mark.parametrize(("profile", "tools_budget", "system_budget"), [("cloud", 850, 1_500), ("compact", 330, 900)])
def test_tools_and_instructions_fit_their_budget(profile, tools_budget, system_budget):
    offered = specs(profile)
    assert count_parts(offered) <= tools_budget
    assert sum(block.tokens for block in system_blocks(profile, offered)) <= system_budget


def test_an_unknown_profile_is_an_error():
    with pytest.raises(KeyError):
        specs("medium")


@pytest.mark.parametrize("spec", [*specs("cloud"), *specs("compact")], ids=lambda spec: spec.name)
def test_each_schema_is_valid_closed_and_in_one_line(spec):
    fastjsonschema.compile(spec.schema)
    assert spec.schema["additionalProperties"] is False
    assert set(spec.schema["required"]) <= set(spec.schema["properties"])
    assert "\n" not in spec.parameters


@pytest.mark.parametrize("spec", specs("compact"), ids=lambda spec: spec.name)
def test_what_the_compact_profile_allows_the_tool_accepts(spec):
    full = tool(spec.name).spec.schema
    assert spec.schema["required"] == full["required"]
    assert spec.schema["properties"].items() <= full["properties"].items()
