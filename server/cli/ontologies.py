"""The commands `kindcast ontology`: check a file offline, load it into a server, list what is loaded."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kindcast.server.cli import output, versions
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import RelationsOption, listed, read_ontology
from kindcast.server.cli.impact import show_impact
from kindcast.server.client import Client, ProblemError

__all__ = ["upload_with_progress"]


# Reading and uploading of ontologies with a bar that moves: what takes long says how far it is.
#
# check   file ──read_isolated──▶ ontology        the child process tells its stages
# load    file ──PUT, respond-async──▶ job ──asked again and again──▶ load report

if TYPE_CHECKING:
    from kindcast.semantic.ontology import Ontology, Reason
    from kindcast.semantic.ontology.progress import Progress


OWN_FILES: dict[str, Any] = {"memory": 16 << 30, "cpu_seconds": 3_600, "wall_seconds": 3_600}
"""The user's own files may take longer than uploads from strangers."""

FIRST_WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 0.5

STAGES = {
    "wait": "waits for its turn",
    "unpack": "is unpacked",
    "parse": "triples read",
    "extract": "is made sense of",
    "reason": "is reasoned about",
    "encode": "is handed over",
    "decode": "is handed over",
    "build": "becomes part of the vocabulary",
    "compile": "subscriptions are compiled again",
}


def read_with_progress(path: Path, *, format: str | None, reason: "Reason", relations: Sequence[str]) -> "Ontology":
    """The records of a file, read in a child process. Raises what `read_isolated` raises."""
    from kindcast.semantic.ontology import Isolation, read_isolated

    with _bar(path.name) as progress:
        return read_isolated(
            path.read_bytes(),
            format=format,
            name=path.stem,
            reason=reason,
            relations=relations,
            isolation=Isolation(**OWN_FILES),
            progress=progress,
        )


def upload_with_progress(client: Client, name: str, path: Path, **options: Any) -> dict[str, Any]:
    """The load report of an upload; `options` are those of `Client.start_ontology`. Raises ProblemError."""
    with _bar(path.name) as progress:
        job = client.start_ontology(name, path.read_bytes(), **options)
        pause = FIRST_WAIT_SECONDS
        while job["status"] == "running":
            told = job["progress"]
            progress(str(told["stage"]), int(told["done"]), told["total"])
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT_SECONDS)
            job = client.job(job["id"])
    if job["status"] == "failed":
        raise ProblemError.of(job["problem"])
    report: dict[str, Any] = job["result"]
    return report


@contextmanager
def _bar(name: str) -> Iterator["Progress"]:
    """A bar on the terminal, and how to move it."""
    with output.progress() as bar:
        task = bar.add_task(name, total=None)

        def move(stage: str, done: int, total: int | None) -> None:
            bar.update(task, description=f"{name}: {STAGES.get(stage, stage)}", completed=done, total=total)

        yield move


# ── ontologies ────────────────────────────────────────────────────────────────────────────────────────────────────────

commands = typer.Typer(
    name="ontology", help="Check, load and list the ontologies that subscriptions are written in.", no_args_is_help=True
)


class Reasoning(Enum):
    """How much a document means beyond what it states."""

    NONE = "none"
    RDFS = "rdfs"
    OWL = "owl"


FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="RDF in any syntax, OWL, OBO or SSSOM.")]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="turtle, xml, json-ld, obo, ofn, owx …; else told by the file."),
]
ReasonOption = Annotated[
    Reasoning,
    typer.Option(help="What is added: nothing; what RDFS entails; or what a reasoner of OWL 2 finds (needs Java)."),
]
SHOWN = (
    *("concepts", "individuals", "edges", "inferred", "roots", "max_depth", "multi_parent", "synonyms", "merged"),
    "deprecated",
)


@commands.command("check", epilog="Example: kindcast ontology check shop.ttl")
def check(
    file: FileArgument,
    format: FormatOption = None,
    reason: ReasonOption = Reasoning.NONE,
    relations: RelationsOption = "",
    json: JsonOption = False,
) -> None:
    """Read an ontology without a server and report what is in it."""
    from kindcast.semantic import Vocabulary

    path = read_ontology(file)
    ontology = read_with_progress(
        path, format=format or _format_of(path), reason=reason.value, relations=listed(relations)
    )
    vocabulary = Vocabulary.from_ontologies([ontology])
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
    reason: ReasonOption = Reasoning.NONE,
    relations: RelationsOption = "",
    activate: Annotated[
        bool, typer.Option("--activate/--no-activate", help="Put it in force at once, or only store it.")
    ] = True,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Upload an ontology, or a new version of it; every subscription is understood by it from then on, unless it is
    only stored."""
    path = read_ontology(file)
    with connected(server) as client:
        report = upload_with_progress(
            client,
            name or path.stem,
            path,
            format=format or _format_of(path),
            reason=reason.value,
            relations=listed(relations),
            activate=activate,
        )
    if json:
        output.print_json(report)
        return
    stored = "" if report["active"] else ", not in force: kindcast ontology activate"
    output.paragraph(f"loaded {report['name']}, version {report['version']}{stored}", "bold green")
    _show_report(report)
    if report.get("subscriptions", {}).get("changed"):
        show_impact(report)


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


versions.add_to(commands)


def _show_report(report: dict[str, Any]) -> None:
    output.table(("", ""), [(name.replace("_", " "), str(report[name])) for name in SHOWN if report.get(name)])
    if report.get("languages"):
        # An untagged label stands under the empty tag.
        told = ", ".join(f"{tag or 'no language'} {count}" for tag, count in report["languages"].items())
        output.paragraph(f"labels         {told}")
    for each in report.get("relations", ()):
        output.paragraph(f"relation       {each['label']}: {each['edges']} edge{'' if each['edges'] == 1 else 's'}")
    for iri in report.get("unresolved_imports", ()):
        output.warn(f"it imports {iri}, which is not loaded; upload it too if you need its concepts")
    for warning in report.get("warnings", ()):
        output.warn(str(warning))


def _format_of(path: Path) -> str | None:
    """What the extension says beyond doubt; packed files and the rest are told by their looks."""
    known = {".ttl": "turtle", ".nt": "ntriples", ".jsonld": "json-ld", ".obo": "obo", ".ofn": "ofn", ".owx": "owx"}
    return known.get(path.suffix.lower())
