"""The commands `kindcast declare` and `kindcast context`: what is declared beside the ontologies.

Attributes, synonyms, exchange rates, event types, code systems, aliases; JSON-LD contexts.
"""

from collections.abc import Mapping
from enum import Enum
from json import dumps
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import csv_file, json_file
from kindcast.server.cli.ontologies import DryRunOption, show_declared, show_taken_back, show_versions
from kindcast.server.cli.output import CommandFailed, group, page

__all__ = ["commands", "contexts"]

commands = group(
    "declare",
    "Declare attributes, words, exchange rates, event types and more. Each declaration makes a version of the "
    "vocabulary.",
)


class Kind(Enum):
    """The kinds of declarations, by their names in URLs."""

    ATTRIBUTES = "attributes"
    SYNONYMS = "synonyms"
    RATES = "rates"
    SCHEMAS = "schemas"
    CODE_SYSTEMS = "code-systems"
    ALIASES = "aliases"
    SPLITS = "splits"
    RELATIONS = "relations"


class ValueKind(Enum):
    """The kinds of values of an attribute."""

    CONCEPT = "concept"
    TEXT = "text"
    NUMBER = "number"
    INSTANT = "instant"
    BOOLEAN = "boolean"
    VERSION = "version"
    IP = "ip"


KindArgument = Annotated[
    Kind,
    typer.Argument(
        metavar="KIND", help="attributes, synonyms, rates, schemas, code-systems, aliases, splits or relations."
    ),
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A JSON file, or the JSON itself.")]


@commands.command("attribute", epilog=page("kindcast declare attribute value --kind number --unit-from unit"))
def attribute(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The attribute, such as price or seller.email.")],
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="The declaration: a JSON file, or the JSON itself."),
    ] = None,
    kind: Annotated[ValueKind | None, typer.Option(help="The kind of its values.")] = None,
    unit: Annotated[str | None, typer.Option(metavar="UNIT", help="The unit of bare numbers.")] = None,
    unit_from: Annotated[
        str | None, typer.Option(metavar="ATTRIBUTE", help="The sibling attribute with the unit.")
    ] = None,
    range: Annotated[
        list[str] | None,
        typer.Option(metavar="IRI", help="A concept: values are it or beneath it; may be given several times."),
    ] = None,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Declare what the values of an attribute are."""
    given = {"kind": kind.value if kind else None, "unit": unit, "unit_from": unit_from, "range": range or None}
    declared = {} if file is None else json_file(file)
    declared |= {key: value for key, value in given.items() if value is not None}
    if file is None and not declared:
        raise typer.BadParameter(
            f"this declares nothing about {name!r}: give --kind, --unit, --unit-from, --range or a file. The"
            f" declarations are listed by: kindcast declare list attributes",
            param_hint="FILE",
        )
    with connected(server) as client:
        told = client.declare_attribute(name, declared, dry_run=dry_run)
    show_declared(f"attribute {name}", told, json)


@commands.command("synonyms", epilog=page("kindcast declare synonyms mine words.csv"))
def synonyms(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the table.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV of word and root word, a JSON file, or the JSON itself.")
    ],
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Upload a table of synonyms: words, each with its root word. A published word also counts as its root word."""
    table = _table(file)
    with connected(server) as client:
        told = client.declare_synonyms(name, table, dry_run=dry_run)
    show_declared(f"synonyms {name}", told, json)


@commands.command("rates", epilog=page('kindcast declare rates \'{"EUR": {"USD": "1.08"}}\''))
def rates(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV of base, currency and rate, a JSON file, or the JSON itself.")
    ],
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Upload exchange rates, which replace the previous ones."""
    with connected(server) as client:
        told = client.declare_rates(_table(file), dry_run=dry_run)
    show_declared("rates", told, json)


@commands.command("schema", epilog=page("kindcast declare schema offer offer.schema.json"))
def schema(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The type of the events.")],
    file: FileArgument,
    replace: Annotated[bool, typer.Option("--replace", help="Allow changes that are not extensions.")] = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Declare an event type by a JSON Schema, or extend it."""
    with connected(server) as client:
        told = client.declare_schema(type, json_file(file), dry_run=dry_run, replace=replace)
    show_declared(f"schema {type}", told, json)


