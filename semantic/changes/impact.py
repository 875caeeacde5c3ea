"""The impact of a vocabulary change: which subscriptions change their meaning, and how.

    stored trees ──footprint──▶ distinct parts ──▶ of each part: what it gains, what it loses ──▶ subscriptions
    two vocabularies ──differing_values──▶ published values that may be read otherwise ──┘

A subscription depends on few things: the concepts that it names, its attributes, its units. Many subscriptions share
them, so each distinct part is judged once, and 100,000 subscriptions on 50 terms cost 50 judgements and a walk over
their trees. A concept gains a value when an event with that value did not reach its subscribers before and does now.

`impact_of_rules` is the same for new rules: what the present rules change for subscriptions that were made under a
former meaning. The active documents and declarations are read by the former rules too, where these differ, and the
two vocabularies are compared like those of two versions of an ontology. docs/matching-semantics.md:

    rule 9    the root word stood in place of the published text, and a term was read by its root word first; two
              attributes with quantities or date-times as texts were compared as texts
    rule 10   every `skos:exactMatch` merged two concepts
    rule 26   (since meaning 3) a date was a text: dates compare with date-times now, and, where they are declared so,
              quoted dates and numbers since 1970; (since meaning 4) a sum of date-times and an aggregate of versions
              or addresses were compared as such: they are plain numbers
    rule 12   individuals that share a name with one class stayed candidates in events
    rule 15   (since meaning 5) the unit mil had another size, and `unit:MIL` and `unit:CUP` of QUDT were other units
    rule 14   (since meaning 6) `not` of a list held although one of its concepts was removed; (since meaning 7) `not`
              of `some`, of `every` and of a group with variables held although a concept in it was removed; (since
              meaning 9) a stored text under an attribute that was declared to hold concepts later was read by its label

What meaning 5 changes about events alone (years in graphs, IRIs of units, labels of other names, relative IRIs), and
meaning 7 (nodes that counted twice, null members beside a quantity) and meaning 9 (numbers in quotes that are labels),
cannot be told from subscriptions.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from kindcast.index.clause import ConceptId
from kindcast.semantic.conditions.predicates import checks_of, holds_instants, is_plain_number, text_test
from kindcast.semantic.errors import SemanticError
from kindcast.semantic.language import parse_tree, to_text
from kindcast.semantic.model import AGGREGATES, AttributeRef, Comparison
from kindcast.semantic.ontology import ConceptRecord, Ontology
from kindcast.semantic.ontology.records import local_name
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units.kinds import parse_dates, parse_instant
from kindcast.semantic.vocabulary.attributes import AttributeDeclaration, Enumeration, segments_of
from kindcast.semantic.vocabulary.contexts import context_terms, term_definitions
from kindcast.semantic.vocabulary.event_types import CodeMembers, QuantityMembers
from kindcast.semantic.vocabulary.identifiers import IdentifierPattern
from kindcast.semantic.vocabulary.labels import Resolution
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = [
    "AttributePart",
    "FormerVocabulary",
    "Impact",
    "TermPart",
    "differing_values",
    "footprint",
    "impact_of_rules",
    "impact_report",
]


# Footprints: the parts on which a stored subscription depends, which are the concepts, attributes, units and words in
# its tree.
#
# Only stored trees are read (`Compiled.tree`). In these, terms are IRIs and attributes have canonical names. The cost
# is a few microseconds per predicate, so that 100,000 trees can be read while a server works.


class TermPart(NamedTuple):
    """A concept, identified by its IRI, and the test on it. `relation` is empty unless the test is a relation. The IRI
    of the test `instance` need not be the IRI of a concept (rule 25)."""

    test: Literal["isa", "below", "is", "relation", "instance"]
    iri: str
    relation: str = ""


class AttributePart(NamedTuple):
    """An attribute by its name."""

    attribute: str


class UnitPart(NamedTuple):
    """A unit as it is written."""

    unit: str


class WordPart(NamedTuple):
    """A string that is compared for equality."""

    word: str


class TextPart(NamedTuple):
    """A predicate that searches texts or compares them by order, as the JSON of its tree. Inside `some`, `array` is the
    full name of the array."""

    predicate: str
    array: str = ""


class PairPart(NamedTuple):
    """A comparison of two attributes, as the JSON of its tree. `array` is as in `TextPart`."""

    predicate: str
    array: str = ""


class DatesPart(NamedTuple):
    """An attribute that is compared with a date-time, a text that is a date, a number, or, by `=` or `in`, with another
    text. `array` is as in `TextPart`. `function` is set if its sum, minimum or maximum is compared, with whatever
    constant."""

    attribute: str
    constant: Literal["date-time", "date", "number", "text"]
    array: str = ""
    function: str = ""


class ExcludedPart(NamedTuple):
    """A concept beneath `not`, identified by its IRI: of a list, or in the parentheses of `some`, `every` or a group
    with variables."""

    iri: str
    within: Literal["a list", "parentheses"]

    @property
    def since(self) -> int:
        """The meaning since which its removal makes the negation false."""
        return 6 if self.within == "a list" else 7


class NamePart(NamedTuple):
    """An attribute with the name `every`, which is now a keyword before a relation."""

    attribute: str


Part = NamePart | DatesPart | TermPart | ExcludedPart | AttributePart | UnitPart | WordPart | TextPart | PairPart


def footprint(tree: Any) -> tuple[Part, ...]:
    """Returns the distinct parts of a stored tree, in the order of the tree. Linear; never recurses.

    >>> footprint({"all": [{"isa": ["target", {"iri": "http://e/Computer"}]}, {"<=": ["price", 400]}]})[:2]
    (AttributePart(attribute='target'), TermPart(test='isa', iri='http://e/Computer', relation=''))
    """
    return tuple(dict.fromkeys(_parts(tree)))


def _parts(tree: Any) -> Iterator[Part]:
    waiting = [("", tree, False, False)]
    while waiting:
        array, node, negated, inside = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        for key, operands in node.items():
            match key, operands:
                case (("all" | "any"), [*items]):
                    waiting.extend((array, item, negated, inside) for item in reversed(items))
                case "not", item:
                    waiting.append((array, item, True, inside or '"?' in json.dumps(item)))  # a variable
                case "every", {**item}:
                    waiting.append((array, item, negated, inside))
                case (("some" | "every"), [str(attribute), item]):
                    waiting.append((f"{array}.{attribute}" if array else attribute, item, negated, inside or negated))
                case _, [*_, terms] if inside or (negated and isinstance(terms, list)):
                    yield from (ExcludedPart(iri, "parentheses" if inside else "a list") for iri in _iris(terms))
            for part in _parts_of(key, operands):
                yield part if not isinstance(part, TextPart | PairPart | DatesPart) else part._replace(array=array)
                if array and isinstance(part, AttributePart):
                    # Inside elements of an array, the declaration of the full dotted name has precedence.
                    yield AttributePart(f"{array}.{part.attribute}")


def _parts_of(key: str, operands: Any) -> Iterator[Part]:
    """Yields the parts of one predicate. Parts inside `all`, `any`, `not`, `some` and `every` are left to `_parts`."""
    match key, operands:
        case (("all" | "any" | "not"), _):
            pass
        case "every", {}:
            pass
        case (("some" | "every"), [str(attribute), _]):
            yield AttributePart(attribute)
        case (("isa" | "below" | "is"), [attribute, terms]):
            yield from _attribute_parts(attribute)
            yield from (TermPart(key, iri) for iri in _iris(terms))
        case "relation", [attribute, str(relation), terms]:
            yield from _attribute_parts(attribute)
            if attribute in ("every", "EVERY"):
                yield NamePart(attribute)
            yield from (TermPart("relation", iri, relation) for iri in _iris(terms))
        case (("exists" | "missing"), attribute):
            yield from _attribute_parts(attribute)
        case (("startswith" | "endswith" | "contains" | "matches"), [attribute, *_]):
            yield from _attribute_parts(attribute)
            yield TextPart(json.dumps({key: operands}))
        case "op", [_, *arguments]:
            for each in arguments:
                if isinstance(each, Mapping):
                    yield from _operand(each, equal=False)
        case _, [attribute, operand, *_]:  # the comparisons, `in` and `between`
            yield from _attribute_parts(attribute)
            several = operand if isinstance(operand, list) else [operand]
            for each in several:
                yield from _operand(each, equal=key in ("=", "!=", "in"))
                kind = _dated(each)
                other = "date-time" if key in EQUALS else "text"
                if kind is not None and kind != other and isinstance(attribute, str):
                    yield DatesPart(attribute, kind)
            if isinstance(attribute, Mapping):
                functions = (each for each in AGGREGATES if each in attribute and each != "count")
                yield from (DatesPart(attribute[each], "number", "", each) for each in functions)
            if isinstance(operand, Mapping) and any(each in operand for each in ("attribute", *AGGREGATES)):
                yield PairPart(json.dumps({key: operands}))
            elif key not in ("=", "!=", "in") and any(isinstance(each, str) for each in several):
                yield TextPart(json.dumps({key: operands}))


EQUALS = frozenset({"=", "!=", "in"})


def _dated(operand: Any) -> Literal["date-time", "date", "number", "text"] | None:
    """Returns how a constant compares with an attribute that holds dates, or `text` for another text."""
    match operand:
        case {"instant": str()}:
            return "date-time"
        case str() if parse_instant(operand) is not None:
            return "date-time"
        case str() if parse_dates(operand, year=True) is not None:
            return "date"
        case str():
            return "text"
        case int() | float() if not isinstance(operand, bool):
            return "number"
        case _:
            return None


def _attribute_parts(name: Any) -> Iterator[Part]:
    if isinstance(name, Mapping):
        name = next((name[key] for key in ("attribute", *AGGREGATES) if key in name), None)
    if isinstance(name, str) and not name.startswith("?"):
        yield AttributePart(name)


def _operand(operand: Any, *, equal: bool) -> Iterator[Part]:
    if isinstance(operand, str):
        if equal:
            yield WordPart(operand)
    elif isinstance(operand, Mapping):
        if isinstance(operand.get("iri"), str):
            yield TermPart("is", operand["iri"])
        elif isinstance(operand.get("instance"), str):
            yield TermPart("instance", operand["instance"])
        elif isinstance(operand.get("unit"), str):
            yield UnitPart(operand["unit"])
        elif isinstance(operand.get("attribute"), str):
            yield AttributePart(operand["attribute"])
        elif any(isinstance(operand.get(each), str) for each in AGGREGATES):
            yield from _attribute_parts(operand)
        elif equal and isinstance(operand.get("value"), str):
            yield WordPart(operand["value"])


def _iris(terms: Any) -> Iterator[str]:
    for term in terms if isinstance(terms, list) else [terms]:
        if isinstance(term, Mapping) and isinstance(term.get("iri"), str):
            yield term["iri"]


# Differing values: published values that two vocabularies may read differently.
#
# Only differences of the vocabularies are examined: a value whose names, labels and position in the hierarchy are the
# same has the same reading under both. The result is a superset: it may contain values that are read alike, and it
# misses none that is read differently.
#
#     names   added or removed, or with other parents, classes, equivalences or exact matches; and all names beneath
#     words   labels that are added, removed or moved to another concept; local names; entries of the synonym tables


def differing_values(before: Vocabulary, after: Vocabulary) -> frozenset[str]:
    """Returns the IRIs and words that the two vocabularies may read differently. Linear in the ontologies."""
    touched: set[str] = set()
    words = {word for word, _ in before.synonyms.items() ^ after.synonyms.items()}
    for vocabulary in (before, after):
        words |= {vocabulary.synonyms[word] for word in words & vocabulary.synonyms.keys()}
    above: set[str] = set()
    forwarding = False
    for was, now in _pairs(before.ontologies, after.ontologies):
        forwarding |= _compare_records(was, now, touched, words)
        _compare_pairs(was, now, touched, above)
    touched |= _matched_otherwise(before, after)
    if before.aliases != after.aliases:
        named = {iri for each in (before, after) for number in range(len(each)) for iri in each.iris(ConceptId(number))}
        spelt = {iri: before.aliases.spellings(iri) ^ after.aliases.spellings(iri) for iri in named}
        touched |= {iri for iri, forms in spelt.items() if forms}
        words |= {form for forms in spelt.values() for form in forms}
    related = [_related(vocabulary) for vocabulary in (before, after)]
    if related[0] != related[1]:
        touched |= {low for _, low, _ in related[0] ^ related[1]}
    for vocabulary, edges in zip((before, after), related, strict=True):
        starts = {vocabulary.concept(iri) for iri in touched}
        touched |= _names(vocabulary, _below(vocabulary, {each for each in starts if each is not None}, edges))
        if forwarding:
            # Replacements may form chains: if the end of a chain changes, the reading of all its names changes.
            touched |= {record.iri for each in vocabulary.ontologies for record in _records(each) if record.deprecated}
        else:
            touched |= _led_to(vocabulary, touched)
    for vocabulary in (before, after):
        # The name, its labels and its local name may each change their reading: by a replacement or a shared label.
        for ontology in vocabulary.ontologies:
            words |= {word for each in _records(ontology) if each.iri in touched for word in _words(each)}
        words |= vocabulary.synonyms.keys()  # a root word may be any text that resolves
        # With a name that becomes known, the names that are merged with it become known, too.
        known = {vocabulary.concept(iri) for iri in above}
        above |= _names(vocabulary, (each for each in known if each is not None))
    words |= {local_name(iri) for iri in touched | above} - {""}
    return frozenset(touched | above | words)


def beneath(vocabulary: Vocabulary, concept: ConceptId | None) -> set[str]:
    """Returns all names of `concept`, of the concepts beneath it, and of the concepts that have a relation to one of
    these; empty for None."""
    if concept is None:
        return set()
    return _names(vocabulary, _below(vocabulary, {concept}, _related(vocabulary)))


def _pairs(before: Iterable[Ontology], after: Iterable[Ontology]) -> Iterator[tuple[Ontology, Ontology]]:
    """Yields the pairs of ontologies that differ, ordered by name. A missing ontology is replaced by an empty one."""
    old, new = {each.name: each for each in before}, {each.name: each for each in after}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is not now:
            yield was or Ontology(name=name), now or Ontology(name=name)


def _compare_records(was: Ontology, now: Ontology, touched: set[str], words: set[str]) -> bool:
    """Adds the names that are added or removed to `touched`, and the words that are added or removed to `words`.
    Returns whether a deprecation or a replacement changed."""
    old = {record.iri: record for record in _records(was)}
    forwarding = False
    for record in _records(now):
        other = old.pop(record.iri, None)
        if other == record:
            continue
        words |= {word for word, _ in _readings(record) ^ (_readings(other) if other is not None else set())}
        if other is None:
            touched.add(record.iri)
        elif other.kind != record.kind:
            words |= _words(record)  # a class has precedence over individuals of the same name
        forwarding |= _forwards(record) != (_forwards(other) if other is not None else None)
    for record in old.values():
        touched.add(record.iri)
        words |= _words(record)
        forwarding |= _forwards(record) is not None
    return forwarding


def _compare_pairs(was: Ontology, now: Ontology, touched: set[str], above: set[str]) -> None:
    """Adds the lower name of each pair that is added or removed, and both names of such an equivalence, to `touched`.
    Adds the upper names to `above`: an upper name may be known from such a pair alone, but the concepts beneath it are
    not affected."""
    for low, high in (*(set(was.edges) ^ set(now.edges)), *(set(was.types) ^ set(now.types))):
        touched.add(low)
        above.add(high)
    for pair in set(was.equivalences) ^ set(now.equivalences):
        touched.update(pair)


def _matched_otherwise(before: Vocabulary, after: Vocabulary) -> set[str]:
    """Returns the names of concepts that exact matches merge differently in the two vocabularies. One more pair or
    scheme may undo the merges of a whole connected component."""
    touched: set[str] = set()
    for name in {name for each in (before, after) for one in each.ontologies for pair in one.matches for name in pair}:
        was, now = (
            _names(each, [concept]) if (concept := each.concept(name)) is not None else set()
            for each in (before, after)
        )
        if was != now:
            touched |= was | now
    return touched


def _records(ontology: Ontology) -> Iterator[ConceptRecord]:
    yield from ontology.concepts
    yield from ontology.remarks


def _forwards(record: ConceptRecord) -> tuple[str, ...] | None:
    return record.replaced_by if record.deprecated else None


def _led_to(vocabulary: Vocabulary, touched: set[str]) -> set[str]:
    """Returns the deprecated names whose replacements lead, directly or in several steps, to a name in `touched`. Their
    reading changes with the reading of the replacement."""
    leading: defaultdict[str, list[str]] = defaultdict(list)
    for ontology in vocabulary.ontologies:
        for record in _records(ontology):
            for target in _forwards(record) or ():
                leading[target].append(record.iri)
    found: set[str] = set()
    waiting = list(touched)
    while waiting:
        new = [iri for iri in leading.get(waiting.pop(), ()) if iri not in found]
        found.update(new)
        waiting += new
    return found


def _notations(vocabulary: Vocabulary, other: Vocabulary) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """Returns the codes of the concepts of the ontologies that `other` has in another form: the IRI, the code, the
    property that holds it, and the schemes."""
    return {
        (record.iri, code, holder, tuple(sorted(record.schemes)))
        for was, now in _pairs(other.ontologies, vocabulary.ontologies)
        for record in _records(now)
        for holder, code in record.notations
    }


def _words(record: ConceptRecord) -> set[str]:
    """Returns every text that may resolve to the concept."""
    return {text for text, _ in _readings(record)}


def _readings(record: ConceptRecord) -> set[tuple[str, str]]:
    """Returns each text that may resolve to the concept with its kind (preferred label, synonym or local name), because
    a preferred label has precedence over a synonym."""
    labels = {
        *(("preferred", text) for text, _ in record.preferred),
        *(("synonym", text) for text, _ in record.synonyms),
    }
    return {(text, how) for how, text in labels} | {(local_name(record.iri), "local name")} - {("", "local name")}


def _related(vocabulary: Vocabulary) -> set[tuple[str, str, str]]:
    """Returns every edge of every relation as IRIs: (relation, from, to). Visits all concepts if there are
    relations."""
    relations = vocabulary.relations
    concepts = map(ConceptId, range(len(vocabulary) if relations else 0))
    return {
        (relation, vocabulary.iri(concept), vocabulary.iri(end))
        for concept in concepts
        for relation, end in relations.next(concept)
    }


def _below(
    vocabulary: Vocabulary, starts: set[ConceptId], edges: Iterable[tuple[str, str, str]] = ()
) -> set[ConceptId]:
    """Returns `starts` and all concepts that are beneath one of them or lead to it by `edges`, transitively."""
    lower: defaultdict[str, list[str]] = defaultdict(list)
    for _, low, high in edges:
        lower[high].append(low)
    seen, waiting = set(starts), list(starts)
    while waiting:
        concept = waiting.pop()
        related = (vocabulary.concept(iri) for iri in lower.get(vocabulary.iri(concept), ())) if lower else ()
        for child in (*vocabulary.children(concept), *related):
            if child is not None and child not in seen:
                seen.add(child)
                waiting.append(child)
    return seen


def _names(vocabulary: Vocabulary, concepts: Iterable[ConceptId]) -> set[str]:
    return {iri for concept in concepts for iri in vocabulary.iris(concept)}


LISTED = 20
"""Default maximum length of a list. Counts are always complete."""


What = Literal["gains", "loses", "gains_words", "loses_words"]


@dataclass(slots=True)
class Change:
    """The change of one part of subscriptions. `listed` has the first published values of each kind of change, in
    alphabetical order: names that are gained or lost, and words that start or stop resolving to names that exist before
    and after. `counts` count all values, listed or not. `details` describes all other changes."""

    part: Part
    listed: dict[What, list[str]] = field(default_factory=dict)
    counts: Counter[What] = field(default_factory=Counter)
    details: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts or self.details)

    def note(self, what: What, value: str, most: int) -> None:
        """Counts one value that is gained or lost, and lists it if fewer than `most` are listed."""
        self.counts[what] += 1
        kept = self.listed.setdefault(what, [])
        if len(kept) < most:
            kept.append(value)


class Impact:
    """Collects subscriptions and determines how each changes from one vocabulary to another. Not thread-safe.

    >>> old = b"<http://e/Laptop> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> ."
    >>> new = old + b"\\n<http://e/Slate> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> ."
    >>> impact = Impact(Vocabulary.from_bytes(old, format="nt"), Vocabulary.from_bytes(new, format="nt"))
    >>> impact.add([("s1", {"isa": ["target", {"iri": "http://e/Computer"}]})])
    >>> [change.listed for change in impact.changes.values()]
    [{'gains': ['http://e/Slate']}]
    """

    def __init__(self, before: Vocabulary, after: Vocabulary, *, listed: int = LISTED) -> None:
        """`listed` is the maximum length of each list of values. The constructor does no work yet."""
        self.before = before
        self.after = after
        self.listed = listed
        self.changes: dict[Part, Change] = {}
        """Part → its change, for each part that changes."""
        self.live = 0
        self.changed: list[str] = []
        """Ids of the subscriptions that change, in the order in which they were added."""
        self._judged: dict[Part, int] = {}  # part → number of subscriptions that have it
        self._parts_of: dict[str, tuple[Part, ...]] = {}  # id → its changing parts

    def add(self, subscriptions: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Adds subscriptions as (id, stored tree). Visits each tree and compares each new part under both vocabularies.
        All new parts together cost one walk over the ancestors of each differing value."""
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
        """Returns the parts of the subscription `id` that change."""
        return self._parts_of.get(id, ())

    def holders(self, part: Part) -> int:
        """Returns the number of subscriptions that have this part."""
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
                case NamePart() if self.before.meaning < 3 <= self.after.meaning:
                    change.details["written"] = "in backquotes before a relation"  # the meaning is unchanged
                case DatesPart():
                    self._judge_dates(part, change)
                case ExcludedPart(iri) if self.before.meaning < part.since <= self.after.meaning:
                    if self.after.concept(iri) is None:
                        change.details["gone"] = True
                case _:
                    pass
        self.changes.update((part, change) for part, change in found.items() if change)

    def _judge_terms(self, terms: Mapping[TermPart, Change]) -> None:
        if not terms:
            return
        old, new = _Anchors(self.before), _Anchors(self.after)
        values = set(self._values)
        for part, change in terms.items():
            values |= self._respelt(part.iri)
            was, now = old.take(part), new.take(part)
            if was.iri != now.iri:
                # The term is read as another concept: all names beneath either concept may be gained or lost.
                values |= beneath(self.before, was.concept) | beneath(self.after, now.concept)
                change.details["replaced"] = {"from": was.iri, "to": now.iri}
            if (was.concept is None) != (now.concept is None) and part.test != "instance":
                change.details["gone" if now.concept is None else "back"] = True
        self._judge_codes(terms, old, new)
        self._judge_patterns(terms, old, new)
        self._judge_notations(terms, old, new)
        self._judge_contexts(terms, old, new)
        if self.before.aliases.spelt != self.after.aliases.spelt:
            for change in terms.values():
                how: What = "gains_words" if self.after.aliases.spelt else "loses_words"
                change.note(how, "other spellings of names and labels", self.listed)
        for value in sorted(values):
            reached, reaches = old.reached(value), new.reached(value)
            if reached != reaches:
                named = self.before.names(value) or self.after.names(value)
                # A word or an alias that is added or removed with its concept is not reported besides the concept.
                for part in reaches - reached if named else _news(new, old, value, reaches - reached):
                    terms[part].note("gains" if named else "gains_words", value, self.listed)
                for part in reached - reaches if named else _news(old, new, value, reached - reaches):
                    terms[part].note("loses" if named else "loses_words", value, self.listed)

    def _judge_codes(self, terms: Mapping[TermPart, Change], old: "_Anchors", new: "_Anchors") -> None:
        """Notes the codes whose concepts change because the declaration of their code system changed."""
        systems = self.before.code_systems.declared, self.after.code_systems.declared
        changed = {name for name in {*systems[0], *systems[1]} if systems[0].get(name) != systems[1].get(name)}
        ways: tuple[tuple[_Anchors, Vocabulary, What], ...]
        ways = (old, self.before, "loses_words"), (new, self.after, "gains_words")
        for anchors, vocabulary, how in ways:
            for name, iri in vocabulary.coded_names(changed) if changed else ():
                for part in anchors.reached(iri):
                    terms[part].note(how, f"{name}: {iri}", self.listed)
            respelt = {
                name: sorted(
                    form
                    for identifier in each.identifiers
                    for form in self._respelt(identifier) & vocabulary.aliases.spellings(identifier)
                )
                for name, each in vocabulary.code_systems.declared.items()
                if self.before.aliases != self.after.aliases and name not in changed
            }
            for name, iri in vocabulary.coded_names(name for name, forms in respelt.items() if forms):
                for part in anchors.reached(iri):
                    for form in respelt[name]:
                        terms[part].note(how, f"{form}: {iri}", self.listed)

    def _judge_notations(self, terms: Mapping[TermPart, Change], old: "_Anchors", new: "_Anchors") -> None:
        """Notes the codes that concepts gain or lose in their schemes (rule 22)."""
        notations = _notations(self.before, self.after), _notations(self.after, self.before)
        ways: tuple[tuple[_Anchors, _Anchors, Any, What], ...]
        ways = (
            (old, new, notations[0] - notations[1], "loses_words"),
            (new, old, notations[1] - notations[0], "gains_words"),
        )
        for these, others, coded, how in ways:
            for iri, code in sorted({(iri, code) for iri, code, _, _ in coded}):
                for part in _news(these, others, iri, these.reached(iri)):
                    terms[part].note(how, f"{code}: {iri}", self.listed)

    def _judge_contexts(self, terms: Mapping[TermPart, Change], old: "_Anchors", new: "_Anchors") -> None:
        """Notes the terms of contexts that start or stop meaning a name, as types and as values."""
        was, now = self._terms_of_contexts
        ways: tuple[tuple[_Anchors, Any, What], ...] = (old, was - now, "loses_words"), (new, now - was, "gains_words")
        for anchors, meant, how in ways:
            for term, iri in sorted(meant):
                for part in anchors.reached(iri):
                    terms[part].note(how, term, self.listed)

    def _judge_patterns(self, terms: Mapping[TermPart, Change], old: "_Anchors", new: "_Anchors") -> None:
        """Notes the texts that start or stop meaning a name because an alias pattern was added or removed."""
        ways: tuple[tuple[_Anchors, Vocabulary, What], ...]
        ways = (old, self.before, "loses_words"), (new, self.after, "gains_words")
        for anchors, vocabulary, how in ways:
            for match, beginning in self._repatterned(vocabulary):
                for number in range(len(vocabulary)):
                    for iri in vocabulary.iris(ConceptId(number)):
                        if vocabulary.aliases.main(iri).startswith(beginning):
                            for part in anchors.reached(iri):
                                terms[part].note(how, f"{match}: {iri}", self.listed)

    def _repatterned(self, vocabulary: Vocabulary) -> list[tuple[str, str]]:
        """Returns the alias patterns of `vocabulary` that the other vocabulary does not have."""
        found = self.before.aliases.patterns.items() ^ self.after.aliases.patterns.items()
        return sorted(found & vocabulary.aliases.patterns.items())

    def _respelt(self, text: str) -> frozenset[str]:
        """Returns the texts that are aliases of `text` under only one of the vocabularies."""
        old, new = self.before.aliases, self.after.aliases
        return frozenset() if old == new else old.spellings(text) ^ new.spellings(text)

    @cached_property
    def _values(self) -> frozenset[str]:
        values = differing_values(self.before, self.after)
        if self.before.meaning != self.after.meaning:  # other rules for labels of several concepts
            values |= self.before.shared_labels() | self.after.shared_labels()
        return values

    def _judge_attribute(self, name: str, change: Change) -> None:
        self._judge_name(name, change)
        if name in self._derived_otherwise:
            change.details["derived"] = True

    def _judge_name(self, name: str, change: Change) -> None:
        """Notes what changes about an attribute, except for what it is derived from."""
        for segment in dict.fromkeys((name, *segments_of(name))):
            if segment.endswith(">"):
                self._note_respelt(segment[segment.index("<") + 1 : -1], change)
            elif ":" in segment and (spelt := self.before.spelt_out(segment)) != self.after.spelt_out(segment):
                change.details["spelt"] = {"from": list(spelt), "to": list(self.after.spelt_out(segment))}
            ways = zip(self._names_of, (self.before, self.after), strict=True)
            was, now = (_counting(names, segment, vocabulary) for names, vocabulary in ways)
            for other in sorted(now - was):
                change.note("gains_words", other, self.listed)
            for other in sorted(was - now):
                change.note("loses_words", other, self.listed)
            if segment in self._redefined:
                change.details["context"] = True
        self._note_split(name, change)
        declared, declares = self.before.attributes.declaration(name), self.after.attributes.declaration(name)
        if _told(declared) != _told(declares):
            change.details["declaration"] = {"from": _told(declared), "to": _told(declares)}

    @cached_property
    def _derived_otherwise(self) -> frozenset[str]:
        """The derived attributes that read an attribute which changes, or which may be money at other rates."""
        found: set[str] = set()
        for vocabulary in (self.before, self.after):
            for each in vocabulary.derivations:  # each comes after those that it reads
                changes = (self._is_changed(name) for name in sorted(each.reads))
                if self._revalued or not found.isdisjoint(each.reads) or any(changes):
                    found.add(each.attribute)
        return frozenset(found)

    def _is_changed(self, name: str) -> bool:
        change = Change(AttributePart(name))
        self._judge_name(name, change)
        return bool(change)

    def _note_split(self, name: str, change: Change) -> None:
        """Notes the effect of added and removed envelopes on an attribute (rule 21). With a new envelope, the values
        under `path.name` become values of `name`, and the values under the path itself are no longer in the document.
        For a removed envelope it is the reverse."""
        if name.startswith("ce.") and name != "ce.type":
            return
        member = "@type" if name == "ce.type" else name
        for path, comes in self._split_paths.items():
            if name == path or name.startswith(f"{path}."):
                change.note("loses_words" if comes else "gains_words", name, self.listed)
            else:
                change.note("gains_words" if comes else "loses_words", f"{path}.{member}", self.listed)

    @cached_property
    def _split_paths(self) -> dict[str, bool]:
        """The dotted paths to the events of each envelope that changed. The value is True for paths of the new
        vocabulary."""
        old, new = (
            {
                **{("type", split.name): split for split in each.schemas.splits},
                **{("split", split.name): split for split in each.splits.all},
            }
            for each in (self.before, self.after)
        )
        found: dict[str, bool] = {}
        for splits in (old, new):
            for name, split in splits.items():
                if old.get(name) != new.get(name):
                    found.update((".".join(path), splits is new) for path in split.paths)
        return found

    @cached_property
    def _names_of(self) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
        """For each attribute the published names that count as it, before and after the change. Covers the names that
        are declared in either vocabulary."""
        schemes = (self.before.attributes, self.after.attributes)
        names = {name for each in schemes for name in (*each.declarations, *each.above, *each.synonyms)}
        names |= {name for each in schemes for name in each.renamed.values()}
        names |= {text for each in schemes for one in each.declarations.values() for text, _ in one.labels}
        names |= {f"^<{iri}>" for each in schemes for iri in each.inverses}
        found: list[dict[str, frozenset[str]]] = []
        for vocabulary, other in ((self.before, self.after), (self.after, self.before)):
            scheme = vocabulary.attributes
            counted: defaultdict[str, set[str]] = defaultdict(set)
            for name in names:
                for upper in scheme.broader(scheme.resolve(name)):
                    counted[upper].add(name)
            for term, iri in _context_terms(vocabulary.contexts, other.contexts):
                for upper in scheme.broader(f"<{iri}>"):
                    counted[upper].add(term)
            for url in other.contexts.keys() - vocabulary.contexts.keys():  # read as plain JSON without its context
                for term, _ in context_terms(other.contexts[url]["@context"]):
                    for upper in scheme.broader(scheme.resolve(term)):
                        counted[upper].add(term)
            found.append({upper: frozenset(all) for upper, all in counted.items()})
        return found[0], found[1]

    @cached_property
    def _terms_of_contexts(self) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
        """The terms of the contexts that change, each with its IRI, before and after the change."""
        old, new = self.before.contexts, self.after.contexts
        return _context_terms(old, new), _context_terms(new, old)

    @cached_property
    def _redefined(self) -> frozenset[str]:
        """The attributes whose values are read otherwise, because a context defines a term for them otherwise."""
        found: set[str] = set()
        for url, document in self.before.contexts.items():
            other = self.after.contexts.get(url, document)
            if other != document:
                old, new = (term_definitions(each["@context"]) for each in (document, other))
                for term, iri in self._terms_of_contexts[0] & self._terms_of_contexts[1]:
                    if old.get(term) != new.get(term):
                        found.update(self.after.attributes.broader(f"<{iri}>"))
        return frozenset(found)

    def _judge_unit(self, unit: str, change: Change) -> None:
        was, now = _measured(self.before, unit), _measured(self.after, unit)
        dimensions = [str(each[0]) for each in (was, now) if each is not None]
        if was != now:
            change.details["measure"] = {"from": was, "to": now}
        elif not self._revalued.isdisjoint(part for each in dimensions for part in CURRENCY.findall(each)):
            change.details["compared"] = OTHER_RATES  # the currency in which the others are measured
        if self.before.meaning < 5 <= self.after.meaning and CORRECTED.search(unit):
            change.details["compared"] = "amounts of another unit"

    @cached_property
    def _revalued(self) -> frozenset[str]:
        """The dimensions of currencies whose rates change."""
        old, new = self.before.units.rates, self.after.units.rates
        changed = {code for code in {*old, *new} if old.get(code) != new.get(code)}
        return frozenset(
            dimension
            for code in changed
            for dimension in (f"currency:{code}", *(each[code][0] for each in (old, new) if code in each))
        )

    def _judge_word(self, text: str, change: Change) -> None:
        for what, word in self._rewritten.get(text, ()):
            change.note(what, word, self.listed)
        self._note_respelt(text, change)

    def _note_respelt(self, text: str, change: Change) -> None:
        """Notes the other forms of a name that start or stop counting as it (rule 24)."""
        ways: tuple[tuple[Vocabulary, What], ...] = (self.before, "loses_words"), (self.after, "gains_words")
        for vocabulary, how in ways:
            aliases = vocabulary.aliases
            for form in sorted(self._respelt(text) & aliases.spellings(text)):
                change.note(how, form, self.listed)
            for match, beginning in self._repatterned(vocabulary):
                if aliases.main(text).startswith(beginning):
                    change.note(how, match, self.listed)

    def _judge_text(self, part: TextPart, change: Change) -> None:
        """Notes the words that a test of text accepts under only one vocabulary. Linear in the words of the synonym
        tables whose texts changed."""
        predicate = parse_tree(json.loads(part.predicate))
        if not self._retold or checks_of(predicate, self.after, part.array) is not None:  # type: ignore[arg-type]
            return  # it compares members of an enumeration or date-times
        test = text_test(predicate)
        for word, was, now in self._retold:
            held, holds = any(map(test, was)), any(map(test, now))
            if held != holds:
                change.note("gains_words" if holds else "loses_words", word, self.listed)

    def _judge_dates(self, part: DatesPart, change: Change) -> None:
        """Notes the effect of rule 26 of meaning 3: published dates are compared with date-times. If the attribute is
        declared to hold date-times, constants that are dates or numbers are compared with date-times, too. Of meaning
        4: a sum of date-times and an aggregate of versions or addresses are plain numbers. Of meaning 9: a text stays
        one if its attribute is declared to hold concepts later."""
        if part.function:
            if self.before.meaning < 4 <= self.after.meaning and is_plain_number(
                part.function, part.attribute, self.after, part.array
            ):
                change.details["compared"] = f"its {part.function} as a plain number"
            return
        scheme = self.after.attributes
        if part.constant == "text":
            declaration = scheme.declaration(scheme.declared_as(part.attribute, part.array))
            is_concept = declaration is not None and declaration.kind == "concept"
            if is_concept and self.before.meaning < 9 <= self.after.meaning:
                change.details["compared"] = "texts, not the concepts with these labels"
            return
        if self.before.meaning >= 3 or self.after.meaning < 3:
            return
        if part.constant == "date-time":
            change.details["compared"] = "dates as all the time that they last, not as texts"
        elif holds_instants(scheme.declared_as(part.attribute, part.array), self.after):
            told = {"date": "dates", "number": "numbers as seconds or milliseconds since 1970"}[part.constant]
            change.details["compared"] = f"{told} with date-times"

    def _judge_pair(self, part: PairPart, change: Change) -> None:
        """Notes the effect of other root words, concepts or rates on a comparison of two attributes, as far as its
        declared kinds allow, and the effect of new rules. Rule 9 of meaning 2: quantities and
        date-times on both sides are no longer compared as texts. This has no effect if both attributes are declared as
        numbers, or one as a boolean. Rule 26 of meaning 3: if an attribute is declared as a date-time, dates are no
        longer compared as texts, either."""
        predicate = parse_tree(json.loads(part.predicate))
        if not isinstance(predicate, Comparison):
            return
        scheme = self.after.attributes
        right = predicate.operand.name if isinstance(predicate.operand, AttributeRef) else ""
        found = [scheme.declaration(scheme.declared_as(name, part.array)) for name in (predicate.attribute, right)]
        kinds = [each.kind if each is not None else None for each in found]
        has_aggregate = "(" in predicate.attribute or "(" in right
        if self._retold and not has_aggregate and {*kinds} <= {None, "text", "concept"}:
            change.details["compared"] = "texts with other root words"
        elif kinds[0] == "concept" and self._values:
            change.details["compared"] = "other concepts"
        elif self._revalued and {*kinds} <= {None, "number"}:
            change.details["compared"] = OTHER_RATES
        if self.before.meaning >= 3 or has_aggregate:
            return
        if self.before.meaning >= 2:
            if "instant" in kinds:
                change.details["compared"] = "dates as such, not as texts"
            return
        if "boolean" not in kinds and kinds != ["number", "number"]:
            change.details["compared"] = "quantities and date-times as such, not as texts"

    @cached_property
    def _retold(self) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """The words whose texts for tests of text change, each with its texts before and after."""
        words = {*self.before.synonyms, *self.after.synonyms, *self.before.aliases.words, *self.after.aliases.words}
        told = ((word, self.before.texts(word), self.after.texts(word)) for word in sorted(words))
        return [each for each in told if each[1] != each[2]]

    @cached_property
    def _rewritten(self) -> dict[str, list[tuple[What, str]]]:
        """For each root word, the words that start or stop leading to it in the user's table of synonyms."""
        found: defaultdict[str, list[tuple[What, str]]] = defaultdict(list)
        old, new = self.before.synonyms, self.after.synonyms
        for word in sorted(word for word, _ in old.items() ^ new.items()):
            found[old.get(word, word)].append(("loses_words", word))
            found[new.get(word, word)].append(("gains_words", word))
        return dict(found)


