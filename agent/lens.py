"""`agent lens`: one prompt on a local model, from settings to a report."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from agent.backend_choice import (
    ONLY_LOCAL,
    Downloads,
    choose_model,
    find_model,
    load_catalog,
    open_backend,
    sampling_of,
)
from agent.config import Folders, Settings
from agent.errors import USAGE, UserError
from backends.base import MemoryWireStore, WireStore
from backends.llama.models import is_local

if TYPE_CHECKING:
    from array import array

    from agent.ledger import Ledger
    from agent.ledger_rows import CallRow
    from agent.reports.lens import LensReport
    from backends.llama.backend import LlamaBackend
    from backends.llama.engine import StopRequested
    from backends.llama.lens import Seen
    from backends.llama.lens_run import Branch, View
    from context.prompt import Prompt


@dataclass(frozen=True, slots=True)
class BranchAt:
    """Where to go back to: token `number` (from 1), and the rank of the token to take there (None: the likeliest that
    was not drawn).
    """

    number: int
    rank: int | None = None

    @classmethod
    def parse(cls, text: str) -> "BranchAt":
        """From `K` or `K:N`. Raises UserError."""
        number, colon, rank = text.partition(":")
        try:
            found = cls(int(number), int(rank) if colon else None)
        except ValueError:
            found = cls(0)
        if found.number < 1 or (found.rank is not None and found.rank < 1):
            raise UserError(f"--branch {text!r} must be K or K:N, such as 12 or 12:3. Nothing was done.", USAGE)
        return found


@dataclass(frozen=True, slots=True)
class Question:
    """What the model is given: a `text` in its own chat template, or the `prompt` of a recorded call, whose reply is
    held to the grammar of its tools as it was then.
    """

    text: str = ""
    prompt: "Prompt | None" = None


class ReadOnlyWires:
    """A WireStore that reads another one and keeps what is new to itself: looking at a session changes nothing."""

    def __init__(self, store: WireStore) -> None:
        self._store: Final = store
        self._new: Final = MemoryWireStore()

    def get(self, block_digest: str, dialect: str) -> bytes | None:
        found = self._new.get(block_digest, dialect)
        return self._store.get(block_digest, dialect) if found is None else found

    def put(self, block_digest: str, dialect: str, wire: bytes) -> None:
        self._new.put(block_digest, dialect, wire)


def recorded_call(ledger: "Ledger", session: str, number: int | None) -> "CallRow":
    """Call `number` of the session, or its last one. Raises UserError."""
    calls = ledger.calls(session)
    found = [call for call in calls if number is None or call.number == number]
    if not found:
        which = "no call yet" if number is None else f"no call {number}"
        raise UserError(f"Session {session} has {which}. `agent cost {session}` lists them.", USAGE)
    return found[-1]


async def look(
    question: Question,
    branch: BranchAt | None,
    tokens: int,
    settings: Settings,
    folders: Folders,
    env: Mapping[str, str],
    wires: WireStore,
    downloads: Downloads,
) -> "LensReport":
    """Draw up to `tokens` tokens of the reply, and once more from `branch` on. Raises UserError and BackendError."""
    from agent.reports.lens import LensReport
    from backends.llama.backend import LlamaBackend
    from backends.llama.lens_run import LensRun

    name = choose_model(settings, env)
    if not is_local(name):
        raise UserError(ONLY_LOCAL.format(name=name), USAGE)
    info = find_model(name, load_catalog(folders))
    backend = await open_backend(info, replace(settings, lens=False), folders, env, ReadOnlyWires(wires), downloads)
    assert isinstance(backend, LlamaBackend)
    try:
        view = await _view(backend, question, settings, tokens)
        loaded = await backend.loaded()
        run = LensRun(loaded.engine, loaded.weights, loaded.decoder.logits, view)

        def work(stop: "StopRequested") -> "tuple[Seen, Branch | None]":
            seen = run.draw(stop)
            return seen, None if branch is None else run.branch(seen, branch.number - 1, branch.rank, stop)

        return LensReport(name, view.sampling, *await backend.work(work))
    finally:
        await backend.aclose()


async def _view(backend: "LlamaBackend", question: Question, settings: Settings, tokens: int) -> "View":
    from backends.llama.lens_run import View
    from backends.llama.tool_grammar import prompt_grammar

    prompts, sampling = (await backend.loaded()).prompts, sampling_of(settings)
    prompt = question.prompt
    if prompt is None:
        plain = prompts.plain(question.text)
        return View(plain, plain[:0], sampling, None, backend.reply_room(len(plain), tokens))
    asked: array[int] = prompts.request(prompt)
    limit = backend.reply_room(len(asked), tokens)
    return View(asked, prompts.given, sampling.seeded(prompt.digest), prompt_grammar(prompt), limit)
