"""Reader of OBO files (1.2 and 1.4). It writes triples by the mapping of OBO 1.4 to OWL, as far as kindcast uses it.

    is_a: B                         A subClassOf B                       (of a relation: subPropertyOf)
    relationship: R B               A subClassOf (R some B)              (of an instance, or R metadata: A R B)
    intersection_of: B              A equivalentClass (B and (R some C))
    intersection_of: R C
    alt_id: X                       X deprecated, replaced by A
    name, def, synonym, comment, union_of, equivalent_to, disjoint_from, is_obsolete, replaced_by, consider,
    property_value, instance_of, inverse_of, domain, range, is_transitive …: as the OWL tools write them

Cross references count only if the header states their meaning (`treat-xrefs-as-…`). Subsets, dates and authors are
ignored. A clause that cannot be read is left out, with a warning that names its line.

A file is first read as frames: the header, then one frame per stanza. A frame is a list of clauses with their lines.

    [Term]                                             Frame("Term", line 12, "CL:0000084", [
    id: CL:0000084                                ──▶      Clause("name", "T cell", line 14),
    name: T cell                                           Clause("is_a", "CL:0000542 ! lymphocyte", line 15)])
    is_a: CL:0000542 ! lymphocyte

Frames keep the values as written, with escapes and modifiers.

IDs become IRIs by the rules of OBO 1.4, as the OWL tools apply them. So an OBO file and its OWL version agree:

CL:0000084              http://purl.obolibrary.org/obo/CL_0000084
CL:part_of              http://purl.obolibrary.org/obo/CL#_part_of        a local name with an underscore
FMA:123                 …123 after the IRI of `idspace: FMA …`
part_of                 http://purl.obolibrary.org/obo/cl#part_of         in `ontology: cl`
part_of, xref BFO:50    http://purl.obolibrary.org/obo/BFO_50             a relation that is called so only here
http://e.org/x          itself
_:genid7                a blank node
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.owl_syntaxes import (
    TYPE,
    Axioms,
    Names,
    Node,
    TripleWriter,
    functional_expressions,
    owl,
    rdfs,
    xsd,
)
from kindcast.semantic.ontology.records import OBO, DocumentWarnings, Limits, local_name, shown

__all__ = [
    "IDSPACE_LENGTH",
    "OBO",
    "Clause",
    "Frame",
    "OboDocument",
    "OboNames",
    "Value",
    "expansion",
    "frames",
    "in_utf8",
    "quoted",
    "split",
    "unescaped",
    "words",
]


# The values of OBO clauses: escapes, quoted texts, trailing modifiers and comments.
#
# CL:0000542 {source="x"} ! lymphocyte          reference, modifiers, comment
# "T-cell" EXACT COMMON_NAME [CL:dup]           quoted text, words, cross references
# a text with \n escapes \! and more            unquoted text

_ESCAPES: Final = {"n": "\n", "W": " ", "t": "\t"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+"|\\.|(?<!\S)!', re.DOTALL)
_MODIFIERS = re.compile(r'(?:^|\s)\{((?:\s*[\w:.-]+\s*=\s*(?:"(?:[^"\\]|\\.)*+"|[^\s",{}]*)\s*,?)*+)\s*\}$')
_MODIFIER = re.compile(r'([\w:.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s",{}]*))')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_QUOTED_TO_THE_LAST = re.compile(r'"(.*)"', re.DOTALL)


class Value(NamedTuple):
    """The text of a clause, without its trailing comment, and the trailing modifiers."""

    text: str
    modifiers: dict[str, str]


class Quoted(NamedTuple):
    """A quoted text, the text after it, and whether the quotes were well-formed."""

    text: str
    rest: str
    clean: bool


def split(value: str) -> Value:
    """Splits `value` into text and modifiers and drops the trailing comment. The text remains escaped. Linear.

    >>> split('CL:1 {cardinality="2"} ! a cell')
    Value(text='CL:1', modifiers={'cardinality': '2'})
    """
    if "!" in value:
        for piece in _PIECE.finditer(value):
            if piece[0] == "!":
                value = value[: piece.start()]
                break
    value = value.strip()
    if not value.endswith("}"):
        return Value(value, {})
    found = _MODIFIERS.search(value)
    if not found:
        return Value(value, {})
    modifiers = {each[1]: each[2] if each[2] is not None else each[3] for each in _MODIFIER.finditer(found[1])}
    return Value(value[: found.start()].rstrip(), modifiers)


def unescaped(text: str) -> str:
    r"""Resolves the escapes in `text`: `\n`, `\t`, `\W` (a blank). Any other escaped character stands for itself.

    >>> unescaped(r"a\:b\Wc")
    'a:b c'
    """
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text) if "\\" in text else text


def quoted(text: str) -> Quoted | None:
    """Returns the quoted text at the start of `text`, or None if there is no pair of quotes. Quotes within the text
    that should be escaped are accepted; `clean` is then False.

    >>> quoted('"T-cell" EXACT []')
    Quoted(text='T-cell', rest='EXACT []', clean=True)
    >>> quoted('"the "T" cell" EXACT []').text
    'the "T" cell'
    """
    found = _QUOTED.match(text)
    if found is None:
        return None
    rest = text[found.end() :]
    if not rest or rest[0] in " \t[{":
        return Quoted(unescaped(found[1]), rest.strip(), True)
    references = text.rfind("[")
    inside = text if references < found.end() else text[:references]
    longest = _QUOTED_TO_THE_LAST.match(inside)
    if longest is None:
        return None
    return Quoted(unescaped(longest[1]), text[longest.end() :].strip(), False)


def words(text: str) -> list[str]:
    """Splits a reference into words and resolves escapes. An escaped blank does not separate words.

    >>> words(r"part_of CL\\:0000084")
    ['part_of', 'CL:0000084']
    """
    return [unescaped(word) for word in text.split()]


FrameKind = Literal["Header", "Term", "Typedef", "Instance"]

LONGEST: Final = 1 << 24  # characters of a line: texts have some thousands, but `owl-axioms` holds a whole document
CLAUSES: Final = 100_000  # of one stanza, the header included: the largest real ones have some hundreds

_KINDS: Final[dict[str, FrameKind]] = {"term": "Term", "typedef": "Typedef", "instance": "Instance"}
_STANZA = re.compile(r"\[\s*(\w+)\s*\]\s*(?:!.*)?")
_CLAUSE = re.compile(r"([^\s:\\!\"\[\]]+)\s*:(?!//)\s*(.*)", re.DOTALL)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Clause(NamedTuple):
    """One line of a frame: its tag, its value as written, and its line number (from 1)."""

    tag: str
    value: str
    line: int


@dataclass(slots=True)
class Frame:
    """The header (without an ID) or one stanza."""

    kind: FrameKind
    line: int
    id: str = ""
    clauses: list[Clause] = field(default_factory=list)


def in_utf8(data: bytes) -> bytes:
    """Returns `data` in UTF-8 without a byte-order mark. UTF-16 is recognised by its mark. If there is no line feed,
    carriage returns (old Macs) become line feeds."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            data = data.decode("utf-16").encode(errors="replace")
        except UnicodeDecodeError as error:
            raise OntologyError(f"the document begins like UTF-16 but is not UTF-16: {error}", line=1) from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def frames(data: bytes, noted: DocumentWarnings, *, brief: bool = False) -> Iterator[Frame]:
    """Yields the header, then each stanza that has an ID. If `brief`, terms and instances are yielded without their
    other clauses. Linear; only one frame is in memory.

    Raises OntologyError with the line if there is no stanza, or if a line or stanza is too long.
    """
    frame: Frame | None = Frame("Header", 1)
    stray = stanzas = 0  # the first line that is none; stanzas so far
    for line, text in _lines(data, noted):
        found = None
        if text[0] == "[":
            found = _STANZA.fullmatch(text)
        elif brief and frame is not None and frame.id and frame.kind != "Typedef":
            continue
        if found:
            if frame:
                yield from _complete(frame, noted)
            frame = _begun(found[1], line, noted)
            stanzas += frame is not None
        elif frame is not None:
            clause = _CLAUSE.fullmatch(text)
            if clause is None:
                stray = stray or line
                noted.add(
                    line, "no clause", f"left out, because it is not a clause of the form tag: value: {shown(text)}"
                )
            else:
                _put(frame, Clause(clause[1].lower(), clause[2], line), noted)
    if not stanzas:
        raise OntologyError(
            "this is not an OBO file: it has no [Term], [Typedef] or [Instance] stanza", line=stray or 1
        )
    if frame:
        yield from _complete(frame, noted)


