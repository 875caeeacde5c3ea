"""Checks of documents before they are parsed, so that no parser reads a document that could stop or crash it.

*RDF/XML and OWL/XML* are checked by expat, in one pass. Entities, depth and texts are limited, and errors have a line.
Tools write `<!ENTITY owl "http://www.w3.org/2002/07/owl#">` into ordinary documents, so a DOCTYPE by itself is allowed.
These are rejected: external, parameter and unparsed entities, entities with markup, too many or too long ones; an
external DTD and attribute defaults; texts and totals beyond their limits; elements nested too deep (the cost of the RDF
parser is quadratic in the depth). The RDF parser supports less of XML than expat. So the document is simplified for it:
each entity is declared once, with its whole text, and texts have no comments, processing instructions or CDATA
sections.

*JSON-LD* is checked by a regular expression over its tokens, and each context is parsed. The depth and the work that
the contexts cause are limited. The RDF parser takes time quadratic in the depth, copies all active terms at every
context, and resolves terms by recursion. So a small document could occupy it for hours or overflow its stack.

*Turtle, TriG, N-Triples and N-Quads* are checked by three searches over the bytes: for nested triple terms, long IRIs
and chains of bases. A triple term nested a hundred thousand deep overflows the stack of the process. A prefix of three
bytes can stand for an IRI of a megabyte, any number of times. Every relative `@base` makes the next one longer.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Final
from xml.parsers import expat

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.records import Limits

__all__ = ["inspect_json", "inspect_turtle", "inspect_xml", "utf8_text"]


CONTEXT_WORK: Final = 50_000_000
"""Terms that may be copied while contexts are processed. Each takes about 80 ns, so all take a few seconds."""
CHAIN: Final = 8
"""The maximum length of a chain of terms in which each is defined by the next. Real contexts have two or three."""
RELATIVE: Final = 256
"""Characters of a relative `@base` or `@vocab`, which is appended to that of the enclosing context at every level."""

_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)(?:"(\s*+:)?|\\?\Z)|([{\[])|([}\]])', re.DOTALL)  # or an unclosed string
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_NAMING: Final = frozenset({"@id", "@type", "@reverse"})  # keys of a definition whose values may be other terms
_Pairs = list[tuple[str, Any]]


def utf8_text(data: bytes) -> str:
    """Raises OntologyError, with the line, if `data` is not in UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OntologyError("the document is not in UTF-8", line=line) from error


def inspect_json(data: bytes, limits: Limits) -> None:
    """Raises OntologyError, with line and column, if a limit is exceeded. Ignores all other errors.

    The work of contexts is estimated from above: the number of contexts × the number of terms in all of them, plus,
    for contexts in contexts (scoped to terms), the number of objects × the number of terms in those.
    """
    depth = objects = contexts = terms = scoped = 0
    inside = 0  # the depth of the outermost open context, or 0
    start = 0  # the position at which it begins
    items = 0  # the depth of the objects that define its terms: one more if it is an array of contexts
    nested = 0  # the depth of an open context inside it, or 0
    expected = False  # whether the next token begins the value of `@context`
    for token in _TOKEN.finditer(data):
        if token[3]:
            depth += 1
            objects += token[3] == b"{"
            if expected and not inside:
                inside, start = depth, token.start()
                items = depth + (token[3] == b"[")
            elif expected and not nested:
                nested = depth
            contexts += inside > 0 and depth == items and token[3] == b"{"
            expected = False
        elif token[4]:
            nested = 0 if depth == nested else nested
            if depth == inside:
                inside = 0
                problem = _problem(data[start : token.end()], limits)
                if problem:
                    raise _refused(data, start, problem)
            depth -= 1
        else:
            expected = token[2] is not None and _is_context(token[1])
            terms += inside > 0 and token[2] is not None
            scoped += nested > 0 and token[2] is not None
        if depth > limits.depth:
            raise _refused(data, token.start(), f"nested more than {limits.depth} deep")
        if contexts * terms + objects * scoped > CONTEXT_WORK:
            raise _refused(data, token.start(), "the contexts are too many and too large: write one context for all")


def _is_context(text: bytes) -> bool:
    if b"\\" not in text:
        return text == b"@context"
    try:
        return json.loads(b'"' + text + b'"') == "@context"  # type: ignore[no-any-return]
    except ValueError:
        return False


