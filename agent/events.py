"""What happens in a turn, as typed events: the one stream that the screen, the one-shot text and `--json` all listen
to.

The JSON form (`to_json`) is documented in docs/events.md and stable: fields are added, never renamed or removed.
"""

import dataclasses
from decimal import Decimal
from enum import StrEnum
from typing import Any

from backends.base import Usage
from context.audit import Verdict


class TurnEnd(StrEnum):
    """Why a turn ended. Exit codes of `agent run`: done 0, failed and stuck 1, limit 3, interrupted 130."""

    DONE = "done"
    FAILED = "failed"
    STUCK = "stuck"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"


@dataclasses.dataclass(frozen=True, slots=True)
class SessionOpened:
    """`resumed`: an earlier session goes on; then `warm` tokens of it are still cached until `until` (seconds since the
    epoch; None: no clock). `warm` None: nothing is. `mode` is the permission mode, `context` the model's window in
    tokens. `input`, `cache_read`, `cost_usd` and `saved_usd` are those of all calls so far, as in `CallFinished`.
    """

    session: str
    model: str
    mode: str
    directory: str
    resumed: bool
    warm: int | None = None
    until: float | None = None
    context: int | None = None
    input: int | None = 0
    cache_read: int | None = 0
    cost_usd: Decimal | None = Decimal(0)
    saved_usd: Decimal | None = Decimal(0)


@dataclasses.dataclass(frozen=True, slots=True)
class CallStarted:
    """A request to the model, and what is expected of it.

    `estimate`: its input tokens. `forecast`: what of them will be read, written and sent fresh (None inside: there is
    no saying); `cost_usd` of that input, None: unknown. `purpose`: turn, or compaction (beside the conversation: its
    reply is not shown).
    """

    call: int
    estimate: int
    forecast: Usage
    cost_usd: Decimal | None
    purpose: str = "turn"


@dataclasses.dataclass(frozen=True, slots=True)
class PrefillProgress:
    """A local model reads the prompt. In tokens; `reused` needed no reading."""

    call: int
    done: int
    total: int
    reused: int


@dataclasses.dataclass(frozen=True, slots=True)
class TextDelta:
    call: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ThinkingDelta:
    call: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolWriting:
    """The model is writing a tool call: `characters` of its arguments so far. Told now and then, not for each token."""

    call: int
    name: str
    characters: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReplyRestarted:
    """The stream broke and the call is made again: text streamed for `call` so far is void."""

    call: int
    reason: str
    wait_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class CacheOptionRefused:
    """The endpoint refuses a cache option (`backends.base.CacheOption`). The call goes on without it, and so does every
    later one there.
    """

    call: int
    endpoint: str
    option: str


@dataclasses.dataclass(frozen=True, slots=True)
class CacheRenewed:
    """A ping went out while something was waited for (`activity`: tool, rate_limit, question, idle), or SYSTEM and
    PROJECT were written before a turn needs them (prewarm).

    `status`: done, failed or cancelled. `tokens` that the provider read, None: unknown. `until`: end of the lease in
    seconds since the epoch, and `warm` its tokens, None: there is none.
    """

    activity: str
    status: str
    tokens: int | None
    cost_usd: Decimal | None
    until: float | None
    warm: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class KeepaliveStopped:
    """The lease of `tokens` tokens is let go: no ping goes out in this wait any more, and the cache is cold at `until`.

    `why`: stopped (what can be saved is worth less than the next ping), time or budget (a limit is reached),
    unknown_price, not_renewed (pings failed, or read nothing), suspended (the machine slept, and the lease ran out).
    """

    activity: str
    why: str
    tokens: int
    until: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetTold:
    """Of the budget of this session or of the day (`scope`: session, day).

    `level`: warn (four fifths are spent), forecast (the input of the call that follows is expected to cost
    `expected_usd`, which is more than is left) or stop (no call begins any more). `spent_usd` None: unknown, because
    the price of a call is.
    """

    scope: str
    level: str
    spent_usd: Decimal | None
    limit_usd: Decimal
    expected_usd: Decimal | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class EpochStarted:
    """The prompt was rewritten: epoch `number` began because of `reason` (cold, model, pressure, refresh, compacted).

    Tokens before and after. `as_is_usd`, `anew_usd`: expected cost of going on without and with it; None: unknown.
    """

    number: int
    reason: str
    tokens_before: int
    tokens_after: int
    as_is_usd: Decimal | None
    anew_usd: Decimal | None


