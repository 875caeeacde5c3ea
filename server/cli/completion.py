"""Completion of values from a server: concepts in any language, words of expressions, ids and names.

    the shell ──words so far──▶ kindcast ──GET, at most a second──▶ server ──▶ what begins as the last word does

If the server does not answer, there are no completions, because a user is typing. No library of the client is imported,
so that the answer is fast.
"""

import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import typer

from kindcast.semantic.shipped_vocabularies import shipped_names
from kindcast.server.cli.connection import DEFAULT_SERVER, credentials

__all__ = ["concepts", "expressions", "ids", "ontologies", "ontology_files", "operators", "run"]

SECONDS = 1.0
MOST = 50
ID_PAGE = 100
VARIABLE = "_KINDCAST_COMPLETE"
"""The variable that a shell sets, with its name, when it requests completions."""
SUFFIXES = re.compile(r"\.(ttl|nt|nq|trig|n3|rdf|owl|owx|ofn|omn|obo|jsonld|tsv|xml)(\.gz)?$", re.IGNORECASE)

Found = list[tuple[str, str]]


def concepts(context: typer.Context, incomplete: str) -> Found:
    """Returns labels and synonyms in any language that begin with the typed text, each with its meaning."""
    if not incomplete:
        return []
    told = _asked(context, "/v1/concepts?" + urlencode({"q": incomplete, "limit": MOST}))
    hits = [(str(each.get("matched") or each["label"]), str(each["label"])) for each in told.get("concepts", ())]
    return _beginning(incomplete, hits)


def expressions(context: typer.Context, incomplete: str) -> Found:
    """Returns completions of an expression: attributes, words of the language, concepts, units."""
    told = _asked(context, "/v1/check", {"expression": incomplete, "position": len(incomplete)})
    found = []
    for each in told.get("completions", ()):
        before, typed = incomplete[: len(incomplete) - each["replace"]], incomplete[len(incomplete) - each["replace"] :]
        quote = '"' if typed.startswith('"') else ""
        word = str(each.get("matched") or each["insert"])
        if quote or word.isidentifier():
            begun = _beginning(typed.removeprefix(quote), [(word, str(each.get("label") or ""))])
            found += [(f"{before}{quote}{whole}{quote}", help) for whole, help in begun]
    return found


def ids(context: typer.Context, incomplete: str) -> Found:
    """Returns ids of subscriptions, each with its meaning."""
    told = _asked(context, f"/v1/subscriptions?limit={ID_PAGE}")
    return _beginning(incomplete, [(each["id"], str(each["canonical"])) for each in told.get("subscriptions", ())])


def ontologies(context: typer.Context, incomplete: str) -> Found:
    """Returns the names of the ontologies of the server."""
    told = _asked(context, "/v1/ontologies")
    found = [(each["name"], f"version {each['version']}") for each in told.get("ontologies", ())]
    return _beginning(incomplete, found)


def operators(context: typer.Context, incomplete: str) -> Found:
    """Returns the names of the operators of the server."""
    told = _asked(context, "/v1/operators")
    return _beginning(incomplete, [(each["name"], str(each["kind"])) for each in told.get("operators", ())])


def ontology_files(incomplete: str) -> Found:
    """Returns shipped vocabularies by name, in addition to files of ontologies. If no name fits, the shell offers files
    itself."""
    given = Path(incomplete)
    folder = given if incomplete.endswith("/") else given.parent
    here = [str(folder / each.name) for each in _entries(folder) if SUFFIXES.search(each.name)]
    shipped = [(name, "shipped with kindcast") for name in shipped_names()]
    return _beginning(incomplete, [*shipped, *((name, "") for name in sorted(here) if name not in dict(shipped))])


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return ()


def run(command: Callable[[], object]) -> None:
    """Answers a shell that requests completions. For bash, each answer is quoted, because bash inserts it unchanged."""
    if os.environ.get(VARIABLE) != "complete_bash":
        command()
        return
    answered = StringIO()
    try:
        with redirect_stdout(answered):
            command()
    finally:
        words = os.environ.get("COMP_WORDS", "").split("\n")
        place = int(os.environ.get("COMP_CWORD") or 0)
        quoted = place < len(words) and words[place][:1] in ("'", '"')
        for line in answered.getvalue().splitlines():
            typer.echo(line if quoted else re.sub(r"([^\w@%+=:,./-])", r"\\\1", line))


def _beginning(incomplete: str, found: Iterable[tuple[str, str]]) -> Found:
    """Returns those that begin with the typed text, ignoring case. The typed part does not change."""
    folded = incomplete.casefold()
    begun = {incomplete + word[len(incomplete) :]: help for word, help in found if word.casefold().startswith(folded)}
    return list(begun.items())


def _asked(context: typer.Context, path: str, body: Any = None) -> dict[str, Any]:
    """Returns the answer of the server of the command; an empty one after any error."""
    import ssl  # these take longer than everything else
    from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

    try:
        server = str(context.params.get("server") or os.environ.get("KINDCAST_SERVER") or DEFAULT_SERVER)
        given = credentials()
        headers = {"Accept": "application/json"}
        if given["key"]:
            headers["Authorization"] = f"Bearer {given['key']}"
        if given["tenant"]:
            headers["Kindcast-Tenant"] = given["tenant"]
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        url = urlsplit(server)
        handlers: list[Any] = [ProxyHandler({})] if url.hostname in ("127.0.0.1", "localhost", "::1") else []
        if url.scheme == "https":
            handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=given["ca"])))
        elif url.scheme != "http":
            return {}
        request = Request(server.rstrip("/") + path, data, headers)
        with build_opener(*handlers).open(request, timeout=SECONDS) as answer:
            told: dict[str, Any] = json.load(answer)
            return told
    except Exception:
        return {}  # the user does not want to wait
