"""A small model that goes round in circles, with real inference on SmolLM2 135M."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from budget_support import no_budgets
from llama_support import Turn, collect, local_backend, plain, take_turn
from test_loop import Run

from agent import events
from agent.bill import Bill
from agent.call import Caller
from agent.counting import Counter
from agent.forecaster import Forecaster
from agent.keeper import Keeper, KeepLimits
from agent.ledger import Ledger
from agent.parts import Parts
from backends.base import Request, StopReason
from context.block import Text
from context.layers.command import command_block, notice_block
from context.layers.history import CIRCLED, reply_block

pytest_plugins = ["local_models"]

SENTENCE = "I will check the file again. "
PARAGRAPH = (
    "The function reads each line of the file, splits it at the comma and adds the second part to the sum. "
    "When the line is empty it goes on with the next one, and at the end it returns the sum. "
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        yield Run(tmp_path, ledger)


@pytest.mark.parametrize(("period", "most"), [(SENTENCE, 400 + 3 * len(SENTENCE)), (PARAGRAPH, 4 * len(PARAGRAPH))])
async def test_a_tiny_model_that_circles_is_cut_and_its_next_prompt_extends_the_last(
    run: Run, smollm2_path: Path, tmp_path: Path, period: str, most: int
) -> None:
    """With real inference: SmolLM2 is shown replies that circle, and goes on like them. It is cut within the period
    that follows the third, or where a short one has been said for 400 characters.
    """
    backend = local_backend(smollm2_path, tmp_path, wires=run.ledger, context=1_024)
    pattern = reply_block([Text(period * (12 if period == SENTENCE else 6))])
    run.session.append([command_block("What will you do?"), pattern, command_block("And then?"), pattern])
    run.session.append([command_block("And then?")])
    free = Decimal(0)
    budgets = no_budgets(run.session, run.clock)
    price = lambda usage, at: (free, "test")  # noqa: E731
    parts = Parts(run.session, backend, price, run.events.append, run.clock, lambda: 0.0, budgets)
    forecaster = Forecaster(run.session, backend, None)
    caller = Caller(parts, forecaster, Counter(), Keeper(parts, forecaster, KeepLimits("off")))
    sent = run.session.prompt
    try:
        reply = await caller.call(Bill())
        assert (reply.stop, reply.block and reply.block.text) == (StopReason.REPEATED, period.strip())
        said = "".join(event.text for event in run.events if isinstance(event, events.TextDelta))
        assert len(said) <= most

        run.session.append([notice_block(CIRCLED)])
        first = [event.total for event in run.events if isinstance(event, events.PrefillProgress)][-1]
        again = await take_turn(backend, run.session.prompt, max_output=1)
        assert run.session.prompt.extends(sent)
        assert (again.usage.cache_read or 0) >= first, "all that was sent is read again"
    finally:
        await backend.aclose()


async def test_the_repeat_penalty_of_a_request_reaches_the_sampler(smollm2_path: Path, tmp_path: Path) -> None:
    backend = local_backend(smollm2_path, tmp_path)
    prompt = plain("Write the word ha 500 times without a stop.")
    try:
        circling = Turn(await collect(backend.stream(Request(prompt, max_output=24))))
        otherwise = Turn(await collect(backend.stream(Request(prompt, max_output=24, repeat=1.5))))
    finally:
        await backend.aclose()
    assert "1.1.1.1." in circling.reply.text
    assert "1.1.1.1." not in otherwise.reply.text
