"""Looking at real inference: SmolLM2 135M under the lens, back to a token, and from the command line."""

import json
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import RunAgent
from llama_support import TOOLS, brief, collect, local_backend

from backends.base import BackendError, ReplyFinished, Request
from backends.llama.decoder import ContextOptions, NativeDecoder
from backends.llama.engine import Engine
from backends.llama.lens import Seen
from backends.llama.lens_run import LensRun, View
from backends.llama.sampling import Sampling
from backends.llama.tool_grammar import REPLY_START, prompt_grammar
from backends.llama.tuning import Tuning
from backends.llama.weights import Weights
from context.block import Opaque

pytest_plugins = ["local_models"]

QUESTION = "<|im_start|>user\nName a fruit.<|im_end|>\n<|im_start|>assistant\n"


class Model:
    """SmolLM2 with an engine of its own."""

    def __init__(self, path: Path) -> None:
        self.weights = Weights.load(path)
        self.decoder = NativeDecoder(self.weights, ContextOptions(1024, Tuning(2, 2)))
        self.engine = Engine(self.decoder)

    def run(self, text: str = QUESTION, sampling: Sampling = Sampling(), limit: int = 16) -> LensRun:  # noqa: B008
        self.prompt = self.weights.tokenize(text, special=True)
        view = View(self.prompt, array("i"), sampling, None, limit)
        return LensRun(self.engine, self.weights, self.decoder.logits, view)

    def close(self) -> None:
        self.decoder.close()
        self.weights.close()


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    model = Model(smollm2_path)
    yield model
    model.close()


def tokens(seen: Seen) -> list[int]:
    return [look.drawn.token for look in seen.looks]


def test_a_greedy_reply_is_the_likeliest_token_each_time(model: Model) -> None:
    seen = model.run().draw()
    assert {look.drawn.rank for look in seen.looks} == {1}
    assert all(not look.cuts and look.after_temperature is None for look in seen.looks)
    assert seen.prompt == len(model.prompt)


def test_what_is_seen_is_what_was_drawn(model: Model) -> None:
    seen = model.run(sampling=Sampling(0.9, seed=4)).draw()
    assert len(seen.looks) == 16
    for look in seen.looks:
        assert look.after_temperature
        assert look.drawn.probability <= look.best[0].probability
        assert [cut.name for cut in look.cuts] == ["top-k", "top-p", "min-p"]


def test_a_branch_goes_on_as_a_cold_run_of_the_same_tokens_does(model: Model) -> None:
    run = model.run()
    seen = run.draw()
    branch = run.branch(seen, 3)
    assert branch.rank == 2
    assert branch.seen.reused == len(model.prompt) + 2, "all but the token whose logits are looked at"
    assert tokens(branch.seen)[:3] == tokens(seen)[:3]
    other = branch.seen.looks[3].drawn
    assert other.token == seen.looks[3].best[1].token
    assert other.rank == 2

    model.engine.forget()
    forced = [*tokens(seen)[:3], other.token]
    cold: list[int] = []

    def follow(row: int) -> int:
        return forced[len(cold)] if len(cold) < len(forced) else int(model.decoder.logits(row).argmax())

    model.engine.prefill(model.prompt)
    for token in model.engine.generate(follow, len(branch.seen.looks)):
        cold.append(token)
    assert tokens(branch.seen) == cold


def test_the_rank_of_the_alternative_can_be_chosen(model: Model) -> None:
    run = model.run(limit=6)
    seen = run.draw()
    branch = run.branch(seen, 0, 4)
    assert (branch.rank, branch.seen.looks[0].drawn.token) == (4, seen.looks[0].best[3].token)
    assert len(branch.seen.looks) == 6
    with pytest.raises(BackendError, match="the one that was drawn"):
        run.branch(seen, 0, 1)
    with pytest.raises(BackendError, match="none is number 7"):
        run.branch(seen, 6)


def test_a_reply_whose_end_is_taken_instead_is_over(model: Model) -> None:
    run = model.run(limit=8)
    seen = run.draw()
    (end,) = model.weights.tokenize("<|im_end|>", special=True)
    model.engine.prefill(model.prompt)
    likelier = np.flatnonzero(model.decoder.logits(-1) > model.decoder.logits(-1)[end]).tolist()
    rank = 1 + sum(not model.weights.is_control(token) or model.weights.ends_reply(token) for token in likelier)
    branch = run.branch(seen, 0, rank)
    assert tokens(branch.seen) == [end]
    assert branch.seen.ended


def test_under_a_grammar_the_alternative_fits_and_the_reply_ends_with_its_call(model: Model) -> None:
    grammar = prompt_grammar(brief())
    prompt = model.weights.tokenize(QUESTION, special=True) + model.weights.tokenize(REPLY_START)
    view = View(prompt, model.weights.tokenize(REPLY_START), Sampling(), grammar, 80)
    run = LensRun(model.engine, model.weights, model.decoder.logits, view)
    seen = run.draw()
    branch = run.branch(seen, 0)
    for each in (seen, branch.seen):
        call = json.loads(REPLY_START + b"".join(look.drawn.piece for look in each.looks).decode())
        assert call["tool"] in {tool.name for tool in TOOLS} | {"answer"}
        assert each.ended
    assert tokens(branch.seen)[0] != tokens(seen)[0]


