"""The slash commands: each with one line that explains it.

A command returns None, `Leave`, or the `Opening` of another conversation. Raises UserError for what makes no sense.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.text import Text

from agent.bill import Bill
from agent.chat.context import Context, Leave, Opening
from agent.chat.front import Choice
from agent.config import EFFORTS, MODES
from agent.errors import USAGE, UserError
from agent.reports.totals import money
from context.names import show_name

Outcome = Opening | Leave | None
Run = Callable[[Context, str], Coroutine[Any, Any, Outcome]]


@dataclass(frozen=True, slots=True)
class Command:
    """`usage`: its arguments; `about`: what it does, in one line. `values`: what its argument may be."""

    usage: str
    about: str
    run: Run
    values: tuple[str, ...] = ()


_COMMANDS: dict[str, Command] = {}
COMMANDS: Final[Mapping[str, Command]] = _COMMANDS


def _command(name: str, usage: str, about: str, values: tuple[str, ...] = ()) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        _COMMANDS[name] = Command(usage, about, run, values)
        return run

    return add


@_command("help", "[COMMAND]", "What there is, and the keys")
async def _help(context: Context, given: str) -> Outcome:
    from agent.chat.help import help_view

    name = given.strip().lstrip("/")
    if name and name not in COMMANDS and name not in context.own():
        raise UserError(f"There is no command /{name}. /help lists them.", USAGE)
    context.front.write(help_view(COMMANDS, context.own(), name or None))
    return None


@_command("model", "[NAME]", "Show the model, or go on with another one; names the price of the change first")
async def _model(context: Context, given: str) -> Outcome:
    name = given.strip()
    if not name:
        context.say(f"The model is {context.conversation.model}. /model NAME goes on with another one.")
        return None
    if name == context.conversation.model:
        context.say(f"The model is {name} already.")
        return None
    context.check_model(name)
    if (price := context.price_of_change("model", name)) is not None:
        context.say(price, "yellow")
        if not await context.front.agree(f"Go on with {name}?"):
            return None
    context.say(f"From now on {name}.")
    return context.same_session(replace(context.settings, model=name))


@_command("effort", "[LEVEL]", "How much the model thinks; a change costs the cached history", EFFORTS)
async def _effort(context: Context, given: str) -> Outcome:
    level = given.strip()
    if not level:
        context.say(f"The effort is {context.settings.effort or 'the default of the model'}: {', '.join(EFFORTS)}.")
        return None
    _one_of(level, EFFORTS, "effort")
    if (price := context.price_of_change("effort")) is not None:
        context.say(price, "yellow")
        if not await context.front.agree(f"Go on with effort {level}?"):
            return None
    context.say(f"From now on effort {level}.")
    return context.same_session(replace(context.settings, effort=level))


@_command("mode", "[MODE]", "What runs without asking: plan, ask, edits, auto", MODES)
async def _mode(context: Context, given: str) -> Outcome:
    mode = given.strip()
    if not mode:
        context.say(f"The mode is {context.settings.mode}: one of {', '.join(MODES)}.")
        return None
    _one_of(mode, MODES, "mode")
    context.settings = replace(context.settings, mode=mode)
    context.conversation.set_mode(mode)
    context.front.mode_changed(mode)
    context.say(f"The mode is {mode} now. The model is told with your next message; the cache stays warm.")
    return None


@_command("cost", "", "What this session has cost, call by call")
async def _cost(context: Context, given: str) -> Outcome:
    from agent.backend_choice import load_catalog
    from agent.rates import RateBook
    from agent.reports.session_cost import print_session, session_cost

    row, ledger = context.row(), context.ledger
    cost = session_cost(ledger, row, RateBook(load_catalog(context.folders)))
    await context.front.show(lambda: print_session(cost))
    return None


@_command(
    "budget", "[session|day USD|off]", "What is spent, of which budget; or set one for this chat", ("session", "day")
)
async def _budget(context: Context, given: str) -> Outcome:
    from agent.chat.budget import change, show

    if given.strip():
        change(context, given.strip())
    else:
        show(context)
    return None


@_command(
    "cache",
    "[explain]",
    "What is warm, for how long, and the next turn's price; explain: why calls missed",
    ("explain",),
)
async def _cache(context: Context, given: str) -> Outcome:
    from agent.reports.cache_status import show
    from agent.reports.explain import explain, print_explanations

    row = context.row()
    if given.strip() == "explain":
        found = explain(context.ledger, row, None)
        await context.front.show(lambda: print_explanations(row, found))
        return None
    status = context.cache_status()
    if status is None:
        context.say("Nothing of this session has been answered yet, so nothing of it is cached.")
    else:
        context.front.write(show(status))
    return None


@_command("context", "", "Where the tokens of the prompt's head go, and what was left out")
async def _context(context: Context, given: str) -> Outcome:
    import asyncio

    from agent.reports.context import context_report, print_context

    report = await asyncio.to_thread(lambda: context_report(context.conversation.head))
    await context.front.show(lambda: print_context(report))
    return None


@_command("compact", "", "Put a summary in the place of the history; everything stays on record")
async def _compact(context: Context, given: str) -> Outcome:
    await context.conversation.compact(Bill(context.settings.max_cost))
    return None


@_command("refresh", "", "A new snapshot of the repository, stale tool outputs folded: a new epoch")
async def _refresh(context: Context, given: str) -> Outcome:
    if not await context.conversation.refresh():
        context.say("There is nothing to begin anew: the snapshot is as it was.")
    return None


@_command("add", "FILE …", "Show the model these files with your next message")
async def _add(context: Context, given: str) -> Outcome:
    names = context.existing_files(given)
    if not names:
        raise UserError("Say which: /add FILE.", USAGE)
    await context.conversation.show_files(names)
    context.say(f"With your next message the model sees {', '.join(names)}.")
    return None


@_command("undo", "[force]", "Put the files back as they were before the last turn", ("force",))
async def _undo(context: Context, given: str) -> Outcome:
    context.tell_restored(await context.undo(force=given.strip() == "force"))
    return None


@_command("redo", "[force]", "Take /undo back", ("force",))
async def _redo(context: Context, given: str) -> Outcome:
    context.tell_restored(await context.redo(force=given.strip() == "force"))
    return None


@_command("diff", "[TURN]", "What the last turn, or that turn, has changed in the files")
async def _diff(context: Context, given: str) -> Outcome:
    context.show_diff(await context.turn_diff(_turn(given)))
    return None


@_command("rewind", "[TURN] [conversation|files|both]", "Back to before a turn; the session as it is stays as well")
async def _rewind(context: Context, given: str) -> Outcome:
    words = given.split()
    what = next((word for word in words if word in ("conversation", "files", "both")), None)
    rest = [word for word in words if word != what]
    turn = _turn(rest[0]) if rest else await _chosen_turn(context, "Back to before which turn?")
    if turn is None:
        return None
    known = {each.number: each for each in context.turns()}
    if turn not in known:
        raise UserError(f"There is no turn {turn} to go back to; there are {len(known)}. Nothing was changed.", USAGE)
    if what is None:
        what = await context.front.choose(
            f"What goes back to before turn {turn}?",
            [
                Choice("conversation", "The conversation", "files stay as they are"),
                Choice("files", "The files", "the conversation goes on"),
                Choice("both", "Both"),
            ],
        )
    if what in ("files", "both"):
        context.tell_restored(await context.restore_before(turn))
    if what in ("conversation", "both"):
        return context.before(turn, edit=context.message(known[turn]))
    return None


@_command("fork", "[TURN]", "Go on in a copy of this session, from its end or from the end of a turn")
async def _fork(context: Context, given: str) -> Outcome:
    turn = _turn(given)
    if context.conversation.session.is_unused:
        raise UserError("There is nothing to copy yet.", USAGE)
    if turn is not None and turn not in {each.number for each in context.turns()}:
        raise UserError(f"There is no turn {turn}. Nothing was changed.", USAGE)
    context.say(f"This session stays as it is: /resume {context.conversation.session.id}")
    return context.copy(turn)


@_command("new", "", "A new session in this directory")
async def _new(context: Context, given: str) -> Outcome:
    return context.new_session()


@_command("resume", "[SESSION]", "Go on with another session of this directory")
async def _resume(context: Context, given: str) -> Outcome:
    session = given.strip() or await context.choose_session(here=True)
    return None if session is None else context.other_session(session)


@_command("sessions", "[TEXT]", "All sessions, of all directories, with TEXT in them; choose one to go on with")
async def _sessions(context: Context, given: str) -> Outcome:
    session = await context.choose_session(here=False, search=given.strip())
    return None if session is None else context.other_session(session)


@_command("export", "[markdown|json|html] [FILE]", "Write this session to a file", ("markdown", "json", "html"))
async def _export(context: Context, given: str) -> Outcome:
    from agent.export import ENDINGS, FORMATS, export, to_text, write_new

    words = given.split(maxsplit=1)
    kind = words.pop(0) if words and words[0] in FORMATS else "markdown"
    row = context.row()
    target = context.path(words[0] if words else f"{row.id}.{ENDINGS[kind]}")
    write_new(target, to_text(export(context.ledger, row), kind))
    context.say(f"Written to {show_name(str(target))}")
    return None


@_command("lens", "", "For a local model: the pages that show how each token of its replies came about")
async def _lens(context: Context, given: str) -> Outcome:
    if not context.conversation.model.startswith("local"):
        raise UserError("The lens looks into models that run inside this program.", USAGE)
    if context.settings.lens:
        context.say(f"Pages are written to {context.folders.output(context.conversation.session.id)}")
        return None
    context.say("From the next reply on, each one gets a page.")
    return context.same_session(replace(context.settings, lens=True))


@_command("thinking", "", "What the model thought in its last reply")
async def _thinking(context: Context, given: str) -> Outcome:
    thought = context.front.thinking()
    context.front.write(Text(thought or "The last reply came without visible thinking.", style="dim"))
    return None


@_command("quit", "", "Leave; the session is kept")
async def _quit(context: Context, given: str) -> Outcome:
    return Leave()


async def _chosen_turn(context: Context, title: str) -> int | None:
    turns = context.turns()
    if not turns:
        raise UserError("There is no turn yet to go back to.", USAGE)
    choices = [
        Choice(str(each.number), f"{each.number}. {each.command}", money(each.cost_usd)) for each in reversed(turns)
    ]
    chosen = await context.front.choose(title, choices)
    return None if chosen is None else int(chosen)


def _turn(given: str) -> int | None:
    text = given.strip()
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        raise UserError(f"{text!r} is no turn: turns are numbered from 1.", USAGE)
    return int(text)


def _one_of(value: str, choices: tuple[str, ...], name: str) -> None:
    if value not in choices:
        raise UserError(f"There is no {name} {value!r}: choose one of {', '.join(choices)}.", USAGE)
