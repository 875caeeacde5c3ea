"""Access control for attributes: which values a role may read, and on which values it may match.

    declarations: readable_by, matchable_by ──view_of_roles──▶ View of some roles ──▶ an event without hidden values
                                                                             └─────▶ hidden attributes of a subscription

docs/security.md has the rules. In doubt, a view hides a value: what it shows never depends on a hidden value.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kindcast.semantic.model import aggregate_of
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.vocabulary.attributes import AttributeScheme, segments_of
from kindcast.semantic.vocabulary.derivation import Derivations
from kindcast.semantic.vocabulary.event_types import CODES, NUMBERS, SYSTEMS, UNITS

__all__ = ["View", "is_linked", "view_of_roles"]

LINKED_DATA = ("@context", "@graph", "@id")
"""Members that mark linked data, whose keys may mean any attribute: such data is hidden as a whole."""

ADMINISTRATOR = "admin"

Segments = tuple[str, ...]


MOST_LOOKED_UP = 50_000
"""The number of names that are looked up for the data of one event. A path of n names counts n (n + 1) / 2: each of its
ends may be an attribute. A look-up costs some 4 µs, and other events wait."""


def view_of_roles(scheme: AttributeScheme, derivations: Derivations, roles: Collection[str] | None) -> "View | None":
    """Returns what these roles may see under a vocabulary. None means everything: nothing is hidden from them, one of
    them is `admin`, or the server has no keys (`roles` is None). Linear in the declarations."""
    if roles is None or ADMINISTRATOR in roles:
        return None
    having = frozenset(roles)
    unreadable: set[Segments] = set()
    unmatchable: set[Segments] = set()
    for name, each in scheme.declarations.items():
        # Also as a longer name has it: its segments may have synonyms or labels, those of a declared name have none.
        names = {tuple(segments_of(one)) for one in (name, scheme.resolve_segments(name))}
        if each.readable_by is not None and not each.readable_by & having:
            unreadable |= names
        if each.matchable_by is not None and not each.matchable_by & having:
            unmatchable |= names
    if not unreadable and not unmatchable:
        return None
    return View(scheme, derivations, frozenset(unreadable), frozenset(unmatchable))


@dataclass(frozen=True)
class View:
    """What is hidden from some roles: the names of attributes, as segments, whose values they may not read
    (`unreadable`), and on which they may not match (`unmatchable`). A name hides each name that contains it: `ssn` also
    hides `patient.ssn` and `ssn.year`."""

    scheme: AttributeScheme
    derivations: Derivations
    unreadable: frozenset[Segments]
    unmatchable: frozenset[Segments]
    _closed: dict[frozenset[Segments], frozenset[Segments]] = field(default_factory=dict, compare=False)

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def readable(self, body: str) -> str:
        """Returns a CloudEvent (JSON) without the values that may not be read."""
        return self._without(body, self.unreadable)

    def explainable(self, body: str, *, keeps_linked: bool = False) -> str:
        """Returns a CloudEvent (JSON) without the values that may not be read or may not be matched on. With
        `keeps_linked`, linked data stays whole: for verdicts on expressions without hidden attributes, whose
        explanations are not shown."""
        return self._without(body, self.unreadable | self.unmatchable, keeps_linked=keeps_linked)

    def matchable(self, body: str) -> str:
        """Returns a CloudEvent (JSON) without the values that may not be matched on."""
        return self._without(body, self.unmatchable)

    def _without(self, body: str, hidden: frozenset[Segments], *, keeps_linked: bool = False) -> str:
        """Returns a CloudEvent without hidden values. Data whose keys cannot be checked (linked data, text, bytes) is
        removed as a whole."""
        event = msgspec.json.decode(body)
        kept = {name: each for name, each in event.items() if name == "data" or not self._hides(f"ce.{name}", hidden)}
        kept.pop("data_base64", None)
        data = kept.get("data")
        if is_linked(event.get("datacontenttype"), data):
            if not keeps_linked:
                del kept["data"]
        elif isinstance(data, dict | list):
            kept["data"] = _pruned(data, (), _Paths(lambda name: self._hides(name, hidden)))
        elif data is not None:
            del kept["data"]
        return msgspec.json.encode(kept).decode()

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _hides(self, name: str, hidden: frozenset[Segments]) -> bool:
        """Whether the values under this name are values of a hidden attribute, by any of the attribute's names."""
        return any(contains(tuple(segments_of(each)), hidden) for each in self._names(name))

    def _names(self, name: str) -> Iterator[str]:
        """Yields the resolved name of the attribute (of an aggregate: of its attribute), the name before a synonym of
        the whole name replaced it, the local names of both, and the names above these."""
        aggregate = aggregate_of(name)
        name = nfc(name if aggregate is None else aggregate[1])
        name = name.replace("[]", "")  # the mark of a list of objects, which `exists` can test
        names = dict.fromkeys((self.scheme.resolve(name), self.scheme.resolve_segments(name)))
        for each in dict.fromkeys((*names, *map(self.scheme.localised, names))):
            yield each
            yield from self.scheme.broader(each)
            if "^" in each:  # an inverse property: its values are those of the property itself
                yield from self.scheme.broader(each.replace("^", ""))

    def rests_on_hidden(self, name: str) -> bool:
        """Whether a predicate on this attribute could reveal a value that may not be matched on."""
        return self._rests(name, self._telling(self.unmatchable))

    def _rests(self, name: str, telling: frozenset[Segments]) -> bool:
        if self._hides(name, telling):
            return True
        found = [tuple(segments_of(each)) for each in self._names(name)]
        return any(is_above(each, hidden) for each in found for hidden in telling)

    def _telling(self, hidden: frozenset[Segments]) -> frozenset[Segments]:
        """Returns the hidden names and all names whose values depend on theirs: the names above them, the attributes
        derived from them, the attributes that have their unit, number or code in them, the root words of names that
        contain them, and their inverse properties. Cached."""
        known = self._closed.get(hidden)
        if known is not None:
            return known
        found = set(hidden)
        for iri in self.scheme.inverses:  # `@reverse` states them of the other node, under the names of their inverses
            if self._hides(f"<{iri}>", hidden):
                found.update(tuple(segments_of(each)) for each in self.scheme.broader(f"^<{iri}>"))
        renamed = [(word, root) for word, root in self.scheme.renamed.items() if "." in word]
        while True:
            so_far = frozenset(found)
            found.update(tuple(segments_of(root)) for word, root in renamed if self._rests(word, so_far))
            found.update(tuple(segments_of(up)) for each in so_far for up in self.scheme.broader(".".join(each)))
            for derivation in self.derivations:
                if any(self._rests(name, so_far) for name in derivation.reads):
                    found.add(tuple(segments_of(derivation.attribute)))
            for name, each in self.scheme.declarations.items():
                members = [each.unit_from] if each.unit_from else []
                if each.quantity is not None:
                    members += [each.quantity.number] if each.quantity.number else NUMBERS
                    members += [each.quantity.unit] if each.quantity.unit else UNITS
                if each.code is not None:
                    members += [each.code.code] if each.code.code else CODES
                    members += [each.code.system] if each.code.system else SYSTEMS
                places = [place for member in members for place in (member, f"{name}.{member}")]
                if any(self._hides(place, so_far) for place in places):
                    found.add(tuple(segments_of(name)))
            if found == so_far:
                self._closed[hidden] = so_far
                return so_far

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    def hidden_in(
        self, attributes: Iterable[str], operators: Iterable[str] = (), *, explained: bool = False
    ) -> list[str]:
        """Returns the hidden attributes that a subscription uses, and all operators that it calls, because an operator
        sees the whole event. `explained`: also the attributes that may be matched on but not read, because an
        explanation shows values."""
        found = [
            each
            for each in attributes
            if self.rests_on_hidden(each) or (explained and self._rests(each, self._telling(self.unreadable)))
        ]
        return found + [f"{each}(…)" for each in operators]


