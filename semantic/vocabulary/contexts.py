"""JSON-LD contexts by URL: shipped and uploaded ones (rule 20). No context is ever fetched.

    {url: document}   a document is a JSON object with the member `@context`, as its publisher serves it at `url`

An upload is checked before it is used, at a bounded cost: its size and depth; whether the contexts that it refers to
are known and do not refer back to it; its size together with all of them; and at last, by PyLD, whether it is a valid
context.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from kindcast.semantic.errors import InvalidDeclaration, OntologyError, Problem, UnknownContext
from kindcast.semantic.ontology.guards import inspect_json
from kindcast.semantic.ontology.records import Limits
from kindcast.semantic.shipped_vocabularies import shipped_context

__all__ = [
    "LONGEST_URL",
    "MOST_BYTES",
    "check_contexts",
    "compact_prefixes",
    "context_terms",
    "needed_contexts",
    "shipped_contexts",
    "term_definitions",
    "unknown_contexts",
    "with_absolute_imports",
]

MOST_BYTES: Final = 2 << 20
"""Maximum bytes of one context as JSON. The context of schema.org, the largest in common use, has a tenth of this."""
MOST_DEPTH: Final = 32
"""Maximum nesting of objects and arrays. Published contexts have seven levels."""
MOST_TERMS: Final = 50_000
"""Maximum number of terms of a context and of all contexts that it refers to. A context counts once per reference."""
MOST_CHAIN: Final = 8
"""Maximum length of a chain of contexts that refer to other contexts."""
MOST_WORK: Final = 1_000_000
"""Maximum number of terms that are copied while a context is read: its nested contexts times its terms. Cost: about
80 ns per term."""
LONGEST_URL: Final = 2_000
LONGEST_TERM: Final = 4_096

_NGSI_LD: Final = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context"
_SHIPPED: Final[Mapping[str, str]] = {
    "https://www.w3.org/ns/activitystreams": "activitystreams",
    f"{_NGSI_LD}.jsonld": "ngsi-ld-core",
    **{f"{_NGSI_LD}-v1.{minor}.jsonld": "ngsi-ld-core" for minor in range(1, 10)},
}
_GEN_DELIMITERS: Final = frozenset(":/?#[]@")


@cache
def shipped_contexts() -> Mapping[str, Any]:
    """Returns the contexts that are shipped with kindcast, by URL. Read once."""
    documents = {name: json.loads(shipped_context(name).read_text("utf-8")) for name in set(_SHIPPED.values())}
    return {url: documents[name] for url, name in _SHIPPED.items()}


# ── references between contexts ─────────────────────────────────────────────────────────────────────────────────────


def needed_contexts(context: Any, base: str) -> tuple[str, ...]:
    """Returns the distinct URLs that the value of an `@context` refers to, also within its terms, in document order,
    resolved against `base`. Linear, not recursive."""
    return tuple(dict.fromkeys(_absolute(each, base) if base else each for each in _references(context)))


def _absolute(reference: str, base: str) -> str:
    """Returns a reference resolved against `base`; the reference itself if it is no URL, so nothing is known by it."""
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def unknown_contexts(context: Any, known: Mapping[str, Any], base: str = "") -> tuple[str, ...]:
    """Returns the URLs that a context refers to, directly or through other contexts, and that are not `known`. Each
    known context is read once."""
    missing: dict[str, None] = {}
    waiting, seen = list(needed_contexts(context, base)), set[str]()
    for url in waiting:
        if url in seen:
            continue
        seen.add(url)
        if url in known:
            waiting.extend(needed_contexts(known[url].get("@context"), url))
        else:
            missing[url] = None
    return tuple(missing)


def with_absolute_imports(node: Any, url: str) -> Any:
    """Returns a copy of the context at `url`, or of a part of it, in which each `@import` is absolute: PyLD resolves it
    against the address of the event, which has none. Recursive; linear."""
    if isinstance(node, list):
        return [with_absolute_imports(each, url) for each in node]
    if not isinstance(node, Mapping):
        return node
    copied = {name: with_absolute_imports(value, url) for name, value in node.items()}
    if isinstance(copied.get("@import"), str):
        copied["@import"] = _absolute(copied["@import"], url)
    return copied


def _references(context: Any) -> Iterator[str]:
    """Yields the references (strings) to contexts in the value of an `@context`."""
    waiting: list[tuple[bool, Any]] = [(True, context)]  # (whether a context may stand here, node)
    while waiting:
        is_context, node = waiting.pop()
        if isinstance(node, str):
            if is_context:
                yield node
        elif isinstance(node, list):
            waiting.extend((is_context, each) for each in reversed(node))
        elif isinstance(node, Mapping):
            inner = [(key in ("@context", "@import"), value) for key, value in node.items()]
            waiting.extend(each for each in reversed(inner) if each[0] or isinstance(each[1], Mapping | list))


# ── checking uploads ────────────────────────────────────────────────────────────────────────────────────────────────


def check_contexts(uploaded: Mapping[str, Any]) -> None:
    """Checks uploaded contexts. Raises `UnknownContext` with all URLs that are referred to and not known, and
    `InvalidDeclaration` for all other problems. Costs as much as reading each context once."""
    problems: list[Problem] = []
    for url, document in uploaded.items():
        problem = _problem_of_url(url) or _problem_of_shape(document)
        if problem is not None:
            problems.append(Problem("invalid-context", f"context {url[:200]!r}: {problem}"))
    if problems:
        raise InvalidDeclaration(problems)
    known = {**shipped_contexts(), **uploaded}
    unknown = {
        each: None for url, document in uploaded.items() for each in unknown_contexts(document["@context"], known, url)
    }
    if unknown:
        raise UnknownContext(tuple(unknown))
    _check_circles(uploaded, known)
    for url, document in uploaded.items():
        problem = _problem_of_work(document) or _problem_of_meaning(url, known)
        if problem is not None:
            problems.append(Problem("invalid-context", f"context {url!r}: {problem}"))
    if problems:
        raise InvalidDeclaration(problems)


def _problem_of_url(url: str) -> str | None:
    if len(url) > LONGEST_URL:
        return f"its URL has more than {LONGEST_URL:,} characters"
    scheme, _, rest = url.partition(":")
    if not (scheme.isascii() and scheme[:1].isalpha() and rest) or any(each <= " " for each in url):
        return "a context needs an absolute URL, such as https://example.com/context.jsonld"
    if scheme in ("http", "https") and not _has_host(url):
        return "its URL names no host"
    return None


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).netloc)
    except ValueError:
        return False


def _problem_of_shape(document: Any) -> str | None:
    if not isinstance(document, Mapping) or "@context" not in document:
        return "a JSON object with the member @context is expected"
    if document["@context"] == []:
        return "its @context is an empty list, which defines nothing"
    level: list[Any] = [document]
    for _ in range(MOST_DEPTH):
        if not level:
            break
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, Mapping) else each)
            if isinstance(inner, Mapping | list)
        ]
    if level:
        return f"it is nested more than {MOST_DEPTH} deep"
    if len(json.dumps(document)) > MOST_BYTES:
        return f"it has more than {MOST_BYTES:,} bytes"
    return None


def _check_circles(uploaded: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raises `InvalidDeclaration` if a context refers back to itself, is too large with all contexts that it refers to,
    or has too long a chain of references. The size of each context is computed once."""
    sizes: dict[str, tuple[int, int]] = {}  # URL → terms with those of referred contexts, longest chain

    def size(url: str, above: tuple[str, ...]) -> tuple[int, int]:
        if url in above:
            circle = " → ".join((*above[above.index(url) :], url))
            raise InvalidDeclaration([Problem("invalid-context", f"a context refers to itself: {circle}")])
        if len(above) > MOST_CHAIN:
            raise InvalidDeclaration(
                [
                    Problem(
                        "invalid-context",
                        f"contexts refer to other contexts more than {MOST_CHAIN} levels deep, at {url!r}",
                    )
                ]
            )
        if url not in sizes:
            context = known[url]["@context"]
            inner = [size(_absolute(each, url), (*above, url)) for each in _references(context)]
            terms = _count_terms(context) + sum(each for each, _ in inner)
            sizes[url] = terms, 1 + max((depth for _, depth in inner), default=0)
            if terms > MOST_TERMS:
                detail = (
                    f"context {url!r} has {terms:,} terms with those of its contexts; at most {MOST_TERMS:,} are "
                    f"allowed"
                )
                raise InvalidDeclaration([Problem("invalid-context", detail)])
        return sizes[url]

    for url in uploaded:
        _, depth = size(url, ())
        if depth > MOST_CHAIN:
            detail = f"contexts refer to other contexts more than {MOST_CHAIN} levels deep, from {url!r}"
            raise InvalidDeclaration([Problem("invalid-context", detail)])