def _lines(data: bytes, noted: DocumentWarnings) -> Iterator[tuple[int, str]]:
    """Yields each non-empty line as (line number from 1, stripped text). Continuation lines are joined."""
    held: list[str] = []  # the pieces of the continued line so far
    start = length = 0
    controls = _CONTROLS.search(data) is not None  # rarely true
    for line, raw in enumerate(io.BytesIO(data), 1):  # the hottest loop, with the one in `frames`
        if len(raw) > 4 * LONGEST:
            raise OntologyError(f"the line has more than {LONGEST:,} characters", line=line)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("cp1252", errors="replace")
            noted.add(line, "not UTF-8", "the line is not UTF-8 and was read as Windows-1252")
        text = text.rstrip("\r\n")
        start, length = (start, length + len(text)) if held else (line, len(text))
        if length > LONGEST:
            raise OntologyError(f"the line has more than {LONGEST:,} characters", line=start)
        if text.endswith("\\") and (len(text) - len(text.rstrip("\\"))) % 2:
            held.append(text[:-1])
            continue
        if held:
            text = "".join((*held, text))
            held = []
        if controls and _CONTROLS.search(text.encode()):
            noted.add(start, "control characters", "left out, because it has control characters")
            continue
        text = text.strip()
        if text and text[0] != "!":
            yield start, text
    if held:
        noted.add(start, "unfinished line", "left out: the document ends within the line")


