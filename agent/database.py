"""One SQLite file in WAL mode: transactions, and each failure as one clear line."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agent.errors import UserError


class LedgerError(UserError):
    """The ledger cannot be opened, read or written."""


class DamagedError(LedgerError):
    """The file is no database any more."""


class Database:
    """`schema` is run once on a new file; `version` is its format; `name` is what people call it.

    `migrations` turn an older format into the next one, by the format they start from. Raises LedgerError from every
    method.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        version: int,
        migrations: Mapping[int, str],
        busy_timeout_s: float,
        name: str = "ledger",
    ) -> None:
        self._path = path
        self._name = name
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # it holds prompts: for its owner alone
            self._connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(
                f"The {name} {path} cannot be opened: {error}. Nothing was done. "
                "Make the folder writable, or set KEEPWARM_HOME to one that is."
            ) from error
        self._connection.row_factory = sqlite3.Row
        try:
            with self._errors():
                self._connection.execute("PRAGMA journal_mode = WAL")
                # A commit survives a kill of the process; only a crash of the machine can lose the last ones.
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._create(schema, version, migrations)
        except LedgerError:
            self._connection.close()
            raise

    def _create(self, schema: str, version: int, migrations: Mapping[int, str]) -> None:
        found = self._format()
        if found > version:
            raise LedgerError(
                f"The {self._name} {self._path} was written by a newer release (format {found}, this one reads "
                f"{version}). It was left as it is. Upgrade keepwarm, or set KEEPWARM_HOME to another folder."
            )
        if found == version:
            return
        with self.transaction() as connection:
            found = self._format()  # another process may have made the tables while this one waited for the lock
            steps = [schema] if found == 0 else [migrations[step] for step in range(found, version)]
            for statement in ";\n".join(steps).split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")

    def _format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def close(self) -> None:
        self._connection.close()

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with self._errors():
            return self._connection.execute(sql, values).fetchall()

    def create_aggregate(self, name: str, arguments: int, made_by: type) -> None:
        """An aggregate function for queries."""
        self._connection.create_aggregate(name, arguments, made_by)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of the block's statements or none of them."""
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:  # SQLite has rolled back by itself when the disk is full
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error

    def _explained(self, error: sqlite3.DatabaseError) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF  # the high bits tell the variant
        damaged = primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
        return (DamagedError if damaged else LedgerError)(self._explain(error, primary))

    def _explain(self, error: sqlite3.DatabaseError, primary: int | None) -> str:
        match primary:
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
                return (
                    f"The {self._name} {self._path} is damaged ({error}). It was left as it is, and your files were "
                    f"not touched. Move it away to start a new one: mv '{self._path}' '{self._path}.damaged'"
                )
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return (
                    f"The {self._name} {self._path} is locked by another program. What was recorded before is kept. "
                    "Close the other program, or set KEEPWARM_HOME to another folder, and try again."
                )
            case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
                return (
                    f"The {self._name} {self._path} cannot be written ({error}): the disk may be full. What was "
                    "recorded before is kept. Free some space and go on with `agent run --continue`."
                )
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
                return (
                    f"The {self._name} {self._path} cannot be written ({error}). What was recorded before is kept. "
                    "Make it and its folder writable, or set KEEPWARM_HOME to another folder."
                )
            case _:
                return f"The {self._name} {self._path} cannot be used ({error}). What was recorded before is kept."