def _problem(context: bytes, limits: Limits) -> str | None:
    """Returns the problem of a context or of the contexts inside it, or None. Objects are read as pairs, because a key
    may occur twice."""
    try:
        frontier: list[Any] = [json.loads(context, object_pairs_hook=_Object)]
    except ValueError:
        return None  # the parser reports a better error
    while frontier:
        node = frontier.pop()
        if isinstance(node, _Object):
            for key, value in node.pairs:
                if len(key) > limits.iri or (isinstance(value, str) and len(value) > limits.iri):
                    return f"a name in @context has more than {limits.iri:,} characters"
                if key in ("@base", "@vocab") and _long_and_relative(value):
                    return f"a relative {key} has more than {RELATIVE} characters"
                frontier.append(value)
            if _chained(node.pairs):
                return f"the definitions of terms are nested more than {CHAIN} deep"
        elif isinstance(node, list):
            frontier.extend(node)
    return None


def _long_and_relative(value: object) -> bool:
    return isinstance(value, str) and len(value) > RELATIVE and not _ABSOLUTE.match(value)


class _Object:
    """A JSON object as a list of (key, value) pairs."""

    def __init__(self, pairs: _Pairs) -> None:
        self.pairs = pairs


def _chained(pairs: _Pairs) -> bool:
    """Whether the terms of one context refer to each other in a chain of more than `CHAIN` terms, or in a cycle."""
    uses: dict[str, set[str]] = {}
    for term, definition in pairs:
        found = [term, definition] if isinstance(definition, str) else [term]
        if isinstance(definition, _Object):
            found += [value for key, value in definition.pairs if key in _NAMING and isinstance(value, str)]
        uses.setdefault(term, set()).update(name for text in found for name in (text, text.partition(":")[0]))
    layer = {term: {name for name in names if name in uses and name != term} for term, names in uses.items()}
    for _ in range(CHAIN):
        ends = {term for term, names in layer.items() if not names}
        layer = {term: names - ends for term, names in layer.items() if term not in ends}
        if not layer:
            return False
    return True


def _refused(data: bytes, at: int, detail: str) -> OntologyError:
    return OntologyError(detail, line=data.count(b"\n", 0, at) + 1, column=at - data.rfind(b"\n", 0, at))


RELATIVE_BASES: Final = 1_000
"""`@base` directives with a relative IRI (or a comment before the IRI) in one document. Real documents have at most
one."""

_TERMS = re.compile(rb"<<|>>")
_RELATIVE_BASE = re.compile(rb"(?i)(?:@|\A|(?<=\s))base\s*+#|(?:@|\A|(?<=[\s.]))base\s*+<(?!\w+:)")


def inspect_turtle(data: bytes, limits: Limits) -> None:
    """Raises OntologyError, with line and column, if a limit is exceeded."""
    # `<<` cannot occur in an IRI, and an additional `>>` is ignored. Both are counted in texts too. So a valid document
    # is rejected only if its texts contain hundreds of unclosed `<<`.
    depth = 0
    for token in _TERMS.finditer(data):
        depth = depth + 1 if token[0] == b"<<" else max(0, depth - 1)
        if depth > limits.depth:
            raise _refused(data, token.start(), f"triple terms are nested more than {limits.depth} deep")
    found = re.search(rb"<[^<>\"\s]{%d}" % limits.iri, data)
    if found:
        raise _refused(data, found.start(), f"an IRI has more than {limits.iri:,} characters")
    for count, base in enumerate(_RELATIVE_BASE.finditer(data), 1):
        if count > RELATIVE_BASES:
            raise _refused(data, base.start(), f"more than {RELATIVE_BASES:,} relative bases that extend each other")


ENTITIES = 256  # entities declared in one document; Protégé writes one per prefix
ENTITY_LENGTH = 1_024  # characters of an expanded entity; entities hold namespaces
ENTITIES_DEEP = 16  # levels of entities that refer to other entities
SURROGATES, AFTER_SURROGATES = 0xD800, 0xE000
NAMESPACES = 1_000  # namespaces in scope at once; the RDF parser searches all of them for every name
ATTRIBUTES = 1_000  # attributes of one element; the RDF parser compares each with each
RELATIVE_BASE = 256  # characters of a relative xml:base, which is appended to that of the parent at every level
_BASE = "http://www.w3.org/XML/1998/namespace base"
_PREDEFINED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]+)|#([0-9]+)|([^;&\s]+));")
_UNSAFE = re.compile(r"""[&<>"'%\]\s]""")
"""Characters that are written as character references in a rewritten entity."""

_DECLARATION = re.compile(r"\A\s*<\?xml\b[^>]*?\?>")
_ENCODING = re.compile(r"""(\sencoding\s*=\s*["'])([A-Za-z][A-Za-z0-9._-]*)(["'])""")
_ENCODINGS = frozenset(
    {"utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be", "windows-1252", "cp1252"}
)
_UTF_32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")


@dataclass(slots=True)
class Inspected:
    """A document that is safe to parse: its simplified bytes in UTF-8, and the prefixes that it declares."""

    data: bytes
    prefixes: dict[str, str] = field(default_factory=dict)


