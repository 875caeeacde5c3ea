"""One graph written in different ways, which must match alike (rule 21)."""

import re
from collections.abc import Iterator
from typing import Any

from pyld import jsonld
from pyoxigraph import RdfFormat, parse, serialize

from kindcast.semantic.model import Event

__all__ = ["FORMS", "forms"]

JSON_LD = "application/ld+json"
BOOLEAN = "http://www.w3.org/2001/XMLSchema#boolean"
FORMS = ("expanded", "compacted", "framed", "flattened", "n-quads", "turtle")
"""Those that `forms` may give beside the event itself."""
MOST_EXACT = 2.0**53
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*|_:[A-Za-z0-9]+")


def forms(event: Event, other: dict[str, Any]) -> dict[str, Event]:
    """`event`, whose data is JSON-LD without contexts by address, in the forms that hold the same event: expanded;
    compacted under the context `other`; flattened and put together again from its root; flattened, where the graph has
    one node; N-Quads and Turtle, where nothing is lost in them."""
    expanded = jsonld.expand(event.data)
    flattened = jsonld.flatten(expanded)
    found: dict[str, tuple[Any, str]] = {
        "expanded": (expanded, JSON_LD),
        "compacted": (jsonld.compact(expanded, {"@context": other}), JSON_LD),
    }
    (root,) = expanded
    if not root.get("@id", "_:").startswith("_:"):
        frame = {"@context": other, "@id": root["@id"], "@embed": "@once"}
        found["framed"] = (
            jsonld.frame(expanded, frame, {"omitGraph": True, "pruneBlankNodeIdentifiers": False}),
            JSON_LD,
        )
    if len(flattened) == 1:
        found["flattened"] = (flattened, JSON_LD)
    if not _leads_to(root.get("@id"), root) and all(_is_kept(each) for each in _parts(expanded)):
        quads = jsonld.to_rdf(expanded, {"format": "application/n-quads"})
        found["n-quads"] = (quads, "application/n-quads")
        turtle = serialize(
            parse(quads.encode(), RdfFormat.N_QUADS), format=RdfFormat.TURTLE, prefixes={"e": "http://example.org/"}
        )
        found["turtle"] = ((turtle or b"").decode(), "text/turtle")
    return {name: Event(data, {**event.context, "datacontenttype": kind}) for name, (data, kind) in found.items()}


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Every member of an expanded form, and every value of one."""
    if isinstance(value, list):
        for each in value:
            yield from _parts(each)
    elif isinstance(value, dict):
        if isinstance(value.get("@value"), bool) and value.get("@type", BOOLEAN) != BOOLEAN:
            yield "ill-typed", value
        for name, each in value.items():
            if not name.startswith("@"):
                yield "@id", name
            if name in ("@id", "@type", "@value"):
                yield from ((name, one) for one in (each if isinstance(each, list) else [each]))
            else:
                yield from _parts(each)


def _leads_to(iri: str | None, root: dict[str, Any]) -> bool:
    """Whether the root stands within itself: then RDF has no node without a parent."""
    inner = (each for name, each in root.items() if not name.startswith("@"))
    return iri is not None and any(("@id", iri) == part for each in inner for part in _parts(each))


def _is_kept(part: tuple[str, Any]) -> bool:
    """Whether RDF has this: names that are whole, values of the type that they are said to have, and numbers that the
    sixteen digits of its doubles hold. (Of large doubles without a fraction it makes integers.)"""
    name, value = part
    if name == "ill-typed":
        return False
    if name != "@value":
        return _IRI.fullmatch(value) is not None
    return not isinstance(value, float) or (abs(value) < MOST_EXACT and float(f"{value:.15e}") == value)