async def test_each_reply_of_a_run_can_be_looked_at(smollm2_path: Path, tmp_path: Path) -> None:
    found: list[Seen] = []
    plain = local_backend(smollm2_path, tmp_path)
    looking = local_backend(smollm2_path, tmp_path, lens=found.append)
    drawn = []
    for backend in (plain, looking):
        events = await collect(backend.stream(Request(brief(), max_output=40)))
        await backend.aclose()
        finished = events[-1]
        assert isinstance(finished, ReplyFinished)
        opaque = finished.parts[-1]
        assert isinstance(opaque, Opaque)
        drawn.append(array("i", opaque.data).tolist())
    (seen,) = found
    assert tokens(seen) == drawn[0] == drawn[1], "the reply is the same without the lens"


async def test_a_reply_that_was_taken_back_is_seen_as_it_stands(smollm2_path: Path, tmp_path: Path) -> None:
    found: list[Seen] = []
    asked: list[str] = []

    def veto(call: object) -> int | None:
        asked.append(str(call))
        return 0 if len(asked) == 1 else None

    backend = local_backend(smollm2_path, tmp_path, lens=found.append)
    prompt = brief("Read the file with the notes")
    events = await collect(backend.stream(Request(prompt, max_output=64, veto=veto)))
    await backend.aclose()
    assert len(asked) == 2
    finished = events[-1]
    assert isinstance(finished, ReplyFinished)
    opaque = finished.parts[-1]
    assert isinstance(opaque, Opaque)
    assert tokens(found[0]) == array("i", opaque.data).tolist()


@pytest.mark.usefixtures("measured")
def test_the_command_shows_both_ways_and_writes_a_page(run_agent: RunAgent, smollm2_path: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    model = ("--model", f"local:{smollm2_path}", "--tokens", "6")
    done = run_agent("lens", "Name a fruit.", *model, "--branch", "2:3", "--json", "--html", str(page))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["tokens"]) == 6
    assert told["tokens"][0]["best"][0]["token"] == told["tokens"][0]["token"]
    assert (told["branch"]["at"], told["branch"]["rank"], len(told["branch"]["tokens"])) == (2, 3, 5)
    assert told["branch"]["prefill"]["reused"] == told["prefill"]["tokens"]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.usefixtures("measured")
def test_a_prompt_is_utf_8_in_every_locale(run_agent: RunAgent, smollm2_path: Path) -> None:
    model = ("--model", f"local:{smollm2_path}", "--tokens", "1", "--json")
    known = json.loads(run_agent("lens", "火锅", *model).stdout)["prefill"]["tokens"]
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run_agent("lens", "火锅", *model, env=plain)
    assert (done.returncode, json.loads(done.stdout)["prefill"]["tokens"]) == (0, known), done.stderr
    assert run_agent("lens", "a\udcff", *model).returncode == 0


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("exact", [True, False])
def test_a_call_of_a_session_is_looked_at_as_it_was(run_agent: RunAgent, smollm2_path: Path, exact: bool) -> None:
    """By default a near tie between two tokens may be drawn the other way, and all but the last one comes from disk."""
    env = {"KEEPWARM_EXACT": str(exact)}
    model = f"local:{smollm2_path}"
    ran = run_agent("run", "--lens", "--max-turns", "1", "--mode", "auto", "--model", model, "Read price.py", env=env)
    pages = [line.split(": ", 1)[1] for line in ran.stderr.splitlines() if line.startswith("Lens of this reply")]
    assert len(pages) == 1, ran.stderr
    page = Path(pages[0]).read_text(encoding="utf-8")
    session = json.loads(run_agent("sessions", "--json").stdout)[0]["session"]
    done = run_agent("lens", "--session", session, "--at", "1", "--tokens", "400", "--json", env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    cost = json.loads(run_agent("cost", session, "--json").stdout)
    assert told["ended"]
    if exact:
        assert len(told["tokens"]) == cost["calls"][0]["output"], "the reply is the one of the run"
        assert told["prefill"]["reused"] >= 512, "from disk, as far as whole batches go"
    else:
        assert told["prefill"]["reused"] >= told["prefill"]["tokens"] - 1, "from disk"
    assert f"{cost['calls'][0]['output']}</td>" in page
    assert run_agent("lens", "--session", session, "--at", "9").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lens", "x", "--model", "anthropic/claude-sonnet-5-5"), "runs elsewhere"),
        (("run", "x", "--lens", "--model", "anthropic/claude-sonnet-5-5"), "runs elsewhere"),
        (("lens",), "Say what to look at"),
        (("lens", "x", "--at", "1"), "Say what to look at"),
        (("lens", "x", "--branch", "0"), "--branch"),
        (("lens", "x", "--branch", "3:x"), "--branch"),
        (("lens", "x", "--temperature", "-1"), "temperature"),
        (("lens", "x", "--top-k", "4294967297"), "a whole number up to 2147483647"),
        (("lens", "x", "--html", "/"), "/ cannot be written"),
    ],
)
def test_what_cannot_be_looked_at_is_one_line(run_agent: RunAgent, arguments: tuple[str, ...], message: str) -> None:
    done = run_agent(*arguments, env={"ANTHROPIC_API_KEY": "k"})
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