def _count_terms(context: Any) -> int:
    """Counts the members of all objects in a context."""
    count, waiting = 0, [context]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            count += len(node)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return count


def _problem_of_work(document: Mapping[str, Any]) -> str | None:
    """Returns why processing this context would cost too much, such as nested contexts with many terms; None if it is
    within the limits."""
    context = document["@context"]
    contexts, waiting = 0, [context]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            contexts += "@context" in node
            waiting.extend(node.values())
        elif isinstance(node, list):
            contexts += len(node)
            waiting.extend(node)
    if contexts * _count_terms(context) > MOST_WORK:
        return f"it has {contexts:,} nested contexts: too many for its {_count_terms(context):,} terms"
    try:
        inspect_json(json.dumps({"@context": context}).encode(), Limits(depth=MOST_DEPTH + 1, iri=LONGEST_TERM))
    except OntologyError as error:
        return error.detail
    return None


def _problem_of_meaning(url: str, known: Mapping[str, Any]) -> str | None:
    """Returns the error of the JSON-LD 1.1 processor, such as a redefined keyword, a value of the wrong type or a
    cyclic definition; None if the context is valid."""
    from pyld import jsonld  # importing it takes about 0.2 s, and only uploads need it
    from pyld.context_resolver import ContextResolver

    def loader(name: str, _: Any) -> dict[str, Any]:  # a copy: PyLD writes absolute URLs into what it is given
        document = with_absolute_imports(known[name], name)
        context = document["@context"]
        for each in context if isinstance(context, list) else [context]:
            if isinstance(each, dict) and isinstance(each.get("@propagate"), bool):
                del each["@propagate"]  # PyLD fails if a context that is named by its URL has it
        return {"contentType": None, "contextUrl": None, "documentUrl": name, "document": document}

    options = {
        "base": "",
        "processingMode": "json-ld-1.1",
        "documentLoader": loader,
        "contextResolver": ContextResolver({}, loader, MOST_CHAIN + 2),
    }
    processor = jsonld.JsonLdProcessor()
    try:
        processor.process_context(processor.process_context({}, None, options), url, options)
    except jsonld.JsonLdError as error:
        return _told(error)
    except (TypeError, ValueError, AttributeError, KeyError) as error:  # values of types that PyLD does not expect
        return f"it is not a context of JSON-LD 1.1 ({error})"
    except RecursionError:
        return "the definitions of its terms are nested too deeply"
    return None


