"""The vocabulary that an event was accepted under: the one in force, one from before, or one made again."""

import asyncio
import logging
from collections import OrderedDict
from typing import Any

from sqlalchemy import Connection, Row

from semantic import Vocabulary
from semantic.declarations import Declarations
from server.broker import Broker
from server.store import parking

__all__ = ["Versions"]

KEPT = 2
"""Vocabularies beside the one in force: they are large, and an old one is needed for as long as an operator is out of
order when words change."""

_log = logging.getLogger("kindcast.parking")


class Versions:
    """On one event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: OrderedDict[str, Vocabulary] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def get(self, version: str) -> Vocabulary:
        """The vocabulary of this version. One whose parts are gone from the store (which refuses to let them go) is
        replaced by the one in force, and the log says so. One from before the rules of matching changed
        (`semantic.vocabulary.MEANING`) has the same parts, and the present meaning."""
        self._keep(self._broker.vocabulary.version, self._broker.vocabulary)
        if version not in self._kept:
            async with self._one_at_a_time:
                if version not in self._kept:
                    self._keep(version, await self._made_again(version))
        return self._kept[version]

    def _keep(self, version: str, vocabulary: Vocabulary) -> None:
        self._kept[version] = vocabulary
        self._kept.move_to_end(version)
        while len(self._kept) > 1 + KEPT:
            self._kept.popitem(last=False)

    async def _made_again(self, version: str) -> Vocabulary:
        def parts(connection: Connection) -> Row[Any] | None:
            return parking.vocabulary_parts(connection, version)

        row = await self._broker.read(parts)
        if row is None:
            _log.error("the vocabulary %s is gone: what waits under it is decided under the one in force", version)
            return self._broker.vocabulary
        ontologies = [await self._broker.meaning.stored_ontology(name, number) for name, number in row.ontologies]
        _log.info("making the vocabulary %s again for events that wait for an operator", version)
        declared = Declarations.from_json(row.declarations)
        return await asyncio.to_thread(self._broker.meaning.build, ontologies, declared)
