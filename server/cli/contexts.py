"""The commands `kindcast context`: JSON-LD contexts by their URLs."""

from collections.abc import Mapping
from json import dumps
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import json_file
from kindcast.server.cli.ontologies import DryRunOption, show_declared, show_taken_back, show_versions
from kindcast.server.cli.output import group, page

__all__ = ["commands"]

commands = group(
    "context",
    "Upload, list, show and delete JSON-LD contexts. Each change makes a version of the vocabulary. Contexts are never "
    "fetched.",
)

UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="The URL by which documents refer to it.")]


@commands.command("load", epilog=page("kindcast context load city.jsonld --url https://example.com/city.jsonld"))
def load(
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


@commands.command("list", epilog=page("kindcast context list"))
def list_all(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the uploaded and the shipped contexts."""
    with connected(server) as client:
        found: Mapping[str, Any] = client.contexts()
    if json:
        output.print_json(found)
        return
    uploaded = {each["name"]: str(each["version"]) for each in found["contexts"]}
    rows = [*uploaded.items(), *((url, "shipped") for url in found["shipped"] if url not in uploaded)]
    output.table(("url", "version"), rows)


@commands.command("show", epilog=page("kindcast context show --url https://www.w3.org/ns/activitystreams"))
def show(url: UrlOption, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
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


@commands.command("delete", epilog=page("kindcast context delete --url https://example.com/city.jsonld"))
def delete(
    url: UrlOption, dry_run: DryRunOption = False, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Delete a context to which no other context refers."""
    with connected(server) as client:
        told = client.delete_context(url, dry_run=dry_run)
    show_taken_back(f"context {url}", told, dry_run, json)
