"""A model inside this process as a `Backend`: one worker thread loads it, evaluates prompts and draws replies.

Calls are served one after another in that thread. Prompts are turned into tokens on the caller's side, because the wire
store belongs to the event loop's thread.
"""

import asyncio
import threading
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from backends.base import (
    BackendError,
    Capabilities,
    ErrorKind,
    Event,
    Prefill,
    ReplyFinished,
    Request,
    StopReason,
    Usage,
    UsageReported,
    WireStore,
)
from backends.llama import native, probe
from backends.llama.chat_template import find_junctions
from backends.llama.decoder import NativeDecoder
from backends.llama.drawing import Drawing
from backends.llama.engine import Engine, StoppedError, StopRequested
from backends.llama.gguf import fingerprint, read_header
from backends.llama.lens import Recorder, Seen
from backends.llama.loaded import CONTEXT_OPTION, KvOptions, Loaded, context_options
from backends.llama.needs import Demand
from backends.llama.reply import ReplyReader
from backends.llama.sampling import Sampler, Sampling
from backends.llama.tool_grammar import REPLY_START, prompt_grammar
from backends.llama.weights import Weights
from backends.llama.wire import PromptTokens, pack
from context.block import Opaque, Part, ToolCall
from context.cache_rules import CacheRules

DEFAULT_CONTEXT: Final = 16_384
_UNKNOWN_CONTEXT: Final = 4_096  # a file that does not say how long its model was trained
_LEAST_REPLY: Final = 64  # tokens that must be left for a reply
_LONGEST_REPLY: Final = 2_048  # tokens; a small model that has not come to an end by then is going round in circles
_TOKEN_SCALE: Final = 1.15  # code and English in the vocabularies of small models, calibrated from each response

Emit = Callable[[Event], None]
_T = TypeVar("_T")


