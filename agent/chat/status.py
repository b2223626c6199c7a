"""The status line: model, mode, context, cache, money. What is not known is shown as unknown (rule R4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from rich.cells import cell_len, set_cell_size

from agent import events
from agent.reports.totals import money, percent
from backends.base import Usage
from backends.llama.models import is_local
from context.names import show_name

_BETWEEN: Final = " · "
_SOON: Final = 60.0  # seconds of a lease from which on it is shown as ending
_IN_THE_TURN: Final = ("tool", "rate_limit", "question")  # pings that a turn pays
_STYLE: Final = "class:status"


@dataclass(slots=True)
class _Sums:
    """Tokens and USD; None as soon as one summand is unknown. `usd` is what is known, `more`: there is more to it."""

    input: int | None = 0
    read: int | None = 0
    usd: Decimal = Decimal(0)
    more: bool = False
    saved: Decimal | None = Decimal(0)

    def add(self, usage: Usage, usd: Decimal | None, saved: Decimal | None) -> None:
        total = usage.input_total
        self.input = None if self.input is None or total is None else self.input + total
        self.read = None if self.read is None or usage.cache_read is None else self.read + usage.cache_read
        self.saved = None if self.saved is None or saved is None else self.saved + saved
        self.pay(usd)

    def pay(self, usd: Decimal | None) -> None:
        self.usd += usd or 0
        self.more = self.more or usd is None

    @property
    def cost(self) -> str:
        """An interrupted call's bill may never come: then what is known is the least that it was."""
        if not self.more:
            return money(self.usd)
        return f"≥{money(self.usd)}" if self.usd else money(None)

    @property
    def hit_rate(self) -> str:
        known = self.input is not None and self.read is not None
        return percent(self.read / self.input) if known and self.input and self.read is not None else percent(None)


@dataclass(frozen=True, slots=True)
class _Field:
    """`short` where there is no room; "": nothing. The field of the highest `rank` goes first."""

    text: str
    short: str
    rank: int
    style: str = _STYLE


