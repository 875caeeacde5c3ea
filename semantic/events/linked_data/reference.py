"""JSON-LD 1.1 by PyLD: the reference for compiled contexts, and the reader of all documents that they do not support.

Contexts are given by URL; nothing is ever fetched. No other module of events imports PyLD.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyld import jsonld
from pyld.context_resolver import ContextResolver
from pyld.resolved_context import ResolvedContext

from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.vocabulary.contexts import with_absolute_imports

# Contexts of publishers do not print lines to the server's error output.
warnings.filterwarnings("ignore", '(terms|values) beginning with "@" are reserved', SyntaxWarning)

__all__ = ["LONGEST_PREFIX", "MOST_URLS", "Expander", "unknown_contexts_problem"]

MOST_URLS = 10
"""The maximum number of nested references from contexts to contexts by URL. This is PyLD's own limit."""


CACHED_CONTEXTS = 64
"""The maximum number of processed contexts in the cache, including those of documents, so that publishers cannot fill
the memory."""


MOST_SECONDS = 5.0
"""The maximum processor time in seconds of PyLD for one document or context."""

LONGEST_PREFIX = 2_000
"""The maximum number of characters by which an IRI may be longer than the text that stands for it, because of a prefix,
`@vocab` or `@base`. Otherwise a document of 200 KB would become IRIs of gigabytes."""


class _OutOfTime(Exception):
    """PyLD took too long for a document."""


class _Context(dict[str, Any]):
    """An active context. What it does not have can be removed, too."""

    def __delitem__(self, name: str) -> None:
        self.pop(name, None)


class _Processor(jsonld.JsonLdProcessor):  # type: ignore[misc]  # PyLD has no types
    """PyLD with limits of time and of IRIs, and with four corrections. Two are for documents without a base, which
    those of events are. PyLD resolves their relative IRIs against `http://example.org/base/`; here they stay as
    published. And PyLD expands the property of an index (`@index`) relative to the vocabulary only if the document has
    a base, because it passes the base as the argument `vocab`. The third: PyLD fails at `"@vocab": null`, and
    `@language` and `@direction` alike, if there is nothing to remove. The fourth: PyLD fails if a context that is named
    by its URL has `@propagate`."""

    def __init__(self) -> None:
        super().__init__()
        self._until = time.thread_time() + MOST_SECONDS
        self.is_late = False

    def _expand(self, *given: Any, **named: Any) -> Any:
        self._check()
        return super()._expand(*given, **named)

    def _create_term_definition(self, *given: Any, **named: Any) -> None:
        self._check()
        super()._create_term_definition(*given, **named)

    def _process_context(self, active_ctx: Any, local_ctx: Any, options: Any, *given: Any, **named: Any) -> Any:
        first, *others = local_ctx if isinstance(local_ctx, list) and local_ctx else [local_ctx]
        if isinstance(first, str):
            resolved = options["contextResolver"].resolve(active_ctx, first, options.get("base", ""))
            documents = [each.document for each in resolved]
            if documents and isinstance(documents[0], dict) and "@propagate" in documents[0]:
                local_ctx = [*documents, *others]
        return super()._process_context(active_ctx, local_ctx, options, *given, **named)

    def _clone_active_context(self, active_ctx: Any) -> _Context:
        return _Context(super()._clone_active_context(active_ctx))

    def _check(self) -> None:
        if time.thread_time() > self._until:
            self.is_late = True
            raise _OutOfTime

    def _expand_iri(self, active_ctx: Any, value: Any, base: Any = None, vocab: Any = False, **others: Any) -> Any:
        if base == "" and "@base" not in active_ctx:
            base = None
        found = super()._expand_iri(active_ctx, value, base, vocab is True or isinstance(vocab, str), **others)
        if isinstance(found, str) and len(found) - len(value) > LONGEST_PREFIX:
            raise ValueError(f"a prefix, @vocab or @base has more than {LONGEST_PREFIX:,} characters")
        return found


class _Merged(ResolvedContext):  # type: ignore[misc]  # PyLD has no types
    """A context together with the context that it names under `@import`."""


class _Resolver(ContextResolver):  # type: ignore[misc]  # PyLD has no types
    """PyLD's resolver, which merges `@import` itself. PyLD would merge it into the cached context that is imported, so
    that all later documents with that context would have the terms of the first one."""

    _is_importing = False

    def resolve(self, active_ctx: Any, context: Any, base: str, cycles: Any = None) -> list[Any]:
        resolved = super().resolve(active_ctx, context, base, cycles)
        return [self._merged(each, active_ctx, base) for each in resolved]

    def _merged(self, resolved: Any, active_ctx: Any, base: str) -> Any:
        """Returns a context with what it imports. PyLD reports an `@import` that is no text or no single context."""
        local = resolved.document
        if isinstance(local, dict) and "@context" in local:
            local = local["@context"]
        if not isinstance(local, dict) or not isinstance(local.get("@import"), str):
            return resolved
        if self._is_importing:
            raise _nested_import(local)
        self._is_importing = True
        try:
            imported = super().resolve(active_ctx, local["@import"], base)
        finally:
            self._is_importing = False
        if len(imported) != 1 or not isinstance(imported[0].document, dict):
            return resolved
        if isinstance(imported[0], _Merged):
            raise _nested_import(local)
        inherited = {name: value for name, value in imported[0].document.items() if name != "@propagate"}
        return _Merged({**inherited, **{name: value for name, value in local.items() if name != "@import"}})


