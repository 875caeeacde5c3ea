"""OBO clauses that say something about a class by others: relationships, definitions by several clauses, what cross
references mean. Each becomes a class expression of OWL in triples.

    relationship: R B {cardinality="2"}     A subClassOf (R exactly 2 B), (R some B)
    relationship: R B {all_only="true"}     A subClassOf (R only B)
    is_a: B {gci_relation="R", gci_filler="C"}       (A and R some C) subClassOf B, and nothing about A alone
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyoxigraph as ox

from semantic.ontology.obo.frames import Clause, Frame
from semantic.ontology.obo.survey import Macro, Survey
from semantic.ontology.obo.values import Value, split, unescaped, words
from semantic.ontology.oddities import Oddities, shown
from semantic.ontology.triple_writer import Node, TripleWriter, owl, rdfs, xsd

__all__ = ["Expressions"]

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