def _context_terms(contexts: Mapping[str, Any], others: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Returns the terms, with their IRIs, of the contexts that are not among `others` in the same form."""
    changed = (each for url, each in contexts.items() if others.get(url) != each)
    return frozenset(found for each in changed for found in context_terms(each["@context"]))


def _counting(names: Mapping[str, frozenset[str]], segment: str, vocabulary: Vocabulary) -> frozenset[str]:
    """Returns the published names that count as a segment of an attribute, which may be a CURIE."""
    found = names.get(segment, frozenset())
    if ":" not in segment or segment.endswith(">"):
        return found
    return found.union(*(names.get(f"<{iri}>", ()) for iri in vocabulary.spelt_out(segment)))


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The reading of a term under one vocabulary: the IRI after replacement, and its concept if there is one."""

    iri: str
    concept: ConceptId | None


class _Anchors:
    """The terms that a published value reaches, under one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._here: defaultdict[int, set[TermPart]] = defaultdict(set)
        self._above: defaultdict[int, set[TermPart]] = defaultdict(set)
        self._written: defaultdict[str, set[TermPart]] = defaultdict(set)  # root word → instances without a concept

    def take(self, part: TermPart) -> _Anchor:
        """Adds a term; its IRI is replaced as rule 14 says. Returns its reading."""
        vocabulary = self.vocabulary
        iri = vocabulary.replacement(part.iri) or part.iri
        concept = vocabulary.concept(iri)
        if part.test == "relation":
            if concept is not None and part.relation in vocabulary.relations:
                shadow = vocabulary.relations.shadow(part.relation, concept)
                if shadow is not None:
                    self._above[shadow].add(part)
            else:
                concept = None  # the relation or the concept was removed
        elif concept is not None:
            if part.test in ("isa", "is", "instance"):
                self._here[concept].add(part)
            if part.test in ("isa", "below"):
                self._above[concept].add(part)
        elif part.test == "instance":
            for word in vocabulary.words(iri):
                self._written[word].add(part)
        return _Anchor(iri, concept)

    def read(self, value: str) -> tuple[ConceptId, ...]:
        """Returns the concepts that a published value may mean."""
        text = nfc(value)
        found = self.vocabulary.resolve(text).candidates
        return (*found, *(each for each in self.vocabulary.aliased(text).candidates if each not in found))

    def reached(self, value: str) -> set[TermPart]:
        """Returns the terms that an event with this value satisfies. Cost: one step per ancestor of its concepts."""
        words = self.vocabulary.words(value) if self._written else ()
        found = {part for word in words for part in self._written.get(word, ())}
        for concept in self.read(value):
            found |= self._here.get(concept, set())
            for upper in self.vocabulary.graph.ancestors(concept):
                if upper != concept:
                    found |= self._above.get(upper, set())
        return found


def _news(these: _Anchors, others: _Anchors, word: str, parts: set[TermPart]) -> set[TermPart]:
    """Filters `parts`, the terms that `word` reaches under one vocabulary only. A term is left out if a name of the
    concept that `word` means also reaches it under one vocabulary only, because that name is already reported."""
    named: set[TermPart] = set()
    lasting: set[TermPart] = set()
    for concept in these.read(word):
        for iri in these.vocabulary.iris(concept):
            here, there = these.reached(iri), others.reached(iri)
            named |= here - there
            lasting |= there
    return parts & lasting | parts - named


def _told(declaration: AttributeDeclaration | None) -> dict[str, Any] | None:
    """Returns the members of a declaration that affect matching: all except its names and its read and match
    permissions."""
    if declaration is None:
        return None
    others = ("name", "labels", "readable_by", "matchable_by")
    names = (each.name for each in fields(declaration) if each.name not in others)
    found = {name: value for name in names if (value := getattr(declaration, name)) not in (None, (), "")}
    return {name: _plain(value) for name, value in found.items()} or None


def _plain(value: Any) -> Any:
    """Returns a member of a declaration as a JSON value."""
    if isinstance(value, Enumeration):
        order = {member: sorted(above) for member, above in sorted(value.above.items()) if above}
        return {"members": list(value.members), **({"above": order} if value.is_ordered else {})}
    if isinstance(value, QuantityMembers | CodeMembers):
        return {name: member for name, member in asdict(value).items() if member is not None} or True
    if isinstance(value, IdentifierPattern):
        return {"match": value.match, "as": value.form}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


CURRENCY: Final = re.compile(r"currency:[A-Z]+")
OTHER_RATES: Final = "amounts of money at other rates"
CORRECTED: Final = re.compile(r"\bmils?\b|\bMIL\b|unit[:/]CUP\b")
"""The names of units that are other units since meaning 5."""


def _measured(vocabulary: Vocabulary, unit: str) -> list[Any] | None:
    """Returns the dimension of `unit` and the amount of one unit in the base unit; None for an unknown unit."""
    try:
        measure = vocabulary.units.measure(1, unit)
    except SemanticError:
        return None
    return [measure.dimension, measure.amount]


# The report of an impact as JSON: the terms, attributes, units and words that change, and the subscriptions.
#
#     {"subscriptions": {"live", "changed", "listed": [{"id", "changes": ["target: gains 3"]}]},
#      "terms":      {"count", "listed": [{"iri", "label", "test", "subscriptions", "gains", "loses", …}]},
#      "attributes": {…}, "units": {…}, "words": {…}, "texts": {…}, "pairs": {…}}
#
# Every list has a maximum length and comes with the total count.


def impact_report(impact: Impact, *, limit: int = LISTED) -> dict[str, Any]:
    """Returns `impact` as JSON, with at most `limit` entries per list. Entries with most subscriptions come first."""
    return {
        "vocabulary_version": {"from": impact.before.version, "to": impact.after.version},
        "subscriptions": {
            "live": impact.live,
            "changed": len(impact.changed),
            "listed": [_subscription(impact, id) for id in impact.changed[:limit]],
        },
        "terms": _listed(impact, TermPart, _term, limit),
        "attributes": _listed(impact, AttributePart, _attribute, limit),
        "units": _listed(
            impact, UnitPart, lambda impact, part, change, _: {"unit": part.unit, **change.details}, limit
        ),
        "words": _listed(
            impact,
            WordPart,
            lambda impact, part, change, limit: {"word": part.word} | _changed_words(change, limit),
            limit,
        ),
        "texts": _listed(impact, TextPart, _predicate, limit),
        "pairs": _listed(impact, PairPart, _predicate, limit),
        "names": _listed(
            impact, NamePart, lambda impact, part, change, _: {"attribute": part.attribute, **change.details}, limit
        ),
        "dates": _listed(
            impact, DatesPart, lambda impact, part, change, _: {"attribute": part.attribute, **change.details}, limit
        ),
        "excluded": _listed(
            impact, ExcludedPart, lambda impact, part, change, _: {**part._asdict(), **change.details}, limit
        ),
    }


def _listed(
    impact: Impact, kind: type[Any], tell: Callable[[Impact, Any, Change, int], dict[str, Any]], limit: int
) -> dict[str, Any]:
    found = sorted(
        ((part, change) for part, change in impact.changes.items() if isinstance(part, kind)),
        key=lambda pair: (-impact.holders(pair[0]), pair[0]),
    )
    listed = [
        {"subscriptions": impact.holders(part), **tell(impact, part, change, limit)}
        for part, change in islice(found, limit)
    ]
    return {"count": len(found), "listed": listed}


def _term(impact: Impact, part: TermPart, change: Change, limit: int) -> dict[str, Any]:
    said: dict[str, Any] = {
        "iri": part.iri,
        "label": _label(impact.after, part.iri) or _label(impact.before, part.iri),
        "test": part.test,
    }
    if part.relation:
        said["relation"] = {"iri": part.relation, "label": _relation(impact, part.relation)}
    return {
        **said,
        "gains": _concepts(change, "gains", impact.after, limit),
        "loses": _concepts(change, "loses", impact.before, limit),
        **_changed_words(change, limit),
        **change.details,
    }


def _attribute(impact: Impact, part: AttributePart, change: Change, limit: int) -> dict[str, Any]:
    return {"attribute": part.attribute, **_changed_words(change, limit), **change.details}


def _predicate(impact: Impact, part: TextPart | PairPart, change: Change, limit: int) -> dict[str, Any]:
    array = {"array": part.array} if part.array else {}
    return {"predicate": _shown(part), **array, **_changed_words(change, limit), **change.details}


def _shown(part: TextPart | PairPart) -> str:
    return to_text(parse_tree(json.loads(part.predicate)))


def _concepts(change: Change, what: Any, vocabulary: Vocabulary, limit: int) -> dict[str, Any]:
    listed = [{"iri": iri, "label": _label(vocabulary, iri)} for iri in change.listed.get(what, ())[:limit]]
    return {"count": change.counts[what], "concepts": listed}


def _changed_words(change: Change, limit: int) -> dict[str, Any]:
    """Returns the words that start or stop leading to a part. A member without words is left out."""
    said: dict[str, Any] = {}
    if change.counts["gains_words"]:
        said["words"] = {
            "count": change.counts["gains_words"],
            "listed": change.listed["gains_words"][:limit],
        }
    if change.counts["loses_words"]:
        said["words_gone"] = {
            "count": change.counts["loses_words"],
            "listed": change.listed["loses_words"][:limit],
        }
    return said


def _subscription(impact: Impact, id: str) -> dict[str, Any]:
    return {"id": id, "changes": [_sentence(impact, part) for part in impact.parts_of(id)]}


def _sentence(impact: Impact, part: Part) -> str:
    """Returns a short description of the change of a part."""
    change = impact.changes[part]
    match part:
        case TermPart(test, iri, relation):
            label = _label(impact.after, iri) or _label(impact.before, iri) or iri
            subject = f"{_relation(impact, relation) if relation else test} {label}"
        case AttributePart(name):
            subject = f"attribute {name}"
        case UnitPart(unit):
            subject = f"unit {unit}"
        case WordPart(word):
            subject = f"the word {word}"
        case TextPart() | PairPart():
            subject = _shown(part)
        case DatesPart(name) | NamePart(name):
            subject = name
        case ExcludedPart(iri, within):
            subject = f"not of {within} with {iri}"
    said = [words.format(change.details[name]) for name, words in _SAID.items() if name in change.details]
    said += [words.format(change.counts[what]) for what, words in _COUNTED.items() if change.counts[what]]
    return f"{subject}: {', '.join(said)}"


_SAID: Final = {
    "gone": "gone",
    "back": "back",
    "replaced": "read as {0[to]}",
    "declaration": "declared otherwise",
    "spelt": "stands for another property",
    "derived": "derived from what changes",
    "context": "read differently by a context",
    "measure": "converted differently",
    "written": "is written {}",
    "compared": "compares {}",
}
"""How a sentence says each member of `Change.details`."""
_COUNTED: Final[Mapping[What, str]] = {
    "gains": "gains {}",
    "loses": "loses {}",
    "gains_words": "gains {} words",
    "loses_words": "loses {} words",
}
"""How a sentence says each of `Change.counts`."""


def _relation(impact: Impact, iri: str) -> str:
    """Returns the label of a relation from the vocabulary that has it."""
    known = impact.after if iri in impact.after.relations else impact.before
    return known.relations.label(iri)


def _label(vocabulary: Vocabulary, iri: str) -> str | None:
    concept = vocabulary.concept(iri)
    return None if concept is None else vocabulary.label(concept)


class FormerVocabulary(Vocabulary):
    """A vocabulary that applies the rules of a former meaning, as far as an impact needs them."""

    _former = 1

    @classmethod
    def of(cls, vocabulary: Vocabulary, declarations: Mapping[str, Any], former: int = 1) -> "FormerVocabulary":
        """Builds the vocabulary of the ontologies of `vocabulary` and its `declarations`, by the rules of meaning
        `former`. The cost is that of building a vocabulary."""
        merged = vocabulary.ontologies
        if former == 1:
            merged = tuple(
                replace(each, equivalences=(*each.equivalences, *each.matches), matches=()) for each in merged
            )
        found = cls(merged, **declarations)
        found._former = former
        return found

    @property
    def meaning(self) -> int:
        return self._former

    @property
    def version(self) -> str:
        return f"{super().version}, read by the rules of meaning {self._former}"

    def texts(self, text: str) -> tuple[str, ...]:
        return (self.root_word(text),) if self._former == 1 else super().texts(text)

    def resolve(
        self, term: str, *, is_iri: bool = False, within: Sequence[ConceptId] = (), asked: bool = False
    ) -> Resolution:
        if self._former > 1:
            return super().resolve(term, is_iri=is_iri, within=within, asked=asked)
        found = super().resolve(self.root_word(term), is_iri=is_iri, within=within, asked=asked)
        return replace(found, candidates=tuple(sorted((*found.candidates, *found.set_aside))), set_aside=())


def impact_of_rules(
    vocabulary: Vocabulary,
    declarations: Mapping[str, Any],
    subscriptions: Iterable[tuple[str, Mapping[str, Any]]],
    former: int = 1,
) -> Impact:
    """Returns how the meaning of `subscriptions`, (id, stored tree), under `vocabulary` differs from their meaning by
    the rules of meaning `former`. `declarations` are those that `vocabulary` was made with."""
    impact = Impact(FormerVocabulary.of(vocabulary, declarations, former), vocabulary)
    impact.add(subscriptions)
    return impact