def inspect_xml(data: bytes, limits: Limits) -> Inspected:
    """Checks `data` and returns it simplified, in UTF-8. One pass, about 30 ns per byte. Memory is used only for the
    prefixes and the rewritten parts.

    Raises OntologyError with line and column.
    """
    found = Inspected(_as_utf8(data))
    parser = expat.ParserCreate("utf-8", " ")  # whatever the document declares
    guard = _Guard(parser, found, limits)
    try:
        parser.Parse(found.data, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, str(error)) if hasattr(expat, "errors") else str(error)
        raise OntologyError(f"not well-formed XML: {reason}", line=error.lineno, column=error.offset + 1) from error
    found.data = guard.plain()
    return found


class _Guard:
    """The expat handlers of one pass, which check the limits and collect the edits that simplify the document."""

    def __init__(self, parser: expat.XMLParserType, found: Inspected, limits: Limits) -> None:
        self._parser = parser
        self._found = found
        self._limits = limits
        self._entities = self._in_scope = self._depth = self._run = self._total = 0
        self._most = limits.expansion * len(found.data) + limits.entity_characters
        self._declared: dict[str, str] = {}  # general entities and their texts; the first declaration counts
        self._texts: dict[str, str] = {}  # the same, with all references expanded
        self._root = ""
        self._edits: list[tuple[int, int, bytes]] = []  # (begin, end, replacement), ascending
        self._breaks: list[tuple[int, int, bytes]] = []  # edits of the current text, not yet known to be needed
        self._section = -1  # the position at which the current CDATA section began
        self._solid = False  # whether the current text has more than white space
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EndDoctypeDeclHandler = self._doctype_ends
        parser.EntityDeclHandler = self._entity
        parser.CommentHandler = self._comment
        parser.ProcessingInstructionHandler = self._instruction
        parser.StartCdataSectionHandler = self._section_starts
        parser.EndCdataSectionHandler = self._section_ends
        parser.AttlistDeclHandler = self._attribute_default
        parser.StartNamespaceDeclHandler = self._namespace
        parser.EndNamespaceDeclHandler = self._namespace_ends
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def _refuse(self, detail: str) -> OntologyError:
        return OntologyError(detail, line=self._parser.CurrentLineNumber, column=self._parser.CurrentColumnNumber + 1)

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        if system is not None or public is not None:
            raise self._refuse("the DOCTYPE names an external DTD: remove it, because it is never fetched")
        self._root = name

    def _doctype_ends(self) -> None:
        """Replaces the DOCTYPE by one on as many lines, with one declaration for each entity, with its whole text."""
        end = self._parser.CurrentByteIndex + 1
        begin = self._found.data.rfind(b"<!DOCTYPE", 0, end)
        texts = {name: self._text(name, ()) for name in self._declared}
        written = "".join(f'<!ENTITY {name} "{_UNSAFE.sub(_numbered, text)}">' for name, text in texts.items())
        lines = b"\n" * self._found.data.count(b"\n", begin, end)
        self._edits.append((begin, end, f"<!DOCTYPE {self._root} [{written}".encode() + lines + b"]>"))

    def _text(self, name: str, around: tuple[str, ...]) -> str:
        """Returns the text of an entity with all references expanded. References to itself and to undeclared entities
        become empty. Expat rejects documents that use such entities."""
        if name in around or name not in self._declared:
            return ""

        def put_in(found: re.Match[str]) -> str:
            if found[3] is not None:
                known = _PREDEFINED.get(found[3])
                return self._text(found[3], (*around, name)) if known is None else known
            number = int(found[1], 16) if found[1] else int(found[2])
            return chr(number) if number < SURROGATES or AFTER_SURROGATES <= number <= sys.maxunicode else ""

        if len(around) > ENTITIES_DEEP:
            raise self._refuse(f"entity &{name}; refers to other entities more than {ENTITIES_DEEP} levels deep")
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = _REFERENCE.sub(put_in, self._declared[name])
        if len(text) > ENTITY_LENGTH:
            raise self._refuse(f"entity &{name}; has {len(text):,} characters; at most {ENTITY_LENGTH:,} are allowed")
        return text

    def _entity(
        self,
        name: str,
        parametric: bool,
        value: str | None,
        base: str | None,
        system: str | None,
        public: str | None,
        notation: str | None,
    ) -> None:
        self._entities += 1
        if parametric:
            raise self._refuse(f"parameter entity %{name}; is refused")
        if value is None or system is not None or public is not None or notation is not None:
            raise self._refuse(f"external entity &{name}; is refused: only the document itself is read")
        if name in _PREDEFINED:
            return
        if "<" in value:
            raise self._refuse(
                f"entity &{name}; contains markup, which is refused: write the markup where you use the entity"
            )
        if len(value) > ENTITY_LENGTH:
            raise self._refuse(f"entity &{name}; has {len(value):,} characters; at most {ENTITY_LENGTH:,} are allowed")
        if self._entities > ENTITIES:
            raise self._refuse(f"more than {ENTITIES} entities are declared")
        self._declared.setdefault(name, value)

    def _attribute_default(self, element: str, attribute: str, kind: str, default: str | None, required: bool) -> None:
        if default is not None:
            raise self._refuse(
                f"a default for attribute {attribute} in the DTD is refused: write the attribute on each element"
            )

    def _namespace(self, prefix: str | None, iri: str | None) -> None:
        self._in_scope += 1
        if self._in_scope > NAMESPACES:
            raise self._refuse(f"more than {NAMESPACES:,} namespaces are declared at one place")
        if iri:
            if len(iri) > self._limits.iri:
                raise self._refuse(f"a namespace has more than {self._limits.iri:,} characters")
            self._found.prefixes.setdefault(prefix or "", iri)

    def _namespace_ends(self, prefix: str | None) -> None:
        self._in_scope -= 1

    def _base(self, iri: str) -> None:
        most = self._limits.iri if _ABSOLUTE.match(iri) else RELATIVE_BASE
        if len(iri) > most:
            raise self._refuse(f"xml:base has more than {most:,} characters")

    def _start(self, name: str, attributes: dict[str, str]) -> None:  # called most often, with the two methods below
        self._tag()
        self._depth += 1
        if self._depth > self._limits.depth:
            raise self._refuse(f"elements are nested more than {self._limits.depth} deep")
        if attributes:
            if len(attributes) > ATTRIBUTES:
                raise self._refuse(f"an element has more than {ATTRIBUTES:,} attributes")
            if _BASE in attributes:
                self._base(attributes[_BASE])
            self._count(sum(map(len, attributes.values())))

    def _end(self, name: str) -> None:
        self._tag()
        self._depth -= 1

    def _tag(self) -> None:
        """Ends the current text, if any. Applies its edits if it has more than white space."""
        self._run = 0
        if self._breaks:
            if self._solid:
                self._edits += self._breaks
            self._breaks = []
        self._solid = False

    def _comment(self, text: str) -> None:
        self._break(b"-->", 4)

    def _instruction(self, target: str, text: str) -> None:
        self._break(b"?>", 2)

    def _break(self, close: bytes, after: int) -> None:
        begin = self._parser.CurrentByteIndex
        if self._depth:
            self._breaks.append((begin, self._found.data.index(close, begin + after) + len(close), b""))

    def _section_starts(self) -> None:
        self._section = self._parser.CurrentByteIndex

    def _section_ends(self) -> None:
        begin, end = self._section, self._parser.CurrentByteIndex
        inside = self._found.data[begin + len(b"<![CDATA[") : end]
        plain = inside.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
        self._breaks.append((begin, end + len(b"]]>"), plain))

    def plain(self) -> bytes:
        """Returns the document with all edits applied."""
        data, at = self._found.data, 0
        pieces: list[bytes] = []
        for begin, end, instead in self._edits:
            pieces += [data[at:begin], instead]
            at = end
        return b"".join([*pieces, data[at:]]) if pieces else data

    def _characters(self, text: str) -> None:
        self._run += len(text)
        if not self._solid:
            self._solid = not text.isspace()
        if self._run > self._limits.text_run:
            raise self._refuse(f"one text has more than {self._limits.text_run:,} characters")
        self._count(len(text))

    def _count(self, characters: int) -> None:
        self._total += characters
        if self._total > self._most:
            raise self._refuse(f"entities expand the document to more than {self._most:,} characters")


def _numbered(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def _as_utf8(data: bytes) -> bytes:
    """Returns `data` in UTF-8, the only encoding that the RDF parser reads. XML documents may have other encodings."""
    if data[:4] in _UTF_32:
        name = "utf-32"
    elif data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        name = "utf-16"
    else:
        declared = _ENCODING.search(data[:256].decode("latin-1").partition("?>")[0])
        name = declared[2].lower() if declared else "utf-8"
        name = "utf-8-sig" if name in ("utf-8", "utf8") else name
    if name == "utf-8-sig":
        return data.removeprefix(b"\xef\xbb\xbf")
    if name not in _ENCODINGS and not name.startswith("iso-8859-"):
        raise OntologyError(f"encoding {name} is not supported; convert the document to UTF-8", line=1)
    try:
        text = data.decode(name)
    except (LookupError, UnicodeDecodeError) as error:
        raise OntologyError(f"the document declares {name} but is not in it: {error}", line=1) from error
    return _DECLARATION.sub(lambda found: _ENCODING.sub(r"\1utf-8\3", found[0]), text, count=1).encode(errors="replace")
