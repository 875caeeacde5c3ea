"""The statements of a document: its triples, collected by kind in one pass.

Nodes are strings: an IRI unchanged, a blank node as `_:…`. Each kind of statement is stored in a dict or set, so a
repeated triple counts once. The number of distinct triples is computed from their hashes, eight bytes each.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.records import Label, Limits

__all__ = ["NO_TYPES", "Statements"]

PARTS = 64
"""The hashes of triples are divided into this many parts. One part at a time is made a set, which takes far more memory
than eight bytes a hash."""


# Labels by node. Nearly every node has one or two, and a set for each node would take more memory than the texts.

FEW = 8
"""Up to this number, the labels of a node are kept in a tuple, which is searched. More labels are kept in a set."""


class CollectedLabels:
    """The distinct labels of each node. `add` compares with at most `FEW` labels."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Label, ...] | set[Label]] = {}

    def add(self, node: str, label: Label) -> None:
        known = self._found.get(node, ())
        if isinstance(known, set):
            known.add(label)
        elif label not in known:
            self._found[node] = (*known, label) if len(known) < FEW else {*known, label}

    def update(self, node: str, labels: Iterable[Label]) -> None:
        for label in labels:
            self.add(node, label)

    def get(self, node: str) -> set[Label]:
        """Returns a copy of the labels of `node`; an empty set if it has none."""
        return set(self._found.get(node, ()))

    def __iter__(self) -> Iterator[str]:
        """Yields every node that has a label."""
        return iter(self._found)

    def __contains__(self, node: object) -> bool:
        return node in self._found

    def __len__(self) -> int:
        return len(self._found)


Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple
Handler = Callable[[str, Term, str], None]

NO_TYPES: Final = frozenset[str]()
MOST_NOTATIONS: Final = 16
"""The maximum number of codes that are kept for one concept."""
LONGEST_NOTATION: Final = 200
"""The maximum number of characters of a code; longer ones are ignored."""
SHARED_TYPES: Final = 8
"""Nodes share equal sets of up to this number of types or schemes. A node with more has a set of its own."""

_TRUE: Final = frozenset({"true", "1"})