def _begun(name: str, line: int, noted: DocumentWarnings) -> Frame | None:
    kind = _KINDS.get(name.lower())
    if kind is None:
        noted.add(line, "unknown stanza", f"stanza [{shown(name)[1:-1]}] is unknown and was left out")
        return None
    return Frame(kind, line)


def _put(frame: Frame, clause: Clause, noted: DocumentWarnings) -> None:
    if clause.tag == "id" and frame.kind != "Header":
        found = words(split(clause.value).text)
        if frame.id or not found:
            noted.add(
                clause.line,
                "id",
                f"{frame.id or 'the stanza'} has an invalid id, which was left out: {shown(clause.value)}",
            )
        else:
            frame.id = found[0]
            if len(found) > 1:
                noted.add(clause.line, "words behind", f"left out after {shown(found[0])}: write ! before a name")
        return
    if len(frame.clauses) >= CLAUSES:
        raise OntologyError(f"the stanza has more than {CLAUSES:,} clauses", line=clause.line)
    frame.clauses.append(clause)


def _complete(frame: Frame, noted: DocumentWarnings) -> Iterator[Frame]:
    if frame.id or frame.kind == "Header":
        yield frame
    else:
        noted.add(frame.line, "no id", f"this [{frame.kind}] has no id and was left out")


IDSPACE_LENGTH: Final = 512  # characters of the IRI of an idspace; each ID with that prefix repeats it

