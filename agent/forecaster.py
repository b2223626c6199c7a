"""Plans what a call marks, forecasts its bill before it is sent, and audits the bill when it is there.

The decisions are those of `context`; here they meet the ledger's record of what has been sent and what is cached.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from agent.ledger_rows import CallRow
from agent.session import Session
from backends.base import Backend, CacheOption, Diagnosis, Usage
from context.audit import Verdict, audit
from context.block import Block, Layer
from context.breakpoints import ALL_SHORT, Marker, plan_markers
from context.cache_rules import Ttl
from context.cachemodel import Entry, Scope
from context.forecast import Cause, Forecast, forecast, settle
from context.lease import Lease, leases, longest_warm
from context.prompt import Prompt
from context.sizes import Anchor, Sizes
from context.tokens import Scale
from context.ttl import TtlChoice

_LONGEST_HEAD: Final = 32  # blocks that SYSTEM and PROJECT take at most


Choose = Callable[[int, int, int, Mapping[Layer, Ttl], float], Mapping[Layer, TtlChoice]]
"""`agent.ttl_choice.TtlChooser`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a call is to be made. `prompt`: what is sent. `baseline`: the call that its audit compares it with."""

    prompt: Prompt
    markers: tuple[Marker, ...]
    forecast: Forecast
    scope: Scope
    off: frozenset[CacheOption]
    previous_response: str | None
    baseline: int | None


class Forecaster:
    """For the calls of one session on one backend. `effort` is what requests ask for; None: the model's default. `ttl`
    is what markers of each layer ask for; with `choose` that is chosen anew whenever the conversation is cold.
    """

    def __init__(
        self,
        session: Session,
        backend: Backend,
        effort: str | None,
        ttl: Mapping[Layer, Ttl] = ALL_SHORT,
        choose: Choose | None = None,
    ) -> None:
        self._session = session
        self._backend = backend
        self.effort = effort
        self._scope = Scope(backend.endpoint, backend.name, effort or backend.capabilities.default_effort)
        self._rules = backend.capabilities.cache
        self._ttl = ttl
        self._choose = choose
        self._sizes = Sizes(backend.dialect)
        self._scale = session.ledger.scale(backend.name) or Scale(backend.capabilities.token_scale)
        self._off = session.ledger.caches.refused(backend.endpoint)
        self._made: Plan | None = None

    def plan(self, now: float) -> Plan:
        """Markers and forecast for the session's prompt as it is. The prompt's blocks should have been counted."""
        session, ledger, rules = self._session, self._session.ledger, self._rules
        last, mine = self._known(ledger.last_answered(session.id)), None
        if last is not None:
            mine = self._goes_on(ledger.last_answered(session.id, self._scope))
        self._settle_ttl(mine, now)
        markers = self._markers(session.prompt, mine.blocks if mine else None)
        made = self._forecast(session.prompt, markers, now, last, _anchor(mine, session.prompt))
        baseline = last
        if last is None and rules.kind != "none":
            baseline = ledger.last_elsewhere(session.id, self._scope, now - (rules.ttl_long or rules.ttl_short or 0))
            made = self._compare(made, baseline)
        response, compared = mine.response if mine else None, baseline.id if baseline else None
        self._made = Plan(session.prompt, markers, made, self._scope, self._off, response, compared)
        return self._made

    def aside(self, block: Block, blocks: int, now: float) -> Plan:
        """A request beside the conversation: the first `blocks` of its prompt with `block` behind them.

        It reads what the conversation has in the cache and marks nothing of its own: nobody would read that again.
        """
        plan = self.plan(now)
        last = self._known(self._session.ledger.last_answered(self._session.id))
        mine = self._goes_on(self._session.ledger.last_answered(self._session.id, self._scope))
        written = max(plan.prompt.head(Layer.PROJECT).length, mine.blocks if mine else 0)
        markers = tuple(marker for marker in plan.markers if marker.blocks <= min(written, blocks))
        prompt = plan.prompt.at(blocks).append(block)
        made = self._forecast(prompt, markers, now, last, _anchor(mine, prompt))
        return replace(plan, prompt=prompt, markers=markers, forecast=made)

    def answered(self) -> int:
        """Blocks of the session's prompt that the last call carried which was answered in this epoch; 0: none was."""
        mine = self._goes_on(self._session.ledger.last_answered(self._session.id, self._scope))
        return mine.blocks if mine else 0

    def head(self, now: float) -> Plan:
        """The request that writes SYSTEM and PROJECT before a turn needs them, and nothing else."""
        prompt = self._session.prompt.head(Layer.PROJECT)
        self._settle_ttl(self._goes_on(self._session.ledger.last_answered(self._session.id, self._scope)), now)
        markers = self._markers(prompt, None)
        made = self._forecast(prompt, markers, now, None, None)
        return Plan(prompt, markers, made, self._scope, self._off, None, None)

    def size(self, prompt: Prompt) -> int:
        """The model's own tokens of `prompt`, counted on from the last bill where it goes on from there."""
        self._sizes.follow(prompt)
        mine = self._goes_on(self._session.ledger.last_answered(self._session.id, self._scope))
        return self._sizes.tokens(prompt.length, self._scale.factor, _anchor(mine, prompt))

    def lease(self) -> Entry | None:
        """What the provider's cache holds of the last planned call: its longest prefix that is known to be there.

        None when nothing of the conversation is: SYSTEM and PROJECT alone are no request that could renew them.
        """
        kept = self._kept()
        return kept[1] if kept else None

    def renewal(self, now: float) -> Plan | None:
        """The request that renews the lease, as it would be billed `now`: the same prefix, with the same markers."""
        kept = self._kept()
        if self._made is None or kept is None:
            return None
        prompt = kept[0]
        markers = tuple(marker for marker in self._made.markers if marker.blocks <= prompt.length)
        made = self._forecast(prompt, markers, now, None, None)
        return replace(self._made, prompt=prompt, markers=markers, forecast=made, off=self._off)

    def _settle_ttl(self, mine: CallRow | None, now: float) -> None:
        """Choose the times to live, unless what has been sent is still warm: within an epoch they stay as they are.

        `mine`: the last call that the prompt goes on from.
        """
        if self._choose is None or self._rules.kind != "markers" or self._rules.ttl_long is None:
            return
        prompt, held = self._session.prompt, self._leases(mine)
        warm = {lease.layer: self._life(lease.entry) for lease in held if lease.entry and lease.warm(now)}
        if Layer.HISTORY in warm:
            ttl = {layer: warm.get(layer, warm[Layer.HISTORY]) for layer in Layer}
        else:
            system, project = self.size(prompt.head(Layer.SYSTEM)), self.size(prompt.head(Layer.PROJECT))
            choices = self._choose(system, project - system, self.size(prompt), warm, now)
            ttl = {layer: choices[layer].ttl for layer in choices}
        self._ttl = {**ttl, Layer.COMMAND: ttl[Layer.HISTORY]}

    def held(self, now: float) -> Lease | None:
        """The longest prefix of what the session has sent that is warm."""
        mine = self._goes_on(self._session.ledger.last_answered(self._session.id, self._scope))
        return longest_warm(self._leases(mine), now)

    def _leases(self, mine: CallRow | None) -> tuple[Lease, ...]:
        sent = self._session.prompt.at(mine.blocks) if mine else self._session.prompt
        return leases(sent, self._scope, self._rules, self._session.ledger.caches)

    def _life(self, entry: Entry) -> Ttl:
        """Which time to live was granted."""
        return "long" if entry.ttl is not None and entry.ttl > (self._rules.ttl_short or 0) else "short"

    def _markers(self, prompt: Prompt, sent: int | None) -> tuple[Marker, ...]:
        """Where to mark `prompt`, of which the last request carried `sent` blocks."""
        if CacheOption.MARKERS in self._off or self._rules.kind != "markers":
            return ()
        long = self._rules.ttl_long is not None and CacheOption.LONG_TTL not in self._off
        ttl = self._ttl if long else ALL_SHORT
        return plan_markers(prompt, self._rules, sent, ttl, scale=self._scale.factor)

    def _forecast(
        self, prompt: Prompt, markers: Sequence[Marker], now: float, last: CallRow | None, anchor: Anchor | None
    ) -> Forecast:
        return forecast(
            prompt,
            markers,
            sizes=self._sizes,
            scale=self._scale.factor,
            scope=self._scope,
            rules=self._rules,
            entries=self._session.ledger.caches,
            last=last.sent if last else None,
            now=now,
            anchor=anchor,
            epoch=self._session.epoch,
        )

    def _kept(self) -> tuple[Prompt, Entry] | None:
        key = self._scope.key(self._rules, head=False)
        for place in reversed(self._made.forecast.places if self._made else ()):
            entry = None if place.head else self._session.ledger.caches.find(key, place.node.digest)
            if entry is not None:
                return place.node, entry
        return None

    def audit(self, plan: Plan, usage: Usage, diagnosis: Diagnosis | None) -> tuple[Verdict, tuple[Entry, ...]]:
        """The verdict on a bill, and what the provider's cache holds after it."""
        said = diagnosis.reason if diagnosis and plan.previous_response else None
        verdict = audit(plan.forecast, usage, self._rules, said)
        if verdict.cause is Cause.IMPLAUSIBLE:
            usage = plan.forecast.usage
        made = settle(
            plan.forecast,
            usage,
            sizes=self._sizes,
            scope=self._scope,
            rules=self._rules,
            entries=self._session.ledger.caches,
        )
        return verdict, tuple(made)

    def learn(self, blocks: int, usage: Usage) -> None:
        """Correct the model's tokens per estimated token by a bill for a prompt of `blocks` blocks."""
        if (billed := usage.input_total) is not None:
            self._scale = self._scale.calibrated(self._sizes.estimate(blocks), billed)
            self._session.ledger.learn_scale(self._backend.name, self._scale)

    def refuse(self, option: CacheOption, at: float) -> bool:
        """Do without `option` from now on. False when that was so already: the refusal means something else."""
        if option in self._off:
            return False
        self._off |= {option}
        self._session.ledger.caches.refuse(self._backend.endpoint, option, at)
        return True

    def _known(self, call: CallRow | None) -> CallRow | None:
        """The call, if it was recorded with what a forecast needs and is not longer than the prompt is now."""
        if call is None or call.sent is None:
            return None
        return call if call.epoch != self._session.epoch or call.blocks <= self._session.prompt.length else None

    def _goes_on(self, call: CallRow | None) -> CallRow | None:
        """The call, if the prompt goes on from it."""
        return call if self._known(call) and call and call.epoch == self._session.epoch else None

    def _compare(self, made: Forecast, other: CallRow | None) -> Forecast:
        """The forecast of a first call, when another session's call says what could have been read.

        SYSTEM is the same for all repositories, and PROJECT for all sessions on one snapshot. Where it is not, that is
        a change and no first time.
        """
        if other is None:
            return made
        ledger, prompt = self._session.ledger, self._session.prompt
        theirs = ledger.prompt(other.session, min(other.blocks, _LONGEST_HEAD), other.epoch)
        read = made.hit.blocks if made.hit else 0
        layers: list[Literal[Layer.SYSTEM, Layer.PROJECT]] = [Layer.SYSTEM]
        row, mine = ledger.session(other.session), ledger.session(self._session.id)
        if row is not None and mine is not None and row.directory == mine.directory:
            layers.append(Layer.PROJECT)
        for layer in layers:
            end = theirs.head(layer)
            entry = ledger.caches.find(self._scope.key(self._rules, head=True), end.digest)
            if entry is None or not entry.alive(made.now) or end.length <= read:
                continue
            if prompt.head(layer).digest != end.digest:
                return replace(made, cause=Cause.CHANGED, best=max(made.best, entry.tokens))
        return made


def _anchor(call: CallRow | None, prompt: Prompt) -> Anchor | None:
    """What is known of `prompt` from the bill of `call`, if it goes on from there."""
    if call is None or (call.verdict is not None and call.verdict.cause is Cause.IMPLAUSIBLE):
        return None
    billed = call.usage.input_total
    if not billed or call.blocks > prompt.length or prompt.at(call.blocks).digest != call.prompt:
        return None
    return Anchor(call.blocks, billed)
