"""What the oracle knows: plain lists of pairs, and the naive answers that follow from them (rules 2, 10, 12 to 14).

Nothing is numbered, merged or indexed. Two names are one concept when each is beneath the other; equivalent names are
beneath each other by definition, and so are names in a cycle. Every question walks the lists again.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product

__all__ = ["Declaration", "World"]

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Declaration:
    """What is declared of an attribute."""

    kind: str | None = None
    range: tuple[str, ...] = ()
    unit: str | None = None
    unit_from: str | None = None
    labels: tuple[str, ...] = ()
    enum: tuple[str, ...] = ()
    order: tuple[tuple[str, ...], ...] = ()
    derived: str | None = None
    of_types: tuple[str, ...] = ()  # the event types for which it is derived; none: all events


@dataclass(frozen=True)
class World:
    """One version of a vocabulary, as lists.

    `labels` are (iri, label, language, level) with the levels `preferred`, `synonym` and `hidden`; `replaced` are
    (deprecated iri, its replacement); `relations` are (from, to) pairs by relation; `subproperties` are (narrower,
    broader) names of attributes.
    """

    narrower: Pairs = ()
    individuals: Pairs = ()
    equivalent: Pairs = ()
    labels: tuple[tuple[str, str, str | None, str], ...] = ()
    names: tuple[str, ...] = ()
    prefixes: Pairs = ()
    replaced: Pairs = ()
    relations: Mapping[str, Pairs] = field(default_factory=dict)
    subproperties: Pairs = ()
    declarations: Mapping[str, Declaration] = field(default_factory=dict)
    synonyms: Mapping[str, str] = field(default_factory=dict)
    array: str = ""

    # ── concepts ────────────────────────────────────────────────────────────────────────────────────────────────

    def concepts(self) -> set[str]:
        """Every name of a concept, and what is equivalent to one."""
        known = set(self.names) | {iri for iri, *_ in self.labels}
        known |= {name for pair in (*self.narrower, *self.individuals, *self.replaced) for name in pair}
        known |= {name for pairs in self.relations.values() for pair in pairs for name in pair}
        pairs = [pair for one, other in self.equivalent for pair in ((one, other), (other, one))]
        return _closed(known, pairs)

    def above(self, iri: str) -> set[str]:
        """`iri` and every class or broader concept above it; equivalent names are above each other."""
        pairs = [*self.narrower, *self.equivalent, *((other, one) for one, other in self.equivalent)]
        return _closed({iri}, pairs)

    def same(self, one: str, other: str) -> bool:
        """Whether two names are one concept."""
        return other in self.above(one) and one in self.above(other)

    def isa(self, value: str, concept: str) -> bool:
        """Rule 10: upwards any number of steps, entered by at most one step from an individual to its class."""
        return concept in self.kinds(value)

    def kinds(self, value: str) -> set[str]:
        """All that `value` is: itself and what is above it, and above each of its classes."""
        classes = {cls for individual, cls in self.individuals if self.same(individual, value)}
        return {upper for start in {value, *classes} for upper in self.above(start)}

    def related(self, value: str, relation: str, concept: str) -> bool:
        """Rule 11: what `value` is leads by the relation to something, which may be `concept`, and leads on."""
        pairs = self.relations[relation]
        arrived: set[str] = set()
        here = self.kinds(value)
        while True:
            ends = {right for left, right in pairs if left in here} - arrived
            if not ends:
                return any(concept in self.kinds(end) for end in arrived)
            arrived |= ends
            here = {kind for end in ends for kind in self.kinds(end)}

    # ── terms (rules 12, 13) ────────────────────────────────────────────────────────────────────────────────────

    def readings(self, text: str, within: Iterable[str] = ()) -> set[str]:
        """The concepts that a published string may mean, one name each; `within` decides where it leaves one."""
        found = self._distinct(self._current(self._named(text)))
        if len(found) > 1:
            kept = {iri for iri in found if any(self.isa(iri, upper) for upper in within)}
            if len(kept) == 1:
                return kept
        return found

    def _named(self, text: str) -> set[str]:
        concepts = self.concepts()
        if text in concepts:
            return {text}
        prefix, colon, rest = text.partition(":")
        curies = {space + rest for name, space in self.prefixes if colon and name == prefix} & concepts
        if curies:
            return curies
        short = f"{prefix}_{rest}" if colon else text
        local = {iri for iri in concepts if local_name(iri) == short} if short else set()
        if len(self._distinct(local)) == 1:
            return local
        for level, shape in (("preferred", _nfc), ("preferred", folded), ("synonym", folded)):
            hits = {iri for iri, label, _, its in self.labels if its == level and shape(label) == shape(text) != ""}
            if hits:
                return hits
        return set()

    def _current(self, iris: set[str]) -> set[str]:
        """Deprecated names give way to what replaces them (rule 12)."""
        current = set()
        for iri in iris:
            later = {new for old, new in self.replaced if old == iri}
            current |= self._current(later - {iri}) if later else {iri}
        return current

    def successor(self, iri: str) -> str:
        """Rule 14: what a stored name means now: its replacement, if that is one concept, else itself."""
        found = self._distinct(self._current({iri}))
        return found.pop() if len(found) == 1 and iri in {old for old, _ in self.replaced} else iri

    def _distinct(self, iris: set[str]) -> set[str]:
        """One name of each concept among `iris`."""
        distinct: set[str] = set()
        for iri in sorted(iris):
            if not any(self.same(iri, other) for other in distinct):
                distinct.add(iri)
        return distinct

    def root_word(self, text: str) -> str:
        """The user's root word for `text`, in NFC."""
        text, seen = _nfc(text), set()
        while text in self.synonyms and text not in seen:
            seen.add(text)
            text = self.synonyms[text]
        return _nfc(text)

    # ── enumerations (rule 9) ──────────────────────────────────────────────────────────────────────────────────

    def members(self, name: str) -> set[str]:
        """The members of an attribute that is declared as an enumeration, as root words."""
        return set(map(self.root_word, self.declaration(name).enum))

    def is_above(self, name: str, high: str, low: str) -> bool:
        """Whether the order of the enumeration leads from `low` up to `high`, in one step or more."""
        chains = self.declaration(name).order
        steps = [(self.root_word(one), self.root_word(two)) for chain in chains for one, two in pairwise(chain)]
        return high in _closed({two for one, two in steps if one == low}, steps)

    # ── attributes (rule 2) ─────────────────────────────────────────────────────────────────────────────────────

    def inside(self, array: str) -> "World":
        """The same, where names are seen from an element of `array` (rule 3)."""
        return replace(self, array=f"{self.array}.{array}" if self.array else array)

    def attribute(self, raw: str) -> str:
        """The name that a published or written attribute name means, segment by segment; inside elements of an array
        one whose dotted name is declared is as it is."""
        if self.array and f"{self.array}.{raw}" in self.declarations:
            return raw
        return raw if raw in self._declared() else ".".join(map(self._segment, raw.split(".")))

    def broader(self, name: str) -> set[str]:
        """`name` and every name above it, on any segment."""
        choices = [_closed({segment}, self.subproperties) for segment in name.split(".")]
        return {".".join(each) for each in product(*choices)} | _closed({name}, self.subproperties)

    def declaration(self, name: str) -> Declaration:
        """What is declared of the whole name, else of its last segment; inside elements of an array first of all of
        the name with that of the array before it."""
        if self.array and f"{self.array}.{name}" in self.declarations:
            return self.declarations[f"{self.array}.{name}"]
        last = name.rpartition(".")[2]
        return self.declarations.get(name) or self.declarations.get(last) or Declaration()

    def _segment(self, segment: str) -> str:
        if segment in self._declared():
            return segment
        if segment in self.synonyms:
            return self.root_word(segment)
        labelled = {
            name
            for name, declaration in self.declarations.items()
            if folded(segment) in map(folded, declaration.labels)
        }
        return labelled.pop() if len(labelled) == 1 else segment

    def _declared(self) -> set[str]:
        return {*self.declarations, *(name for pair in self.subproperties for name in pair)}


def local_name(iri: str) -> str:
    """What follows the last `#` or `/`."""
    return iri.replace("#", "/").rpartition("/")[2]


def folded(text: str) -> str:
    """For comparisons that forgive case, width and white space (rule 12)."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _closed(start: Iterable[str], pairs: Iterable[tuple[str, str]]) -> set[str]:
    """`start` and all that pairs lead to, from left to right, in any number of steps."""
    reached, pairs = set(start), list(pairs)
    while True:
        more = {right for left, right in pairs if left in reached} - reached
        if not more:
            return reached
        reached |= more
