"""What the first characters of a document suggest: for the many that come without a type or with a wrong one."""

import re
from typing import Final

__all__ = ["sniffed"]

_LOOKED_AT: Final = 1 << 16  # bytes: long licence comments stand at the top of real files

_XML_START = re.compile(rb"<(?:\?xml\b|!|[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?[\s>/])")
_XML_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)[\s>/]")
_RDF_NODE = re.compile(rb"<[^<>]*?\srdf:(?:about|ID|nodeID)\s*=")
_XML_NOISE = re.compile(rb"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
_COMMENTS = re.compile(rb"(?:\s+|#[^\n]*(?:\n|$))*+")
_STATEMENT = re.compile(
    rb"(?:<[^<>\"\s]*>|_:\S+)[ \t]+<[^<>\"\s]*>[ \t]+(?:<[^<>\"\s]*>|_:\S+|\".*\"\S*)"
    rb"[ \t]*(<[^<>\"\s]*>|_:\S+)?[ \t]*\."
)
_TURTLE = re.compile(rb"(?i:@prefix|@base|prefix|base)\s|[<\[(]|_:|[\w.-]*:\S*\s")
_NAMED_GRAPH = re.compile(rb"(?m)^\s*(?:GRAPH\s+)?(?:<[^<>\"\s]*>|[\w.-]*:[\w.-]*)?\s*\{")
_FUNCTIONAL = re.compile(rb"(?:Prefix|Ontology)\s*\(")
_MANCHESTER = re.compile(rb"(?:Prefix|Ontology):\s")
_OBO_START = re.compile(rb"format-version\s*:|\[(?:Term|Typedef|Instance)\][ \t]*\r?(?:\n|$)")
_OBO_HEADER = re.compile(rb"[a-z][\w-]*:[ \t]|!")
_OBO_STANZA = re.compile(rb"(?m)^\[(?:Term|Typedef|Instance)\][ \t]*\r?$")
_TABLE = re.compile(rb"[^\n]*\b(?:subject_id[\t,][^\n]*\bobject_id|object_id[\t,][^\n]*\bsubject_id)\b")


def sniffed(data: bytes) -> str | None:
    """The syntax that `data` seems to be in, one of `semantic.ontology.formats.SYNTAXES`; `manchester` or `html`, which
    nobody reads here; None when it suggests nothing. Looks at 64 KiB at most."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "rdf-xml"  # of our syntaxes only XML is usual in UTF-16
    head = data[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf").lstrip()
    if re.match(rb"\{\s*[\"}]|\[\s*[{\]]\s*(?:\"|$)", head):
        return "json-ld"
    if re.match(rb"<(?:\?xml\b|!)", head) or (_XML_START.match(head) and b"xmlns" in head):
        return _xml(head)
    if _OBO_START.match(head) or (_OBO_HEADER.match(head) and _OBO_STANZA.search(head)):
        return "obo"
    text = head[comments.end() :] if (comments := _COMMENTS.match(head)) else head
    for pattern, syntax in ((_FUNCTIONAL, "owl-functional"), (_MANCHESTER, "manchester"), (_TABLE, "sssom")):
        if pattern.match(text):
            return syntax
    statement = _STATEMENT.match(text)
    if statement:
        return "n-quads" if statement[1] else "n-triples"
    if _NAMED_GRAPH.search(text):
        return "trig"
    return "turtle" if not text or _TURTLE.match(text) else None


def _xml(head: bytes) -> str:
    root = _XML_ROOT.search(_XML_NOISE.sub(b"", head))
    name = root[1] if root else b"RDF"
    if root and name == b"Ontology" and not _RDF_NODE.match(root.string, root.start()):
        return "owl-xml"
    return "html" if name.lower() == b"html" else "rdf-xml"