class Statements:
    """The statements of one document. Cost: one dict look-up per triple. Memory: the kept statements, and eight bytes
    per triple while reading.

    >>> quads = ox.parse(b"<http://e/a> a <http://e/B> .", ox.RdfFormat.TURTLE)
    >>> Statements(quads, Limits()).types
    {'http://e/a': frozenset({'http://e/B'})}
    """

    def __init__(self, quads: Iterable[ox.Quad], limits: Limits) -> None:
        """Reads all of `quads`. Raises OntologyError if a limit is exceeded."""
        self.types: dict[str, AbstractSet[str]] = {}
        self.broader: set[tuple[str, str]] = set()  # (narrower, broader); blank nodes too
        self.tops: set[tuple[str, str]] = set()  # (top concept, scheme)
        self.same: set[tuple[str, str, str]] = set()  # (predicate, node, node)
        self.conjunctions: dict[str, set[str]] = {}  # node -> heads of lists
        self.disjunctions: dict[str, set[str]] = {}
        self.enumerations: dict[str, set[str]] = {}  # class -> heads of lists of its members
        self.expressed: set[tuple[str, str]] = set()  # (individual, class expression), a blank node
        self.property_lists: set[str] = set()  # heads of lists of properties
        self.first: dict[str, str] = {}
        self.rest: dict[str, str] = {}
        self.preferred = CollectedLabels()
        self.alternative = CollectedLabels()
        self.hidden = CollectedLabels()
        self.titles = CollectedLabels()
        self.definitions: dict[str, tuple[int, int, str]] = {}  # node -> (rank of predicate, of language, text)
        self.xl: set[tuple[str, str, str]] = set()  # (node, predicate, label resource)
        self.xl_forms = CollectedLabels()
        self.deprecated: set[str] = set()
        self.replaced: defaultdict[str, set[str]] = defaultdict(set)
        self.consider: defaultdict[str, set[str]] = defaultdict(set)
        self.properties: set[str] = set()
        self.schemes: dict[str, AbstractSet[str]] = {}  # concept -> its schemes
        self.notations: dict[str, tuple[tuple[str, str], ...]] = {}  # concept -> (property, code)
        self.sub_properties: set[tuple[str, str]] = set()
        self.inverses: set[tuple[str, str]] = set()
        self.ranges: defaultdict[str, set[str]] = defaultdict(set)
        self.domains: defaultdict[str, set[str]] = defaultdict(set)
        self.units: defaultdict[str, set[str]] = defaultdict(set)
        self.imports: set[str] = set()
        self.dropped_labels = 0
        self._limits = limits
        self._name = _Names()  # one shared string for each name, however often it occurs
        self._kinds: dict[tuple[AbstractSet[str], str], frozenset[str]] = {}
        self.triples = self._read(quads)
        del self._name, self._kinds

    @property
    def ontologies(self) -> tuple[str, ...]:
        """The names of the ontologies that the document declares, sorted."""
        return tuple(sorted(node for node, types in self.types.items() if ns.ONTOLOGY in types and node[:2] != "_:"))

    @property
    def understood(self) -> frozenset[str]:
        """The predicates that are collected."""
        return frozenset(self._handlers())

    def _read(self, quads: Iterable[ox.Quad]) -> int:
        handlers = self._handlers()
        hashes = tuple(array("q") for _ in range(PARTS))
        most = self._limits.triples
        for count, quad in enumerate(quads, 1):
            hashed = hash(quad)
            hashes[hashed % PARTS].append(hashed)
            predicate = quad.predicate.value
            handler = handlers.get(predicate)
            if handler is not None:
                subject = quad.subject
                if isinstance(subject, ox.NamedNode):
                    handler(self._name[subject.value], quad.object, predicate)
                elif isinstance(subject, ox.BlankNode):
                    handler("_:" + subject.value, quad.object, predicate)
            if count > 2 * most:
                break
        distinct = sum(len(set(part)) for part in hashes)
        if distinct > most:
            raise OntologyError(f"the document has more than {most:,} triples, the limit")
        return distinct

    def _handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = {
            ns.TYPE: self._type,
            ns.EQUIVALENT_CLASS: self._same,
            ns.EQUIVALENT_PROPERTY: self._same,
            ns.CONJUNCTION: self._conjunction,
            ns.ONE_OF: self._enumeration,
            ns.FIRST: self._first,
            ns.REST: self._rest,
            ns.XL_FORM: self._xl_form,
            ns.DEPRECATED: self._deprecated,
            ns.CONSIDER: self._consider,
            ns.SUB_PROPERTY: self._sub_property,
            ns.INVERSE_OF: self._inverse,
            ns.RANGE: self._range,
            ns.DOMAIN: self._domain,
            ns.IMPORTS: self._import,
            ns.IN_SCHEME: self._in_scheme,
            **dict.fromkeys(ns.NOTATIONS, self._notation),
            ns.TOP_CONCEPT_OF: self._top,
            ns.TOP_CONCEPT_TO: self._top,
        }
        handlers |= dict.fromkeys(ns.BROADER, self._broader) | dict.fromkeys(ns.NARROWER, self._narrower)
        handlers |= dict.fromkeys(ns.INDIVIDUAL_EQUIVALENCES, self._same)
        handlers |= dict.fromkeys(ns.DISJUNCTIONS, self._disjunction)
        handlers |= dict.fromkeys(ns.PROPERTY_LISTS, self._property_list)
        for kept, predicates in (
            (self.preferred, ns.PREFERRED_LABELS),
            (self.alternative, ns.ALT_LABELS),
            (self.hidden, ns.HIDDEN_LABELS),
            (self.titles, ns.TITLES),
        ):
            handlers |= dict.fromkeys(predicates, self._label(kept))
        handlers |= dict.fromkeys(ns.DEFINITIONS, self._definition)
        handlers |= dict.fromkeys((ns.XL_PREFERRED, ns.XL_ALT, ns.XL_HIDDEN), self._xl_label)
        handlers |= dict.fromkeys(ns.REPLACED_BY, self._replaced) | dict.fromkeys(ns.UNITS, self._unit)
        return handlers

    # ── kinds and hierarchy ─────────────────────────────────────────────────────────────────────────────────────────

    def _type(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.NamedNode):
            self.types[subject] = self._and_one(self.types.get(subject, NO_TYPES), obj.value)
        elif isinstance(obj, ox.BlankNode):
            self.expressed.add((subject, self._node(obj)))

    def _and_one(self, known: AbstractSet[str], kind: str) -> AbstractSet[str]:
        """Returns `known` types, or schemes, with `kind` added. Most nodes have the same few types, so equal sets are
        shared."""
        if kind in known:
            return known
        if isinstance(known, set):
            known.add(kind)
            return known
        if len(known) == SHARED_TYPES:
            return {*known, kind}
        if (known, kind) not in self._kinds:
            self._kinds[known, kind] = frozenset({*known, kind})
        return self._kinds[known, kind]

    def _broader(self, subject: str, obj: Term, predicate: str) -> None:
        if not isinstance(obj, ox.Literal):
            self.broader.add((subject, self._node(obj)))

    def _narrower(self, subject: str, obj: Term, predicate: str) -> None:
        if not isinstance(obj, ox.Literal):
            self.broader.add((self._node(obj), subject))

    def _top(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.NamedNode):
            pair = (subject, obj.value) if predicate == ns.TOP_CONCEPT_OF else (obj.value, subject)
            self.tops.add(pair)

    def _in_scheme(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.NamedNode):
            self.schemes[subject] = self._and_one(self.schemes.get(subject, NO_TYPES), obj.value)

    def _notation(self, subject: str, obj: Term, predicate: str) -> None:
        """Collects a code of a concept. Its datatype is ignored, because it only repeats what the scheme says."""
        known = self.notations.get(subject, ())
        if isinstance(obj, ox.Literal) and len(known) < MOST_NOTATIONS:
            code = obj.value.strip()
            if 0 < len(code) <= LONGEST_NOTATION and (predicate, code) not in known:
                self.notations[subject] = (*known, (predicate, code))

    def _same(self, subject: str, obj: Term, predicate: str) -> None:
        if not isinstance(obj, ox.Literal):
            self.same.add((predicate, subject, self._node(obj)))

    def _conjunction(self, subject: str, obj: Term, predicate: str) -> None:
        self.conjunctions.setdefault(subject, set()).add(self._node(obj))

    def _disjunction(self, subject: str, obj: Term, predicate: str) -> None:
        self.disjunctions.setdefault(subject, set()).add(self._node(obj))

    def _enumeration(self, subject: str, obj: Term, predicate: str) -> None:
        self.enumerations.setdefault(subject, set()).add(self._node(obj))

    def _property_list(self, subject: str, obj: Term, predicate: str) -> None:
        self.property_lists.add(self._node(obj))

    def _first(self, subject: str, obj: Term, predicate: str) -> None:
        self.first[subject] = self._node(obj)

    def _rest(self, subject: str, obj: Term, predicate: str) -> None:
        self.rest[subject] = self._node(obj)

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _label(self, kept: CollectedLabels) -> Handler:
        def keep(subject: str, obj: Term, predicate: str) -> None:
            label = self._readable(obj)
            if label:
                kept.add(subject, label)

        return keep

    def _readable(self, obj: Term) -> Label | None:
        """Returns a literal as a label, or None for any other term. A literal that is empty, has a NUL or is too long
        gives None too, and is counted as dropped."""
        if not isinstance(obj, ox.Literal):
            return None
        text = obj.value.strip()
        if not text or "\0" in text or len(text) > self._limits.label:
            self.dropped_labels += 1
            return None
        return text, self._name[obj.language.lower()] if obj.language else None

    def _xl_label(self, subject: str, obj: Term, predicate: str) -> None:
        if not isinstance(obj, ox.Literal):
            self.xl.add((subject, predicate, self._node(obj)))

    def _xl_form(self, subject: str, obj: Term, predicate: str) -> None:
        label = self._readable(obj)
        if label:
            self.xl_forms.add(subject, label)

    def _definition(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.Literal):
            language = obj.language or ""
            preference = 0 if language.lower().startswith("en") else 1 if not language else 2
            found = (ns.DEFINITIONS[predicate], preference, obj.value)
            if subject not in self.definitions or found < self.definitions[subject]:
                self.definitions[subject] = found

    # ── deprecation ──────────────────────────────────────────────────────────────────────────────────────────────

    def _deprecated(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.Literal) and obj.value.strip().lower() in _TRUE:
            self.deprecated.add(subject)

    def _replaced(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.Literal | ox.NamedNode):
            self.replaced[subject].add(obj.value.strip())

    def _consider(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.Literal | ox.NamedNode):
            self.consider[subject].add(obj.value.strip())

    # ── attributes and the document itself ──────────────────────────────────────────────────────────────────────────

    def _sub_property(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.NamedNode):
            self.sub_properties.add((subject, obj.value))

    def _inverse(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.NamedNode) and not subject.startswith("_:"):
            self.inverses.add((subject, obj.value))

    def _range(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.NamedNode):
            self.ranges[subject].add(obj.value)

    def _domain(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.NamedNode):
            self.domains[subject].add(obj.value)

    def _unit(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.Literal | ox.NamedNode):
            self.units[subject].add(obj.value)

    def _import(self, subject: str, obj: Term, predicate: str) -> None:
        if isinstance(obj, ox.Literal | ox.NamedNode):
            self.imports.add(obj.value)

    def _node(self, term: Term) -> str:
        if isinstance(term, ox.NamedNode):
            return self._name[term.value]
        return self._name["_:" + term.value] if isinstance(term, ox.BlankNode) else ""


class _Names(dict[str, str]):
    """Interns strings: returns the first of several equal strings."""

    def __missing__(self, name: str) -> str:
        self[name] = name
        return name
