"""Semantic matching: ontologies, vocabularies, subscriptions, events, and the matcher.

>>> from kindcast.semantic import Matcher, Vocabulary
>>> prefixes = b"@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
>>> classes = b':Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop"@en , "Notebook"@de .'
>>> matcher = Matcher(Vocabulary.from_bytes(prefixes + classes, format="turtle"))
>>> matcher.add("s1", "target isa Computer and price <= 400").canonical
'target isa <http://example.org/Computer> and price <= 400'
>>> [match.subscription for match in matcher.match({"target": "Notebook", "price": 350})]
['s1']

The names of this package are imported at their first use: a command that only needs an error does not load the index
and its compiler.
"""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.errors import InvalidEvent, InvalidSubscription, OntologyError, Problem, SemanticError
    from kindcast.semantic.explanations import explain
    from kindcast.semantic.matching.matcher import Matcher, MatchTable
    from kindcast.semantic.matching.verification import Decided, Undecided
    from kindcast.semantic.model import CanonicalEvent, Event, Match, Note, Position
    from kindcast.semantic.operators import Operator, operator
    from kindcast.semantic.subscriptions.compilation import Compiled
    from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = [
    "CanonicalEvent",
    "Compiled",
    "Decided",
    "Event",
    "InvalidEvent",
    "InvalidSubscription",
    "Match",
    "MatchTable",
    "Matcher",
    "Note",
    "OntologyError",
    "Operator",
    "Position",
    "Problem",
    "SemanticError",
    "Undecided",
    "Vocabulary",
    "explain",
    "operator",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.errors": (
            "InvalidEvent",
            "InvalidSubscription",
            "OntologyError",
            "Problem",
            "SemanticError",
        ),
        "kindcast.semantic.explanations": ("explain",),
        "kindcast.semantic.matching.matcher": ("MatchTable", "Matcher"),
        "kindcast.semantic.matching.verification": ("Decided", "Undecided"),
        "kindcast.semantic.model": ("CanonicalEvent", "Event", "Match", "Note", "Position"),
        "kindcast.semantic.operators": ("Operator", "operator"),
        "kindcast.semantic.subscriptions.compilation": ("Compiled",),
        "kindcast.semantic.vocabulary.vocabulary": ("Vocabulary",),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
