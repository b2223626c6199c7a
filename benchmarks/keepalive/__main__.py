"""What keeping the cache warm costs under each policy, over what it would cost who knows the future.

`python benchmarks/keepalive [--pauses FILE] [--sessions N] [--seed N] [--minutes N] [--session-usd USD] [--persons]
[--told]`

Simulated people, each with habits of their own and many sessions; `auto` starts from its prior and learns from the
sessions before, and keeps to the limits that the program has by default. First table: pauses from a mixture of quick
replies, breaks, hours away and nights, that depend on what just happened and on the hour. Second: the pauses in FILE (a
column `pause_s`), the same for everyone.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from agent.backend_choice import pricing
from agent.keeper import KeepLimits
from agent.price_levels import prices_at
from backends.catalog import Catalog
from benchmarks.keepalive.people import Person, from_file, people
from benchmarks.keepalive.told import ToldPauses
from context.cache_rules import CacheRules
from context.economics import Prices
from context.habits import Habits
from context.pauses import Pause, Pauses
from context.replay import SessionShape, replay
from context.ttl import Keeping

POLICIES = ("none", "fixed:12", "always", "1h", "auto", "clairvoyant")
AT = datetime(2026, 12, 1, tzinfo=UTC)
LIMITS = KeepLimits()
PREFIX = 50_000  # tokens: the length at which prices are taken


@dataclass(frozen=True)
class Case:
    """A model that stands for all with its multipliers and times to live."""

    model: str
    read: float
    prices: Prices
    rules: CacheRules


def cases() -> list[Case]:
    """One for each read multiplier and pair of times to live in the catalogue that has a clock and two lives."""
    found: dict[tuple[float, float, float], Case] = {}
    catalog = Catalog.load()
    for name in catalog.names():
        model = catalog.find(name)
        rules = model.cache_rules
        if rules.kind != "markers" or rules.ttl_short is None or rules.ttl_long is None:
            continue
        key = (float(model.read), rules.ttl_short, rules.ttl_long)
        prices = prices_at(pricing(model), rules, PREFIX, AT.timestamp())
        if key not in found and prices is not None:
            found[key] = Case(name, key[0], prices, rules)
    return sorted(found.values(), key=lambda case: (case.rules.ttl_short or 0, -case.read))


def lived(persons: list[Person], told: bool) -> Iterator[tuple[Person, SessionShape, Habits]]:
    """Every session, with what was known of its person when it began. `told`: of pauses, all that there is to know."""
    for person in persons:
        exact = ToldPauses(person.habits) if told and person.habits else None
        seen: list[Pause] = []
        turns: list[int] = []
        for session in person.sessions:
            yield person, session, Habits(exact or Pauses.learned(seen), turns=tuple(turns))
            turns.append(len(session.turns))
            waits = session.turns if session.closed is None else session.turns[:-1]
            seen += [Pause(turn.pause, turn.after, turn.hour) for turn in waits]


def bills(
    persons: list[Person], case: Case, caps: Keeping, told: bool = False, policies: tuple[str, ...] = POLICIES
) -> dict[str, list[float]]:
    """USD by policy, a figure per person."""
    totals = {policy: dict.fromkeys((person.name for person in persons), 0.0) for policy in policies}
    for person, session, known in lived(persons, told):
        for policy in policies:
            totals[policy][person.name] += replay(session, case.prices, case.rules, policy, known, caps).usd
    return {policy: list(each.values()) for policy, each in totals.items()}


def table(title: str, persons: list[Person], caps: Keeping, per_person: bool, told: bool = False) -> None:
    sessions = sum(len(person.sessions) for person in persons)
    turns = sum(len(session.turns) for person in persons for session in person.sessions)
    print(f"{title}: {len(persons)} people, {sessions:,} sessions, {turns:,} turns; whole bill over the bound")
    others = POLICIES[:-2]
    print(
        f"{'model':<28}{'read':>6}{'TTL':>10}"
        + "".join(f"{policy:>10}" for policy in POLICIES[:-1])
        + f"{'of best':>9}"
    )
    for case in cases():
        each = bills(persons, case, caps, told)
        usd = {policy: sum(bill) for policy, bill in each.items()}
        bound = usd["clairvoyant"]
        best = min(usd[policy] for policy in others)
        ttl = f"{(case.rules.ttl_short or 0) / 60:g}m/{(case.rules.ttl_long or 0) / 3600:g}h"
        ratios = "".join(f"{usd[policy] / bound:>10.3f}" for policy in POLICIES[:-1])
        print(f"{case.model:<28}{case.read:>6}{ttl:>10}{ratios}{usd['auto'] / best:>9.3f}")
        if per_person:
            for number, person in enumerate(persons):
                row = "".join(
                    f"{each[policy][number] / each['clairvoyant'][number]:>10.3f}" for policy in POLICIES[:-1]
                )
                print(f"  {person.name:<42}{row}{each['auto'][number] / min(each[p][number] for p in others):>9.3f}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pauses", type=Path, help="CSV file with a column pause_s")
    parser.add_argument("--sessions", type=int, default=1_200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=LIMITS.minutes, help="how long auto covers one wait")
    parser.add_argument(
        "--session-usd", type=float, default=float(LIMITS.session_usd), help="most that auto spends on pings"
    )
    parser.add_argument("--persons", action="store_true", help="a line for each person")
    parser.add_argument("--told", action="store_true", help="auto is told the habits of the simulated people")
    told = parser.parse_args()
    started = time.perf_counter()
    caps = Keeping(told.minutes * 60, told.session_usd)
    table("Mixture", people(told.sessions, told.seed), caps, told.persons, told.told)
    if told.pauses:
        table(str(told.pauses.name), from_file(told.pauses, told.sessions, told.seed), caps, told.persons)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