class LlamaBackend:
    """A GGUF model on llama.cpp.

    `name` is the full model name. `context` in tokens (default: what the model was trained for, at most 16,384);
    `threads` default to what was measured to be fastest; `gpu_layers` to all where there is a GPU. `sampling`: its
    temperature is for requests that bring none. `wires` is used on the event loop's thread only. `state` is a folder
    for the notes on trial runs (`probe`); None tries in every process. `cache`: how KV states are kept. `lens` gets
    each reply as it was drawn, in the worker thread. `warn` gets lines, in any thread: of what does not work and can be
    done without, and of what takes a moment.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        wires: WireStore,
        context: int | None = None,
        threads: int | None = None,
        gpu_layers: int | None = None,
        sampling: Sampling = Sampling(),  # noqa: B008 - immutable
        state: Path | None = None,
        cache: KvOptions = KvOptions(),  # noqa: B008 - immutable
        lens: Callable[[Seen], None] | None = None,
        warn: Callable[[str], None] = lambda _: None,
        available_memory: native.AvailableMemory = native.available_memory,
    ) -> None:
        self._path: Final = path
        self._name: Final = name
        self._wires: Final = wires
        self._context: Final = context
        self._threads: Final = threads
        self._gpu_layers: Final = gpu_layers
        self._sampling: Final = sampling
        self._state: Final = state
        self._cache: Final = cache
        self._lens: Final = lens
        self._warn: Final = warn
        self._available_memory: Final = available_memory
        self._worker: Final = ThreadPoolExecutor(1, thread_name_prefix="llama")
        self._running: Final[set[threading.Event]] = set()
        self._loaded: Loaded | None = None
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def endpoint(self) -> str:
        return "local"

    @cached_property
    def dialect(self) -> str:
        """`local:` and the first 12 hex digits of the file's fingerprint: tokens mean nothing to another vocabulary.

        Raises BackendError (LOCAL) for a file that cannot be read.
        """
        return f"local:{self._fingerprint[:12]}"

    @cached_property
    def capabilities(self) -> Capabilities:
        """Known from the file's first kilobyte, before the model is loaded. Raises BackendError (LOCAL) for a file that
        is missing or no GGUF, and for a context that the model was not trained for.
        """
        context = self._window
        return Capabilities(
            context=context,
            max_output=min(_LONGEST_REPLY, context // 4),
            cache=CacheRules(kind="none", max_markers=0, min_tokens=0, ttl_short=None, ttl_long=None),
            token_scale=_TOKEN_SCALE,
            profile="compact",
        )

    async def prepare(self) -> None:
        """Load the model unless it is loaded. Raises BackendError (LOCAL), each time until it succeeds."""
        self._require_open()
        if self._loaded is None:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._load)

    async def loaded(self) -> Loaded:
        """The loaded model, until `aclose`. Raises as `prepare` does."""
        await self.prepare()
        assert self._loaded is not None  # prepare has returned
        return self._loaded

    async def work(self, work: Callable[[StopRequested], _T]) -> _T:
        """Have `work` done in the worker thread, behind the calls before it. Cancelling asks it to stop.

        Raises what it raises, and BackendError (LOCAL) when the backend was closed.
        """
        self._require_open()
        stop = threading.Event()
        self._running.add(stop)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, stop.is_set)
        except StoppedError as error:
            raise self._closed_error() from error
        finally:
            stop.set()
            self._running.discard(stop)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Run one call; see `Backend.stream`. `max_output` 0 only evaluates the prompt, so that the next call finds it
        in the cache. Raises BackendError (OVERFLOW, LOCAL).
        """
        loaded = await self.loaded()
        ask = request.max_output != 0
        tokens = loaded.prompts.request(request.prompt, ask=ask)
        marks = loaded.prompts.marks(request.prompt)
        limit = self.reply_room(len(tokens), request.max_output)
        if ask:
            loaded.prompts.sent(request.prompt)

        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        stop = threading.Event()

        def tell(event: Event | None) -> None:
            try:
                loop.call_soon_threadsafe(events.put_nowait, event)
            except RuntimeError:  # the loop is closed: nobody listens any more
                stop.set()

        self._running.add(stop)
        reply = self._worker.submit(self._reply, loaded, tokens, marks, limit, request, tell, stop)
        reply.add_done_callback(lambda _: tell(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self._raise_failure(reply)
        finally:
            # Not waited for: the worker stops behind the batch or token it is at, and serves the next call then.
            stop.set()
            reply.cancel()
            self._running.discard(stop)

    async def warm(self, request: Request) -> Usage | None:
        """Evaluate the prompt, so that the next call finds it in the KV cache."""
        usage = None
        async with aclosing(self.stream(replace(request, max_output=0))) as events:
            async for event in events:
                if isinstance(event, UsageReported):
                    usage = event.usage
        return usage

    async def aclose(self) -> None:
        """Stop what is running, release memory and thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for stop in self._running:
            stop.set()
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._unload)
        finally:
            self._worker.shutdown(wait=False)

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self._path)

    @cached_property
    def _trained_context(self) -> int:
        return read_header(self._path).context or _UNKNOWN_CONTEXT

    @cached_property
    def _window(self) -> int:
        trained = self._trained_context
        if self._context is not None and not 0 < self._context <= trained:
            raise BackendError(
                ErrorKind.LOCAL,
                f"{self._name} was trained for a context of {trained:,} tokens; {self._context:,} will not do. "
                f"Choose {CONTEXT_OPTION} from 1 to {trained}.",
            )
        return self._context or min(trained, DEFAULT_CONTEXT)

    def _load(self) -> None:
        """In the worker thread."""
        if self._loaded is not None:
            return
        window = self._window
        tuning = probe.require_trial(
            self._path,
            self._fingerprint,
            self._state,
            gpu_layers=self._gpu_layers,
            kv_type=self._cache.kv_type,
            announce=self._warn,
            stop=lambda: self._closed,
        )
        if self._threads is not None:
            tuning = replace(tuning, threads=self._threads, batch_threads=self._threads)
        weights = Weights.load(self._path, self._gpu_layers)
        try:
            template = weights.chat_template
            if template is None:
                raise BackendError(
                    ErrorKind.LOCAL,
                    f"{self._path} has no chat template: it is a base model, which was not taught to hold a "
                    "conversation. Choose an instruct model, such as those of `agent models list`.",
                )
            junctions = find_junctions(template, weights.bos_text, weights.eos_text, str(self._path))
            demand = Demand.of_weights(weights, self._cache.kv_type)
            options = context_options(self._cache, weights, demand, window, tuning)
            needed = demand.total(options.cells, options.sequences)
            native.require_memory(needed, options.cells, self._available_memory)
            decoder = NativeDecoder(weights, options)
        except BaseException:
            weights.close()
            raise
        prompts = PromptTokens(weights, junctions, self._wires, self.dialect)
        store = self._cache.open_store(options, self._name, self._path, self._fingerprint, self._warn)
        engine = Engine(decoder, window, store=store, exact=self._cache.exact)
        self._loaded = Loaded(weights, decoder, engine, prompts, store, tuning)

    def _unload(self) -> None:
        """In the worker thread."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.close()

    def reply_room(self, prompt: int, wanted: int | None) -> int:
        """Tokens that the reply to a prompt of `prompt` tokens may have. Raises BackendError (OVERFLOW)."""
        window, trained = self._window, self._trained_context
        room = window - prompt
        if wanted == 0 and room >= 0:
            return 0
        if room < _LEAST_REPLY:
            remedy = (
                f"Raise it with {CONTEXT_OPTION} (up to {trained})"
                if window < trained
                else "It is all that the model was trained for: start a new session, or choose a model with more"
            )
            raise BackendError(
                ErrorKind.OVERFLOW,
                f"The prompt has {prompt:,} tokens, and the context of {self._name} holds {window:,}, of which a reply "
                f"needs {_LEAST_REPLY}. {remedy}.",
            )
        return min(room, self.capabilities.max_output if wanted is None else wanted)

    def _reply(
        self,
        loaded: Loaded,
        tokens: "array[int]",
        marks: Sequence[int],
        limit: int,
        request: Request,
        tell: Emit,
        stop: threading.Event,
    ) -> None:
        """In the worker thread: prefill, draw the reply, tell the events."""
        reused: int | None = None

        def progress(done: int) -> None:
            nonlocal reused
            reused = done if reused is None else reused
            tell(Prefill(done, len(tokens), reused))

        begun = time.perf_counter()
        prefilled = loaded.engine.prefill(tokens, progress, stop.is_set, marks)
        seconds = time.perf_counter() - begun
        usage = Usage(prefilled.evaluated, prefilled.reused, 0, 0, output=0, reasoning=0)
        tell(UsageReported(usage))
        if request.max_output == 0:
            tell(ReplyFinished((), StopReason.MAX_OUTPUT))
            return

        sampling = self._sampling.seeded(request.prompt.digest, request.temperature)
        sampling = replace(sampling, repeat=max(sampling.repeat, request.repeat))
        grammar = prompt_grammar(request.prompt)
        lens = Recorder(loaded.weights.piece) if self._lens is not None else None
        drawing = Drawing(
            loaded.engine,
            loaded.weights,
            tokens,
            loaded.prompts.given.tolist(),
            lambda: Sampler(loaded.weights, sampling, grammar, lens.watch if lens else None),
            loaded.decoder.logits,
            f"call_{request.prompt.digest[:12]}",
            request.veto,
            tell,
            stop.is_set,
            loaded.drafts(self._cache, sampling.temperature),
            lens,
        )
        reader = drawing.run(limit)
        drawn = drawing.tokens
        tell(UsageReported(replace(usage, output=drawing.drawn)))
        if self._lens is not None and lens is not None:
            told = (len(tokens), prefilled.reused, prefilled.restored, seconds)
            self._lens(Seen(*told, tuple(lens.looks), reader.complete, REPLY_START))
        parts: tuple[Part, ...] = (*reader.parts, Opaque(self.dialect, pack(drawing.kept)))
        reason = self._stop_reason(reader, len(tokens) + len(drawn))
        tell(ReplyFinished(parts, reason))
        if reason is StopReason.END:  # of a turn, after which a person may leave
            loaded.engine.keep()

    def _stop_reason(self, reader: ReplyReader, used: int) -> StopReason:
        if reader.complete:
            return StopReason.TOOLS if any(isinstance(part, ToolCall) for part in reader.parts) else StopReason.END
        return StopReason.CONTEXT_FULL if used >= self._window else StopReason.MAX_OUTPUT

    def _raise_failure(self, reply: "Future[None]") -> None:
        try:
            reply.result()
        except StoppedError as error:
            raise self._closed_error() from error

    def _require_open(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> BackendError:
        return BackendError(ErrorKind.LOCAL, f"{self._name} was closed. What was said before is kept.")
