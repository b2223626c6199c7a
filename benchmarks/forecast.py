"""What planning, forecasting and auditing one more call costs on prompts of 10, 1,000 and 100,000 blocks.

With the real ledger on disk: markers planned, forecast made, bill audited, and what the cache holds recorded. The new
blocks are counted beforehand, as they are in a session. `python benchmarks/forecast.py`
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent.forecaster import Forecaster
from agent.ledger import Ledger
from agent.ledger_rows import CallOutcome, ForecastRow
from agent.session import Session
from backends.anthropic import AnthropicBackend
from backends.base import MemoryWireStore, Usage
from backends.catalog import Catalog
from context.block import Block, Layer, Role, Text
from context.notices import Environment

STEPS = 100


def block(layer: Layer, role: Role, number: int, tokens: int = 60) -> Block:
    return Block.make(layer, role, [Text(f"message {number} " + "x" * tokens * 4)], tokens)


def measure(ledger: Ledger, length: int) -> float:
    """Median seconds of one call's plan, forecast and audit."""
    head = [block(Layer.SYSTEM, Role.SYSTEM, 0, 2000), block(Layer.PROJECT, Role.SYSTEM, 1, 2000)]
    told = Environment("2026-12-01", "/", "auto", False)
    session = Session.create(ledger, now=float(length), directory="/", title="benchmark", told=told, head=head)
    session.append(block(Layer.COMMAND, Role.USER if n % 2 else Role.ASSISTANT, n) for n in range(length))
    model = Catalog.load().find("anthropic/claude-sonnet-5-5")
    backend = AnthropicBackend(model, env={"ANTHROPIC_API_KEY": "none"}, wires=MemoryWireStore())
    forecaster = Forecaster(session, backend, None)
    forecaster.plan(0.0)  # counts the whole prompt once, as the first call of a process does
    took = []
    for step in range(STEPS):
        session.append([block(Layer.HISTORY, Role.ASSISTANT, step), block(Layer.COMMAND, Role.USER, step)])
        started = time.perf_counter()
        plan = forecaster.plan(float(step))
        planned = time.perf_counter() - started
        usage = plan.forecast.usage
        expected = ForecastRow(usage, plan.forecast.total, None)
        call, _ = ledger.begin_call(
            session.id,
            model=backend.name,
            dialect=backend.dialect,
            started=float(step),
            prompt=session.prompt,
            markers=plan.markers,
            endpoint=backend.endpoint,
            effort=plan.scope.effort,
            forecast=expected,
            baseline=plan.baseline,
        )
        started = time.perf_counter()
        bill = Usage(usage.fresh, usage.cache_read, usage.cache_write, usage.cache_write_long, 10, 0)
        verdict, entries = forecaster.audit(plan, bill, None)
        took.append(planned + time.perf_counter() - started)
        ledger.finish_call(call, CallOutcome("done", bill, verdict=verdict, entries=entries))
        assert step == 0 or (verdict.foreseen and usage.cache_read), "every call reads what the last one wrote"
    return statistics.median(took)


def main() -> None:
    base = None
    print(f"{'blocks':>8}{'plan, forecast, audit':>23}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.db") as ledger:
        for length in (10, 1_000, 100_000):
            took = measure(ledger, length)
            base = base or took
            print(f"{length:>8,}{took * 1000:>20.2f} ms{took / base:>7.2f}")


if __name__ == "__main__":
    main()
