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

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyoxigraph as ox

from semantic.errors import OntologyError
from semantic.ontology.obo.expressions import Expressions
from semantic.ontology.obo.frames import Clause, Frame, frames, in_utf8
from semantic.ontology.obo.survey import SCOPES, Survey, is_true, survey
from semantic.ontology.obo.values import quoted, split, unescaped, words
from semantic.ontology.oddities import Oddities, shown
from semantic.ontology.owl_syntaxes.axioms import Axioms
from semantic.ontology.owl_syntaxes.expressions import Names
from semantic.ontology.owl_syntaxes.functional import functional_expressions
from semantic.ontology.records import Limits
from semantic.ontology.triple_writer import TYPE, Node, TripleWriter, owl, rdfs, xsd

__all__ = ["OboDocument"]

_OIO: Final = "http://www.geneontology.org/formats/oboInOwl#"
_IAO: Final = "http://purl.obolibrary.org/obo/IAO_"
_SYNONYMS: Final = {scope: ox.NamedNode(f"{_OIO}has{scope.capitalize()}Synonym") for scope in SCOPES}
_SYNONYM_TAGS: Final = {"synonym": None} | {f"{scope.lower()}_synonym": scope for scope in SCOPES}
_DEFINITION: Final = ox.NamedNode(_IAO + "0000115")
_REPLACED_BY: Final = ox.NamedNode(_IAO + "0100001")
_ALTERNATIVE_ID: Final = ox.NamedNode(_OIO + "hasAlternativeId")
_SHORTHAND: Final = ox.NamedNode(_OIO + "shorthand")
_LABEL: Final = rdfs("label")
_SUB_CLASS: Final = rdfs("subClassOf")
_SAME_CLASS: Final = owl("equivalentClass")
_DEPRECATED: Final = owl("deprecated")
_CLASS: Final = owl("Class")
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