def contains(name: Segments, hidden: Collection[Segments]) -> bool:
    """Whether the name contains a hidden name, segment by segment.

    >>> contains(("patient", "ssn", "year"), {("ssn",)}), contains(("ssn2",), {("ssn",)})
    (True, False)
    """
    return any(name[at : at + len(each)] == each for each in hidden for at in range(len(name) - len(each) + 1))


def is_above(name: Segments, hidden: Segments) -> bool:
    """Whether `name` ends with the beginning of a hidden name. Then the hidden values are a part of its values.

    >>> is_above(("a", "patient"), ("patient", "ssn")), is_above(("patient",), ("ssn",))
    (True, False)
    """
    return any(name[-size:] == hidden[:size] for size in range(1, len(hidden)))


def is_linked(content_type: object, data: Any) -> bool:
    """Whether the data of an event is JSON-LD: by its content type, or because any object has a member that marks
    it."""
    if isinstance(data, dict | list) and isinstance(content_type, str) and "ld+json" in content_type.lower():
        return True
    waiting = [data]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            if any(each in node for each in LINKED_DATA):
                return True
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return False


class _Paths:
    """Which paths in the data of one event lead to hidden values. Each is decided once; after `MOST_LOOKED_UP` look-ups
    all others count as hidden."""

    def __init__(self, hides: Callable[[str], bool]) -> None:
        self._hides = hides
        self._known: dict[Segments, bool] = {}
        self._left = MOST_LOOKED_UP

    def hides(self, path: Segments) -> bool:
        known = self._known.get(path)
        if known is None:
            self._left -= len(path) * (len(path) + 1) // 2
            ends = (".".join(path[start:]) for start in range(len(path)))
            known = self._known[path] = self._left < 0 or any(map(self._hides, ends))
        return known


def _pruned(node: Any, path: Segments, paths: _Paths) -> Any:
    """Returns data without the members whose path leads to hidden values."""
    if isinstance(node, list):
        return [_pruned(each, path, paths) for each in node]
    if not isinstance(node, dict):
        return node
    inner = {name: (*path, *name.split(".")) for name in node}
    return {name: _pruned(value, inner[name], paths) for name, value in node.items() if not paths.hides(inner[name])}
