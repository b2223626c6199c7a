"""`agent doctor --endpoint NAME`: does it answer, does it cache, does it say so? Tried out, for a fraction of a cent.

The second request is the first one, its reply and one more sentence: what every call of a session is. Where the
endpoint does not report cached tokens, a third request of the same length with another beginning is the measure for the
time to the first token: the first one also pays for the connection, and a local server may load its model with it.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from rich.table import Table
from rich.text import Text as Line

from agent.backend_choice import Downloads, find_model, load_catalog, open_backend, pricing
from agent.bill import Pricing
from agent.clock import Clock, SystemClock
from agent.config import Folders, load, load_endpoints
from agent.errors import USAGE, UserError
from agent.reports.console import report_console
from agent.reports.doctor import MARKS, Check
from agent.reports.totals import tokens
from backends.base import (
    Backend,
    BackendError,
    CacheOption,
    MemoryWireStore,
    Prefill,
    ReplyFinished,
    Request,
    Usage,
    UsageReported,
)
from backends.catalog import DEFAULT_ANTHROPIC, DEFAULT_OPENAI, Catalog, ModelInfo
from backends.compatible_endpoints import Endpoint
from context.block import Block, Layer, Part, Role, Text
from context.breakpoints import plan_markers
from context.layers.history import reply_block
from context.prompt import Prompt

_PREFIX_TOKENS: Final = 1_500
_MARGIN: Final = 1.25  # over the least that the model caches
_MOST_OUTPUT: Final = 16  # tokens; the least that the Responses API takes
_FASTER: Final = 0.5  # of the measure's time to the first token, and by at least
_FASTER_S: Final = 0.2  # seconds: what a network varies by


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. `ttft` in seconds; `usd` None: unknown."""

    usage: Usage
    ttft: float
    usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Findings:
    """What the requests showed. `measure` is the third one, where it was needed. `refused`: cache options that the
    endpoint does not take.
    """

    first: Sample
    second: Sample
    measure: Sample | None
    refused: frozenset[CacheOption]

    @property
    def samples(self) -> list[Sample]:
        return [self.first, self.second, *([self.measure] if self.measure else [])]

    @property
    def reports(self) -> bool:
        return self.second.usage.cache_read is not None

    @property
    def caches(self) -> bool | None:
        """None: cannot be told."""
        if self.second.usage.cache_read is not None:
            return self.second.usage.cache_read > 0
        if self.measure is None:
            return None
        saved = self.measure.ttft - self.second.ttft
        return True if self.second.ttft <= _FASTER * self.measure.ttft and saved >= _FASTER_S else None

    @property
    def usd(self) -> Decimal | None:
        costs = [sample.usd for sample in self.samples]
        return sum((cost for cost in costs if cost is not None), Decimal(0)) if None not in costs else None

    def checks(self, endpoint: Endpoint | None) -> list[Check]:
        """The findings for a person. `endpoint`: its row in the table, if it has one."""
        found = [Check("answers", "ok", "yes"), self._caches(), self._reports(endpoint)]
        if self.refused:
            options = ", ".join(sorted(option.value for option in self.refused))
            found.append(Check("refuses", "note", f"{options}: left out here, and in sessions after the first refusal"))
        found.append(Check("cost", "ok", f"{_cost(self.usd)} for these {len(self.samples)} requests"))
        return found

    def _caches(self) -> Check:
        read, total = self.second.usage.cache_read, self.second.usage.input_total
        if read is not None:
            whole = f" of {total:,}" if total is not None else ""
            if read:
                return Check(
                    "caches", "ok", f"yes: {read:,}{whole} input tokens of the second request came from its cache"
                )
            detail = f"no: it says that none{whole} input tokens of the second request came from a cache"
            return Check("caches", "note", detail)
        assert self.measure is not None
        times = f"{self.second.ttft:.2f} s to the first token, {self.measure.ttft:.2f} s with another beginning"
        if self.caches:
            return Check("caches", "ok", f"yes, by the time it takes: {times}")
        return Check("caches", "note", f"cannot be told: it does not report it, and the times show nothing ({times})")

    def _reports(self, endpoint: Endpoint | None) -> Check:
        if self.reports:
            return Check("reports", "ok", "yes: its usage tells how many tokens came from the cache")
        when = f" ({endpoint.name} reports them {endpoint.reports})" if endpoint and endpoint.reports != "yes" else ""
        return Check("reports", "note", f"no: cached tokens are shown as unknown{when}")


async def probe(backend: Backend, price: Pricing, clock: Clock, nonce: str) -> Findings:
    """Send the requests. `nonce` must be new: no cache may know the beginning. Raises BackendError."""
    off: set[CacheOption] = set()

    async def ask(prompt: Prompt, last: int | None) -> tuple[Sample, Prompt]:
        while True:
            limits = backend.capabilities
            markers = plan_markers(prompt, limits.cache, last, scale=limits.token_scale)
            request = Request(prompt, markers, max_output=_MOST_OUTPUT, off=frozenset(off))
            try:
                return await _sample(backend, request, price, clock)
            except BackendError as error:
                if error.option is None or error.option in off:
                    raise
                off.add(error.option)  # the same request without it

    first_prompt = _prompt(backend, nonce).append(_said(Layer.COMMAND, Role.USER, "Reply with the word one."))
    first, answered = await ask(first_prompt, None)
    last = first_prompt.length
    second, _ = await ask(answered.append(_said(Layer.COMMAND, Role.USER, "Reply with the word two.")), last)
    measure = None
    if second.usage.cache_read is None:
        other = _prompt(backend, f"{nonce} again").extend(answered.since(first_prompt.length - 1))
        measure, _ = await ask(other.append(_said(Layer.COMMAND, Role.USER, "Reply with the word two.")), None)
    return Findings(first, second, measure, frozenset(off))


