"""What must be known of an OBO file before its first triple: its names, its relations, its kinds of synonyms, what its
cross references mean. One pass over the frames; the stanzas of relations usually come last."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from semantic.errors import OntologyError
from semantic.ontology.obo.frames import Clause, Frame
from semantic.ontology.obo.names import IDSPACE_LENGTH, OboNames, expansion
from semantic.ontology.obo.values import split, unescaped, words
from semantic.ontology.oddities import Oddities, shown
from semantic.ontology.records import Limits
from semantic.ontology.triple_writer import Node

__all__ = ["SCOPES", "Macro", "Survey", "is_true", "survey"]

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
