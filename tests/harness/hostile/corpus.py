"""The corpus itself: every trick by its name, and the words that the tricks are written with."""

import os
from collections.abc import Callable

from tests.harness.hostile.canary import Canary

__all__ = [
    "CORPUS",
    "DEEP",
    "HEAD",
    "MILLION",
    "OWL",
    "RDF",
    "RDFS",
    "SKOS",
    "TURTLE",
    "Document",
    "hostile",
    "many",
    "plain",
    "rdfs",
]

MILLION = 1_000_000
DEEP = 100_000
SHARE = 1 if os.environ.get("KINDCAST_HOSTILE_WHOLE") else 20
"""Large documents have a twentieth of their statements in `make test`, and all in `make campaign hostile`."""

OWL = "http://www.w3.org/2002/07/owl#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
SKOS = "http://www.w3.org/2004/02/skos/core#"
TURTLE = f"@prefix : <http://e/> . @prefix rdf: <{RDF}> . @prefix rdfs: <{RDFS}> . @prefix owl: <{OWL}> .\n"
HEAD = f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:rdfs="{RDFS}" xmlns:owl="{OWL}">'


Document = tuple[bytes, str]

CORPUS: dict[str, Callable[[Canary], Document]] = {}


def hostile(build: Callable[[Canary], Document]) -> Callable[[Canary], Document]:
    """One more trick."""
    CORPUS[build.__name__] = build
    return build


def many(count: int) -> int:
    """How many statements of `count` a document has, which costs in proportion to them."""
    return count // SHARE


def plain(text: str, format: str) -> Document:
    return text.encode("utf-8", "surrogatepass"), format


def rdfs(name: str) -> str:
    return f"<{RDFS}{name}>"
