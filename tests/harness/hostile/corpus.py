"""The corpus itself: every trick by its name, and the words that the tricks are written with."""

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
    "plain",
    "rdfs",
]

MILLION = 1_000_000
DEEP = 100_000

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


def plain(text: str, format: str) -> Document:
    return text.encode("utf-8", "surrogatepass"), format


def rdfs(name: str) -> str:
    return f"<{RDFS}{name}>"
