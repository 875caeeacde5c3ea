"""What a change of vocabulary does to subscriptions: which of them mean something else, and how.

    stored trees ──footprint──▶ distinct parts ──▶ of each part: what it gains, what it loses ──▶ subscriptions
    two vocabularies ──differing_values──▶ published values that may be read otherwise ──┘

A subscription depends on few things: the concepts that it names, its attributes, its units. Many subscriptions share
them, so each distinct part is judged once, and 100,000 subscriptions on 50 terms cost 50 judgements and a walk over
their trees. A concept gains a value when an event with that value did not reach its subscribers before and does now.
"""

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from index.clause import ConceptId
from semantic.attributes import AttributeDeclaration
from semantic.differing_values import beneath, differing_values
from semantic.errors import SemanticError
from semantic.evaluation import text_test
from semantic.footprint import AttributePart, PairPart, Part, TermPart, TextPart, UnitPart, WordPart, footprint
from semantic.language import parse_tree
from semantic.model import AttributeRef, Comparison
from semantic.reading import checks_of
from semantic.schemas.enumerations import Enumeration
from semantic.vocabulary import Vocabulary

__all__ = ["Change", "Impact"]

LISTED = 20
"""Entries of a list, where nobody asks for another number; counts are always complete."""


What = Literal["gains", "loses", "gains_words", "loses_words"]


@dataclass(slots=True)
class Change:
    """How one part of subscriptions changes. `listed` are published values by what becomes of them, the first ones in
    the order of the alphabet: names that are gained or lost, and words that newly lead, or no longer lead, to names
    that were and are there. `counts` are complete. `details` is what else is to be told."""

    part: Part
    listed: dict[What, list[str]] = field(default_factory=dict)
    counts: Counter[What] = field(default_factory=Counter)
    details: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts or self.details)

    def note(self, what: What, value: str, most: int) -> None:
        """One value that is gained or lost; `most` are listed."""
        self.counts[what] += 1
        kept = self.listed.setdefault(what, [])
        if len(kept) < most:
            kept.append(value)


