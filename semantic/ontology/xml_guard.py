"""RDF/XML is looked through once by expat before it is read: entities, depth and texts are bounded, errors placed.

Tools write `<!ENTITY owl "http://www.w3.org/2002/07/owl#">` into ordinary documents, so a DOCTYPE by itself is no
offence. What is refused: entities that are external, parametric, unparsed, long, many, or made of other entities; a DTD
elsewhere; texts and totals beyond their bounds; elements nested too deep (the RDF parser's cost is quadratic in the
depth).
"""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from semantic.errors import OntologyError
from semantic.ontology.records import Limits

__all__ = ["Inspected", "inspect"]

ENTITIES = 256  # declared in one document; Protégé writes one per prefix
ENTITY_LENGTH = 1_024  # characters; they hold namespaces
NAMESPACES = 1_000  # in force at once; the RDF parser goes through them all for every name
ATTRIBUTES = 1_000  # of one element; the RDF parser compares each with each
RELATIVE_BASE = 256  # characters of a relative xml:base, which is added to that of the element around, at every level
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BASE = "http://www.w3.org/XML/1998/namespace base"
_PREDEFINED = frozenset({"amp", "lt", "gt", "quot", "apos"})

_DECLARATION = re.compile(r"\A\s*<\?xml\b[^>]*?\?>")
_ENCODING = re.compile(r"""(\sencoding\s*=\s*["'])([A-Za-z][A-Za-z0-9._-]*)(["'])""")
_ENCODINGS = frozenset(
    {"utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be", "windows-1252", "cp1252"}
)


@dataclass(slots=True)
class Inspected:
    """A document that is safe to read: its bytes as UTF-8, and the prefixes that it binds."""

    data: bytes
    prefixes: dict[str, str] = field(default_factory=dict)


def inspect(data: bytes, limits: Limits) -> Inspected:
    """`data` checked, in UTF-8. One pass, some 30 ns a byte, no memory but the prefixes.

    Raises OntologyError with line and column.
    """
    found = Inspected(_as_utf8(data))
    parser = expat.ParserCreate(namespace_separator=" ")
    _Guard(parser, found, limits)
    try:
        parser.Parse(found.data, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, str(error)) if hasattr(expat, "errors") else str(error)
        raise OntologyError(f"not well-formed XML: {reason}", line=error.lineno, column=error.offset + 1) from error
    return found


class _Guard:
    """The handlers of one pass."""

    def __init__(self, parser: expat.XMLParserType, found: Inspected, limits: Limits) -> None:
        self._parser = parser
        self._found = found
        self._limits = limits
        self._entities = self._in_scope = self._depth = self._run = self._total = 0
        self._most = limits.expansion * len(found.data) + limits.entity_characters
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._entity
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
            raise self._refuse("the DOCTYPE names an external DTD, which is never fetched: remove it")

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
            raise self._refuse(f"external entity &{name}; is refused: nothing outside the document is read")
        if name in _PREDEFINED:
            return
        if "&" in value or ("%" in value and ";" in value):
            raise self._refuse(f"entity &{name}; is made of other entities, which is refused")
        if len(value) > ENTITY_LENGTH:
            raise self._refuse(f"entity &{name}; has {len(value):,} characters; at most {ENTITY_LENGTH:,} are allowed")
        if self._entities > ENTITIES:
            raise self._refuse(f"more than {ENTITIES} entities are declared")

    def _attribute_default(self, element: str, attribute: str, kind: str, default: str | None, required: bool) -> None:
        if default is not None:
            raise self._refuse(f"a default for attribute {attribute} in the DTD is refused: write it where it is meant")

    def _namespace(self, prefix: str | None, iri: str | None) -> None:
        self._in_scope += 1
        if self._in_scope > NAMESPACES:
            raise self._refuse(f"more than {NAMESPACES:,} namespaces are in force")
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

    def _start(self, name: str, attributes: dict[str, str]) -> None:  # the hottest lines, with the two below
        self._run = 0
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
        self._run = 0
        self._depth -= 1

    def _characters(self, text: str) -> None:
        self._run += len(text)
        if self._run > self._limits.text_run:
            raise self._refuse(f"one text has more than {self._limits.text_run:,} characters")
        self._count(len(text))

    def _count(self, characters: int) -> None:
        self._total += characters
        if self._total > self._most:
            raise self._refuse(f"entities expand the document to more than {self._most:,} characters")


def _as_utf8(data: bytes) -> bytes:
    """`data` in UTF-8: the RDF parser reads nothing else, XML may come in more."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        name = "utf-16"
    else:
        declared = _ENCODING.search(data[:256].decode("latin-1").partition("?>")[0])
        name = declared[2].lower() if declared else "utf-8"
        name = "utf-8-sig" if name in ("utf-8", "utf8") else name
    if name == "utf-8-sig":
        return data.removeprefix(b"\xef\xbb\xbf")
    if name not in _ENCODINGS and not name.startswith("iso-8859-"):
        raise OntologyError(f"encoding {name} is not read here; convert the document to UTF-8", line=1)
    try:
        text = data.decode(name)
    except (LookupError, UnicodeDecodeError) as error:
        raise OntologyError(f"the document is not in {name}, as it says: {error}", line=1) from error
    return _DECLARATION.sub(lambda found: _ENCODING.sub(r"\1utf-8\3", found[0]), text, count=1).encode(errors="replace")