def _nested_import(context: Any) -> Exception:
    told = "Invalid JSON-LD syntax; @import must not include @import entry"
    error: Exception = jsonld.JsonLdError(
        told, "jsonld.SyntaxError", {"context": context}, code="invalid context entry"
    )
    return error


class Expander:
    """Expands documents with one set of contexts. Each context is processed once. Not thread-safe."""

    def __init__(self, contexts: Mapping[str, Any]) -> None:
        """`contexts` are the known contexts by URL, each a document with `@context`."""
        self._contexts = contexts
        self._resolved: dict[str, Any] = {}

    def expanded(self, document: Any) -> list[Any]:
        """Returns the expanded form of a JSON-LD document, whose depth and size the caller has checked.

        Costs some 20 to 50 µs per value. Raises `InvalidEvent`: `unknown-context` with all unknown URLs, including
        those in other contexts; `invalid-json-ld` with PyLD's message; `reading-too-slow` after `MOST_SECONDS`.
        """
        found: list[Any] = self._run(lambda processor, options: processor.expand(document, options), document)
        return found

    def active(
        self, local: Any, within: Any = None, *, overrides: bool = False, propagates: bool = True
    ) -> Mapping[str, Any]:
        """Returns PyLD's form of the context `local` within another context (None: at the start of a document);
        `mappings` are its terms. With `overrides`, it is the context of a term, which may redefine protected terms.
        Without `propagates`, it is the context of a type, and `previousContext` is the context to which inner objects
        return. Raises the same errors as `expanded`."""

        def process(processor: _Processor, options: dict[str, Any]) -> Any:
            options = {**options, "base": ""}
            outer = processor._get_initial_context(options) if within is None else within
            return processor._process_context(
                outer, copy.deepcopy(local), options, override_protected=overrides, propagate=propagates
            )

        found: Mapping[str, Any] = self._run(process, local)
        return found

    def iri(self, active: Mapping[str, Any], value: str, *, vocab: bool, base: bool) -> str | None:
        """Returns the IRI of a text under a context that `active` returned: relative to the vocabulary, to the base, or
        both. Raises `ValueError` if PyLD cannot resolve it."""
        found: str | None = _Processor()._expand_iri(active, value, "" if base else None, vocab)
        return found

    def _run(self, work: Callable[[_Processor, dict[str, Any]], Any], document: Any) -> Any:
        """Returns PyLD's result for a document or context. Raises `InvalidEvent`."""
        unknown: dict[str, None] = {}

        def load(url: str, options: dict[str, Any]) -> dict[str, Any]:
            found = self._contexts.get(url)
            if found is None:
                unknown[url] = None
                found = {"@context": {}}  # reading continues, so that all unknown contexts are reported at once
            return {
                "contentType": "application/ld+json",
                "contextUrl": None,
                "documentUrl": url,
                "document": with_absolute_imports(found, url),
                "tag": "static",  # PyLD may cache the processed context
            }

        if len(self._resolved) > CACHED_CONTEXTS:
            self._resolved.clear()
        options = {
            "documentLoader": load,
            "contextResolver": _Resolver(self._resolved, load, MOST_URLS),
            "processingMode": "json-ld-1.1",
        }
        problem: Problem | None = None
        found: Any = None
        processor = _Processor()
        try:
            found = work(processor, options)
        except (jsonld.JsonLdError, _OutOfTime) as error:
            problem = Problem("invalid-json-ld", _told(error))
        except RecursionError:
            problem = Problem("too-deep", "the document or its context is nested too deeply")
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            IndexError,
        ) as error:  # invalid contexts that PyLD does not check
            problem = Problem("invalid-json-ld", f"the document is not JSON-LD: {error}")
            unknown.update((url, None) for url in _relative_contexts(document))
        if processor.is_late:
            detail = (
                f"reading the document takes longer than {MOST_SECONDS:g} s: send smaller documents, or use a "
                f"simpler context"
            )
            raise InvalidEvent([Problem("reading-too-slow", detail)])
        if unknown:
            self._resolved.clear()  # it has contexts that were processed without the unknown ones
            raise InvalidEvent([unknown_contexts_problem(unknown)])
        if problem is not None:
            raise InvalidEvent([problem])
        return found


def _relative_contexts(document: Any) -> Iterator[str]:
    """Yields the contexts that a document names by a relative address. PyLD fails on them, because a published document
    has no address to which they could be relative. Linear; not recursive."""
    stack = [document]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            stack.extend(node.values())
            named = node.get("@context")
            for url in (*(named if isinstance(named, list) else [named]), node.get("@import")):
                if isinstance(url, str) and ":" not in url:
                    yield url


def unknown_contexts_problem(urls: Mapping[str, None]) -> Problem:
    """Returns the problem of unknown contexts that are named by URL."""
    named = ", ".join(urls)
    detail = f"unknown contexts: {named}. The server never fetches contexts: upload each with PUT /v1/contexts?url=…"
    return Problem("unknown-context", detail, suggestions=tuple({"url": url} for url in urls))


def _told(error: Any) -> str:
    """Returns the first sentence of PyLD's error with the code of its cause, without the text that it quotes from the
    document."""
    first = error
    while isinstance(first.__cause__, jsonld.JsonLdError):
        first = first.__cause__
    message = str(first.args[0] if first.args else first).split("\n")[0]
    return f"{message} ({first.code})" if getattr(first, "code", None) else message
