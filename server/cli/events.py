"""The commands `kindcast publish`, `events`, `trace`, `why`, `dead-letters` and `archive export`: send events, follow
them, and take them out."""

import json as json_text
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.completion import ids
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import Line, OutputOption, event_lines, tell_written, write_lines
from kindcast.server.cli.matching import show as show_explanation
from kindcast.server.cli.output import CommandFailed, group, page
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = [
    "archive",
    "dead_letters",
    "events",
    "publish",
    "trace",
    "why",
]

BATCH = 500
"""The number of events of one request: large enough that the commit costs little per event, and small enough to show
progress."""
SHOWN_EVENTS = 10
"""The maximum number of events that are reported one by one. For more, only the totals are shown."""
TOO_LARGE = 413
"""The status of an answer to a request that is too large."""


def publish(
    events: Annotated[
        str, typer.Argument(metavar="EVENTS", help="A file (JSON, NDJSON), - for standard input, or the JSON itself.")
    ],
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="The CloudEvents type of plain JSON.")] = None,
    source: Annotated[str | None, typer.Option(metavar="URI", help="The CloudEvents source of plain JSON.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Publish events. If the command ends without an error, they are on the server's disk."""
    context = {name: value for name, value in (("type", type), ("source", source)) if value is not None}
    tally = Tally()
    with connected(server, repeating=True) as client, ExitStack() as stack:
        bar = stack.enter_context(output.progress())
        task = bar.add_task("publishing", total=None)
        stack.enter_context(_told_how_far(tally))
        for lines in _batches(event_lines(events), _has_more if events == "-" else lambda: True):
            _send(client, lines, context, tally, json)
            bar.advance(task, len(lines))
    if not json:
        tally.show()
    if tally.refused:
        rest = "; the others were" if tally.accepted or tally.duplicates else ""
        were = "event was" if tally.refused == 1 else "events were"
        raise CommandFailed(f"{tally.refused:,} {were} not accepted{rest}.")
    if not tally.read:
        raise CommandFailed(f"there is no event in {'standard input' if events == '-' else events}.")


@dataclass
class Tally:
    """The results so far; matches are those of the accepted events. `told` are the first answers, which are shown."""

    read: int = 0
    accepted: int = 0
    duplicates: int = 0
    matched: int = 0
    later: bool = False
    """Whether shards match the events after this answer."""
    undecided: int = 0
    refused: int = 0
    last: int = 0
    """The number of the last event that the server has answered."""
    sent: int = 0
    """The number of the last event that was sent."""
    told: list[dict[str, Any]] = field(default_factory=list)

    def take(self, answer: Mapping[str, Any]) -> None:
        """Adds the answer to one request."""
        self.accepted += int(answer.get("accepted") or 0)
        self.duplicates += _count_of_published(answer.get("duplicates"))
        self.later |= "matched" in answer and answer["matched"] is None
        for event in answer.get("events") or ():
            if not event.get("duplicate"):
                self.matched += int(event.get("matched") or 0)
                self.undecided += int(event.get("undecided") or 0)
            if len(self.told) <= SHOWN_EVENTS:
                self.told.append(event)

    def show(self) -> None:
        """Shows the totals, and each event if there are few."""
        twice = f", {self.duplicates:,} already known" if self.duplicates else ""
        open = f", {self.undecided:,} undecided" if self.undecided else ""
        found = "to be matched by the shards" if self.later else f"{output.plural(self.matched, 'match', 'es')}{open}"
        output.paragraph(f"accepted {output.plural(self.accepted, 'event')}{twice}, {found}")
        if self.undecided:
            output.hint("Undecided: subscriptions whose operators have not answered yet; their matches follow.")
        if len(self.told) > SHOWN_EVENTS:
            return
        for event in self.told:
            number = f"{event['sequence']}  " if "sequence" in event else ""
            found = "" if self.later else f": {output.plural(int(event.get('matched') or 0), 'match', 'es')}"
            output.paragraph(f"  {number}{event['id']}{found}", "dim")
            for note in event.get("notes") or ():
                output.warn(str(note.get("detail", note)) if isinstance(note, dict) else str(note))


@contextmanager
def _told_how_far(tally: Tally) -> Iterator[None]:
    """A context manager that says, if publishing ends early, which events should not be published again."""
    try:
        yield
    except BaseException as error:
        told = f"the server has answered events 1 to {tally.last:,}. " if tally.last else ""
        if tally.sent > tally.last and not (isinstance(error, ProblemError) or _is_nowhere(error, tally)):
            unknown = f"Whether it accepted events {tally.last + 1:,} to {tally.sent:,} is not known"
            told += f"{unknown}: kindcast events lists what it has. "
        if told:
            output.warn(f"{told}Publish only the others again: events without an id would be accepted twice.")
        raise


def _is_nowhere(error: BaseException, tally: Tally) -> bool:
    """Whether no server was ever there."""
    import httpx

    return not tally.last and isinstance(error.__cause__, httpx.ConnectError)


def _batches(lines: Iterator[Line], may_wait: Callable[[], bool]) -> Iterator[list[Line]]:
    """Yields the lines in batches. A batch ends before its time if the program should not wait for more lines."""
    batch: list[Line] = []
    for line in lines:
        batch.append(line)
        if len(batch) == BATCH or not may_wait():
            yield batch
            batch = []
    if batch:
        yield batch


def _has_more() -> bool:
    """Whether standard input has more to read now. If not, what it had is published: somebody may be typing."""
    try:
        return bool(select.select([sys.stdin], [], [], 0.0)[0])
    except (OSError, ValueError):  # it is no file
        return False


def _send(client: "Client", lines: list[Line], context: dict[str, str], tally: Tally, json: bool) -> None:
    tally.read += len(lines)
    good: list[tuple[int, dict[str, Any]]] = []
    for line in lines:
        if line.event is None:
            _refuse(tally, line.number, CommandFailed(line.problem), json)
        else:
            good.append((line.number, line.event))
    if good:
        _send_good(client, good, context, tally, json)
        tally.last = lines[-1].number


def _send_good(
    client: "Client", events: list[tuple[int, dict[str, Any]]], context: dict[str, str], tally: Tally, json: bool
) -> None:
    """Publishes events in one request or, if it is too large for the server or a proxy, in halves."""
    tally.sent = events[-1][0]
    try:
        answer = _answer(client, [event for _, event in events], context)
    except ProblemError as error:
        if error.status != TOO_LARGE:
            raise
        if len(events) == 1:
            _refuse(tally, events[0][0], error, json)
            return
        half = len(events) // 2
    else:
        tally.take(answer)
        tally.last = events[-1][0]
        tally.refused += len(events) - int(answer["accepted"] or 0) - _count_of_published(answer["duplicates"])
        for refusal in answer["rejected"]:
            _tell(events[refusal["index"]][0], ProblemError.of(refusal["problem"]), json)
        if json:
            output.print_json(answer)
        return
    _send_good(client, events[:half], context, tally, json)
    _send_good(client, events[half:], context, tally, json)


def _refuse(tally: Tally, number: int, error: Exception, json: bool) -> None:
    tally.refused += 1
    _tell(number, error, json)


def _tell(number: int, error: Exception, json: bool) -> None:
    """Says why an event was not accepted; for programs, as a problem with the number of the event."""
    if json:
        output.print_json_error({"event": number, **output.as_json(error)})
    else:
        output.show(error, f"event {number}")


def _answer(client: "Client", events: list[dict[str, Any]], context: dict[str, str]) -> Mapping[str, Any]:
    """Returns the answer of the server, also if it accepts none of the events: others may follow."""
    try:
        return client.publish(events, **context)
    except ProblemError as error:
        if "rejected" not in error.document:
            raise
        return {"accepted": 0, "duplicates": 0, "matched": 0, "rejected": error.document["rejected"], "events": []}


def _count_of_published(value: Any) -> int:
    return len(value) if isinstance(value, list) else int(value or 0)


LONGEST = 100
"""The maximum number of characters of an event's data in a table."""

EventArgument = Annotated[
    str, typer.Argument(metavar="EVENT", help="The number of the event. kindcast publish and kindcast events show it.")
]


def events(
    after: Annotated[str, typer.Option(metavar="CURSOR", help="Start after this event; 0 starts at the oldest.")] = "0",
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="Only events of this CloudEvents type.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, metavar="COUNT", help="The largest number of events.")] = 20,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """List the events that the server accepted and still stores, oldest first."""
    with connected(server) as client:
        page = client.events(after=after, type=type, limit=limit)
    if json:
        output.print_json(page)
        return
    if not page["events"]:
        if after != "0" or type is not None:
            output.hint("There are no such events.")
            return
        output.hint('There are no events yet: kindcast publish \'{"target": "laptop", "price": 350}\'')
        return
    rows = [
        (str(each["sequence"]), output.ago(each["accepted_at"]), _count(each["matched"]), _data(each["event"]))
        for each in page["events"]
    ]
    output.table(("event", "accepted", "matches", "data"), rows)
    if len(rows) == limit:
        filtered = "" if type is None else f" --type {output.word(type)}"
        output.hint(f"There may be more: kindcast events --after {page['cursor']}{filtered}")


def trace(event: EventArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Follow one event: its matches, and every delivery that was tried."""
    with connected(server) as client:
        found = client.trace(_sequence(event))
    if json:
        output.print_json(found)
        return
    output.paragraph(_data(found["event"]), "bold")
    rows = [("accepted", str(found["accepted_at"])), ("matches", _count(found["matched"]))]
    output.table(("", ""), [*rows, ("vocabulary", str(found["vocabulary_version"]))])
    for note in found["notes"]:
        output.warn(str(note["detail"]))
    for each in found["undecided"]:
        end = "given up; see kindcast operators retry" if each["state"] == "given_up" else "it is tried again"
        output.warn(f"{each['subscription']}: undecided, {each['reason']} ({end})")
    deliveries = [
        (
            str(each["subscription"]),
            str(each["by"]),
            str(each["state"]),
            "; ".join(f"{one['outcome']}: {one['detail']}" for one in each["attempts"][-3:]),
        )
        for each in found["deliveries"]
    ]
    if deliveries:
        output.table(("subscription", "by", "state", "attempts"), deliveries)
        output.hint(f"Why one of them matched: kindcast why {event} {deliveries[0][0]}")


def why(
    event: EventArgument,
    subscription: Annotated[
        str, typer.Argument(metavar="SUBSCRIPTION", autocompletion=ids, help="The id of the subscription.")
    ],
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Explain why an accepted event matched a subscription, or why it did not."""
    with connected(server) as client:
        found = client.trace(_sequence(event), subscription=subscription)
    explanation = found.get("explanation")
    if explanation is None:
        raise CommandFailed(f"the server has no explanation for event {event} and subscription {subscription}.")
    if json:
        output.print_json(explanation)
        return
    output.paragraph(_data(found["event"]), "dim")
    for each in explanation.get("events") or [explanation]:
        if each.get("id"):
            output.paragraph(f"event {each['id']}", "bold")
        show_explanation(each)


def dead_letters(
    subscription: Annotated[
        str | None, typer.Argument(metavar="ID", autocompletion=ids, help="Only dead letters of this subscription.")
    ] = None,
    redrive: Annotated[bool, typer.Option("--redrive", help="Send the messages of this subscription again.")] = False,
    ticket: Annotated[
        str | None, typer.Option(envvar="KINDCAST_TICKET", metavar="TICKET", help="With --redrive: the ticket.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """List the messages of sinks that were disabled by failures; or send them again (--redrive)."""
    if redrive and subscription is None:
        raise typer.BadParameter("name the subscription whose messages to send again", param_hint="ID")
    with connected(server) as client:
        if redrive:
            assert subscription is not None
            answer: Mapping[str, Any] = client.redrive(subscription, ticket=ticket)
        else:
            answer = client.dead_letters(subscription=subscription)
            if not json:
                _show_dead_letters(answer, client.dead_letters(subscription=subscription, cursor=answer["cursor"]))
    if json:
        output.print_json(answer)
    elif redrive:
        sent = output.plural(answer["redriven"], "message")
        output.paragraph(f"{sent} {'is' if answer['redriven'] == 1 else 'are'} sent again", "bold green")


def _show_dead_letters(answer: Mapping[str, Any], following: Mapping[str, Any]) -> None:
    """Shows one page of dead letters. `following` is the next page, which may be empty."""
    if not answer["dead_letters"]:
        output.hint("There are no dead letters.")
        return
    rows = [
        (str(each["subscription"]), str(each["cursor"]), str(each["reason"] or ""), _data(each["event"]))
        for each in answer["dead_letters"]
    ]
    output.table(("subscription", "cursor", "reason", "data"), rows)
    if following["dead_letters"]:
        output.hint("There are more. Programs read all pages with the cursor of --json.")


archive = group("archive", "Write the stored events of a server as an archive, for Spark and other programs.")

PAGE = 1_000
"""The number of events of one request of an export."""


@archive.command(
    "export",
    epilog=page(
        "kindcast archive export --output events.ndjson.gz",
        "kindcast archive export --after 1000 --type offer > offers.ndjson",
    ),
)
def export_events(
    to: OutputOption = None,
    after: Annotated[str, typer.Option(metavar="EVENT", help="Start after the event with this number.")] = "0",
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="Only those of this CloudEvents type.")] = None,
    received: Annotated[
        bool,
        typer.Option(
            "--received",
            help="Add the time at which the server accepted an event, as its attribute received. "
            "Spark then matches ce.received as the server does.",
        ),
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Write the events that the server still stores, oldest first, one CloudEvent per line. kindcast spark reads such
    files, and kindcast publish accepts them."""
    with connected(server) as client, output.progress() as bar:
        task = bar.add_task("events", total=None)

        def lines() -> Iterator[str]:
            at = after
            while (found := client.events(after=at, type=type, limit=PAGE, received=received))["events"]:
                for each in found["events"]:
                    yield json_text.dumps(each["event"], ensure_ascii=False)
                at = str(found["cursor"])
                bar.advance(task, len(found["events"]))

        count = write_lines(to, lines())
    tell_written(count, "event", to, json)


def _sequence(event: str) -> str:
    if not event.isdecimal():
        raise typer.BadParameter(
            f"{event!r} is not the number of an event; kindcast events lists them", param_hint="EVENT"
        )
    return event


def _count(matched: int | None) -> str:
    """Returns the number of subscriptions that got an event. It is hidden if attributes are hidden from the key."""
    return "–" if matched is None else str(matched)


def _data(event: Any) -> str:
    text = json_text.dumps(event.get("data", event), ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
