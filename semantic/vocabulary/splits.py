"""Envelopes: which documents hold several events, and where (docs/matching-semantics.md, rule 21).

    {"split": "epcisBody.eventList", "inherit": "@context", "where": {"type": "EPCISDocument"}, "id": "eventID"}

A path is names of members with dots; it goes through every element of a list. `<IRI>` as a path is a property of a
graph.
Envelopes of common standards are shipped; a declaration of the same name goes before the shipped one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kindcast.semantic.errors import InvalidDeclaration

__all__ = ["SHIPPED_SPLITS", "Path", "Split", "Splits", "path_of", "split_of"]

KEYS: Final = frozenset({"split", "inherit", "where", "id", "revision"})
MOST_PATHS: Final = 16
MOST_SPLITS: Final = 200
LONGEST_PATH: Final = 1_000
ANY: Final = "*"
"""At the end of a text of `where`: whatever goes on from here."""

Path = tuple[str, ...]

_LINKED = "@context"
SHIPPED_SPLITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "epcis": {
        "split": ["epcisBody.eventList", "epcisBody.queryResults.resultsBody.eventList"],
        "inherit": [_LINKED],
        "where": {"type": ["EPCISDocument", "EPCISQueryDocument"]},
        "id": ["eventID"],
        "revision": ["errorDeclaration.declarationTime"],
    },
    "fhir": {
        "split": ["entry.resource"],
        "where": {"resourceType": ["Bundle"], "ce.datacontenttype": ["application/fhir+json*"]},
    },
    "stix": {
        "split": ["objects"],
        "where": {"type": ["bundle"], "id": ["bundle--*"]},
        "id": ["id"],
        "revision": ["modified"],
    },
    "activitystreams": {
        "split": ["items", "orderedItems"],
        "inherit": [_LINKED],
        "where": {
            _LINKED: ["https://www.w3.org/ns/activitystreams"],
            "type": ["Collection", "OrderedCollection", "CollectionPage", "OrderedCollectionPage"],
        },
        "id": ["id", "@id"],
        "revision": ["updated"],
    },
    "ngsi-ld": {
        "split": ["data"],
        "inherit": [_LINKED],
        "where": {_LINKED: ["https://uri.etsi.org/ngsi-ld/*"], "type": ["Notification"]},
        "id": ["id"],
    },
    "ldes": {"split": ["tree:member", "<https://w3id.org/tree#member>"], "inherit": [_LINKED], "id": ["@id", "id"]},
}
"""Envelopes that are known without a declaration, as declarations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """An envelope: `paths` to its events, those of `inherit` to what each event gets of it. `where` names attributes as
    they are published, and what one of their values must be. `id` and `revision` are where an event says them."""

    name: str
    paths: tuple[Path, ...]
    inherit: tuple[Path, ...] = ()
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    id: tuple[str, ...] = ()
    revision: tuple[str, ...] = ()

    @property
    def properties(self) -> tuple[str, ...]:
        """The paths that are properties of graphs, as IRIs."""
        return tuple(path[0][1:-1] for path in self.paths if path[0].startswith("<"))

    @property
    def members(self) -> tuple[Path, ...]:
        """The paths through members of JSON."""
        return tuple(path for path in self.paths if not path[0].startswith("<"))

    @property
    def declaration(self) -> dict[str, Any]:
        """What `split_of` reads."""
        found: dict[str, Any] = {"split": [".".join(path) for path in self.paths]}
        found |= {"inherit": [".".join(path) for path in self.inherit]} if self.inherit else {}
        found |= {"where": {name: list(texts) for name, texts in self.where}} if self.where else {}
        return found | {key: list(names) for key, names in (("id", self.id), ("revision", self.revision)) if names}


def path_of(text: str) -> Path:
    """The steps of a path.

    >>> path_of("entry.resource"), path_of("<https://w3id.org/tree#member>")
    (('entry', 'resource'), ('<https://w3id.org/tree#member>',))
    """
    return (text,) if text.startswith("<") else tuple(text.split("."))


def split_of(name: str, declared: Any) -> Split:
    """What a declaration says. Raises `InvalidDeclaration`."""
    what = f"split {name!r}"
    if not isinstance(declared, Mapping) or declared.keys() - KEYS or "split" not in declared:
        raise InvalidDeclaration(
            f"{what}: an object with split is expected, and with {', '.join(sorted(KEYS - {'split'}))} where wanted"
        )
    where = declared.get("where", {})
    if not isinstance(where, Mapping) or len(where) > MOST_PATHS:
        raise InvalidDeclaration(f"{what}: where is an object of at most {MOST_PATHS} members")
    conditions: list[tuple[str, tuple[str, ...]]] = []
    for key, texts in where.items():
        listed = texts if isinstance(texts, list) else [texts]
        if not 0 < len(listed) <= MOST_PATHS or not all(isinstance(each, str) and each for each in listed):
            raise InvalidDeclaration(f"{what}: where must give {key} a text, or a list of at most {MOST_PATHS} texts")
        conditions.append((key, tuple(listed)))
    names = {key: _names(what, key, declared.get(key, [])) for key in KEYS - {"where"}}
    if any(each.startswith("<") for key in ("inherit", "id", "revision") for each in names[key]):
        raise InvalidDeclaration(f"{what}: only split names a property of a graph")
    _names(what, "where", list(where))
    return Split(
        name=name,
        paths=tuple(map(path_of, names["split"])),
        inherit=tuple(map(path_of, names["inherit"])),
        where=tuple(conditions),
        id=names["id"],
        revision=names["revision"],
    )


def _names(what: str, key: str, given: Any) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or len(listed) > MOST_PATHS:
        raise InvalidDeclaration(f"{what}: {key} is a path, or a list of at most {MOST_PATHS} paths")
    for each in listed:
        is_text = isinstance(each, str) and 0 < len(each) <= LONGEST_PATH
        if not is_text or (each.startswith("<") and not (each.endswith(">") and len(each) > 2)):
            raise InvalidDeclaration(f"{what}: {key} names members with dots, such as epcisBody.eventList")
        if not all(path_of(each)):
            raise InvalidDeclaration(f"{what}: {key}: {each!r} has an empty name")
    return tuple(listed)


class Splits:
    """The envelopes of one vocabulary: declared ones in the order of their names, then shipped ones. Immutable."""

    def __init__(self, declared: Mapping[str, Any] | None = None, *, shipped: bool = True) -> None:
        """Raises `InvalidDeclaration`. A declaration without any path switches off the shipped one of its name."""
        given = dict(sorted((declared or {}).items()))
        if len(given) > MOST_SPLITS:
            raise InvalidDeclaration(f"at most {MOST_SPLITS} splits can be declared, not {len(given)}")
        whole = {
            **given,
            **({name: body for name, body in SHIPPED_SPLITS.items() if name not in given} if shipped else {}),
        }
        self.all = tuple(found for name, body in whole.items() if (found := split_of(name, body)).paths)
        self.properties = tuple(dict.fromkeys(each for split in self.all for each in split.properties))
        """Those of graphs, whose values are events."""
        self.names = frozenset(path[0] for split in self.all for path in split.members)
        """The members of a document that may lead to its events: one that has none of these is no envelope."""
