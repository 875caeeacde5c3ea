"""The operators of a server at its start: its own, those of plug-ins, and what is stored."""

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection

from semantic.operators.builtin import builtin_operators
from semantic.operators.plugins import load_operators
from server.operators.registration import Registration
from server.operators.registry import Registry
from server.settings import Settings
from server.store import operators

__all__ = ["restore_registry"]


def restore_registry(connection: Connection, settings: Settings) -> Registry:
    """All of them, with stand-ins for those that stored subscriptions call and nobody provides any more."""
    plugins = load_operators() if settings.plugins else {}
    registry = Registry.of(builtin_operators(), plugins.values())
    for row in operators.list_operators(connection):
        registry = registry.with_remote(row.name, _registration(row.body))
    return registry.with_missing(operators.count_uses(connection))


def _registration(body: Mapping[str, Any]) -> Registration:
    return msgspec.convert(body, Registration)