class Impact:
    """Collects subscriptions, and tells how each changes from one vocabulary to another. Not for several threads.

    >>> old = b"<http://e/Laptop> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> ."
    >>> new = old + b"\\n<http://e/Slate> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> ."
    >>> impact = Impact(Vocabulary.from_bytes(old, format="nt"), Vocabulary.from_bytes(new, format="nt"))
    >>> impact.add([("s1", {"isa": ["target", {"iri": "http://e/Computer"}]})])
    >>> [change.listed for change in impact.changes.values()]
    [{'gains': ['http://e/Slate']}]
    """

    def __init__(self, before: Vocabulary, after: Vocabulary, *, listed: int = LISTED) -> None:
        """`listed` bounds each list of values. Costs nothing yet."""
        self.before = before
        self.after = after
        self.listed = listed
        self.changes: dict[Part, Change] = {}
        """Of every part that changes."""
        self.live = 0
        self.changed: list[str] = []
        """Ids of the subscriptions that change, as they came."""
        self._judged: dict[Part, int] = {}  # part -> how many subscriptions have it
        self._parts_of: dict[str, tuple[Part, ...]] = {}  # of those that change

    def add(self, subscriptions: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Take in (id, stored tree). Costs a walk over each tree, and a judgement of each part that is new: together a
        walk over what is above each differing value."""
        taken = [(id, footprint(tree)) for id, tree in subscriptions]
        self.live += len(taken)
        if self.before.version == self.after.version:
            return
        fresh = {part for _, parts in taken for part in parts} - self._judged.keys()
        self._judge(fresh)
        for part in fresh:
            self._judged[part] = 0
        for id, parts in taken:
            mine = tuple(part for part in parts if part in self.changes)
            for part in parts:
                self._judged[part] += 1
            if mine:
                self.changed.append(id)
                self._parts_of[id] = mine

    def parts_of(self, id: str) -> tuple[Part, ...]:
        """The parts of a subscription that change."""
        return self._parts_of.get(id, ())

    def holders(self, part: Part) -> int:
        """How many subscriptions have this part."""
        return self._judged.get(part, 0)

    # ── judgements ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _judge(self, parts: Iterable[Part]) -> None:
        found: dict[Part, Change] = {part: Change(part) for part in parts}
        self._judge_terms({part: change for part, change in found.items() if isinstance(part, TermPart)})
        for part, change in found.items():
            match part:
                case AttributePart(name):
                    self._judge_attribute(name, change)
                case UnitPart(unit):
                    self._judge_unit(unit, change)
                case WordPart(text):
                    self._judge_word(text, change)
                case TextPart():
                    self._judge_text(part, change)
                case PairPart():
                    self._judge_pair(part, change)
                case _:
                    pass
        self.changes.update((part, change) for part, change in found.items() if change)

    def _judge_terms(self, terms: Mapping[TermPart, Change]) -> None:
        if not terms:
            return
        old, new = _Anchors(self.before), _Anchors(self.after)
        values = set(self._values)
        for part, change in terms.items():
            was, now = old.take(part), new.take(part)
            if was.iri != now.iri:
                # What it is read as is another concept: all beneath either may be gained or lost.
                values |= beneath(self.before, was.concept) | beneath(self.after, now.concept)
                change.details["replaced"] = {"from": was.iri, "to": now.iri}
            if (was.concept is None) != (now.concept is None):
                change.details["gone" if now.concept is None else "back"] = True
        for value in sorted(values):
            reached, reaches = old.reached(value), new.reached(value)
            if reached != reaches:
                named = self.before.concept(value) is not None or self.after.concept(value) is not None
                # A word that comes or goes with the concept it names is no news beside that concept.
                for part in reaches - reached if named else _news(new, old, value, reaches - reached):
                    terms[part].note("gains" if named else "gains_words", value, self.listed)
                for part in reached - reaches if named else _news(old, new, value, reached - reaches):
                    terms[part].note("loses" if named else "loses_words", value, self.listed)

    @cached_property
    def _values(self) -> frozenset[str]:
        values = differing_values(self.before, self.after)
        if self.before.meaning != self.after.meaning:  # labels of several concepts may be read by other rules
            values |= self.before.shared_labels() | self.after.shared_labels()
        return values

    def _judge_attribute(self, name: str, change: Change) -> None:
        for segment in dict.fromkeys((name, *name.split("."))):
            was, now = self._names_of[0].get(segment, frozenset()), self._names_of[1].get(segment, frozenset())
            for other in sorted(now - was):
                change.note("gains_words", other, self.listed)
            for other in sorted(was - now):
                change.note("loses_words", other, self.listed)
        declared, declares = self.before.attributes.declaration(name), self.after.attributes.declaration(name)
        if _told(declared) != _told(declares):
            change.details["declaration"] = {"from": _told(declared), "to": _told(declares)}

    @cached_property
    def _names_of(self) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
        """By attribute, the published names that count as it, before and after; of all that is declared in either."""
        schemes = (self.before.attributes, self.after.attributes)
        names = {name for each in schemes for name in (*each.declarations, *each.above, *each.synonyms)}
        names |= {text for each in schemes for one in each.declarations.values() for text, _ in one.labels}
        found: list[dict[str, frozenset[str]]] = []
        for scheme in schemes:
            counted: defaultdict[str, set[str]] = defaultdict(set)
            for name in names:
                for upper in scheme.broader(scheme.resolve(name)):
                    counted[upper].add(name)
            found.append({upper: frozenset(all) for upper, all in counted.items()})
        return found[0], found[1]

    def _judge_unit(self, unit: str, change: Change) -> None:
        was, now = _measured(self.before, unit), _measured(self.after, unit)
        if was != now:
            change.details["measure"] = {"from": was, "to": now}

    def _judge_word(self, text: str, change: Change) -> None:
        for what, word in self._rewritten.get(text, ()):
            change.note(what, word, self.listed)

    def _judge_text(self, part: TextPart, change: Change) -> None:
        """Costs a look at each word of the tables of synonyms whose texts are others."""
        predicate = parse_tree(json.loads(part.predicate))
        if not self._retold or checks_of(predicate, self.after, part.array) is not None:  # type: ignore[arg-type]
            return  # it asks for members of an enumeration or date-times
        test = text_test(predicate)
        for word, was, now in self._retold:
            held, holds = any(map(test, was)), any(map(test, now))
            if held != holds:
                change.note("gains_words" if holds else "loses_words", word, self.listed)

    def _judge_pair(self, part: PairPart, change: Change) -> None:
        """Rule 9 of meaning 2: what reads as a quantity or a date-time on both sides is no longer compared as text. Two
        attributes that are declared as numbers, or one that is as a boolean, have no such texts."""
        predicate = parse_tree(json.loads(part.predicate))
        if self.before.meaning >= self.after.meaning or not isinstance(predicate, Comparison):
            return
        scheme = self.after.attributes
        right = predicate.operand.name if isinstance(predicate.operand, AttributeRef) else ""
        found = [scheme.declaration(scheme.declared_as(name, part.array)) for name in (predicate.attribute, right)]
        kinds = [each.kind if each is not None else None for each in found]
        if "boolean" not in kinds and kinds != ["number", "number"]:
            change.details["compared"] = "quantities and date-times as such, not as texts"

    @cached_property
    def _retold(self) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """The words that tests of text see otherwise: with what they saw before, and see after."""
        words = sorted(self.before.synonyms.keys() | self.after.synonyms.keys())
        told = ((word, self.before.texts(word), self.after.texts(word)) for word in words)
        return [each for each in told if each[1] != each[2]]

    @cached_property
    def _rewritten(self) -> dict[str, list[tuple[What, str]]]:
        """By root word, the words that newly lead, or no longer lead, to it by the user's table."""
        found: defaultdict[str, list[tuple[What, str]]] = defaultdict(list)
        old, new = self.before.synonyms, self.after.synonyms
        for word in sorted(word for word, _ in old.items() ^ new.items()):
            found[old.get(word, word)].append(("loses_words", word))
            found[new.get(word, word)].append(("gains_words", word))
        return dict(found)


@dataclass(frozen=True, slots=True)
class _Anchor:
    """What a term is read as under one vocabulary: the IRI in force, and its concept if there is one."""

    iri: str
    concept: ConceptId | None


class _Anchors:
    """The terms that a published value reaches, under one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._here: defaultdict[int, set[TermPart]] = defaultdict(set)
        self._above: defaultdict[int, set[TermPart]] = defaultdict(set)

    def take(self, part: TermPart) -> _Anchor:
        """Note a term, by what rule 14 makes of its IRI."""
        vocabulary = self.vocabulary
        iri = vocabulary.replacement(part.iri) or part.iri
        concept = vocabulary.concept(iri)
        if part.test == "relation":
            if concept is not None and part.relation in vocabulary.relations:
                shadow = vocabulary.relations.shadow(part.relation, concept)
                if shadow is not None:
                    self._above[shadow].add(part)
            else:
                concept = None  # the relation is gone, or the concept
        elif concept is not None:
            if part.test in ("isa", "is"):
                self._here[concept].add(part)
            if part.test in ("isa", "below"):
                self._above[concept].add(part)
        return _Anchor(iri, concept)

    def read(self, value: str) -> tuple[ConceptId, ...]:
        """The concepts that an event with this value is about."""
        return self.vocabulary.resolve(unicodedata.normalize("NFC", value)).candidates

    def reached(self, value: str) -> set[TermPart]:
        """The terms that an event with this value satisfies. Costs a step per concept above it."""
        found: set[TermPart] = set()
        for concept in self.read(value):
            found |= self._here.get(concept, set())
            for upper in self.vocabulary.graph.ancestors(concept):
                if upper != concept:
                    found |= self._above.get(upper, set())
        return found


def _news(these: _Anchors, others: _Anchors, word: str, parts: set[TermPart]) -> set[TermPart]:
    """Of the terms that `word` reaches here alone, those not told of already by a name of the concept it leads to:
    such a name reaches the term on both sides, or on neither."""
    named: set[TermPart] = set()
    lasting: set[TermPart] = set()
    for concept in these.read(word):
        for iri in these.vocabulary.iris(concept):
            here, there = these.reached(iri), others.reached(iri)
            named |= here - there
            lasting |= there
    return parts & lasting | parts - named


def _told(declaration: AttributeDeclaration | None) -> dict[str, Any] | None:
    """What counts of a declaration: all but its names."""
    if declaration is None:
        return None
    names = (each.name for each in fields(declaration) if each.name not in ("name", "labels"))
    found = {name: value for name in names if (value := getattr(declaration, name)) not in (None, (), "")}
    return {name: _plain(value) for name, value in found.items()} or None


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Enumeration):
        order = {member: sorted(above) for member, above in sorted(value.above.items()) if above}
        return {"members": list(value.members), **({"above": order} if value.is_ordered else {})}
    return list(value) if isinstance(value, tuple) else value


def _measured(vocabulary: Vocabulary, unit: str) -> list[Any] | None:
    """Dimension and size of one of a unit."""
    try:
        measure = vocabulary.units.measure(1, unit)
    except SemanticError:
        return None
    return [measure.dimension, measure.amount]