async def _sample(backend: Backend, request: Request, price: Pricing, clock: Clock) -> tuple[Sample, Prompt]:
    """One request, and its prompt with the reply."""
    began, started, ttft, usage = clock.monotonic(), clock.now(), None, Usage()
    parts: tuple[Part, ...] = ()
    async with aclosing(backend.stream(request)) as events:
        async for event in events:
            match event:
                case UsageReported(usage):
                    pass
                case ReplyFinished(parts):
                    pass
                case Prefill():
                    pass  # no token yet
                case _ if ttft is None:
                    ttft = clock.monotonic() - began
    usd, _ = price(usage, datetime.fromtimestamp(started, UTC))
    sample = Sample(usage, clock.monotonic() - began if ttft is None else ttft, usd)
    said = [part for part in parts if isinstance(part, Text) and part.text.strip()]
    reply = reply_block(parts) if said else _said(Layer.HISTORY, Role.ASSISTANT, "one")
    return sample, request.prompt.append(reply)


def _prompt(backend: Backend, nonce: str) -> Prompt:
    limits = backend.capabilities
    least = max(_PREFIX_TOKENS, limits.cache.min_tokens * _MARGIN)
    words = ["red", "green", "blue", "white", "black", "gold", "brown", "grey", "pink", "cyan"]
    text = " ".join(words[number % len(words)] for number in range(int(least)))  # about a token each
    return Prompt.empty().append(_said(Layer.SYSTEM, Role.SYSTEM, f"Trial {nonce}. Say no more than one word.\n{text}"))


def _said(layer: Layer, role: Role, text: str) -> Block:
    return Block.make(layer, role, [Text(text)])


async def print_probe(name: str, model: str | None, env: Mapping[str, str], clock: Clock | None = None) -> int:
    """Probe the endpoint `name` (of the table or configured, "anthropic" or "openai") and print what was found.

    Returns 0 when it answers. Raises UserError for a name or model that means nothing, BackendError when it does not
    answer.
    """
    clock = clock or SystemClock()
    folders = Folders.find(env)
    settings, catalog, endpoints = load(folders, env, {}), load_catalog(folders), load_endpoints(folders)
    if name not in endpoints and name not in ("anthropic", "openai"):
        raise UserError(f"There is no endpoint {name!r}. Nothing was sent. There are: {', '.join(endpoints)}.", USAGE)

    async def backend_of(info: ModelInfo) -> Backend:
        return await open_backend(info, settings, folders, env, MemoryWireStore(), _NO_DOWNLOADS)

    chosen = _named(name, model, settings.model, catalog)
    if chosen is None:
        served = await _served(endpoints[name], await backend_of(find_model(f"{name}/any", catalog)))
        chosen = f"{name}/{served}"
    info = find_model(chosen, catalog)
    backend = await backend_of(info)
    console = report_console()
    console.print(Line(f"{info.name} at {backend.endpoint}: two small requests, or three where it reports no cache."))
    try:
        await backend.prepare()  # so that loading the SDK is in no time to the first token
        found = await probe(backend, pricing(info), clock, f"{clock.now():.3f}")
    finally:
        await backend.aclose()
    console.print(_calls(found))
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in found.checks(endpoints.get(name)):
        table.add_row(MARKS[check.state], check.name, Line(check.detail))
    console.print(table)
    return 0


def _named(name: str, model: str | None, usual: str | None, catalog: Catalog) -> str | None:
    """The model to try: the one that was named, else the usual one if it is there, else one of the catalogue."""
    if model is not None:
        return model if model.startswith(f"{name}/") else f"{name}/{model}"
    if usual is not None and usual.startswith(f"{name}/"):
        return usual
    defaults = {"anthropic": DEFAULT_ANTHROPIC, "openai": DEFAULT_OPENAI}
    known = [full for full in catalog.names() if full.startswith(f"{name}/")]
    return defaults.get(name) or next(iter(known), None)


async def _served(endpoint: Endpoint, backend: Backend) -> str:
    """The one model that a server of one's own serves; what another one costs is a person's choice."""
    from backends.compatible import CompatibleBackend

    advice = f"Name one: agent doctor --endpoint {endpoint.name} --model MODEL"
    if not endpoint.free or not isinstance(backend, CompatibleBackend):
        raise UserError(f"No model of {endpoint.name} is known. Nothing was sent. {advice}", USAGE)
    try:
        served = await backend.served_models()
    finally:
        await backend.aclose()
    if len(served) == 1:
        return served[0]
    there = f"serves {', '.join(served)}" if served else "has no model loaded"
    raise UserError(f"{endpoint.name} {there}. {advice}", USAGE)


def _calls(found: Findings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("request", "input", "read", "written", "fresh", "output", "first token", "cost"):
        table.add_column(column, justify="left" if column == "request" else "right")
    names = ("a new beginning", "the same, longer", "another beginning")
    for name, sample in zip(names, found.samples, strict=False):
        usage = sample.usage
        counts = (usage.input_total, usage.cache_read, usage.cache_write, usage.fresh, usage.output)
        table.add_row(name, *[tokens(count) for count in counts], f"{sample.ttft:.2f} s", _cost(sample.usd))
    return table


def _cost(usd: Decimal | None) -> str:
    """Fractions of a cent count here."""
    if usd is None:
        return "unknown price"
    return f"${usd:.6f}" if usd else "nothing"


def _nothing(*_: object) -> None:
    """Nothing is downloaded for an endpoint."""


_NO_DOWNLOADS: Final = Downloads(_nothing, _nothing, None)
