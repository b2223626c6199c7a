"""The providers' APIs on loopback: one HTTP server that the official SDKs talk to unmodified, with a scripted model.

Tests (and other processes, by its URL) run a client against it. It records every request, holds requests to the
published rules of each API, and bills them by its own account of the prefix caches, on a clock that a test can advance.
It is an independent implementation: nothing here imports the client's code, so that two readings of the rules can
disagree.

    with Emulator(clock=ManualClock()) as server:
        server.play([Reply.of(Think("Hm."), Call("read", {"path": "a"})), Reply.of("Done.")])
        ... run a client with `server.env` ...
        server.requests, server.bills

By hand: `python -m tests.emulator`.

How an API plugs in
-------------------
`api.py` has the protocols. A module of its own defines a class with a `name`, a `reader` and the methods of `Api`,
whose constructor takes `Surroundings` (clock, models, strict); `registry.APIS` lists it. Its `find(method, path)` gives
a `Generation` for what a model answers and a plain function `Recorded → Failure` for the rest (`api.json_answer`). For
one request the server calls

    generation.refusal(request)            the API's 400s, as a Failure(status, (type or "", message)); None: good
    generation.unscripted(request)         the Reply to a pre-warm or compaction; None: the script is asked
    generation.account(request, reply)     an Account: the Bill as of request.at, and `begin`, which writes the cache
    generation.events(request, reply, a)   Events, or generation.message(request, reply, a) for plain JSON

and applies all faults of the `Reply` itself, by the number of the event (an `Event` that does not count, like a ping,
has counted=False; the one that reports the output has settles=True). `begin` is called just before the first event is
sent. `cache.Entries` is a store of prefixes with TTLs, `tokens` the tokenizer, `models` the table of limits and prices.
Errors become bodies in `Api.error_body`; an empty error type stands for the API's own type for that status. `Reader`
(offers, steps_taken) is all that `actions.play` needs to play one script on every API.
"""

from .actions import Edit, Read, Shell, play
from .api import Offer, Recorded
from .bill import Bill
from .bodies import assert_extends, markers, prefix_bytes, raw_prefix, without_markers
from .clock import ManualClock, SystemClock
from .script import Answer, Call, Failure, Gate, Part, Redacted, Reply, Say, Think, html_page
from .server import Emulator

__all__ = [
    "Answer",
    "Bill",
    "Call",
    "Edit",
    "Emulator",
    "Failure",
    "Gate",
    "ManualClock",
    "Offer",
    "Part",
    "Read",
    "Recorded",
    "Redacted",
    "Reply",
    "Say",
    "Shell",
    "SystemClock",
    "Think",
    "assert_extends",
    "html_page",
    "markers",
    "play",
    "prefix_bytes",
    "raw_prefix",
    "without_markers",
]
