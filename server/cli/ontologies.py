"""The commands `kindcast ontology` and `kindcast concept`.

Check a file offline, load it into a server, list what is loaded; find a concept of what is loaded.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from kindcast.semantic.ontology import syntax_of_extension
from kindcast.server.cli import output
from kindcast.server.cli.completion import concepts, ontologies, ontology_files
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import Reasoning, ReasonOption, RelationsOption, listed, read_ontology
from kindcast.server.cli.output import CommandFailed, group, page
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.semantic.ontology import Ontology, Progress, Reason
    from kindcast.server.client import Client

__all__ = [
    "DryRunOption",
    "concept_commands",
    "show_declared",
    "show_impact",
    "show_taken_back",
    "show_versions",
    "upload_with_progress",
]

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show the effect; change nothing.")]

SharedOption = Annotated[
    bool, typer.Option("--shared", help="An ontology that all tenants share; for administrators of all tenants.")
]

# ── reading and uploading with a progress bar ─────────────────────────────────────────────────────────────────────────
#
# check   file ──read_isolated──▶ ontology        the child process tells its stages
# load    file ──PUT, respond-async──▶ job ──asked again and again──▶ load report


OWN_FILES: dict[str, Any] = {"memory": 16 << 30, "cpu_seconds": 3_600, "wall_seconds": 3_600}
"""The limits for the user's own files, which may take longer than uploads from strangers."""

FIRST_WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 0.5

STAGES = {
    "wait": "waits for its turn",
    "unpack": "is unpacked",
    "parse": "triples read",
    "extract": "is interpreted",
    "reason": "is reasoned about",
    "encode": "is handed over",
    "decode": "is handed over",
    "build": "becomes part of the vocabulary",
    "compile": "subscriptions are compiled again",
}


def read_with_progress(path: Path, *, format: str | None, reason: "Reason", relations: Sequence[str]) -> "Ontology":
    """Reads a file in a child process and returns its records. Raises the errors of `read_isolated`."""
    from kindcast.semantic.ontology import Isolation, read_isolated, refuse_empty

    document = path.read_bytes()
    refuse_empty(document)
    with _bar(path.name) as progress:
        return read_isolated(
            document,
            format=format,
            name=name_of(path),
            reason=reason,
            relations=relations,
            isolation=Isolation(**OWN_FILES),
            progress=progress,
        )


def upload_with_progress(client: "Client", name: str, path: Path, **options: Any) -> dict[str, Any]:
    """Uploads a file and returns the load report. `options` are those of `Client.start_ontology`. Raises
    ProblemError."""
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
    """A context manager with a progress bar on the terminal. It yields the function that updates it."""
    with output.progress() as bar:
        task = bar.add_task(name, total=None)

        def move(stage: str, done: int, total: int | None) -> None:
            bar.update(task, description=f"{name}: {STAGES.get(stage, stage)}", completed=done, total=total)

        yield move


# ── ontologies ────────────────────────────────────────────────────────────────────────────────────────────────────────

commands = group("ontology", "Check, load and list ontologies, and choose their versions.")


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", autocompletion=ontology_files, help="RDF in any syntax, OWL, OBO or SSSOM.")
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=ontologies, help="The name of the ontology on the server.")
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="turtle, xml, json-ld, obo, ofn, owx ….  [recognised from the file]"),
]
REPORTED = (
    *("concepts", "individuals", "edges", "inferred", "roots", "max_depth", "multi_parent", "synonyms", "merged"),
    "deprecated",
)


@commands.command("check", epilog=page("kindcast ontology check shop.ttl"))
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


