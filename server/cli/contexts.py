"""The commands `kindcast context`: JSON-LD contexts, by the URLs that documents refer to them by."""

from json import dumps
from typing import Annotated

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import json_file
from kindcast.server.cli.ontologies import DryRunOption, show_impact

__all__ = ["commands"]

commands = typer.Typer(
    name="context",
    help="JSON-LD contexts: upload, list, show and delete; each is a version of the vocabulary. None is ever fetched.",
    no_args_is_help=True,
)

UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="The URL by which documents refer to it.")]


@commands.command("load", epilog="Example: kindcast context load city.jsonld --url https://example.com/city.jsonld")
def load(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON file with the member @context.")],
    url: UrlOption,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Upload a context, as its publisher serves it at its URL."""
    with connected(server) as client:
        told = client.put_context(url, json_file(file), dry_run=dry_run)
    if json:
        output.print_json(told)
        return
    state = "would be in force" if dry_run else f"version {told['version']}, is in force"
    output.paragraph(f"context {url}, {state}", "bold green")
    show_impact(told)


@commands.command("list", epilog="Example: kindcast context list")
def list_all(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the contexts that are uploaded, and those that are shipped."""
    with connected(server) as client:
        found = client.contexts()
    if json:
        output.print_json(found)
        return
    uploaded = {each["name"]: str(each["version"]) for each in found["contexts"]}
    rows = [*uploaded.items(), *((url, "shipped") for url in found["shipped"] if url not in uploaded)]
    output.table(("url", "version"), rows)


@commands.command("show", epilog="Example: kindcast context show --url https://www.w3.org/ns/activitystreams")
def show(url: UrlOption, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show a context as it was uploaded, or a shipped one, and its versions."""
    with connected(server) as client:
        found = client.context(url)
    if json:
        output.print_json(found)
        return
    output.paragraph(f"context {url}, " + (f"version {found['version']}" if "version" in found else "shipped"), "bold")
    output.paragraph(dumps(found["declaration"], ensure_ascii=False, indent=2))
    if found["versions"]:
        made = [
            (str(each["version"]), "active" if each["active"] else "", output.ago(each["created_at"]))
            for each in found["versions"]
        ]
        output.table(("version", "", "uploaded"), made)


@commands.command("delete", epilog="Example: kindcast context delete --url https://example.com/city.jsonld")
def delete(
    url: UrlOption, dry_run: DryRunOption = False, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Delete a context that no other refers to."""
    with connected(server) as client:
        told = client.delete_context(url, dry_run=dry_run)
    if json:
        output.print_json(told)
        return
    output.paragraph(f"context {url}" + (" would be gone" if dry_run else " deleted"), "bold green")
    show_impact(told)
