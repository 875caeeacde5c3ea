"""Publish/subscribe by kinds: the matcher as a library, and the client of a server.

>>> from kindcast import Matcher, Vocabulary
>>> prefixes = b"@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
>>> classes = b':Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop"@en , "Notebook"@de .'
>>> matcher = Matcher(Vocabulary.from_bytes(prefixes + classes, format="turtle"))
>>> matcher.add("s1", "target isa Computer and price <= 400").canonical
'target isa <http://example.org/Computer> and price <= 400'
>>> [match.subscription for match in matcher.match({"target": "Notebook", "price": 350})]
['s1']

What is named here is imported when it is first asked for: the client loads no index, the matcher no HTTP.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kindcast.semantic import (
        CanonicalEvent,
        Compiled,
        Decided,
        Event,
        InvalidEvent,
        InvalidSubscription,
        Match,
        Matcher,
        MatchTable,
        Note,
        OntologyError,
        Operator,
        Position,
        Problem,
        SemanticError,
        Undecided,
        Vocabulary,
        explain,
        operator,
    )
    from kindcast.server.client import (
        AsyncClient,
        Client,
        NoAnswerInTime,
        ProblemError,
        ServerUnreachable,
        UnexpectedAnswer,
        UnusableArgument,
    )

__all__ = [
    "AsyncClient",
    "CanonicalEvent",
    "Client",
    "Compiled",
    "Decided",
    "Event",
    "InvalidEvent",
    "InvalidSubscription",
    "Match",
    "MatchTable",
    "Matcher",
    "NoAnswerInTime",
    "Note",
    "OntologyError",
    "Operator",
    "Position",
    "Problem",
    "ProblemError",
    "SemanticError",
    "ServerUnreachable",
    "Undecided",
    "UnexpectedAnswer",
    "UnusableArgument",
    "Vocabulary",
    "explain",
    "operator",
]

_CLIENT = (
    "AsyncClient",
    "Client",
    "NoAnswerInTime",
    "ProblemError",
    "ServerUnreachable",
    "UnexpectedAnswer",
    "UnusableArgument",
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"{__name__}.server.client" if name in _CLIENT else f"{__name__}.semantic"
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