@commands.command("load", epilog=page("kindcast ontology load shop.ttl --name shop"))
def load(
    file: FileArgument,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of the ontology on the server.  [the name of the file]")
    ] = None,
    format: FormatOption = None,
    reason: ReasonOption = Reasoning.NONE,
    relations: RelationsOption = "",
    activate: Annotated[
        bool, typer.Option("--activate/--no-activate", help="Activate the version at once, or only store it.")
    ] = True,
    dry_run: DryRunOption = False,
    shared: SharedOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Upload an ontology, or a new version of one. All subscriptions use it at once, unless --no-activate is given."""
    path = read_ontology(file)
    name = _valid(name or name_of(path))
    with connected(server) as client:
        report = upload_with_progress(
            client,
            name,
            path,
            format=format or _format_of(path),
            reason=reason.value,
            relations=listed(relations),
            activate=activate,
            dry_run=dry_run,
            shared=shared,
        )
    if json:
        output.print_json(report)
        return
    if dry_run:
        output.paragraph(f"{report['name']} would be in force; nothing was stored", "bold green")
        _show_report(report)
        show_impact(report)
        return
    stored = "" if report["active"] else ", not in force: kindcast ontology activate"
    output.paragraph(f"loaded {report['name']}, version {report['version']}{stored}", "bold green")
    _show_report(report)
    if report.get("subscriptions", {}).get("changed"):
        show_impact(report)
    else:
        show_others(report)


@commands.command("list", epilog=page("kindcast ontology list --json"))
def list_all(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the ontologies of the server."""
    with connected(server) as client:
        answer = client.ontologies()
    if json:
        output.print_json(answer)
        return
    rows = [
        (
            str(each["name"]),
            str(each.get("version", "")),
            str(each.get("concepts", "")),
            str(each.get("triples", "")),
            "shared" if each.get("shared") else "",
        )
        for each in answer["ontologies"]
    ]
    if not rows:
        output.hint("No ontology is loaded yet: kindcast ontology load shop.ttl")
        return
    headings = ("name", "version", "concepts", "triples", "")
    used = len(headings) if any(row[-1] for row in rows) else len(headings) - 1
    output.table(headings[:used], [row[:used] for row in rows])


@commands.command("show", epilog=page("kindcast ontology show shop"))
def show(name: NameArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the active version of an ontology: its content, and how it was read."""
    with connected(server) as client:
        found = client.ontology(name)
    if json:
        output.print_json(found)
        return
    output.paragraph(f"{found['name']}, version {found['version']}", "bold")
    _show_report(found)


@commands.command("delete", epilog=page("kindcast ontology delete shop --dry-run"))
def delete(
    name: NameArgument,
    dry_run: DryRunOption = False,
    shared: SharedOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Delete an ontology with all its versions. Refused while a subscription uses a concept that only it has."""
    with connected(server) as client:
        answer = client.delete_ontology(name, dry_run=dry_run, shared=shared)
    show_taken_back(name, answer, dry_run, json)


@commands.command("tree", epilog=page("kindcast ontology tree Computer --depth 2"))
def tree(
    term: Annotated[str, typer.Argument(metavar="TERM", autocompletion=concepts, help="The concept at the top.")],
    depth: Annotated[int, typer.Option(min=1, max=10, metavar="COUNT", help="How many levels beneath it.")] = 3,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="COUNT", help="The largest number of concepts.")
    ] = 200,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Draw the narrower concepts of a concept. A concept with several parents is shown below each of them."""
    with connected(server) as client:
        candidates = client.resolve(term).get("candidates") or []
        if len(candidates) != 1:
            several = "is ambiguous" if candidates else "is not the name of a concept"
            raise CommandFailed(f"{term!r} {several}.", f"Look for it: kindcast concept find {term!r}")
        top = Tree(Text(str(candidates[0].get("label", term)), style="bold"))
        level, shown = [(candidates[0]["iri"], top)], 0
        for _ in range(depth):
            beneath = []
            for iri, branch in level:
                for child in client.children(iri)["concepts"]:
                    if shown >= limit:
                        branch.add(Text("…", style="dim"))
                        break
                    beneath.append((child["iri"], branch.add(Text(str(child.get("label", child["iri"]))))))
                    shown += 1
            level = beneath
    output.screen().print(top)
    if shown >= limit:
        output.hint(f"Only {limit} concepts are shown: choose a narrower one, or --limit.")


def _show_report(report: Mapping[str, Any]) -> None:
    output.table(("", ""), [(name.replace("_", " "), str(report[name])) for name in REPORTED if report.get(name)])
    if report.get("languages"):
        # Labels without a language have an empty tag.
        told = ", ".join(f"{tag or 'no language'} {count}" for tag, count in report["languages"].items())
        output.paragraph(f"labels         {told}")
    for each in report.get("relations", ()):
        output.paragraph(f"relation       {each['label']}: {each['edges']} edge{'' if each['edges'] == 1 else 's'}")
    for iri in report.get("unresolved_imports", ()):
        output.warn(f"it imports {iri}, which is not loaded; load it too if you need its concepts")
    for warning in report.get("warnings", ()):
        output.warn(str(warning))


def _format_of(path: Path) -> str | None:
    """Returns the syntax, if the extension is unambiguous. The server recognises other files by their text."""
    return syntax_of_extension(_unpacked(path).suffix.removeprefix("."))


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The form of names of ontologies on a server."""


