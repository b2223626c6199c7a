"""Whole conversations over real sockets: rule R1 on the recorded bodies, markers on the wire, what the cache says."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anthropic_support import HEAD, PROJECT, SYSTEM, Talk, backend_for, finished, run, usages, user
from emulator import (
    Call,
    Emulator,
    Reply,
    Think,
    assert_extends,
    markers,
    prefix_bytes,
    without_markers,
)

from backends.base import MemoryWireStore
from context.block import Opaque, Text, ToolCall
from context.breakpoints import Marker
from context.layers.history import reply_block
from context.prompt import Prompt


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


async def test_thirty_calls_extend_each_other_byte_for_byte_and_read_what_the_last_one_wrote(
    server: Emulator,
) -> None:
    """Field report 41 as well: reads rise on every call."""
    server.play(
        Reply.of(Think(f"step {step}"), f"Step {step}: ünï", Call("read", {"z": step, "a": ["é", step]}))
        for step in range(30)
    )
    talk = Talk(backend_for(server))
    events = await talk.turn(user("go"))
    reads = [usages(events)[-1].usage.cache_read or 0]
    for _ in range(29):
        events = await talk.turn(talk.answers("x" * 400))
        reads.append(usages(events)[-1].usage.cache_read or 0)
    await talk.backend.aclose()

    bodies = server.bodies
    for earlier, later in itertools.pairwise(server.requests):
        assert_extends(earlier, later)
    raw = [request.raw.partition(b',"messages":[')[0] for request in server.requests]
    assert len(set(raw)) == 1  # model, thinking, tools and system: the very same bytes, markers included
    assert reads == sorted(set(reads))
    assert all(len(markers(body)) <= 4 for body in bodies)


async def test_markers_lie_at_the_layers_ends_where_the_last_request_ended_and_at_the_tail(
    server: Emulator,
) -> None:
    server.play([Reply.of(Call("read", {"path": "a"})), Reply.of("done"), Reply.of("bye")])
    talk = Talk(backend_for(server))
    await talk.turn(user("go"))
    await talk.turn(talk.answers())
    await talk.turn(user("thanks"))
    await talk.backend.aclose()
    places = [[place for place, _ in markers(body)] for body in server.bodies]
    head = ["system[0]", "system[1]"]
    assert places == [
        [*head, "messages[0].content[0]"],
        [*head, "messages[0].content[0]", "messages[2].content[0]"],  # the tail is a tool result
        [*head, "messages[2].content[0]", "messages[4].content[0]"],
    ]


async def test_a_turn_of_25_calls_still_finds_the_entry_behind_the_providers_lookback(server: Emulator) -> None:
    """Field report 36: more than 20 new blocks between two markers."""
    server.play([Reply.of(*[Call("read", {"path": f"f{number}"}) for number in range(25)]), Reply.of("done")])
    talk = Talk(backend_for(server))
    first = usages(await talk.turn(user("go")))[-1].usage
    second = usages(await talk.turn(talk.answers("y" * 90)))[-1].usage
    await talk.backend.aclose()
    assert first.cache_write is not None
    assert second.cache_read == first.cache_write
    assert server.bodies[1]["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


async def test_an_hour_for_the_stable_layers_comes_before_five_minutes_for_the_rest(server: Emulator) -> None:
    server.play([Reply.of("ok")])
    talk = Talk(backend_for(server))
    chosen = (Marker(1, "long"), Marker(2, "long"), Marker(3, "short"))
    usage = usages(await talk.turn(user("go"), markers=chosen))[-1].usage
    await talk.backend.aclose()
    assert [ttl for _, ttl in markers(server.bodies[0])] == ["1h", "1h", "5m"]
    assert usage.cache_write is not None
    assert usage.cache_write_long is not None
    assert 0 < usage.cache_write_long < usage.cache_write


async def test_a_resumed_session_with_an_empty_store_goes_on_where_it_was(server: Emulator) -> None:
    server.play([Reply.of(Think("Hm."), Call("read", {"b": 1, "a": 2})), Reply.of("one"), Reply.of("two")])
    talk = Talk(backend_for(server))
    await talk.turn(user("go"))
    await talk.turn(talk.answers())
    later = Talk(backend_for(server), talk.prompt)
    await later.turn(user("more"))
    for backend in (talk.backend, later.backend):
        await backend.aclose()
    assert_extends(server.requests[1], server.requests[2])


SCRIPT = """
import asyncio, sys
sys.path[:0] = {paths!r}
from anthropic_support import Talk, backend_for, user
from emulator import Call, Reply, Emulator, Think
async def main():
    with Emulator() as server:
        server.play([Reply.of(Think("t"), Call("read", {{"z": 1, "a": {{"q": 1, "b": 2}}}})), Reply.of("done")])
        talk = Talk(backend_for(server))
        await talk.turn(user("go"))
        await talk.turn(talk.answers())
        await talk.backend.aclose()
        for request in server.requests:
            sys.stdout.write(request.raw.decode() + "\\n")
