"""OBO frames to triples, by the mapping of OBO 1.4 to OWL as far as it carries meaning here.

    is_a: B                         A subClassOf B                       (of a relation: subPropertyOf)
    relationship: R B               A subClassOf (R some B)              (of an instance, or R metadata: A R B)
    intersection_of: B              A equivalentClass (B and (R some C))
    intersection_of: R C
    alt_id: X                       X deprecated, replaced by A
    name, def, synonym, comment, union_of, equivalent_to, disjoint_from, is_obsolete, replaced_by, consider,
    property_value, instance_of, inverse_of, domain, range, is_transitive …: as the OWL tools write them

Cross references count only where the header says what they mean (`treat-xrefs-as-…`); subsets, dates and authors do
not. What cannot be read costs its own clause, and a warning with the line.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.obo.frames import Clause, Frame, Value, frames, in_utf8, quoted, split, unescaped, words
from kindcast.semantic.ontology.obo.names import IDSPACE_LENGTH, OboNames, expansion
from kindcast.semantic.ontology.oddities import Oddities, shown
from kindcast.semantic.ontology.owl_syntaxes.axioms import Axioms
from kindcast.semantic.ontology.owl_syntaxes.expressions import Names
from kindcast.semantic.ontology.owl_syntaxes.functional import functional_expressions
from kindcast.semantic.ontology.records import Limits
from kindcast.semantic.ontology.triple_writer import TYPE, Node, TripleWriter, owl, rdfs, xsd

__all__ = ["OboDocument"]


# What must be known of an OBO file before its first triple: its names, its relations, its kinds of synonyms, what its
# cross references mean. One pass over the frames; the stanzas of relations usually come last.

SCOPES: Final = ("EXACT", "BROAD", "NARROW", "RELATED")
MACROS: Final = 8  # meanings of one prefix: each multiplies the triples of every cross reference; one is usual
_MACRO: Final = "treat-xrefs-as-"
_NEEDS: Final = {  # what follows the prefix of the foreign ids: relation and filler
    "equivalent": 0,
    "is_a": 0,
    "has-subclass": 0,
    "relationship": 1,
    "genus-differentia": 2,
    "reverse-genus-differentia": 2,
}
_SYNONYM_TYPE = re.compile(r'(\S+)(?:\s+"(?:[^"\\]|\\.)*+")?(?:\s+(\w+))?')
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


@dataclass(frozen=True, slots=True)
class Macro:
    """What a cross reference to an id of one prefix means: `kind` as in `treat-xrefs-as-…`."""

    kind: str
    relation: str = ""
    filler: str = ""


@dataclass(slots=True)
class Survey:
    """The file at a glance. `declared` are the ids with a stanza; `annotations` the relations that only describe."""

    names: OboNames
    synonym_types: dict[str, str | None] = field(default_factory=dict)  # type -> scope where a synonym has none
    macros: dict[str, list[Macro]] = field(default_factory=dict)  # prefix -> what it means
    declared: set[str] = field(default_factory=set)
    relations: set[str] = field(default_factory=set)
    annotations: set[str] = field(default_factory=set)
    longest: int = 4_096  # characters of an IRI

    def named(self, name: str, line: int, odd: Oddities) -> Node | None:
        """The node of an id; None, and a warning, where no IRI can be made of it."""
        try:
            node = self.names.node(name)
            if len(node.value) <= self.longest:
                return node
            problem = f"an IRI has more than {self.longest:,} characters"
        except ValueError as error:
            problem = str(error)
        odd.add(line, "id", f"{shown(name)} is no id, left out: {problem}")
        return None


def survey(found: Iterable[Frame], base: str, odd: Oddities, limits: Limits) -> Survey:
    """Reads all frames once. Raises OntologyError where an idspace is too long."""
    frames = iter(found)
    header = next(frames)
    survey = Survey(OboNames(_value(header, "ontology"), base), longest=limits.iri)
    for clause in header.clauses:
        _header_clause(survey, clause, odd)
    for frame in frames:
        survey.declared.add(frame.id)
        if frame.kind == "Typedef":
            _relation(survey, frame)
    return survey


def is_true(value: str) -> bool:
    """Whether a flag is set."""
    return split(value).text.lower() in ("true", "1")


def _value(frame: Frame, tag: str) -> str:
    return next((unescaped(split(each.value).text) for each in frame.clauses if each.tag == tag), "")


def _header_clause(survey: Survey, clause: Clause, odd: Oddities) -> None:
    text = split(clause.value).text
    if clause.tag == "idspace":
        parts = words(text)
        if len(parts) < 2 or not _ABSOLUTE.fullmatch(parts[1]):
            odd.add(clause.line, "idspace", f"an idspace is a prefix and an IRI, left out: {shown(text)}")
        elif len(parts[1]) > IDSPACE_LENGTH:
            raise OntologyError(f"the idspace has more than {IDSPACE_LENGTH} characters", line=clause.line)
        else:
            survey.names.idspaces[parts[0]] = parts[1]
    elif clause.tag == "synonymtypedef":
        found = _SYNONYM_TYPE.match(text)
        if found:
            scope = (found[2] or "").upper()
            survey.synonym_types[unescaped(found[1])] = scope if scope in SCOPES else None
    elif clause.tag.startswith(_MACRO):
        kind = clause.tag.removeprefix(_MACRO)
        parts = words(text)
        if kind not in _NEEDS or len(parts) <= _NEEDS[kind]:
            odd.add(clause.line, "treat-xrefs", f"{clause.tag} is not understood and is left out: {shown(text)}")
            return
        macro = Macro(kind, *parts[1 : 1 + _NEEDS[kind]])
        known = survey.macros.setdefault(parts[0], [])
        if macro not in known and len(known) < MACROS:
            known.append(macro)


def _relation(survey: Survey, frame: Frame) -> None:
    survey.relations.add(frame.id)
    references = [words(split(each.value).text) for each in frame.clauses if each.tag == "xref"]
    stands_for = expansion(frame.id, [each[0] for each in references if each])
    if stands_for:
        survey.names.shorthands[frame.id] = stands_for
    if any(each.tag == "is_metadata_tag" and is_true(each.value) for each in frame.clauses):
        survey.annotations.add(frame.id)


# ── expressions ───────────────────────────────────────────────────────────────────────────────────────────────────────
# OBO clauses that say something about a class by others: relationships, definitions by several clauses, what cross
# references mean. Each becomes a class expression of OWL in triples.
#
#     relationship: R B {cardinality="2"}     A subClassOf (R exactly 2 B), (R some B)
#     relationship: R B {all_only="true"}     A subClassOf (R only B)
#     is_a: B {gci_relation="R", gci_filler="C"}       (A and R some C) subClassOf B, and nothing about A alone

_CLASS: Final = owl("Class")
_SAME: Final = owl("equivalentClass")
_SUB_CLASS: Final = rdfs("subClassOf")
_SOME: Final = owl("someValuesFrom")
_CARDINALITIES: Final = {
    "cardinality": owl("qualifiedCardinality"),
    "minCardinality": owl("minQualifiedCardinality"),
    "maxCardinality": owl("maxQualifiedCardinality"),
}
_NUMBER = re.compile(r"[0-9]{1,9}")
_JOINED: Final = {"intersection_of": owl("intersectionOf"), "union_of": owl("unionOf")}


class Expressions:
    """Writes the class expressions of one file."""

    def __init__(self, writer: TripleWriter, found: Survey, odd: Oddities) -> None:
        self._writer = writer
        self._survey = found
        self._odd = odd

    def relationship(self, subject: Node, clause: Clause, *, plain: bool) -> None:
        """`relationship: R B` of `subject`; as a plain triple where it is no class or the relation only describes."""
        value = split(clause.value)
        found = words(value.text)
        if len(found) < 2:
            self._odd.add(clause.line, "relationship", f"a relationship is a relation and an id: {shown(clause.value)}")
            return
        if len(found) > 2:
            self._odd.add(clause.line, "words behind", f"left out behind {shown(found[1])}: a name needs ! before it")
        relation, target = (self._named(each, clause) for each in found[:2])
        if not isinstance(relation, ox.NamedNode) or target is None:
            return
        if plain or found[0] in self._survey.annotations:
            self._writer.add(subject, relation, target)
            return
        parts = list(self._restrictions(relation, target, value, clause))
        if parts:
            subject = self.narrowed(subject, value, clause)
        for part in parts:
            self._writer.add(subject, _SUB_CLASS, part)

    def narrowed(self, subject: Node, value: Value, clause: Clause) -> Node:
        """`subject`, or, with the modifiers `gci_relation` and `gci_filler`, only what of it stands in a relation."""
        if "gci_relation" not in value.modifiers and "gci_filler" not in value.modifiers:
            return subject
        relation = self._named(unescaped(value.modifiers.get("gci_relation", "")), clause)
        filler = self._named(unescaped(value.modifiers.get("gci_filler", "")), clause)
        if not isinstance(relation, ox.NamedNode) or filler is None:
            return self._writer.blank()  # something of which nothing else is known
        return self._joined("intersection_of", (subject, self._writer.restriction(relation, _SOME, filler)))

    def definitions(self, subject: Node, frame: Frame) -> None:
        """All `intersection_of` of a term are one definition, and so are all `union_of`."""
        for tag in _JOINED:
            clauses = [each for each in frame.clauses if each.tag == tag]
            if not clauses:
                continue
            members = [member for each in clauses for member in self._member(each)]
            if len(members) == len(clauses) > 1:
                self._writer.add(subject, _SAME, self._joined(tag, members))
            else:
                self._odd.add(clauses[0].line, tag, f"{frame.id} is not defined by {tag}: two readable ones are needed")

    def cross_references(self, subject: Node, frame: Frame) -> None:
        """What the header says that `xref` means, for each that has such a prefix."""
        if not self._survey.macros:
            return
        for clause in frame.clauses:
            found = words(split(clause.value).text) if clause.tag == "xref" else []
            for macro in self._survey.macros.get(found[0].partition(":")[0], ()) if found else ():
                foreign = self._named(found[0], clause)
                if foreign is not None:
                    self._meant(subject, foreign, macro, clause)

    def chain(self, subject: Node, frame: Frame, clause: Clause) -> None:
        """`transitive_over: S` and `holds_over_chain: R S` of a relation."""
        found = words(split(clause.value).text)
        found = [frame.id, *found[:1]] if clause.tag == "transitive_over" else found[:2]
        nodes = [node for each in found if (node := self._named(each, clause)) is not None]
        if len(nodes) == 2:
            self._writer.add(subject, owl("propertyChainAxiom"), self._writer.sequence(nodes))

    # ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _restrictions(self, relation: Node, target: Node, value: Value, clause: Clause) -> Iterator[Node]:
        """`R some B`, or what the modifiers make of it: so many of them, none of them, nothing but them."""
        numbers = {word: text for word, text in value.modifiers.items() if word in _CARDINALITIES}
        for word, text in numbers.items():
            if not _NUMBER.fullmatch(text):
                self._odd.add(clause.line, "cardinality", f"{word} is no number, left out: {shown(text)}")
                return
        for word, text in numbers.items():
            number = ox.Literal(str(int(text)), datatype=xsd("nonNegativeInteger"))
            node = self._writer.restriction(relation, _CARDINALITIES[word], number)
            self._writer.add(node, owl("onClass"), target)
            yield node
        only = value.modifiers.get("all_only") == "true"
        if only:
            yield self._writer.restriction(relation, owl("allValuesFrom"), target)
        some = not only or value.modifiers.get("all_some") == "true"
        least = numbers.get("cardinality", numbers.get("minCardinality"))
        if int(least) > 0 if least is not None else some and not numbers:
            yield self._writer.restriction(relation, _SOME, target)

    def _member(self, clause: Clause) -> list[Node]:
        """The class expression of one `intersection_of` or `union_of`; none where it cannot be read."""
        value = split(clause.value)
        found = words(value.text)
        if not found:
            return []
        related = len(found) > 1 and (
            found[0] in self._survey.relations or ":" in found[1] or found[1] in self._survey.declared
        )
        if not related:  # a name behind the id, without !, is no second id
            node = self._named(found[0], clause)
            return [] if node is None else [node]
        relation, filler = (self._named(each, clause) for each in found[:2])
        if not isinstance(relation, ox.NamedNode) or filler is None:
            return []
        parts = list(self._restrictions(relation, filler, value, clause))
        return parts if len(parts) < 2 else [self._joined("intersection_of", parts)]

    def _meant(self, subject: Node, foreign: Node, macro: Macro, clause: Clause) -> None:
        """What a cross reference from `subject` to `foreign` means."""
        if macro.kind == "equivalent":
            self._writer.add(subject, _SAME, foreign)
        elif macro.kind == "is_a":
            self._writer.add(subject, _SUB_CLASS, foreign)
        elif macro.kind == "has-subclass":
            self._writer.add(foreign, _SUB_CLASS, subject)
        else:
            relation = self._named(macro.relation, clause)
            filler = foreign if macro.kind == "relationship" else self._named(macro.filler, clause)
            if not isinstance(relation, ox.NamedNode) or filler is None:
                return
            expression = self._writer.restriction(relation, _SOME, filler)
            if macro.kind == "relationship":
                self._writer.add(subject, _SUB_CLASS, expression)
            elif macro.kind == "genus-differentia":
                self._writer.add(foreign, _SAME, self._joined("intersection_of", (subject, expression)))
            else:
                self._writer.add(subject, _SAME, self._joined("intersection_of", (foreign, expression)))

    def _joined(self, tag: str, members: Sequence[Node]) -> Node:
        return self._writer.expression(_CLASS, _JOINED[tag], members)

    def _named(self, name: str, clause: Clause) -> Node | None:
        return self._survey.named(name, clause.line, self._odd)


# ── document ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_OIO: Final = "http://www.geneontology.org/formats/oboInOwl#"
_IAO: Final = "http://purl.obolibrary.org/obo/IAO_"
_SYNONYMS: Final = {scope: ox.NamedNode(f"{_OIO}has{scope.capitalize()}Synonym") for scope in SCOPES}
_SYNONYM_TAGS: Final = {"synonym": None} | {f"{scope.lower()}_synonym": scope for scope in SCOPES}
_DEFINITION: Final = ox.NamedNode(_IAO + "0000115")
_REPLACED_BY: Final = ox.NamedNode(_IAO + "0100001")
_ALTERNATIVE_ID: Final = ox.NamedNode(_OIO + "hasAlternativeId")
_SHORTHAND: Final = ox.NamedNode(_OIO + "shorthand")
_LABEL: Final = rdfs("label")
_SAME_CLASS: Final = owl("equivalentClass")
_DEPRECATED: Final = owl("deprecated")
_TRUE: Final = ox.Literal("true", datatype=xsd("boolean"))

_REFERENCES: Final = {  # tag -> predicate, for classes and instances
    "is_a": _SUB_CLASS,
    "equivalent_to": _SAME_CLASS,
    "disjoint_from": owl("disjointWith"),
    "instance_of": TYPE,
    "replaced_by": _REPLACED_BY,
    "consider": ox.NamedNode(_OIO + "consider"),
    "use_term": ox.NamedNode(_OIO + "consider"),
}
_RELATION_REFERENCES: Final = _REFERENCES | {
    "is_a": rdfs("subPropertyOf"),
    "equivalent_to": owl("equivalentProperty"),
    "disjoint_from": owl("propertyDisjointWith"),
    "inverse_of": owl("inverseOf"),
    "domain": rdfs("domain"),
    "range": rdfs("range"),
}
_FLAGS: Final = {
    "is_transitive": owl("TransitiveProperty"),
    "is_symmetric": owl("SymmetricProperty"),
    "is_asymmetric": owl("AsymmetricProperty"),
    "is_reflexive": owl("ReflexiveProperty"),
    "is_functional": owl("FunctionalProperty"),
    "is_inverse_functional": owl("InverseFunctionalProperty"),
}
_CHAINS: Final = frozenset({"holds_over_chain", "equivalent_to_chain", "transitive_over"})
_SILENT: Final = frozenset(
    (
        *("namespace", "subset", "xref", "xref_analog", "xref_unk", "created_by", "creation_date", "modified_by"),
        *("modification_date", "is_anonymous", "builtin", "disjoint_over", "expand_expression_to"),
        *("expand_assertion_to", "is_metadata_tag", "is_class_level", "is_anti_symmetric", "is_cyclic"),
        *("intersection_of", "union_of"),  # read together at the end of the frame
    )
)


class OboDocument:
    """One OBO file. `prefixes` are its idspaces and `warnings` what was odd, once all triples were read.

    Two passes, linear; memory: the ids and one stanza. Raises OntologyError while reading where the file is no OBO at
    all or crosses a limit.
    """

    def __init__(self, data: bytes, base: str, limits: Limits) -> None:
        self._data = in_utf8(data)
        self._base = base
        self._limits = limits
        self.prefixes: dict[str, str] = {}
        self.warnings: list[str] = []

    def triples(self) -> Iterator[ox.Quad]:
        """Every triple, frame by frame."""
        odd = Oddities()
        found = survey(frames(self._data, Oddities(), brief=True), self._base, odd, self._limits)
        reader = _Reader(found, odd, self._limits)
        for frame in frames(self._data, odd):
            reader.read(frame)
            yield from reader.writer.taken()
        self.prefixes = found.names.underscored | found.names.idspaces
        self.warnings = list(odd.warnings())


class _Reader:
    """Frames to triples, one at a time."""

    def __init__(self, found: Survey, odd: Oddities, limits: Limits) -> None:
        self.writer = TripleWriter()
        self._limits = limits
        self._survey = found
        self._odd = odd
        self._expressions = Expressions(self.writer, found, odd)
        self._seen: set[str] = set()
        self._relation = False  # whether the frame is a relation's

    def read(self, frame: Frame) -> None:
        """Writes the triples of `frame`."""
        if frame.kind == "Header":
            self._header(frame)
            return
        if frame.id in self._seen:
            self._odd.add(frame.line, "second stanza", f"{frame.id} has a second stanza; both count")
        self._seen.add(frame.id)
        subject = self._node(frame.id, frame.line)
        if subject is None:
            return
        self._relation = frame.kind == "Typedef"
        self.writer.add(subject, TYPE, self._kind(frame))
        if isinstance(subject, ox.NamedNode) and frame.id in self._survey.names.shorthands:
            self.writer.add(subject, _SHORTHAND, ox.Literal(frame.id))
        for clause in frame.clauses:
            self._clause(subject, frame, clause)
        if frame.kind == "Term":
            self._expressions.definitions(subject, frame)
            self._expressions.cross_references(subject, frame)

    def _kind(self, frame: Frame) -> ox.NamedNode:
        if frame.kind == "Term":
            return _CLASS
        if frame.kind == "Instance":
            return owl("NamedIndividual")
        if frame.id in self._survey.annotations:
            return owl("AnnotationProperty")
        values = any(each.tag == "range" and each.value.startswith("xsd:") for each in frame.clauses)
        return owl("DatatypeProperty") if values else owl("ObjectProperty")

    def _header(self, frame: Frame) -> None:
        names = self._survey.names
        self.writer.add(names.ontology, TYPE, owl("Ontology"))
        for clause in frame.clauses:
            text = unescaped(split(clause.value).text)
            if clause.tag == "import":
                try:
                    self.writer.add(names.ontology, owl("imports"), names.document(text))
                except ValueError:
                    self._odd.add(clause.line, "import", f"the name of the import is no IRI: {shown(text)}")
            elif clause.tag == "property_value":
                self._property_value(names.ontology, clause)
            elif clause.tag == "owl-axioms":
                self._axioms(text, clause)

    def _axioms(self, text: str, clause: Clause) -> None:
        """A document in functional syntax within the header: what OBO cannot say. An error in it costs the rest of
        it."""
        names = Names(self._survey.names.ontology.value, self._limits.iri)
        axioms = Axioms(self.writer, self._odd)
        try:
            for axiom in functional_expressions(text, names, self._odd, self._limits):
                if axiom.keyword != "Ontology":
                    axioms.write(replace(axiom, line=clause.line))
        except OntologyError as error:
            self._odd.add(clause.line, "owl-axioms", f"the axioms are not read to the end: {error.detail}")

    # ── one clause ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _clause(self, subject: Node, frame: Frame, clause: Clause) -> None:
        tag = clause.tag
        references = _RELATION_REFERENCES if self._relation else _REFERENCES
        if tag in references:
            self._reference(subject, references[tag], clause)
        elif tag == "name":
            self._text(subject, _LABEL, unescaped(split(clause.value).text), clause)
        elif tag in _SYNONYM_TAGS:
            self._synonym(subject, clause)
        elif tag == "def":
            self._quoted(subject, _DEFINITION, clause)
        elif tag == "comment":
            self._text(subject, rdfs("comment"), unescaped(split(clause.value).text), clause)
        elif tag == "relationship":
            self._expressions.relationship(subject, clause, plain=frame.kind != "Term")
        elif tag == "is_obsolete":
            if is_true(clause.value):
                self.writer.add(subject, _DEPRECATED, _TRUE)
        elif tag == "alt_id":
            self._alternative(subject, frame, clause)
        elif tag == "property_value":
            self._property_value(subject, clause)
        elif tag in _FLAGS and self._relation:
            if is_true(clause.value):
                self.writer.add(subject, TYPE, _FLAGS[tag])
        elif tag in _CHAINS and self._relation:
            self._expressions.chain(subject, frame, clause)
        elif tag not in _SILENT:
            self._odd.add(clause.line, f"tag {tag[:40]}", f"tag {shown(tag)} is not known here and is left out")

    def _text(self, subject: Node, predicate: ox.NamedNode, text: str, clause: Clause) -> None:
        if text:
            self.writer.add(subject, predicate, ox.Literal(text))
        else:
            self._odd.add(clause.line, f"empty {clause.tag}", f"{clause.tag} is empty")

    def _quoted(self, subject: Node, predicate: ox.NamedNode, clause: Clause) -> None:
        text = split(clause.value).text
        found = quoted(text)
        if found is None or not found.clean:
            self._odd.add(clause.line, f"quotes of {clause.tag}", f"the quotes of {clause.tag} are not in order")
        self._text(subject, predicate, found.text if found else unescaped(text.strip('"')), clause)

    def _synonym(self, subject: Node, clause: Clause) -> None:
        found = quoted(split(clause.value).text)
        if found is None:
            self._odd.add(clause.line, "synonym", f"a synonym stands in quotes, left out: {shown(clause.value)}")
            return
        if not found.clean:
            self._odd.add(clause.line, "quotes of synonym", "the quotes of synonym are not in order")
        scope = _SYNONYM_TAGS[clause.tag]
        told = words(found.rest.partition("[")[0])
        if scope is None and told and told[0].upper() in _SYNONYMS:
            scope = told.pop(0).upper()
        types = self._survey.synonym_types
        if told and told[0] not in types:
            self._odd.add(clause.line, "synonym type", f"synonym type {shown(told[0])} is not declared; it is ignored")
        if scope is None and told:
            scope = types.get(told[0])
        if scope is None:
            scope = "RELATED"  # the default of OBO 1.2
            self._odd.add(clause.line, "synonym scope", "the synonym has no scope, and is read as RELATED")
        self._text(subject, _SYNONYMS[scope], found.text, clause)

    def _reference(self, subject: Node, predicate: ox.NamedNode, clause: Clause) -> None:
        value = split(clause.value)
        found = words(value.text)
        if not found:
            self._odd.add(clause.line, f"empty {clause.tag}", f"{clause.tag} is empty")
            return
        if len(found) > 1:
            self._odd.add(
                clause.line,
                f"words behind {clause.tag}",
                f"left out behind {shown(found[0])}: a name needs ! before it",
            )
        target = self._node(found[0], clause.line)
        if target is None:
            return
        if clause.tag == "is_a" and not self._relation:
            subject = self._expressions.narrowed(subject, value, clause)
        self.writer.add(subject, predicate, target)

    def _alternative(self, subject: Node, frame: Frame, clause: Clause) -> None:
        for name in words(split(clause.value).text)[:1]:
            self.writer.add(subject, _ALTERNATIVE_ID, ox.Literal(name))
            if name == frame.id or frame.kind != "Term":
                continue
            if name in self._survey.declared:
                self._odd.add(clause.line, "alt_id", f"alt_id {shown(name)} has a stanza of its own, which counts")
                continue
            alternative = self._node(name, clause.line)
            if alternative is not None:
                self.writer.add(alternative, _DEPRECATED, _TRUE)
                self.writer.add(alternative, _REPLACED_BY, subject)

    def _property_value(self, subject: Node, clause: Clause) -> None:
        name, _, rest = split(clause.value).text.partition(" ")
        predicate = self._node(unescaped(name), clause.line)
        rest = rest.strip()
        if not isinstance(predicate, ox.NamedNode) or not rest:
            self._odd.add(clause.line, "property_value", f"property_value is not understood: {shown(clause.value)}")
            return
        found = quoted(rest)
        if found is None:
            target = self._node(words(rest)[0], clause.line)
            if target is not None:
                self.writer.add(subject, predicate, target)
            return
        kind = self._node(words(found.rest)[0], clause.line) if found.rest else None
        datatype = kind if isinstance(kind, ox.NamedNode) else None
        self.writer.add(subject, predicate, ox.Literal(found.text, datatype=datatype))

    def _node(self, name: str, line: int) -> Node | None:
        return self._survey.named(name, line, self._odd)
