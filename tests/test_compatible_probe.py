"""`agent doctor --endpoint`: what the requests show, what they cost, and what is said when they cannot be made."""

import socket
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from compatible_support import FLAVOURS, backend_at, backend_for, endpoint
from emulator import Emulator, Failure, Reply, Think, raw_prefix

from agent.backend_choice import pricing
from agent.clock import SystemClock
from agent.reports.probe import Findings, Sample, probe
from backends.base import BackendError, CacheOption, Usage
from backends.catalog import Catalog
from backends.compatible import CompatibleBackend

RunAgent = Callable[..., "CompletedProcess[str]"]


async def tried(backend: CompatibleBackend) -> Findings:
    info = Catalog.load().find(backend.name)
    try:
        return await probe(backend, pricing(info), SystemClock(), "one")
    finally:
        await backend.aclose()


@pytest.mark.parametrize("flavour", ["deepseek", "openrouter", "vllm", "llama-server", "ollama"])
async def test_two_requests_show_a_cache_that_is_reported(emulator: Emulator, flavour: str) -> None:
    emulator.play(lambda _: Reply.of("one"))
    found = await tried(backend_for(emulator, flavour))
    assert (found.caches, found.reports, found.measure) == (True, True, None)
    first, second = (raw_prefix(request.raw) for request in emulator.requests)
    assert second.startswith(first), "as in a session: the same prefix, and more"
    assert all(body.get("max_tokens") == 16 for body in emulator.bodies)


async def test_a_reply_of_reasoning_alone_does_not_stop_the_probe(emulator: Emulator) -> None:
    """Sixteen tokens are soon thought."""
    emulator.play(lambda _: Reply.of(Think("Let me think about the word one."), stop="length"))
    assert (await tried(backend_for(emulator, "deepseek"))).caches


async def test_what_it_costs_is_what_the_provider_bills(emulator: Emulator) -> None:
    emulator.play(lambda _: Reply.of("one"))
    url = f"{emulator.url}/flavours/openrouter/v1"
    found = await tried(backend_at(url, "openrouter", "anthropic/claude-sonnet-5"))
    billed = [bill.usd for bill in emulator.bills if bill is not None]
    assert [sample.usd for sample in found.samples] == billed
    assert found.usd == sum(usd for usd in billed if usd is not None)


@pytest.mark.parametrize("flavour", ["lmstudio", "vllm-no-details"])
async def test_a_third_request_with_another_beginning_measures_what_is_not_reported(
    emulator: Emulator, flavour: str
) -> None:
    emulator.play(lambda _: Reply.of("one"))
    found = await tried(backend_for(emulator, flavour))
    assert (found.reports, len(emulator.requests)) == (False, 3)
    first, second, third = ([message["role"] for message in body["messages"]] for body in emulator.bodies)
    assert second == third == [*first, "assistant", "user"]
    (one, *rest), (other, *same) = (body["messages"] for body in emulator.bodies[1:])
    assert rest == same
    assert one["content"].split("\n")[1] == other["content"].split("\n")[1]
    assert one != other


def sample(ttft: float, read: int | None = None) -> Sample:
    return Sample(Usage(100, read, 0, 0, 5), ttft, Decimal(0))


@pytest.mark.parametrize(
    ("second", "measure", "caches"),
    [
        (sample(1.0, 1_400), None, True),
        (sample(0.1, 0), None, False),  # its own word counts, however fast it was
        (sample(0.3), sample(2.0), True),
        (sample(1.5), sample(2.0), None),  # a busy network does that
        (sample(0.01), sample(0.1), None),  # and so little is nothing
    ],
)
def test_times_count_only_when_they_differ_clearly(second: Sample, measure: Sample | None, caches: bool | None) -> None:
    found = Findings(sample(9.0, second.usage.cache_read), second, measure, frozenset())
    assert found.caches is caches
    told = {check.name: check.state for check in found.checks(endpoint("vllm"))}
    assert told["caches"] == ("ok" if caches else "note")


def test_a_server_that_can_report_is_told_how() -> None:
    found = Findings(sample(2.0), sample(2.0), sample(2.0), frozenset())
    (reports,) = [check for check in found.checks(endpoint("vllm")) if check.name == "reports"]
    assert (reports.state, "--enable-prompt-tokens-details" in reports.detail) == ("note", True)


def test_an_unknown_price_is_no_price() -> None:
    found = Findings(sample(1.0, 0), Sample(Usage(1, 2, 0, 0, 5), 1.0, None), None, frozenset())
    assert found.usd is None
    (cost,) = [check for check in found.checks(None) if check.name == "cost"]
    assert "unknown price" in cost.detail