asyncio.run(main())
"""


def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(paths=paths)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] != b""


async def test_a_fork_shares_all_but_what_it_adds(server: Emulator) -> None:
    """Field reports 48 and 51: two forks that differ in one word share every byte but the last message."""
    server.play([Reply.of("ok")] * 3)
    backend = backend_for(server)
    trunk = HEAD.append(user("start")).append(reply_block([Text("ready")]))
    for word in ("left", "right", "left"):
        await run(backend, trunk.append(user(f"go {word}")))
    await backend.aclose()
    left, right, again = (without_markers(body)["messages"] for body in server.bodies)
    assert left[:-1] == right[:-1]
    assert left == again


async def test_reasoning_of_another_provider_stays_behind_for_this_wire_only(server: Emulator) -> None:
    """Field report 136: the blocks keep it, the request does not hold it."""
    server.play([Reply.of("ok")])
    foreign = reply_block([Opaque("openai", b"encrypted"), ToolCall("fc|1", "read", "{}")])
    talk = Talk(backend_for(server), HEAD.extend([user("go"), foreign]))
    await talk.turn(talk.answers())
    await talk.backend.aclose()
    assert b"encrypted" not in server.requests[0].raw
    assert Opaque("openai", b"encrypted") in foreign.parts


async def test_thinking_of_one_model_is_not_sent_to_another_and_the_way_back_replays_every_byte(
    server: Emulator,
) -> None:
    """Provider rules 1.7: the signature is bound to one model, and the server checks it."""
    server.play([Reply.of(Think(f"thought {n}"), Call("read", {"path": f"{n}"})) for n in range(4)])
    store = MemoryWireStore()
    sonnet = Talk(backend_for(server, wires=store))
    await sonnet.turn(user("go"))
    await sonnet.turn(sonnet.answers())
    opus = Talk(backend_for(server, "claude-opus-5-5", wires=store), sonnet.prompt)
    await opus.turn(opus.answers())
    back = Talk(backend_for(server, wires=store), opus.prompt)
    await back.turn(back.answers())
    for talk in (sonnet, opus, back):
        await talk.backend.aclose()

    assert sonnet.backend.dialect != opus.backend.dialect
    first, second, foreign, again = server.requests
    assert b"thought" not in foreign.raw
    assert [message["role"] for message in foreign.body["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert_extends(first, second)
    assert_extends(second, again)
    assert again.raw.count(b"thought") == 2, "its own two, not the other model's"


async def test_an_edited_prefix_is_refused_by_the_server_these_tests_trust(server: Emulator) -> None:
    """The tests above would notice a change of the prefix: the signature is bound to it."""
    server.play([Reply.of(Think("Hm."), "one"), Reply.of("never said")])
    talk = Talk(backend_for(server))
    await talk.turn(user("go"))
    assert talk.prompt.block is not None
    edited = Prompt.empty().extend([SYSTEM, PROJECT, user("GO"), talk.prompt.block, user("on")])
    with pytest.raises(Exception, match="different conversation"):
        await run(talk.backend, edited)
    await talk.backend.aclose()


async def test_the_log_can_be_read_by_another_process(tmp_path: Path) -> None:
    log = tmp_path / "anthropic.jsonl"
    with Emulator([Reply.of("ok")], log=log) as server:
        backend = backend_for(server, wires=MemoryWireStore())
        assert finished(await run(backend, HEAD.append(user("go")))).parts == (Text("ok"),)
        await backend.aclose()
        (line,) = log.read_text("utf-8").splitlines()
        assert prefix_bytes(json.loads(json.loads(line)["raw"])) == prefix_bytes(server.bodies[0])
