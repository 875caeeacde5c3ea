"""`kindcast ontology`: check a file offline, load it into a server, list what is loaded."""

from pathlib import Path
from typing import Annotated, Any

import typer

from semantic import Vocabulary
from server.cli import output
from server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from server.cli.documents import read_ontology

__all__ = ["commands"]

commands = typer.Typer(
    name="ontology", help="Check, load and list the ontologies that subscriptions are written in.", no_args_is_help=True
)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="Turtle, RDF/XML, N-Triples or JSON-LD.")]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="turtle, xml, ntriples or json-ld; else told by the file."),
]
SHOWN = ("concepts", "individuals", "edges", "roots", "max_depth", "multi_parent", "synonyms", "merged", "deprecated")


@commands.command("check", epilog="Example: kindcast ontology check shop.ttl")
def check(file: FileArgument, format: FormatOption = None, json: JsonOption = False) -> None:
    """Read an ontology without a server and report what is in it."""
    path = read_ontology(file)
    with output.errors().status(f"reading {path.name} …"):
        vocabulary = Vocabulary.from_bytes(path.read_bytes(), format=format, name=path.stem)
    if json:
        output.print_json(vocabulary.report)
        return
    output.paragraph(f"{path.name} can be loaded", "bold green")
    _show_report(vocabulary.report)


@commands.command("load", epilog="Example: kindcast ontology load shop.ttl --name shop")
def load(
    file: FileArgument,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name on the server; else the file's.")] = None,
    format: FormatOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Upload an ontology, or a new version of it; every subscription is understood by it from then on."""
    path = read_ontology(file)
    with connected(server) as client, output.errors().status(f"loading {path.name} …"):
        report = client.put_ontology(name or path.stem, path.read_bytes(), format=format or _format_of(path))
    if json:
        output.print_json(report)
        return
    output.paragraph(f"loaded {report['name']}, version {report.get('version', '?')}", "bold green")
    _show_report(report)


@commands.command("list", epilog="Example: kindcast ontology list --json")
def list_all(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the ontologies of the server."""
    with connected(server) as client:
        answer = client.ontologies()
    if json:
        output.print_json(answer)
        return
    rows = [
        (str(each["name"]), str(each.get("version", "")), str(each.get("concepts", "")), str(each.get("triples", "")))
        for each in answer["ontologies"]
    ]
    if not rows:
        output.hint("No ontology is loaded yet: kindcast ontology load shop.ttl")
        return
    output.table(("name", "version", "concepts", "triples"), rows)


def _show_report(report: dict[str, Any]) -> None:
    output.table(("", ""), [(name.replace("_", " "), str(report[name])) for name in SHOWN if report.get(name)])
    if report.get("languages"):
        # An untagged label stands under the empty tag.
        told = ", ".join(f"{tag or 'no language'} {count}" for tag, count in report["languages"].items())
        output.paragraph(f"labels         {told}")
    for iri in report.get("unresolved_imports", ()):
        output.warn(f"it imports {iri}, which is not loaded; upload it too if you need its concepts")
    for warning in report.get("warnings", ()):
        output.warn(str(warning))


def _format_of(path: Path) -> str | None:
    return {".ttl": "turtle", ".nt": "ntriples", ".jsonld": "json-ld"}.get(path.suffix.lower())
