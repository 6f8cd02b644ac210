"""What the steps of a session use of its daily budget, in one transaction."""

from __future__ import annotations

from typing import NamedTuple

from nerve.store.port import UsageRow
from nerve.store.postgres_connection import POSTGRES_SQL, Connection


class BudgetReservation(NamedTuple):
    """What a step in progress has used, and what is reserved for its current turn, as JSON."""

    run: str
    path: str
    used: str
    reserved: str


class PostgresBudgets:
    """The budgets of a session, as long as a transaction lasts in which no other process changes them."""

    def __init__(self, db: Connection, session: str) -> None:
        self._db, self._session = db, session

    def usage(self, day: str) -> list[UsageRow]:
        """Return what the steps that have ended used on a day, with one row for each amount."""
        rows = self._db.execute(POSTGRES_SQL["select_usage"], (self._session, day, day))
        return [
            UsageRow(session, day, model, {name: float(amount)}) for session, day, model, name, amount in rows
        ]

    def reservations(self, day: str) -> list[BudgetReservation]:
        """Return the steps in progress; an expired reservation is empty."""
        rows = self._db.execute(POSTGRES_SQL["select_budget_reservations"], (self._session, day))
        return [BudgetReservation(*row) for row in rows]

    def put(self, reservation: BudgetReservation, day: str, lease: float) -> None:
        """Store what a step has used and reserved, in place of what it had before."""
        values = {**reservation._asdict(), "session": self._session, "day": day, "lease": lease}
        self._db.execute(POSTGRES_SQL["upsert_budget_reservation"], values)

    def renew(self, run: str, path: str, lease: float) -> None:
        """Keep the reservation of a step for some more seconds."""
        self._db.execute(POSTGRES_SQL["renew_budget_reservation"], {"run": run, "path": path, "lease": lease})