def _told(error: Any) -> str:
    """Returns the innermost error of PyLD, as one line with its code."""
    while getattr(error, "cause", None) is not None and hasattr(error.cause, "code"):
        error = error.cause
    message = str(getattr(error, "args", [""])[0]).partition("\n")[0].removeprefix("Invalid JSON-LD syntax; ")
    return f"{message.rstrip('.;')} ({error.code})"


# ── prefixes and terms of contexts ──────────────────────────────────────────────────────────────────────────────────


def compact_prefixes(documents: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yields (prefix, namespace) for each prefix of compact IRIs that these contexts define (JSON-LD 1.1 API, section
    4.2.3): a term without a colon or slash that has `"@prefix": true`, or is defined by a string and has an IRI that
    ends in a delimiter. Those of the shipped contexts, which every vocabulary has, are found once."""
    shipped = _shipped_prefixes()
    for document in documents:
        yield from shipped[id(document)] if id(document) in shipped else _prefixes(document)


@cache
def _shipped_prefixes() -> Mapping[int, tuple[tuple[str, str], ...]]:
    """The result by the identity of the document. A shipped document is never deleted, so no other one gets its id."""
    return {id(document): tuple(_prefixes(document)) for document in shipped_contexts().values()}


def _prefixes(document: Any) -> Iterator[tuple[str, str]]:
    defined = dict(context_terms(document["@context"]))
    for term, definition in _definitions(document["@context"]):
        namespace = defined.get(term)
        if not namespace or ":" in term or "/" in term or term.startswith("@"):
            continue
        told = definition.get("@prefix") if isinstance(definition, Mapping) else None
        simple = isinstance(definition, str) and namespace[-1] in _GEN_DELIMITERS
        if told is True or (told is None and simple):
            yield term, namespace


def context_terms(context: Any) -> Iterator[tuple[str, str]]:
    """Yields (term, IRI) for each term that the objects of an `@context` define, expanded by their own prefixes and
    `@vocab` only. The result is for display and for prefixes, not for reading events. Terms of nested contexts and of
    referred contexts are left out."""
    raw: dict[str, str | None] = {}
    vocabulary = ""
    for term, definition in _definitions(context):
        if term == "@vocab":
            vocabulary = definition if isinstance(definition, str) else ""
        elif not term.startswith("@"):
            iri = definition.get("@id", term) if isinstance(definition, Mapping) else definition
            raw[term] = iri if isinstance(iri, str) else None

    def spelt(text: str, steps: int) -> str:
        if text.startswith("@"):
            return ""
        prefix, colon, rest = text.partition(":")
        if colon and not rest.startswith("//") and steps:
            above = raw.get(prefix)
            return text if above is None else spelt(above, steps - 1) + rest
        if not colon and steps and (other := raw.get(text)) is not None and other != text:
            return spelt(other, steps - 1)
        return text if colon else vocabulary + text if vocabulary else ""

    for term, iri in raw.items():
        if iri is not None and (found := spelt(iri, MOST_CHAIN)):
            yield term, found


def term_definitions(context: Any) -> dict[str, Any]:
    """Returns the definition of each term that the objects of an `@context` define, as it is written."""
    return dict(_definitions(context))


def _definitions(context: Any) -> Iterator[tuple[str, Any]]:
    for each in context if isinstance(context, list) else [context]:
        if isinstance(each, Mapping):
            yield from each.items()
