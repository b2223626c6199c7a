"""`agent export` and `agent sessions --search`: all that was said and done, in a form that harms no reader."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import RunAgent
from emulator import Emulator
from scripted import FIX, plan

HOSTILE = 'say <script>alert(1)</script> & "x" ```\n# no heading'


@pytest.fixture
def exported(anthropic_server: Emulator, run_agent: RunAgent) -> Emulator:
    anthropic_server.play(plan(*FIX, answer="Fixed <b>it</b>; ``` closes nothing."))
    result = run_agent("run", "--mode", "auto", HOSTILE, env=anthropic_server.env)
    assert result.returncode == 0, result.stderr
    return anthropic_server


class Tags(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def json_holds_all_in_order(run_agent: RunAgent) -> None:
    made = json.loads(run_agent("export", "--format", "json").stdout)
    assert made["format"] == 1
    assert [item["kind"] for item in made["items"]] == ["command", *["call", "result"] * 3, "reply"]
    command, read, answer = made["items"][0], made["items"][1], made["items"][2]
    assert command["text"] == HOSTILE
    assert (read["name"], json.loads(read["text"])) == ("read", {"path": "price.py"})
    assert answer["id"] == read["id"]
    assert "return price - tax" in answer["text"]
    assert made["calls"] == 4
    assert float(made["cost_usd"]) > 0


def html_stands_alone_and_runs_nothing(run_agent: RunAgent, tmp_path: Path) -> None:
    page = tmp_path / "session.html"
    assert run_agent("export", "--format", "html", "--output", str(page)).returncode == 0
    seen = Tags()
    seen.feed(page.read_text(encoding="utf-8"))
    assert not {"script", "img", "link", "iframe", "b"} & set(seen.tags)
    assert HOSTILE in "".join(seen.words)
    assert seen.tags.count("details") == 6
    assert "prefers-color-scheme: dark" in page.read_text(encoding="utf-8")


def markdown_keeps_what_was_said_inside_its_fence(run_agent: RunAgent) -> None:
    shown = run_agent("export").stdout
    assert f"````text\n{HOSTILE}\n````" in shown
    assert "\n- cost: $" in shown


def a_file_that_is_there_is_left(run_agent: RunAgent, repository: Path) -> None:
    before = (repository / "price.py").read_bytes()
    result = run_agent("export", "--output", "price.py")
    assert (result.returncode, (repository / "price.py").read_bytes()) == (2, before)
    assert "is there already" in result.stderr
    assert run_agent("export", "--format", "pdf").returncode == 2


def test_exports_are_whole_and_harmless(
    exported: Emulator, run_agent: RunAgent, tmp_path: Path, repository: Path
) -> None:
    """One session, four looks at it: a run takes seconds."""
    json_holds_all_in_order(run_agent)
    html_stands_alone_and_runs_nothing(run_agent, tmp_path)
    markdown_keeps_what_was_said_inside_its_fence(run_agent)
    a_file_that_is_there_is_left(run_agent, repository)


def test_sessions_are_found_by_what_was_said_in_them(exported: Emulator, run_agent: RunAgent) -> None:
    run_agent("run", "--continue", "--mode", "auto", "Überall aufräumen", env=exported.env)

    def found(text: str) -> int:
        return len(json.loads(run_agent("sessions", "--search", text, "--json").stdout))

    assert [found(text) for text in ("überall", "NO HEADING", "shop", "nothing like it")] == [1, 1, 1, 0]
    (session,) = json.loads(run_agent("sessions", "--json").stdout)
    turns = json.loads(run_agent("sessions", "--turns", session["session"], "--json").stdout)
    assert [(turn["turn"], turn["command"]) for turn in turns] == [
        (1, HOSTILE.split("\n")[0]),
        (2, "Überall aufräumen"),
    ]
    forked = run_agent("run", "-c", "--fork", "--at-turn", "1", "--mode", "auto", "another", env=exported.env)
    assert forked.returncode == 0, forked.stderr
    assert run_agent("run", "-c", "--at-turn", "1", "x", env=exported.env).returncode == 2