@dataclasses.dataclass(frozen=True, slots=True)
class CompactionStarted:
    """The model is asked for a summary of `tokens` tokens."""

    tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class CompactionFinished:
    """`status`: done, refused (`detail` says why; nothing was changed) or failed. Tokens before and after, and what the
    summary cost; None: unknown, or there is none.
    """

    status: str
    detail: str | None
    tokens_before: int
    tokens_after: int | None
    cost_usd: Decimal | None


@dataclasses.dataclass(frozen=True, slots=True)
class CallFinished:
    """The bill of a call.

    `cost_usd` None: the price is not known. Times in seconds; `tps` is output tokens per second of decode. `verdict`:
    why not all was read from the cache that could have been (None: the provider reported nothing). `saved_usd`: what
    it would have cost more with all of its input fresh (below 0: less). `warm` tokens of the conversation are cached
    now, until `until` (seconds since the epoch; None: no clock); `warm` None: none are known to be.
    """

    call: int
    usage: Usage
    cost_usd: Decimal | None
    ttft_s: float | None
    duration_s: float
    tps: float | None
    verdict: Verdict | None
    saved_usd: Decimal | None = None
    warm: int | None = None
    until: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ToolStarted:
    tool_call: str
    name: str
    arguments: str
    summary: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolOutputChunk:
    """Live output of a running tool, for a person to watch.

    The result that the model gets comes in `ToolFinished`.
    """

    tool_call: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolFinished:
    """`full`: the file with the whole output, where `text` is only a part of it."""

    tool_call: str
    name: str
    text: str
    summary: str
    is_error: bool
    full: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """One line for the person: something that they should know and that stops nothing."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class TurnFinished:
    """`text` is the last reply of the model; `message` says what happened and what to do when `end` is not done."""

    end: TurnEnd
    text: str
    message: str | None
    calls: int
    cost_usd: Decimal | None
    session: str


Event = (
    SessionOpened
    | CallStarted
    | PrefillProgress
    | TextDelta
    | ThinkingDelta
    | ToolWriting
    | ReplyRestarted
    | CacheOptionRefused
    | CacheRenewed
    | KeepaliveStopped
    | BudgetTold
    | EpochStarted
    | CompactionStarted
    | CompactionFinished
    | CallFinished
    | ToolStarted
    | ToolOutputChunk
    | ToolFinished
    | Notice
    | TurnFinished
)

_NAMES: dict[type, str] = {
    SessionOpened: "session",
    CallStarted: "call_started",
    PrefillProgress: "prefill",
    TextDelta: "text",
    ThinkingDelta: "thinking",
    ToolWriting: "tool_writing",
    ReplyRestarted: "restarted",
    CacheOptionRefused: "option_refused",
    CacheRenewed: "cache_renewed",
    KeepaliveStopped: "keepalive_stopped",
    BudgetTold: "budget",
    EpochStarted: "epoch_started",
    CompactionStarted: "compaction_started",
    CompactionFinished: "compaction_finished",
    CallFinished: "call_finished",
    ToolStarted: "tool_started",
    ToolOutputChunk: "tool_output",
    ToolFinished: "tool_finished",
    Notice: "notice",
    TurnFinished: "finished",
}


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON values:

    `type` first, then its fields; money as a string of USD, unknown as null; usage inlined.
    """
    fields: dict[str, Any] = {"type": _NAMES[type(event)]}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Usage | Verdict):
            fields.update(dataclasses.asdict(value))
        elif field.name == "verdict":
            fields["cause"] = None
        elif isinstance(value, Decimal):
            fields[field.name] = str(value)
        else:
            fields[field.name] = value
    return fields
