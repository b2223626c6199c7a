"""The status line: model, mode, context, cache, money."""

from agent import events
from agent.reports.totals import Totals, money, percent


class StatusLine:
    """Call with each event."""

    def __init__(self) -> None:
        self._model = self._mode = ""
        self._context: int | None = None
        self._until: float | None = None
        self._totals = Totals()

    def mode_changed(self, mode: str) -> None:
        self._mode = mode

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened(_, model, mode, _, _, warm, until):
                self._model, self._mode, self._context, self._until = model, mode, warm, until
                self._totals = Totals()
            case events.CallFinished():
                self._context = event.usage.input_total
                self._totals = self._totals.plus(event.usage, event.cost_usd)
            case events.CacheRenewed(_, _, _, _, until):
                self._until = until

    def parts(self, now: float, width: int) -> list[tuple[str, str]]:
        return [("class:status", self.text(now, width))]

    def text(self, now: float, width: int) -> str:
        if not self._model:
            return "opening …"
        fields = [self._model, self._mode]
        if self._context is not None:
            fields.append(f"{self._context:,} tokens")
        if self._until is not None:
            left = max(0, int(self._until - now))
            fields.append(f"warm {left // 60}:{left % 60:02}" if left else "cold")
        fields.append(f"{percent(self._totals.hit_rate)} from cache")
        fields.append(money(self._totals.cost_usd))
        while len(" · ".join(fields)) > width and len(fields) > 1:
            fields.pop()
        return " · ".join(fields)[:width]
