"""The commands `kindcast ontology versions`, `diff`, `activate` and `rollback`, with previews; and `rules`:
how a newer kindcast matches differently."""

from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.impact import DryRunOption, show_impact

__all__ = ["add_to"]

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the ontology on the server.")]
SHOWN = 10
"""Concepts of one list that are shown to people; the numbers are complete, and --json has more."""

LISTS = (
    ("added", "added"),
    ("removed", "removed"),
    ("moved", "moved"),
    ("merged", "became one"),
    ("split", "became several"),
    ("deprecated", "deprecated"),
    ("restored", "no longer deprecated"),
    ("relabelled", "other labels"),
)


def add_to(commands: typer.Typer) -> None:
    """Put these commands beside those of `ontologies`."""
    commands.command("versions", epilog="Example: kindcast ontology versions shop")(versions)
    commands.command("diff", epilog="Example: kindcast ontology diff shop --from 1 --to 2")(diff)
    commands.command("activate", epilog="Example: kindcast ontology activate shop 2 --dry-run")(activate)
    commands.command("rollback", epilog="Example: kindcast ontology rollback shop")(rollback)
    commands.command("rules", epilog="Example: kindcast ontology rules")(rules)


def versions(name: NameArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show every version of an ontology, newest first."""
    with connected(server) as client:
        found = client.ontology_versions(name)
    if json:
        output.print_json(found)
        return
    rows = [
        (
            str(each["version"]),
            "active" if each["active"] else "",
            str(each["concepts"]),
            output.ago(each["created_at"]),
        )
        for each in found["versions"]
    ]
    output.table(("version", "", "concepts", "uploaded"), rows)


def diff(
    name: NameArgument,
    before: Annotated[
        int | None, typer.Option("--from", min=1, metavar="VERSION", help="Else the active version.")
    ] = None,
    to: Annotated[int | None, typer.Option(min=1, metavar="VERSION", help="Else the newest version.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show what changed from one version to another."""
    with connected(server) as client:
        found = client.ontology_diff(name, before=before, to=to)
    if json:
        output.print_json(found)
        return
    output.paragraph(f"{name}, version {found['from']} to {found['to']}", "bold")
    changed = [(title, found[key]) for key, title in LISTS if found[key]["count"]]
    for title, part in changed:
        output.paragraph(f"{title}  {part['count']}", "bold")
        for each in part["concepts"][:SHOWN]:
            output.paragraph(f"  {_told(each)}")
        if part["count"] > SHOWN:
            output.paragraph(f"  … and {part['count'] - SHOWN} more", "dim")
    if not changed:
        output.paragraph("no difference")


def activate(
    name: NameArgument,
    version: Annotated[int, typer.Argument(min=1, metavar="VERSION", help="Its number.")],
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Activate a version, which may be an earlier one, and show which subscriptions change their meaning."""
    with connected(server) as client, output.errors().status(f"version {version} of {name} …"):
        told = client.activate_ontology(name, version, dry_run=dry_run)
    _show(name, told, json)


def rollback(
    name: NameArgument, dry_run: DryRunOption = False, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Go back to the version that was active before the present one."""
    with connected(server) as client, output.errors().status(f"{name} …"):
        told = client.rollback_ontology(name, dry_run=dry_run)
    _show(name, told, json)


def rules(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show which subscriptions match differently since the rules of matching changed on this server."""
    with connected(server) as client:
        told = client.rules()
    if json:
        output.print_json(told)
        return
    output.paragraph(f"the rules of matching have number {told['meaning']}", "bold")
    if told["impact"] is None:
        output.paragraph("no subscription matches differently because of them")
        return
    show_impact({"impact": told["impact"], "subscriptions": told["impact"]["subscriptions"]})


def _show(name: str, told: dict[str, Any], json: bool) -> None:
    if json:
        output.print_json(told)
        return
    state = "would be in force" if told["dry_run"] else "is in force"
    output.paragraph(f"{name}, version {told['version']}, {state}", "bold green")
    show_impact(told)


def _told(concept: dict[str, Any]) -> str:
    """One concept of a difference on one line."""
    if "iris" in concept:
        return " = ".join(concept["iris"])
    parts = [f"{concept['label']}  {concept['iri']}"]
    if "parents_before" in concept:
        parts.append(f"beneath {_names(concept['parents'])}, was beneath {_names(concept['parents_before'])}")
    elif concept.get("parents"):
        parts.append(f"beneath {_names(concept['parents'])}")
    if "replaced_by" in concept:
        parts.append(f"replaced by {_names(concept['replaced_by'])}")
    if concept.get("labels"):
        parts.append("also " + ", ".join(repr(each["value"]) for each in concept["labels"]))
    if concept.get("labels_gone"):
        parts.append("no longer " + ", ".join(repr(each["value"]) for each in concept["labels_gone"]))
    return "; ".join(parts)


def _names(iris: list[str]) -> str:
    return ", ".join(iris) or "nothing"