@commands.command("code-system", epilog=page("kindcast declare code-system hpo hpo.json"))
def code_system(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the system.")],
    file: FileArgument,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Declare which concepts the codes of a system mean, and how events name the system."""
    with connected(server) as client:
        told = client.declare_code_system(name, json_file(file), dry_run=dry_run)
    show_declared(f"code system {name}", told, json)


@commands.command(
    "aliases", epilog=page('kindcast declare aliases web \'{"prefixes": {"http://e.org/": "https://e.org/"}}\'')
)
def aliases(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the table.")],
    file: FileArgument,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Declare which forms of IRIs mean the same as others."""
    with connected(server) as client:
        told = client.declare_aliases(name, json_file(file), dry_run=dry_run)
    show_declared(f"aliases {name}", told, json)


@commands.command("split", epilog=page('kindcast declare split orders \'{"split": "order.lines", "id": "number"}\''))
def split(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the envelope.")],
    file: FileArgument,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Declare how documents with several events are split."""
    with connected(server) as client:
        told = client.declare_split(name, json_file(file), dry_run=dry_run)
    show_declared(f"split {name}", told, json)


@commands.command("relation", epilog=page('kindcast declare relation within \'{"union": ["isPointOf", "isPartOf"]}\''))
def relation(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the union.")],
    file: FileArgument,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Declare a name for the union of several relations."""
    with connected(server) as client:
        told = client.declare_relation(name, json_file(file), dry_run=dry_run)
    show_declared(f"relation {name}", told, json)


@commands.command("list", epilog=page("kindcast declare list attributes"))
def list_all(kind: KindArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the declarations of one kind."""
    with connected(server) as client:
        found = client.declarations(kind.value)
    if json:
        output.print_json(found)
        return
    declared = [found] if kind is Kind.RATES else found[kind.value]
    if not declared:
        output.hint(f"No {kind.value} are declared: kindcast declare --help")
        return
    output.table(
        ("name", "version", "declaration"), [(each["name"], str(each["version"]), _short(each)) for each in declared]
    )


@commands.command("delete", epilog=page("kindcast declare delete attributes value"))
def delete(
    kind: KindArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the declaration; rates have none.")] = "",
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Delete a declaration."""
    if not name and kind is not Kind.RATES:
        raise CommandFailed(
            f"say which of the {kind.value} to delete.", f"kindcast declare list {kind.value} shows them."
        )
    with connected(server) as client:
        told = client.delete_declaration(kind.value, name, dry_run=dry_run)
    show_taken_back(f"{kind.value} {name}".strip(), told, dry_run, json)


def _table(file: str) -> "dict[str, Any] | bytes":
    return csv_file(file) if file.lower().removesuffix(".gz").endswith(".csv") else json_file(file)


def _short(declared: Mapping[str, Any]) -> str:
    text = ", ".join(f"{key}: {value}" for key, value in declared["declaration"].items())
    return text if len(text) <= 100 else text[:99] + "…"


# ── contexts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


contexts = group(
    "context",
    "Upload, list, show and delete JSON-LD contexts. Each change makes a version of the vocabulary. Contexts are never "
    "fetched.",
)

UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="The URL by which documents refer to it.")]


@contexts.command("load", epilog=page("kindcast context load city.jsonld --url https://example.com/city.jsonld"))
def load_context(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON file with the member @context.")],
    url: UrlOption,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Upload a context in the form in which its publisher serves it."""
    with connected(server) as client:
        told = client.put_context(url, json_file(file), dry_run=dry_run)
    show_declared(f"context {url}", told, json)


@contexts.command("list", epilog=page("kindcast context list"))
def list_contexts(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the uploaded and the shipped contexts."""
    with connected(server) as client:
        found: Mapping[str, Any] = client.contexts()
    if json:
        output.print_json(found)
        return
    uploaded = {each["name"]: str(each["version"]) for each in found["contexts"]}
    rows = [*uploaded.items(), *((url, "shipped") for url in found["shipped"] if url not in uploaded)]
    output.table(("url", "version"), rows)


@contexts.command("show", epilog=page("kindcast context show --url https://www.w3.org/ns/activitystreams"))
def show_context(url: UrlOption, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show an uploaded or shipped context, and its versions."""
    with connected(server) as client:
        found = client.context(url)
    if json:
        output.print_json(found)
        return
    output.paragraph(f"context {url}, " + (f"version {found['version']}" if "version" in found else "shipped"), "bold")
    output.paragraph(dumps(found["declaration"], ensure_ascii=False, indent=2))
    if found["versions"]:
        show_versions(found["versions"])


@contexts.command("delete", epilog=page("kindcast context delete --url https://example.com/city.jsonld"))
def delete_context(
    url: UrlOption, dry_run: DryRunOption = False, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Delete a context to which no other context refers."""
    with connected(server) as client:
        told = client.delete_context(url, dry_run=dry_run)
    show_taken_back(f"context {url}", told, dry_run, json)
