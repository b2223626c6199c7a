"""The command `tally`."""

import argparse
import os

from tally import __version__
from tally.ledger import Ledger
from tally.money import parse, show
from tally.report import largest, settle


def main(argv=None):
    parser = argparse.ArgumentParser(prog="tally")
    parser.add_argument("--version", action="version", version=f"tally {__version__}")
    parser.add_argument("--file", default=os.environ.get("TALLY_FILE", "expenses.json"))
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("payer")
    add.add_argument("amount")
    add.add_argument("what", nargs="?", default="")
    commands.add_parser("total")
    commands.add_parser("settle")
    commands.add_parser("largest")
    arguments = parser.parse_args(argv)

    ledger = Ledger.load(arguments.file)
    if arguments.command == "add":
        ledger.add(arguments.payer, parse(arguments.amount), arguments.what)
        ledger.save(arguments.file)
    elif arguments.command == "total":
        print(show(ledger.total()))
    elif arguments.command == "largest":
        expense = largest(ledger)
        print(f"{expense.payer}: {show(expense.cents)} {expense.what}" if expense else "no expenses")
    else:
        for line in settle(ledger):
            print(line)
    return 0
