"""What small local models are told beside a tool's own result: where to look next, and questions back.

Models of one or two billion parameters change the test instead of the code, give up after a search that found nothing,
and answer without having looked (docs/local-models.md). The coach adds the next sensible step to a result, asks back
before a doubtful edit, and asks back once when the model wants to end too early. It decides nothing for the model: each
question can be answered by doing the same again. Large models need none of it and do not see it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from agent.coach import hints, objections, questions
from agent.coach.repository import Repository
from agent.coach.turn import Turn
from agent.coach.veto import place_to_blame
from agent.tools.base import ToolContext, ToolOutput
from context.block import ToolCall


class Coach:
    """One session's coach. Call `begin` with each command, `question` before and `hint` after each call, `objection`
    before the turn ends; `veto` while a call is being written.
    """

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._repository = Repository(context)
        self._turn = Turn()

    async def begin(self, command: str) -> list[str]:
        """Notices to go with the command: where the things that it names are defined."""
        self._turn = Turn(
            command, files=await asyncio.to_thread(self._repository.stats), looked=bool(self._context.seen)
        )
        return await hints.at_start(self._turn, self._repository)

    def veto(self, call: ToolCall) -> int | None:
        """Where an edit that is sure to be refused must come out otherwise; None for every other call."""
        return place_to_blame(call, self._context, self._turn.refused)

    async def question(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """What to ask the model instead of running the call; None to run it."""
        return await questions.before_edit(arguments, self._turn, self._repository) if name == "edit" else None

    async def hint(self, name: str, arguments: Mapping[str, Any], output: ToolOutput) -> str:
        """What to add to the call's result; empty for nothing."""
        return await hints.after_call(name, arguments, output, self._turn, self._repository)

    def failure(self, call: ToolCall, message: str) -> None:
        """Note that a call was refused or failed."""
        self._turn.refused.add(call.arguments)
        if call.name in ("edit", "write"):
            self._turn.failed = message.partition("\n")[0]

    def objection(self) -> str | None:
        """Why the turn should not end yet; None when it may."""
        return objections.before_end(self._turn, self._repository)