_URL = re.compile(r"(?:https?|ftp|urn|file|mailto):\S", re.IGNORECASE)
_PREFIXED = re.compile(r"([^\s:]+):(\S+)")
_SAFE: Final = "!$&'()*+,;=:@/?-._~%"  # characters of a local name that need no escape in an IRI
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class OboNames:
    """Maps the names of one document to nodes. `idspaces` maps prefixes to IRIs, and `shorthands` maps IDs of relations
    to the IDs they stand for. Names without a prefix begin with `ontology`, the name of the document in its header, or
    with `base` if the header has none."""

    def __init__(self, ontology: str, base: str) -> None:
        self.idspaces: dict[str, str] = {}
        self.shorthands: dict[str, str] = {}
        self.ontology = self._ontology(ontology, base)
        self._own = f"{ontology if _URL.match(ontology) else OBO + _escaped(ontology)}#" if ontology else base
        self.underscored: dict[str, str] = {}  # prefix of IDs such as CL:part_of -> the IRI up to `part_of`
        self._known: dict[str, ox.NamedNode | ox.BlankNode] = {}

    def node(self, name: str) -> ox.NamedNode | ox.BlankNode:
        """Returns the node of `name` (unescaped). Raises ValueError if the name gives no valid IRI."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._node(name)
        return found

    def document(self, name: str) -> ox.NamedNode:
        """Returns the IRI of an imported document. `name` is a URL or the name of an ontology in OBO."""
        if _URL.match(name):
            return ox.NamedNode(name)
        stem = name.removesuffix(".obo").removesuffix(".owl")
        return ox.NamedNode(OBO + _escaped(stem) + ".owl")

    def _node(self, name: str) -> ox.NamedNode | ox.BlankNode:
        name = self.shorthands.get(name, name)
        if name.startswith("_:"):
            return ox.BlankNode("obo_" + re.sub(r"\W", lambda found: f"-{ord(found[0]):x}-", name[2:]))
        if _URL.match(name):
            return ox.NamedNode(name)
        prefixed = _PREFIXED.fullmatch(name)
        if prefixed is None:
            if not name or ":" in name or any(character.isspace() for character in name):
                raise ValueError("an id must be a prefix, a colon and a local name, or one word")
            return ox.NamedNode(self._own + _escaped(name))
        prefix, local = prefixed.groups()
        namespace = self.idspaces.get(prefix) or ns.WELL_KNOWN_PREFIXES.get(prefix)
        if namespace is None and "_" in local:
            namespace = self.underscored[prefix] = f"{OBO}{_escaped(prefix)}#_"
        return ox.NamedNode((namespace or f"{OBO}{_escaped(prefix)}_") + _escaped(local))

    def _ontology(self, name: str, base: str) -> ox.NamedNode:
        try:
            return self.document(name) if name else ox.NamedNode(base)
        except ValueError:
            return ox.NamedNode(base)


def _escaped(local: str) -> str:
    """Percent-encodes the characters of `local` that an IRI cannot contain. Existing percent escapes are kept."""
    return _PERCENT.sub("%25", quote(local, safe=_SAFE))


def expansion(name: str, references: Sequence[str]) -> str | None:
    """Returns the ID that the relation `name` stands for, from its cross references. An ID of RO or BFO is preferred;
    otherwise the first one is used. A URL counts only if its local name is `name`, because most URLs are links to
    documentation.

    >>> expansion("part_of", ["OBO_REL:part_of", "BFO:0000050"]), expansion("RO:1", ["BFO:1"])
    ('BFO:0000050', None)
    """
    if ":" in name:
        return None
    ids = [
        each for each in references if _PREFIXED.fullmatch(each) and (not _URL.match(each) or local_name(each) == name)
    ]
    best = next((each for each in ids if each.startswith(("BFO:", "RO:"))), None)
    return best or (ids[0] if ids else None)


# Facts about an OBO file that are needed before its first triple: its names, its relations, its synonym types and the
# meaning of its cross references. They are collected in one pass over the frames, because the stanzas of relations
# usually come last.

SCOPES: Final = ("EXACT", "BROAD", "NARROW", "RELATED")
MACROS: Final = 8  # meanings of one prefix: each multiplies the triples of every cross reference; one is usual
_MACRO: Final = "treat-xrefs-as-"
_NEEDS: Final = {  # tag -> which of relation and filler follow the prefix of the foreign IDs
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
    """The meaning of cross references to IDs of one prefix. `kind` is the name in `treat-xrefs-as-…`."""

    kind: str
    relation: str = ""
    filler: str = ""


@dataclass(slots=True)
class Survey:
    """The result of the first pass. `declared` holds the IDs that have a stanza; `annotations` the relations that are
    annotation properties (metadata)."""

    names: OboNames
    synonym_types: dict[str, str | None] = field(default_factory=dict)  # type -> scope of synonyms that state none
    macros: dict[str, list[Macro]] = field(default_factory=dict)  # prefix -> its meanings
    declared: set[str] = field(default_factory=set)
    relations: set[str] = field(default_factory=set)
    annotations: set[str] = field(default_factory=set)
    longest: int = 4_096  # characters of an IRI

    def named(self, name: str, line: int, noted: DocumentWarnings) -> Node | None:
        """Returns the node of an ID. If the ID gives no valid IRI, records a warning and returns None."""
        try:
            node = self.names.node(name)
            if len(node.value) <= self.longest:
                return node
            problem = f"an IRI has more than {self.longest:,} characters"
        except ValueError as error:
            problem = str(error)
        noted.add(line, "id", f"{shown(name)} is not an id, left out: {problem}")
        return None


def survey(found: Iterable[Frame], base: str, noted: DocumentWarnings, limits: Limits) -> Survey:
    """Reads all frames once. Raises OntologyError if the IRI of an idspace is too long."""
    frames = iter(found)
    header = next(frames)
    survey = Survey(OboNames(_value(header, "ontology"), base), longest=limits.iri)
    for clause in header.clauses:
        _header_clause(survey, clause, noted)
    for frame in frames:
        survey.declared.add(frame.id)
        if frame.kind == "Typedef":
            _relation(survey, frame)
    return survey


def is_true(value: str) -> bool:
    """Returns whether a boolean clause is true."""
    return split(value).text.lower() in ("true", "1")


def _value(frame: Frame, tag: str) -> str:
    return next((unescaped(split(each.value).text) for each in frame.clauses if each.tag == tag), "")


def _header_clause(survey: Survey, clause: Clause, noted: DocumentWarnings) -> None:
    text = split(clause.value).text
    if clause.tag == "idspace":
        parts = words(text)
        if len(parts) < 2 or not _ABSOLUTE.fullmatch(parts[1]):
            noted.add(
                clause.line, "idspace", f"left out, because an idspace must be a prefix and an IRI: {shown(text)}"
            )
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
            noted.add(clause.line, "treat-xrefs", f"{clause.tag} is not understood and was left out: {shown(text)}")
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


# OBO clauses that describe a class in terms of other classes: relationships, definitions by several clauses, and cross
# references with a meaning. Each becomes an OWL class expression in triples.
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
    """Writes the class expressions of one file as triples."""

    def __init__(self, writer: TripleWriter, found: Survey, noted: DocumentWarnings) -> None:
        self._writer = writer
        self._survey = found
        self._noted = noted

    def relationship(self, subject: Node, clause: Clause, *, plain: bool) -> None:
        """Writes `relationship: R B` of `subject`. It becomes a plain triple if the subject is no class or R is an
        annotation."""
        value = split(clause.value)
        found = words(value.text)
        if len(found) < 2:
            self._noted.add(
                clause.line, "relationship", f"a relationship must be a relation and an id: {shown(clause.value)}"
            )
            return
        if len(found) > 2:
            self._noted.add(clause.line, "words behind", f"left out after {shown(found[1])}: write ! before a name")
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
        """Returns the class that a clause is about. With the modifiers `gci_relation` and `gci_filler` it is the
        intersection of `subject` and the restriction that they state; otherwise it is `subject`."""
        if "gci_relation" not in value.modifiers and "gci_filler" not in value.modifiers:
            return subject
        relation = self._named(unescaped(value.modifiers.get("gci_relation", "")), clause)
        filler = self._named(unescaped(value.modifiers.get("gci_filler", "")), clause)
        if not isinstance(relation, ox.NamedNode) or filler is None:
            return self._writer.blank()  # a class about which nothing else is known
        return self._joined("intersection_of", (subject, self._writer.restriction(relation, _SOME, filler)))

    def definitions(self, subject: Node, frame: Frame) -> None:
        """Writes the definitions of a term. All its `intersection_of` clauses form one definition, and so do its
        `union_of`."""
        for tag in _JOINED:
            clauses = [each for each in frame.clauses if each.tag == tag]
            if not clauses:
                continue
            members = [member for each in clauses for member in self._member(each)]
            if len(members) == len(clauses) > 1:
                self._writer.add(subject, _SAME, self._joined(tag, members))
            else:
                self._noted.add(
                    clauses[0].line, tag, f"{frame.id} is not defined by {tag}: at least two valid clauses are needed"
                )

    def cross_references(self, subject: Node, frame: Frame) -> None:
        """Writes the meaning of each `xref` whose prefix has a meaning in the header."""
        if not self._survey.macros:
            return
        for clause in frame.clauses:
            found = words(split(clause.value).text) if clause.tag == "xref" else []
            for macro in self._survey.macros.get(found[0].partition(":")[0], ()) if found else ():
                foreign = self._named(found[0], clause)
                if foreign is not None:
                    self._meant(subject, foreign, macro, clause)

    def chain(self, subject: Node, frame: Frame, clause: Clause) -> None:
        """Writes the property chain that `transitive_over: S` or `holds_over_chain: R S` states for a relation."""
        found = words(split(clause.value).text)
        found = [frame.id, *found[:1]] if clause.tag == "transitive_over" else found[:2]
        nodes = [node for each in found if (node := self._named(each, clause)) is not None]
        if len(nodes) == 2:
            self._writer.add(subject, owl("propertyChainAxiom"), self._writer.sequence(nodes))

    # ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _restrictions(self, relation: Node, target: Node, value: Value, clause: Clause) -> Iterator[Node]:
        """Yields `R some B`, or the restrictions that the modifiers state instead: a cardinality, none, or only."""
        numbers = {word: text for word, text in value.modifiers.items() if word in _CARDINALITIES}
        for word, text in numbers.items():
            if not _NUMBER.fullmatch(text):
                self._noted.add(clause.line, "cardinality", f"{word} is not a number, left out: {shown(text)}")
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
        """Returns the class expression of one `intersection_of` or `union_of`; empty if the clause cannot be read."""
        value = split(clause.value)
        found = words(value.text)
        if not found:
            return []
        related = len(found) > 1 and (
            found[0] in self._survey.relations or ":" in found[1] or found[1] in self._survey.declared
        )
        if not related:  # a name after the ID without `!` is not a second ID
            node = self._named(found[0], clause)
            return [] if node is None else [node]
        relation, filler = (self._named(each, clause) for each in found[:2])
        if not isinstance(relation, ox.NamedNode) or filler is None:
            return []
        parts = list(self._restrictions(relation, filler, value, clause))
        return parts if len(parts) < 2 else [self._joined("intersection_of", parts)]

    def _meant(self, subject: Node, foreign: Node, macro: Macro, clause: Clause) -> None:
        """Writes the triples that a cross reference from `subject` to `foreign` stands for."""
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
        return self._survey.named(name, clause.line, self._noted)


_OIO: Final = "http://www.geneontology.org/formats/oboInOwl#"
_IAO: Final = "http://purl.obolibrary.org/obo/IAO_"
_SYNONYMS: Final = {scope: ox.NamedNode(f"{_OIO}has{scope.capitalize()}Synonym") for scope in SCOPES}
_SYNONYM_TAGS: Final = {"synonym": None} | {f"{scope.lower()}_synonym": scope for scope in SCOPES}
_DEFINITION: Final = ox.NamedNode(_IAO + "0000115")
_REPLACED_BY: Final = ox.NamedNode(_IAO + "0100001")
_ALTERNATIVE_ID: Final = ox.NamedNode(_OIO + "hasAlternativeId")
_SHORTHAND: Final = ox.NamedNode(_OIO + "shorthand")
_ID: Final = ox.NamedNode(_OIO + "id")  # a term's own id is its code, as the OWL tools write it
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
        *("intersection_of", "union_of"),  # read together after the other clauses of the frame
    )
)


class OboDocument:
    """Reader of one OBO file. `prefixes` (the idspaces) and `warnings` are complete when all triples were read.

    It reads the file in two passes, in linear time. Memory: the IDs and one stanza. Raises OntologyError while reading
    if the file is not OBO or exceeds a limit.
    """

    def __init__(self, data: bytes, base: str, limits: Limits) -> None:
        self._data = in_utf8(data)
        self._base = base
        self._limits = limits
        self.prefixes: dict[str, str] = {}
        self.warnings: list[str] = []

    def triples(self) -> Iterator[ox.Quad]:
        """Yields all triples, frame by frame."""
        noted = DocumentWarnings()
        found = survey(frames(self._data, DocumentWarnings(), brief=True), self._base, noted, self._limits)
        reader = _Reader(found, noted, self._limits)
        for frame in frames(self._data, noted):
            reader.read(frame)
            yield from reader.writer.taken()
        self.prefixes = found.names.underscored | found.names.idspaces
        self.warnings = list(noted.texts())


class _Reader:
    """Converts frames to triples, one frame at a time."""

    def __init__(self, found: Survey, noted: DocumentWarnings, limits: Limits) -> None:
        self.writer = TripleWriter()
        self._limits = limits
        self._survey = found
        self._noted = noted
        self._expressions = Expressions(self.writer, found, noted)
        self._seen: set[str] = set()
        self._relation = False  # whether the frame is a Typedef

    def read(self, frame: Frame) -> None:
        """Writes the triples of `frame`."""
        if frame.kind == "Header":
            self._header(frame)
            return
        if frame.id in self._seen:
            self._noted.add(frame.line, "second stanza", f"{frame.id} has two stanzas; both are used")
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
            self.writer.add(subject, _ID, ox.Literal(frame.id))
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
                    self._noted.add(clause.line, "import", f"the name of the import is not an IRI: {shown(text)}")
            elif clause.tag == "property_value":
                self._property_value(names.ontology, clause)
            elif clause.tag == "owl-axioms":
                self._axioms(text, clause)

    def _axioms(self, text: str, clause: Clause) -> None:
        """Reads the `owl-axioms` of the header: a document in functional syntax with axioms that OBO cannot express.
        After an error in it, its remaining axioms are left out."""
        names = Names(self._survey.names.ontology.value, self._limits.iri)
        axioms = Axioms(self.writer, self._noted)
        try:
            for axiom in functional_expressions(text, names, self._noted, self._limits):
                if axiom.keyword != "Ontology":
                    axioms.write(replace(axiom, line=clause.line))
        except OntologyError as error:
            self._noted.add(clause.line, "owl-axioms", f"the axioms were not read to the end: {error.detail}")

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
            self._noted.add(clause.line, f"tag {tag[:40]}", f"tag {shown(tag)} is unknown and was left out")

    def _text(self, subject: Node, predicate: ox.NamedNode, text: str, clause: Clause) -> None:
        if text:
            self.writer.add(subject, predicate, ox.Literal(text))
        else:
            self._noted.add(clause.line, f"empty {clause.tag}", f"{clause.tag} is empty")

    def _quoted(self, subject: Node, predicate: ox.NamedNode, clause: Clause) -> None:
        text = split(clause.value).text
        found = quoted(text)
        if found is None or not found.clean:
            self._noted.add(
                clause.line, f"quotes of {clause.tag}", f"the quotes of {clause.tag} are not closed correctly"
            )
        self._text(subject, predicate, found.text if found else unescaped(text.strip('"')), clause)

    def _synonym(self, subject: Node, clause: Clause) -> None:
        found = quoted(split(clause.value).text)
        if found is None:
            self._noted.add(
                clause.line, "synonym", f"a synonym must be in quotes; it was left out: {shown(clause.value)}"
            )
            return
        if not found.clean:
            self._noted.add(clause.line, "quotes of synonym", "the quotes of synonym are not closed correctly")
        scope = _SYNONYM_TAGS[clause.tag]
        told = words(found.rest.partition("[")[0])
        if scope is None and told and told[0].upper() in _SYNONYMS:
            scope = told.pop(0).upper()
        types = self._survey.synonym_types
        if told and told[0] not in types:
            self._noted.add(
                clause.line, "synonym type", f"synonym type {shown(told[0])} is not declared; it is ignored"
            )
        if scope is None and told:
            scope = types.get(told[0])
        if scope is None:
            scope = "RELATED"  # the default of OBO 1.2
            self._noted.add(clause.line, "synonym scope", "the synonym has no scope and was read as RELATED")
        self._text(subject, _SYNONYMS[scope], found.text, clause)

    def _reference(self, subject: Node, predicate: ox.NamedNode, clause: Clause) -> None:
        value = split(clause.value)
        found = words(value.text)
        if not found:
            self._noted.add(clause.line, f"empty {clause.tag}", f"{clause.tag} is empty")
            return
        if len(found) > 1:
            self._noted.add(
                clause.line,
                f"words behind {clause.tag}",
                f"left out after {shown(found[0])}: write ! before a name",
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
                self._noted.add(clause.line, "alt_id", f"alt_id {shown(name)} has its own stanza, which is used")
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
            self._noted.add(clause.line, "property_value", f"property_value is not understood: {shown(clause.value)}")
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
        return self._survey.named(name, line, self._noted)
