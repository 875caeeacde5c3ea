"""The commands `kindcast match` and `explain`, which need no server, and `kindcast backtest`, which uses one."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text
from rich.tree import Tree

from kindcast.semantic.errors import InvalidEvent, InvalidSubscription
from kindcast.server.cli import output
from kindcast.server.cli.completion import expressions, ontology_files
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, connected
from kindcast.server.cli.documents import (
    Reasoning,
    RelationsOption,
    file_at,
    json_file,
    lines_of_all,
    listed,
    one_event,
    ontology_path,
    read_ontology,
)
from kindcast.server.cli.output import CommandFailed, InExpression
from kindcast.server.cli.spark import run_job
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.semantic import Event, Matcher, Vocabulary
    from kindcast.server.client import Client

__all__ = [
    "backtest",
]

# Rendering of explanations: why an event matched or did not, as a tree of clauses, predicates and values.


OUTCOMES: Final[Mapping[bool | None, str]] = {True: "match", False: "no match", None: "undecided"}
VERDICTS: Final[Mapping[bool | None, tuple[str, str]]] = {
    True: ("yes  ", "bold green"),
    False: ("no   ", "bold red"),
    None: ("open ", "bold yellow"),
}


def show(explanation: Mapping[str, Any]) -> None:
    """Prints the tree, then the summary, and what else happened to a published event."""
    output.screen().print(draw(explanation))
    output.paragraph(explanation["summary"], "bold")
    for text in explanation.get("circumstances", ()):
        output.warn(str(text))
    for note in explanation.get("notes", ()):
        output.warn(f"{note['attribute']}: {note['detail']}" if note.get("attribute") else str(note["detail"]))


def draw(explanation: Mapping[str, Any]) -> Tree:
    """Returns the explanation as a tree. Each line starts with yes, no, or open."""
    tree = Tree(_verdict(explanation["matches"], OUTCOMES[explanation["matches"]]))
    clauses = explanation["clauses"]
    for clause in clauses:
        # A single clause needs no branch.
        branch = tree if len(clauses) == 1 else tree.add(_verdict(clause["matches"], "this alternative"))
        for predicate in clause["predicates"]:
            leaf = branch.add(_verdict(predicate["verdict"], str(predicate["text"])))
            for value in predicate["values"]:
                leaf.add(_value(value))
            if not predicate["values"]:
                leaf.add(Text(str(predicate["reason"]), style="dim"))
    return tree


def _value(value: dict[str, Any]) -> Text:
    published = value["published"]
    said = published if isinstance(published, str) else json.dumps(published, ensure_ascii=False)
    text = Text(f"published {said}")
    meant, *above = value.get("path") or [published]
    if meant != published:
        text.append("  means  ", style="dim")
        text.append(meant, style="cyan")
    if above:
        text.append("  a kind of  ", style="dim")
        text.append(" → ".join(above), style="cyan")
    return text


def _verdict(verdict: bool | None, told: str) -> Text:
    return Text.assemble(VERDICTS[verdict], told)


# ── offline ───────────────────────────────────────────────────────────────────────────────────────────────────────────


ENGINES = ("counting", "ctps", "dexin", "equality", "fused", "matching_tree", "naive", "quarantine")
"""The engines of `kindcast.index.registry`, which is imported only by the command that uses one."""

OntologyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ontology",
        metavar="FILE",
        autocompletion=ontology_files,
        help="An ontology; several make one vocabulary. Without one, expressions cannot name concepts.",
    ),
]
DeclarationsOption = Annotated[
    str | None,
    typer.Option(
        "--declarations",
        metavar="FILE",
        help="JSON: attributes, synonyms, rates and other declarations, as for kindcast spark match.",
    ),
]
SubscriptionsOption = Annotated[
    list[str], typer.Option("--subscription", metavar="TEXT", help="A subscription; may be given several times.")
]
EventOption = Annotated[
    list[str],
    typer.Option(
        "--event", metavar="FILE", help="A file of events (JSON, NDJSON, CloudEvents), - for standard input, or JSON."
    ),
]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="NAME", help=f"The engine of the index: {', '.join(ENGINES)}.")
]


def match_offline(
    subscription: SubscriptionsOption,
    event: EventOption,
    ontology: OntologyOption = None,
    engine: EngineOption = "fused",
    relations: RelationsOption = "",
    declarations: DeclarationsOption = None,
    json: JsonOption = False,
) -> None:
    """Match events against subscriptions without a server, event by event."""
    from kindcast.semantic import Matcher
    from kindcast.semantic.matching import warm_up_beside

    warm_up_beside()  # a few events are matched before a compiler is loaded
    matcher = Matcher(_vocabulary(ontology or (), listed(relations), declarations), engine=engine)
    for number, text in enumerate(subscription, 1):
        _add(matcher, str(number), text)
    seen = bad = 0
    for line in lines_of_all(event):
        seen += 1
        try:
            if line.event is None:
                raise CommandFailed(line.problem)
            told = [
                (each, [match.subscription for match in matcher.match(each)])
                for each in matcher.events_of(_event(line.event))
            ]
        except (CommandFailed, InvalidEvent) as error:
            bad += 1
            output.show(CommandFailed(f"event {line.number}: {error}"))
            continue
        for event_of_line, found in told:
            id = str(event_of_line.context["id"]) if len(told) > 1 else None
            _show_matches(line.number, id, found, subscription, json)
    if bad:
        raise CommandFailed(f"{bad} of {seen} events could not be read.")
    if not seen:
        raise CommandFailed(f"there is no event in {', '.join(event)}.")


def explain_offline(
    subscription: Annotated[str, typer.Option("--subscription", metavar="TEXT", help="The subscription.")],
    event: EventOption,
    ontology: OntologyOption = None,
    lang: Annotated[str, typer.Option(metavar="TAG", help="The language of labels.")] = "en",
    relations: RelationsOption = "",
    declarations: DeclarationsOption = None,
    json: JsonOption = False,
) -> None:
    """Say why an event matches a subscription, or why it does not, without a server."""
    from kindcast.semantic import Matcher, explain
    from kindcast.semantic.matching import warm_up_beside

    subscription.encode()  # `main` names the argument if it is no text
    warm_up_beside()
    vocabulary = _vocabulary(ontology or (), listed(relations), declarations)
    try:
        published = _event(one_event(event))
    except InvalidEvent as error:
        raise CommandFailed(f"the event cannot be read: {error}") from error
    try:
        parts = Matcher(vocabulary).events_of(published)
        explained = [explain(vocabulary, subscription, each, language=lang) for each in parts]
    except InvalidSubscription as error:
        raise output.InExpression(error, subscription) from error
    except InvalidEvent as error:
        raise CommandFailed(f"the event cannot be read: {error}") from error
    ids = [str(each.context["id"]) for each in parts] if len(parts) > 1 else [""]
    if json:
        several = {"events": [{"id": id} | told for id, told in zip(ids, explained, strict=True)]}
        output.print_json(several if len(parts) > 1 else explained[0])
        return
    for id, told in zip(ids, explained, strict=True):
        if id:
            output.paragraph(f"event {id}", "bold")
        show(told)


def _event(value: dict[str, Any]) -> "Event":
    """Returns an event as the server reads it: a CloudEvent in the JSON format, or the data of an event, which gets the
    same source and type as on a server, but no id. Raises `InvalidEvent`."""
    from kindcast.semantic import Event
    from kindcast.server.cloudevents import DEFAULTS, SPECVERSION, EventReader

    if "specversion" in value:
        return EventReader(max_events=1).from_object(value).event
    return Event(value, {"specversion": SPECVERSION, **DEFAULTS})


def _vocabulary(files: Sequence[str], relations: Sequence[str], declarations: str | None) -> "Vocabulary":
    from kindcast.semantic import Vocabulary

    paths = [read_ontology(each) for each in files]
    declared = {} if declarations is None else _declared(declarations)
    with output.errors().status("reading " + (", ".join(path.name for path in paths) or "no ontology") + " …"):
        return Vocabulary.from_files(*paths, relations=relations, **declared)


def _declared(declarations: str) -> dict[str, Any]:
    from kindcast.semantic.vocabulary import arguments_of

    return arguments_of(json_file(declarations))


def _add(matcher: "Matcher", id: str, text: str) -> None:
    text.encode()  # `main` names the argument if it is no text
    try:
        compiled = matcher.add(id, text)
    except InvalidSubscription as error:
        raise output.InExpression(error, text) from error
    for note in compiled.notes:
        output.warn(note.detail)


def _show_matches(number: int, id: str | None, found: list[str], texts: Sequence[str], json: bool) -> None:
    """Shows the matches of an event. `id` is given if its line has several events."""
    where = f"event {number}  " if id is None else f"event {number}, {id}  "
    if json:
        said = {"event": number} | ({} if id is None else {"id": id})
        output.print_json(said | {"matches": [texts[int(each) - 1] for each in found]})
    elif found:
        for each in found:
            output.screen().print(
                Text.assemble(where, ("matches", "bold green"), f"  {output.expression(texts[int(each) - 1])}"),
                soft_wrap=True,
            )
    else:
        output.screen().print(Text.assemble(where, ("no match", "dim")), soft_wrap=True)


WAIT_SECONDS = 0.2


def backtest(
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", autocompletion=expressions, help="The expression to test.")
    ],
    server: Annotated[
        str, typer.Option("--server", envvar="KINDCAST_SERVER", metavar="URL", help="The server whose events are used.")
    ] = DEFAULT_SERVER,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events accepted at or after this time (RFC 3339).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events accepted before this time (RFC 3339).")
    ] = None,
    version: Annotated[
        list[str] | None,
        typer.Option(
            "--version", metavar="NAME=NUMBER", help="Use this version of an ontology; may be given several times."
        ),
    ] = None,
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="PATH", help="Use an archive instead of a server; runs Spark.")
    ] = None,
    ontology: Annotated[
        list[str] | None,
        typer.Option("--ontology", metavar="FILE", autocompletion=ontology_files, help="With --archive: an ontology."),
    ] = None,
    relations: Annotated[
        str, typer.Option(metavar="NAMES", help="With --archive: relations, as for kindcast spark match.")
    ] = "",
    reason: Annotated[
        Reasoning, typer.Option(help="With --archive: what to infer, as for kindcast spark match.")
    ] = Reasoning.NONE,
    time_from: Annotated[
        str | None,
        typer.Option("--time", metavar="NAME", help="With --archive: the member that holds the time of plain JSON."),
    ] = None,
    numbers: Annotated[
        str, typer.Option(metavar="NAMES", help="With --archive: columns of CSV that hold numbers.")
    ] = "",
    declarations: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With --archive: declarations, as for kindcast spark match."),
    ] = None,
    lang: Annotated[str, typer.Option(metavar="TAG", help="The language of labels.")] = "en",
    json: JsonOption = False,
) -> None:
    """Show how often an expression would have matched stored events: on which days, with samples, and how many events
    each part of it excludes."""
    of_archive = {"--time": time_from, "--numbers": numbers, "--declarations": declarations, "--relations": relations}
    of_archive["--reason"] = reason.value if reason is not Reasoning.NONE else None
    _refuse({"--since": since, "--until": until, "--version": version}, archive is not None, "cannot be used with")
    _refuse({"--ontology": ontology, **of_archive}, archive is None, "needs")
    if archive is not None:
        if declarations is not None:
            file_at(declarations, "Give the path of a file on this machine.")
        files = [part for path in ontology or [] for part in ("--ontology", ontology_path(path))]
        given = [part for name, value in of_archive.items() if value for part in (name, value)]
        asked = [f"--expression={expression}", f"--language={lang}"]  # either may begin with a dash
        report: Mapping[str, Any] = run_job(["backtest", "--archive", archive, *files, *given, *asked])
    else:
        with connected(server) as client:
            try:
                report = _by_server(client, expression, since, until, version or [], lang)
            except ProblemError as error:
                raise InExpression(error, expression) from error
    if json:
        output.print_json(report)
    else:
        _show(report)


def _refuse(options: Mapping[str, Any], refused: bool, why: str) -> None:
    """Raises `BadParameter` if an option is given that would have no effect."""
    for name, value in options.items():
        if refused and value:
            raise typer.BadParameter(f"{name} {why} --archive", param_hint=name)


def _by_server(
    client: "Client", expression: str, since: str | None, until: str | None, versions: list[str], lang: str
) -> Mapping[str, Any]:
    body: dict[str, Any] = {"expression": expression}
    body |= {name: value for name, value in (("since", since), ("until", until)) if value}
    if versions:
        body["ontologies"] = {}
        for each in versions:
            name, _, number = each.partition("=")
            if not number.isdigit():
                raise CommandFailed(f"{each!r} does not name a version of an ontology.", "Write it as shop=2.")
            body["ontologies"][name] = int(number)
    with output.progress() as bar:
        task = bar.add_task("backtest", total=None)
        job = client.start_backtest(body, lang=lang)
        while job["status"] == "running":
            told = job["progress"]
            bar.update(task, description=told["stage"], completed=told["done"], total=told["total"])
            time.sleep(WAIT_SECONDS)
            job = client.backtest(job["id"])
    if job["status"] == "failed":
        raise ProblemError.of(job["problem"])
    return job["result"]


def _show(report: Mapping[str, Any]) -> None:
    screen = output.screen()
    screen.print(Text(output.expression(report["canonical"]), style="bold"), soft_wrap=True)
    unread = f", {report['unreadable']:,} could not be read" if report["unreadable"] else ""
    open_ones = f", {report['undecided']:,} could not be decided" if report["undecided"] else ""
    output.paragraph(f"{report['matched']:,} of {report['events']:,} events match{unread}{open_ones}")
    if report["days"]:
        most = max(1, *(each["matched"] for each in report["days"]))
        rows = [
            [each["day"], f"{each['matched']:,}", f"{each['events']:,}", "█" * round(30 * each["matched"] / most)]
            for each in report["days"]
        ]
        output.table(["day", "matched", "events", ""], rows)
    for number, clause in enumerate(report["clauses"], 1):
        title = "predicate" if len(report["clauses"]) == 1 else f"predicate of clause {number}"
        rows = [
            [each["text"], f"{each['holds']:,}", f"{each['left']:,}", f"{each['cuts']:,}"]
            for each in clause["predicates"]
        ]
        output.table([title, "holds for", "left so far", "it alone excludes"], rows)
    for sample in report["samples"]:
        output.paragraph(f"{sample['day']}  {sample['source']} {sample['id']}")
        output.paragraph(f"  {sample['explanation']['summary']}", style="dim")