def _valid(name: str) -> str:
    """Returns the name if an ontology may have it. Raises typer.BadParameter: the name of a file may need another."""
    if not NAME.fullmatch(name):
        told = f"{name!r} cannot be the name of an ontology: write at most 100 letters of A-Z, digits, '.', '_' and '-'"
        raise typer.BadParameter(told, param_hint="--name")
    return name


def name_of(path: Path) -> str:
    """Returns the name of the ontology in a file.

    >>> [name_of(Path(name)) for name in ("shop.ttl", "shop.ttl.gz", "Brick-1.5.ttl")]
    ['shop', 'shop', 'Brick-1.5']
    """
    return _unpacked(path).stem


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────────

MAX_CONCEPTS = 10
"""The maximum number of concepts of a list that are shown. The counts are complete, and --json has more."""

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


@commands.command("versions", epilog=page("kindcast ontology versions shop"))
def versions(name: NameArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show every version of an ontology, newest first."""
    with connected(server) as client:
        found = client.ontology_versions(name)
    if json:
        output.print_json(found)
        return
    show_versions(found["versions"], ("concepts",))


def show_versions(found: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Shows the versions of something that was uploaded, with additional columns."""
    rows = [
        (
            str(each["version"]),
            "active" if each["active"] else "",
            *(str(each[column]) for column in columns),
            output.ago(each["created_at"]),
        )
        for each in found
    ]
    output.table(("version", "", *columns, "uploaded"), rows)


@commands.command("diff", epilog=page("kindcast ontology diff shop --from 1 --to 2"))
def diff(
    name: NameArgument,
    before: Annotated[
        int | None,
        typer.Option("--from", min=1, metavar="VERSION", help="The older version.  [the active one]"),
    ] = None,
    to: Annotated[
        int | None, typer.Option(min=1, metavar="VERSION", help="The newer version.  [the newest one]")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show what changed from one version to another."""
    with connected(server) as client:
        found: Mapping[str, Any] = client.ontology_diff(name, before=before, to=to)
    if json:
        output.print_json(found)
        return
    output.paragraph(f"{name}, version {found['from']} to {found['to']}", "bold")
    changed = [(title, found[key]) for key, title in LISTS if found[key]["count"]]
    for title, part in changed:
        output.paragraph(f"{title}  {part['count']}", "bold")
        for each in part["concepts"][:MAX_CONCEPTS]:
            output.paragraph(f"  {_changed_concept(each)}")
        if part["count"] > MAX_CONCEPTS:
            output.paragraph(f"  … and {part['count'] - MAX_CONCEPTS} more", "dim")
    if not changed:
        output.paragraph("no difference")


@commands.command("activate", epilog=page("kindcast ontology activate shop 2 --dry-run"))
def activate(
    name: NameArgument,
    version: Annotated[int, typer.Argument(min=1, metavar="VERSION", help="The number of the version.")],
    dry_run: DryRunOption = False,
    shared: SharedOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Activate a version, which may be an earlier one, and show which subscriptions change their meaning."""
    with connected(server) as client, output.errors().status(f"version {version} of {name} …"):
        told = client.activate_ontology(name, version, dry_run=dry_run, shared=shared)
    _show(name, told, json)


@commands.command("rollback", epilog=page("kindcast ontology rollback shop"))
def rollback(
    name: NameArgument,
    dry_run: DryRunOption = False,
    shared: SharedOption = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Activate the version that was active before the current one."""
    with connected(server) as client, output.errors().status(f"{name} …"):
        told = client.rollback_ontology(name, dry_run=dry_run, shared=shared)
    _show(name, told, json)


@commands.command("rules", epilog=page("kindcast ontology rules"))
def rules(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show which subscriptions match differently since the rules of matching changed on this server."""
    with connected(server) as client:
        told = client.rules()
    if json:
        output.print_json(told)
        return
    output.paragraph(f"the rules of matching have number {told['meaning']}", "bold")
    if told["reading"]["linked_data"] == "plain":
        output.paragraph("JSON-LD is read as plain JSON, because of the setting linked_data")
    if told["impact"] is None:
        output.paragraph("no subscription matches differently because of them")
        return
    show_impact({"impact": told["impact"], "subscriptions": told["impact"]["subscriptions"]})


def _show(name: str, told: Mapping[str, Any], json: bool) -> None:
    if json:
        output.print_json(told)
        return
    state = "would be in force" if told["dry_run"] else "is in force"
    output.paragraph(f"{name}, version {told['version']}, {state}", "bold green")
    show_impact(told)


def _changed_concept(concept: Mapping[str, Any]) -> str:
    """Returns one concept of a difference as a line."""
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


# ── impact ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The effect of a change of the vocabulary on the subscriptions.

MAX_NAMES = 10
"""The maximum number of entries of a list that are shown; --json has more."""


def show_declared(what: str, told: Mapping[str, Any], json: bool) -> None:
    """Shows what was declared, or would be, and the effect."""
    if json:
        output.print_json(told)
        return
    state = "would be in force" if told["dry_run"] else f"version {told['version']}, is in force"
    output.paragraph(f"{what}, {state}", "bold green")
    show_impact(told)


def show_taken_back(what: str, told: Mapping[str, Any], dry_run: bool, json: bool) -> None:
    """Shows what was deleted, or would be, and the effect."""
    if json:
        output.print_json(told)
        return
    output.paragraph(f"{what} {'would be' if dry_run else 'is'} deleted", "bold green")
    show_impact(told)


def show_impact(told: Mapping[str, Any]) -> None:
    """Shows which concepts, attributes, units and words change, for how many subscriptions, and which of these lose
    their meaning."""
    impact, subscriptions = told.get("impact"), told.get("subscriptions")
    if impact is None or subscriptions is None:
        output.paragraph("nothing changes: this version is already active")
        return
    changed, live = subscriptions["changed"], impact["subscriptions"]["live"]
    output.paragraph(f"{changed} of {live} subscriptions {'mean' if changed != 1 else 'means'} something else")
    for part in ("terms", "attributes", "units", "words", "texts", "pairs", "names", "dates", "excluded"):
        if part not in impact:  # a report of an older version
            continue
        listed = impact[part]["listed"][:MAX_NAMES]
        for each in listed:
            output.paragraph(f"  {_changed_subscription(part, each)}")
        if impact[part]["count"] > len(listed):
            output.paragraph(f"  … and {impact[part]['count'] - len(listed)} more {part}", "dim")
    flagged, back = (subscriptions.get(key, {"count": 0}) for key in ("flagged", "unflagged"))
    if flagged["count"]:
        shown = ", ".join(flagged["listed"][:MAX_NAMES])
        output.warn(
            f"{_are(flagged)} kept and flagged, because something was removed or is declared differently now: {shown}"
        )
    if back["count"]:
        output.hint(f"{_are(back)} no longer flagged")
    show_others(told)


def _are(subscriptions: Mapping[str, Any]) -> str:
    count = subscriptions["count"]
    return "1 subscription is" if count == 1 else f"{count} subscriptions are"


def show_others(told: Mapping[str, Any]) -> None:
    """Shows the effect of a change of a shared ontology in the other tenants."""
    if (others := told.get("others")) is None or not others["tenants"]:
        return
    output.paragraph(
        f"other tenants ({others['tenants']}): {others['changed']} of {others['subscriptions']} subscriptions change"
        f" ({others['gain']} gain, {others['lose']} lose, {others['flagged']} do not fit it)"
    )
    if others["unread"]:
        output.warn(f"tenants that could not be read: {others['unread']}")
    if others["behind"]:
        output.warn(f"open tenants that do not use it yet, and are tried again: {others['behind']}")


def _changed_subscription(part: str, each: Mapping[str, Any]) -> str:
    """Returns one change as a line."""
    if part == "terms":
        subject = f"{each.get('relation', {}).get('label') or each['test']} {each['label'] or each['iri']}"
    elif part == "excluded":
        subject = f"not of {each['within']} with {each['iri']}"
    else:
        subject = str(each.get("attribute") or each.get("unit") or each.get("word") or each.get("predicate"))
    said: list[str] = []
    if each.get("gone"):
        said.append("gone")
    if each.get("back"):
        said.append("back")
    if "replaced" in each:
        said.append(f"read as {each['replaced']['to']}")
    for key, word in (("gains", "gains"), ("loses", "loses")):
        if each.get(key, {}).get("count"):
            names = [concept["label"] or concept["iri"] for concept in each[key]["concepts"]]
            said.append(f"{word} {_some(names, each[key]['count'])}")
    for key, word in (("words", "gains the words"), ("words_gone", "loses the words")):
        if key in each:
            said.append(f"{word} {_some(each[key]['listed'], each[key]['count'])}")
    if "declaration" in each:
        said.append(f"declared as {_fields(each['declaration']['to'])}, was {_fields(each['declaration']['from'])}")
    if "derived" in each:
        said.append("derived from what changes")
    if "context" in each:
        said.append("read differently by a context")
    if "measure" in each:
        said.append("converted differently")
    if "written" in each:
        said.append(f"is written {each['written']}")
    if "compared" in each:
        said.append(f"compares {each['compared']}")
    number = each["subscriptions"]
    return f"{subject}: {', '.join(said)} ({number} subscription{'s' if number != 1 else ''})"


def _some(names: list[str], count: int) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return shown if count <= MAX_NAMES else f"{shown} and {count - MAX_NAMES} more"


def _fields(declaration: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in declaration.items()) if declaration else "nothing"


# ── concepts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


concept_commands = group("concept", "Find the concepts of the server's ontologies, in any of their languages.")


@concept_commands.command("find", epilog=page("kindcast concept find Festplatte --lang de"))
def find_concept(
    words: Annotated[
        str, typer.Argument(metavar="WORDS", autocompletion=concepts, help="Part of a label, a synonym or a name.")
    ],
    lang: Annotated[str | None, typer.Option(metavar="TAG", help="Only labels of this language: de, zh …")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, metavar="COUNT", help="The largest number of results.")] = 20,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Search the labels of all concepts."""
    with connected(server) as client:
        answer = client.concepts(words, lang=lang, limit=limit)
    if json:
        output.print_json(answer)
        return
    found = answer["concepts"]
    if not found:
        output.hint(f"Nothing is called {words!r}. Loaded ontologies: kindcast ontology list")
        return
    output.table(("label", "means", "IRI"), [(_hit(each), str(each.get("label", "")), each["iri"]) for each in found])


@concept_commands.command("show", epilog=page("kindcast concept show 'Desktop PC'"))
def show_concept(
    term: Annotated[
        str, typer.Argument(metavar="TERM", autocompletion=concepts, help="A label, a short form, a CURIE or an IRI.")
    ],
    lang: Annotated[str | None, typer.Option(metavar="TAG", help="Labels in this language: de, zh …")] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show what a term means: its labels, its broader concepts, and the concepts directly below it."""
    with connected(server) as client:
        resolved = client.resolve(term)
        candidates = resolved.get("candidates") or []
        if len(candidates) > 1 and not json:
            output.warn(f"{term!r} is ambiguous; in a subscription, write one of these")
            output.table(("label", "IRI"), [(str(each.get("label", "")), each["iri"]) for each in candidates])
            return
        if not candidates:
            raise CommandFailed(f"no concept is called {term!r}.", f"Look for it: kindcast concept find {term!r}")
        concept = candidates[0]
        ancestors = client.ancestors(concept["iri"])["concepts"]
        children = client.children(concept["iri"])["concepts"]
    if json:
        output.print_json({**concept, "ancestors": ancestors, "children": children})
        return
    _print_concept(concept, ancestors, children, lang)


def _print_concept(
    concept: Mapping[str, Any],
    ancestors: Sequence[Mapping[str, Any]],
    children: Sequence[Mapping[str, Any]],
    lang: str | None,
) -> None:
    output.paragraph(_label(concept, lang), "bold")
    output.paragraph(concept["iri"], "dim")
    if concept.get("definition"):
        output.paragraph(str(concept["definition"]))
    for replaced in concept.get("replaced", ()):
        output.warn(f"{replaced} is deprecated")
    by_language: dict[str, list[str]] = {}
    for label in [*concept.get("labels", ()), *concept.get("synonyms", ())]:
        by_language.setdefault(label.get("lang") or "", []).append(str(label["value"]))
    output.table(("language", "labels and synonyms"), [(lang, ", ".join(words)) for lang, words in by_language.items()])
    for name, related in (("broader", ancestors), ("narrower", children)):
        output.paragraph(f"{name}: {', '.join(_label(each, lang) for each in related) or 'none'}")


def _label(concept: Mapping[str, Any], lang: str | None) -> str:
    """Returns the label in a language if there is one, else the label that the server chose."""
    for label in concept.get("labels", ()) if lang else ():
        if label.get("lang") == lang:
            return str(label["value"])
    return str(concept.get("label", concept["iri"]))


def _hit(found: Mapping[str, Any]) -> str:
    matched = found.get("matched") or found.get("label", "")
    if isinstance(matched, dict):
        tongue = f" ({matched['lang']})" if matched.get("lang") else ""
        return f"{matched['value']}{tongue}"
    return str(matched)
