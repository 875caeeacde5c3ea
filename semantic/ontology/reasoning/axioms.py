"""The part of a document that a reasoner of OWL is given, as N-Triples with numbers for names.

Only what bears on classes, properties and individuals goes there: no labels, no annotations, no imports, nothing of
SKOS. Each IRI of the document becomes a number, each blank node too, so that nothing in a name can trouble a reader of
triples or of answers, and so that the reasoner learns of no place to fetch anything from. What is used as a class or as
a property and nowhere declared (its ontology is imported, say) is declared here: an undeclared property would make
every restriction on it meaningless.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyoxigraph as ox

from semantic.errors import OntologyError
from semantic.ontology import framing
from semantic.ontology import namespaces as ns
from semantic.ontology.extraction import serves
from semantic.ontology.reasoning import owl_words as owl
from semantic.ontology.reasoning.literals import lexical_form
from semantic.ontology.reasoning.property_kinds import PropertyKinds
from semantic.ontology.statements import Statements

__all__ = ["NAMESPACE", "Axioms", "axioms_of"]

NAMESPACE: Final = "http://k/"
"""Before the number of a name."""

_NUMBER = re.compile(re.escape(NAMESPACE) + r"(\d{1,9})")

MOST = 2_000_000
"""Triples that are given to a reasoner: far more than it masters in minutes, and what its heap holds."""

Triples = Callable[[], Iterable[ox.Quad]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axioms:
    """N-Triples in ASCII, and the IRIs that stand behind the numbers in them, the first `classes` of which are classes;
    `unsupported` are datatypes of the document that a reasoner of OWL 2 does not know, so that it ignores what is said
    by their values, and `malformed` counts values that are none of their datatype and were left out."""

    triples: bytes
    names: tuple[str, ...]
    classes: int = 0
    unsupported: tuple[str, ...] = ()
    malformed: int = 0

    def packed(self) -> bytes:
        """As bytes, for another process."""
        return framing.joined(
            framing.packed([self.names, self.classes, self.unsupported, self.malformed]), self.triples
        )

    @classmethod
    def unpacked(cls, data: bytes) -> "Axioms":
        """Again as they were."""
        told, triples = framing.parted(data)
        names, classes, unsupported, malformed = framing.unpacked(told)
        return cls(
            triples=triples,
            names=tuple(names),
            classes=classes,
            unsupported=tuple(unsupported),
            malformed=malformed,
        )

    def named(self, number: str) -> str | None:
        """The IRI behind a name in the triples; None for a word of OWL."""
        if not number.startswith(NAMESPACE):
            return None
        return self.names[int(number.removeprefix(NAMESPACE))]

    def spelt_out(self, text: str) -> str:
        """`text` with the IRIs of the document in place of their numbers."""
        return _NUMBER.sub(lambda match: self.names[int(match[1])], text)


def axioms_of(triples: Triples, statements: Statements) -> Axioms:
    """What the document, whose statements were collected already, has for a reasoner. Cost: two readings of it.

    Raises OntologyError beyond `MOST` triples, and what reading raises.
    """
    kinds = PropertyKinds(triples(), statements)
    writer = _Writer(kinds, statements)
    lines = dict.fromkeys(writer.declarations())
    for quad in triples():
        line = writer.line(quad)
        if line:
            lines[line] = None
            if len(lines) > MOST:
                raise OntologyError(
                    f"it has more than {MOST:,} triples for a reasoner, the most that one is given; load it with "
                    "reason=none or reason=rdfs"
                )
    return Axioms(
        triples="".join(lines).encode("ascii"),
        names=tuple(writer.numbers),
        classes=len(kinds.classes),
        unsupported=tuple(sorted(writer.unsupported)),
        malformed=writer.malformed,
    )


@dataclass(slots=True)
class _Writer:
    """Triples as lines, where they are for a reasoner."""

    kinds: PropertyKinds
    statements: Statements
    numbers: dict[str, int] = field(default_factory=dict)
    blanks: dict[str, int] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    malformed: int = 0

    def declarations(self) -> Iterator[str]:
        """The kinds of names, before everything else: every class, then every property."""
        for word, names in (
            (owl.CLASS, self.kinds.classes),
            (owl.OBJECT_PROPERTY, self.kinds.objects),
            (owl.DATATYPE_PROPERTY, self.kinds.data),
        ):
            for name in sorted(names):
                yield f"{self._name(name)} <{ns.TYPE}> <{word}> .\n"

    def line(self, quad: ox.Quad) -> str:
        """The triple as a line; "" where it is none for a reasoner."""
        predicate = quad.predicate.value
        subject, value = quad.subject, quad.object
        if isinstance(subject, ox.Triple) or isinstance(value, ox.Triple):
            return ""
        literal = isinstance(value, ox.Literal)
        if predicate == ns.TYPE:
            kept = not literal and self._type_counts(subject, value)
        elif predicate in owl.PROPERTY_AXIOMS:
            kept = not literal and self._property_axiom_counts(predicate, subject, value)
        elif predicate in owl.LITERAL_WORDS:
            kept = True
        elif predicate in owl.WORDS:
            kept = not literal
        else:
            kept = predicate in (self.kinds.data if literal else self.kinds.objects) and all(
                self._is_individual(each.value) for each in (subject, value) if isinstance(each, ox.NamedNode)
            )
            if kept and isinstance(value, ox.Literal):
                form = lexical_form(value.value, value.datatype.value)
                if form is None:
                    self.malformed += 1
                    return ""
        if not kept:
            return ""
        return f"{self._term(subject)} {self._name(predicate)} {self._term(value)} .\n"

    def _type_counts(self, subject: ox.NamedNode | ox.BlankNode, value: object) -> bool:
        if not isinstance(value, ox.NamedNode):
            return True
        if ns.is_vocabulary(value.value):
            return value.value in owl.TYPES
        return not isinstance(subject, ox.NamedNode) or self._is_individual(subject.value)

    def _is_individual(self, name: str) -> bool:
        """Whether a type of `name` says something of the world, and not of the schema or of the document."""
        return not (ns.is_vocabulary(name) or self.kinds.is_property(name) or serves(name, self.statements))

    def _property_axiom_counts(self, predicate: str, subject: object, value: object) -> bool:
        """Axioms of properties of one and the same kind, annotation properties being none."""
        if not isinstance(subject, ox.NamedNode):
            return isinstance(subject, ox.BlankNode)
        if not self.kinds.is_property(subject.value):
            return False
        if predicate in owl.PROPERTY_PAIRS and isinstance(value, ox.NamedNode):
            return self.kinds.are_alike(subject.value, value.value)
        return True

    def _term(self, term: object) -> str:
        if isinstance(term, ox.NamedNode):
            return self._name(term.value)
        if isinstance(term, ox.BlankNode):
            return f"_:n{self.blanks.setdefault(term.value, len(self.blanks))}"
        assert isinstance(term, ox.Literal)
        return self._literal(term)

    def _name(self, iri: str) -> str:
        if ns.is_vocabulary(iri):
            return f"<{iri}>"
        return f"<{NAMESPACE}{self.numbers.setdefault(iri, len(self.numbers))}>"

    def _literal(self, literal: ox.Literal) -> str:
        text = (lexical_form(literal.value, literal.datatype.value) or literal.value).translate(_ESCAPES)
        text = "".join(each if each.isascii() and each.isprintable() else _escaped(each) for each in text)
        if literal.language:
            tag = literal.language.lower()
            return f'"{text}"@{tag}' if _LANGUAGE.fullmatch(tag) else f'"{text}"'
        datatype = literal.datatype.value
        if datatype not in owl.DATATYPES and datatype not in self.kinds.datatypes:
            self.unsupported.add(datatype)
        return f'"{text}"^^{self._name(datatype)}'


_LANGUAGE = re.compile(r"[a-z]{1,8}(-[a-z0-9]{1,8})*")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code < 1 << 16 else f"\\U{code:08X}"
