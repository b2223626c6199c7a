"""A local model that says what a script tells it: real weights, prefill, KV cache and template; only the choice of the
next token is the script's.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from emulator import Call, Say
from emulator.actions import Edit, Read, Shell, call_for
from emulator.api import Offer

from backends.llama import backend as llama_backend
from backends.llama.sampling import Sampler
from backends.llama.tool_grammar import REPLY_START, answer_text, reply_text
from context.block import ToolCall, ToolSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Action = Read | Edit | Shell | Say


class LocalScript:
    """Plays `actions`, one a reply, then says `answer`; after that it begins anew, for the next command."""

    def __init__(self, actions: Sequence[Action], answer: str, tools: Sequence[ToolSpec]) -> None:
        self._offers = [Offer(tool.name, tuple(tool.schema["properties"])) for tool in tools]
        self._replies = [self._text(action) for action in actions] + [answer_text(answer)]
        self._next = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        script = self

        class ScriptedSampler(Sampler):
            """One reply of the script; its grammar still checks every token."""

            def accept_given(self, tokens: list[int]) -> None:
                super().accept_given(tokens)
                self._reply = script._take().encode()
                assert self._reply.startswith(REPLY_START.encode())
                self._said = b"".join(self._weights.piece(token) for token in tokens).lstrip()

            def choose(self, logits: "npt.NDArray[np.float32]") -> int:
                rest = self._reply.removeprefix(self._said).decode()
                token = int(self._weights.tokenize(rest)[0])
                assert self.fits(token), f"the grammar does not allow {rest!r}"
                return token

            def accept(self, token: int) -> None:
                super().accept(token)
                self._said += self._weights.piece(token)

        monkeypatch.setattr(llama_backend, "Sampler", ScriptedSampler)

    def _take(self) -> str:
        reply = self._replies[self._next]
        self._next = (self._next + 1) % len(self._replies)
        return reply

    def _text(self, action: Action) -> str:
        if isinstance(action, Say):
            return answer_text(action.text)
        call: Call = call_for(action, self._offers)
        arguments: Any = call.arguments
        return reply_text(ToolCall("", call.name, _json(arguments)))


def _json(arguments: Any) -> str:
    return json.dumps(arguments, separators=(",", ":"))