class StatusLine:
    """Call with each event. `text` and `parts` show the same, plain and in styles of prompt_toolkit."""

    def __init__(self) -> None:
        self._model = self._mode = ""
        self._window: int | None = None
        self._used: int | None = None  # tokens of the context
        self._warm: int | None = None
        self._until: float | None = None
        self._cache_known: bool | None = None  # None: nothing was sent yet
        self._turn, self._session = _Sums(), _Sums()
        self._turn_over = False
        self._aside: set[int] = set()  # calls beside the conversation
        self._ttft: float | None = None
        self._tps: float | None = None

    def mode_changed(self, mode: str) -> None:
        self._mode = mode

    def turn_began(self) -> None:
        """The person has sent something: what follows is another turn."""
        self._turn, self._turn_over = _Sums(), False

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened():
                self._open(event)
            case events.CallStarted(call, estimate, _, _, purpose):
                if self._turn_over:
                    self.turn_began()
                if purpose == "turn":
                    self._used = estimate
                else:
                    self._aside.add(call)
            case events.CallFinished():
                self._finish_call(event)
            case events.CacheRenewed(activity, "done", read, usd, until, warm):
                self._session.pay(usd)
                if activity in _IN_THE_TURN:
                    self._turn.pay(usd)
                self._warm, self._until, self._cache_known = warm or read or self._warm, until, True
            case events.KeepaliveStopped(_, _, warm, until):
                self._warm, self._until = warm, until
            case events.EpochStarted(_, _, _, after):
                self._used, self._warm, self._until = after, None, None
            case events.CompactionFinished("done", _, _, int(after)):
                self._used = after
            case events.TurnFinished():
                self._finish_turn(event)

    def text(self, now: float, width: int) -> str:
        """At `now` (seconds since the epoch), in at most `width` cells."""
        return "".join(text for _, text in self.parts(now, width))

    def parts(self, now: float, width: int) -> list[tuple[str, str]]:
        """The same as pairs of style and text. Styles: status, status.warm, status.soon and status.cold."""
        if not self._model:
            return [(_STYLE, set_cell_size("opening …", min(width, 9)))]
        fields = _fitted(self._fields(now), width)
        parts = [(_STYLE, _BETWEEN)] * (2 * len(fields) - 1)
        parts[::2] = [(field.style, field.text) for field in fields]
        if cell_len("".join(text for _, text in parts)) > width:  # not even the first fits
            return [(parts[0][0], set_cell_size(parts[0][1], width))]
        return parts

    def _open(self, event: events.SessionOpened) -> None:
        self._model, self._mode, self._window = show_name(event.model), event.mode, event.context
        self._used = self._ttft = self._tps = None
        self._warm, self._until = event.warm, event.until
        self._cache_known = True if event.resumed else None
        self._session = _Sums(event.input, event.cache_read, saved=event.saved_usd)
        self._session.pay(event.cost_usd)
        self._aside.clear()
        self.turn_began()

    def _finish_call(self, event: events.CallFinished) -> None:
        usage = event.usage
        for sums in (self._turn, self._session):
            sums.add(usage, event.cost_usd, event.saved_usd)
        self._warm, self._until = event.warm, event.until
        self._cache_known = usage.cache_read is not None
        if event.call in self._aside:
            self._aside.discard(event.call)
            return
        self._ttft, self._tps = event.ttft_s, event.tps
        total = usage.input_total
        self._used = None if total is None else total + (usage.output or 0)

    def _finish_turn(self, event: events.TurnFinished) -> None:
        """The bill of the turn also holds what interrupted calls cost."""
        if event.cost_usd is None:
            self._turn.more = self._session.more = True
        elif not self._turn.more:
            self._session.pay(event.cost_usd - self._turn.usd)
            self._turn.usd = event.cost_usd
        self._turn_over = True

    def _fields(self, now: float) -> list[_Field]:
        local = is_local(self._model)
        fields = [_Field(self._model, self._model.rpartition("/")[2], 1), _Field(self._mode, self._mode, 0)]
        if self._used is not None:
            fields.append(self._context(self._used))
        if not local and self._cache_known is not None:
            fields.append(self._cache(now))
        if self._session.input == 0 and not self._session.usd and not self._session.more:
            return fields
        rate = self._session.hit_rate
        if local:
            fields.append(_Field(f"{rate} reused", f"{rate} reused", 4))
            return fields + self._speed()
        if self._turn.input != 0 or self._turn.usd or self._turn.more:
            turn = self._turn.cost
            fields.append(_Field(f"turn {turn} {self._turn.hit_rate} hit", f"turn {turn}", 6))
        session, saved = self._session.cost, _signed(self._session.saved)
        hit = f" {rate} hit" if self._session.input != 0 else ""  # only the head was written yet: nothing to hit
        fields.append(_Field(f"session {session}{hit}", f"session {session}", 4))
        if self._session.saved != 0:  # nothing could be saved yet
            fields.append(_Field(f"saved {saved}", "", 5))
        return fields

    def _context(self, used: int) -> _Field:
        if not self._window:
            return _Field(f"context {used:,}", f"ctx {_thousands(used)}", 3)
        share = percent(used / self._window)
        return _Field(f"context {used:,} ({share})", f"ctx {share}", 3)

    def _cache(self, now: float) -> _Field:
        if not self._cache_known:
            return _Field("cache unknown", "cache unknown", 2)
        if self._warm is None or (self._until is not None and self._until <= now):
            return _Field("cache cold", "cold", 2, f"{_STYLE}.cold")
        if self._until is None:
            return _Field(f"cache {self._warm:,} warm, no clock", "warm", 2, f"{_STYLE}.warm")
        left = self._until - now
        style = f"{_STYLE}.soon" if left < _SOON else f"{_STYLE}.warm"
        return _Field(f"cache {self._warm:,} warm {_clock(left)}", f"warm {_clock(left)}", 2, style)

    def _speed(self) -> list[_Field]:
        ttft = None if self._ttft is None else f"TTFT {self._ttft:.1f} s"
        tps = None if self._tps is None else f"{self._tps:.0f} tokens/s"
        return [_Field(text, text, rank) for text, rank in ((ttft, 6), (tps, 5)) if text is not None]


def _fitted(fields: Sequence[_Field], width: int) -> list[_Field]:
    """As many as fit: first the least important ones are shortened, then the least important ones go."""
    fitted = list(fields)
    order = sorted(fields, key=lambda field: -field.rank)
    for field in order:
        if _length(fitted) <= width:
            return fitted
        short = _Field(field.short, field.short, field.rank, field.style)
        fitted = [short if each is field else each for each in fitted]
        fitted = [each for each in fitted if each.text]
    for rank in range(order[0].rank, 0, -1):
        if _length(fitted) <= width:
            return fitted
        fitted = [each for each in fitted if each.rank != rank]
    return fitted


def _length(fields: Sequence[_Field]) -> int:
    return cell_len(_BETWEEN.join(field.text for field in fields))


def _signed(usd: Decimal | None) -> str:
    if usd is None:
        return "unknown"
    return money(usd) if usd >= 0 else f"-{money(-usd)}"


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 1000 else str(tokens)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
