"""Meaning: ontologies, subscriptions, events, and what matches what.

>>> from semantic import Matcher, Vocabulary
>>> prefixes = b"@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
>>> classes = b':Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop"@en , "Notebook"@de .'
>>> matcher = Matcher(Vocabulary.from_bytes(prefixes + classes, format="turtle"))
>>> matcher.add("s1", "target isa Computer and price <= 400").canonical
'target isa <http://example.org/Computer> and price <= 400'
>>> [match.subscription for match in matcher.match({"target": "Notebook", "price": 350})]
['s1']
"""

from semantic.compilation import Compiled
from semantic.errors import InvalidEvent, InvalidSubscription, OntologyError, Problem, SemanticError
from semantic.explain import explain
from semantic.matcher import Matcher, MatchTable
from semantic.model import CanonicalEvent, Event, Match, Note, Position
from semantic.operators import Operator, operator
from semantic.results import Decided, Undecided
from semantic.vocabulary import Vocabulary

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