async def test_a_cache_option_that_is_refused_is_left_out_and_told(emulator: Emulator) -> None:
    refusal = Failure(
        400, ("invalid_request_error", "messages[0].content[0].cache_control: Extra inputs not permitted")
    )
    emulator.play([refusal, Reply.of("one"), Reply.of("two"), Reply.of("two")])
    found = await tried(backend_for(emulator, "openrouter"))
    assert found.refused == {CacheOption.MARKERS}
    assert any("markers" in check.detail for check in found.checks(None) if check.name == "refuses")


async def test_any_other_error_ends_the_probe(emulator: Emulator) -> None:
    emulator.play([Failure(500, ("", "down"))])
    with pytest.raises(BackendError, match="down"):
        await tried(backend_for(emulator, "vllm"))


# --- the command ---


def configured(home: Path, emulator: Emulator, *flavours: str) -> Mapping[str, str]:
    tables = [f'[endpoints.{FLAVOURS[each][0]}]\nbase_url = "{emulator.url}/flavours/{each}/v1"\n' for each in flavours]
    (home / "config.toml").write_text("\n".join(tables))
    return {"DEEPSEEK_API_KEY": "k", "OPENROUTER_API_KEY": "k"}


def test_the_command_says_whether_it_answers_caches_and_reports(
    emulator: Emulator, home: Path, run_agent: RunAgent
) -> None:
    env = configured(home, emulator, "vllm")
    emulator.play(lambda _: Reply.of("one"))
    done = run_agent("doctor", "--endpoint", "vllm", env=env)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert "vllm/local-model" in done.stdout, "the one model that it serves"
    for name in ("answers", "caches", "reports", "cost"):
        assert any(line[:2] == ["ok", name] for line in lines), done.stdout


def test_the_command_takes_anthropics_own_api_too(anthropic_server: Emulator, home: Path, run_agent: RunAgent) -> None:
    anthropic_server.play(lambda _: Reply.of("one"))
    done = run_agent("doctor", "--endpoint", "anthropic", env=anthropic_server.env)
    assert done.returncode == 0, done.stderr
    assert "input tokens of the second request came from its cache" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--endpoint", "olama"], 2, "There is no endpoint 'olama'"),
        (["--endpoint", "openrouter"], 2, "--endpoint openrouter --model MODEL"),
        (["--endpoint", "groq", "--model", "openai/gpt-oss-120b"], 1, "set GROQ_API_KEY"),
        (["--endpoint", "ollama"], 1, "ollama serve"),
        (["--model", "x"], 2, "--endpoint NAME"),
    ],
)
def test_what_cannot_be_tried_is_one_line_and_an_exit_code(
    home: Path, run_agent: RunAgent, arguments: list[str], code: int, words: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        (home / "config.toml").write_text(f'[endpoints.ollama]\nbase_url = "http://127.0.0.1:{port}/v1"\n')
        done = run_agent("doctor", *arguments, env={"OPENROUTER_API_KEY": "k"})
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_several_models_are_named_to_choose_from(emulator: Emulator, home: Path, run_agent: RunAgent) -> None:
    url = f"{emulator.url}/flavours/deepseek/v1"  # serves two
    (home / "config.toml").write_text(f'[endpoints.mine]\nbase_url = "{url}"\nprices = "free"\n')
    done = run_agent("doctor", "--endpoint", "mine")
    assert done.returncode == 2
    assert "deepseek-flash, deepseek-v4-pro" in done.stderr


def test_without_an_endpoint_it_lists_them_and_sends_nothing(
    emulator: Emulator, home: Path, run_agent: RunAgent
) -> None:
    env = {**configured(home, emulator, "deepseek", "vllm"), "OPENAI_API_KEY": "sk-1", "MISTRAL_API_KEY": "m"}
    done = run_agent("doctor", env={**env, "DEEPSEEK_API_KEY": ""})
    told = {line.split()[1]: line for line in done.stdout.splitlines() if len(line.split()) > 1}
    assert told["OpenAI"].startswith("ok")
    assert "MISTRAL_API_KEY" in told["mistral"]
    assert told["deepseek"].startswith("note")
    assert "set DEEPSEEK_API_KEY" in told["deepseek"]
    assert "127.0.0.1" in told["vllm"]
    assert "groq" in told["endpoints"]
    assert "sk-1" not in done.stdout
    assert emulator.requests == []


def test_a_usual_model_without_its_key_is_a_finding(home: Path, run_agent: RunAgent) -> None:
    (home / "config.toml").write_text('model = "groq/openai/gpt-oss-120b"\n')
    done = run_agent("doctor")
    assert done.returncode == 1
    assert "set GROQ_API_KEY" in done.stdout
    assert run_agent("doctor", env={"GROQ_API_KEY": "k"}).returncode == 0
