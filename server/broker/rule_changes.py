"""Upgrade report: how a newer version's rules of matching change the stored subscriptions.

The first start with other rules logs which subscriptions changed their meaning; `GET /v1/rules` shows the same. Nothing
is refused. The report is stored, so that it can be read later.
"""

import logging
import time
from typing import Any

from sqlalchemy import Connection

from kindcast.semantic.changes.impact import impact_of_rules, impact_report
from kindcast.server.broker.state import State
from kindcast.server.store import meanings, subscriptions

__all__ = ["tell_new_rules"]

_log = logging.getLogger("kindcast.broker")

LOGGED = 20
"""Subscriptions that the log names; the report names more."""
KEPT = 1_000
"""Entries of each list in the report; counts are complete."""


def tell_new_rules(connection: Connection, state: State) -> None:
    """Note by which rules this database is served; where it was served by others, what that does to its subscriptions.
    Costs a second vocabulary and a walk over the stored trees, once."""
    meaning = state.vocabulary.meaning
    known = meanings.latest(connection)
    if known is not None and known.meaning >= meaning:
        return
    impact = _impact(connection, state) if meanings.has_subscriptions(connection) else None
    meanings.begin(connection, meaning, since=time.time(), impact=impact)


def _impact(connection: Connection, state: State) -> dict[str, Any] | None:
    rows = subscriptions.trees(connection, live_only=True)
    try:
        found = impact_of_rules(state.vocabulary, state.declarations.arguments(), ((row.id, row.tree) for row in rows))
        report = impact_report(found, limit=KEPT)
    except Exception:  # what only tells must not keep a server from starting
        _log.exception("the effect of this version's rules of matching on the subscriptions could not be computed")
        return None
    changed = report["subscriptions"]
    _log.warning(
        "the rules of matching have changed since the last start: %d of %d subscriptions may match otherwise; "
        "`kindcast ontology rules` lists them",
        changed["changed"],
        changed["live"],
    )
    for each in changed["listed"][:LOGGED]:
        _log.warning("subscription %s: %s", each["id"], "; ".join(each["changes"]))
    return report
