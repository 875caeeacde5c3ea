"""The commands `kindcast events`, `trace`, `why` and `dead-letters`: what was accepted, and what became of it."""

import json as json_text
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.completion import ids
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.offline import show as show_explanation
from kindcast.server.cli.problems import CommandFailed

__all__ = ["dead_letters", "events", "trace", "why"]

LONGEST = 100
"""Characters of an event's data that a table shows."""

EventArgument = Annotated[
    str, typer.Argument(metavar="EVENT", help="Its number, as kindcast publish and kindcast events show it.")
]


def events(
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Start after this event; 0 starts at the oldest.")
    ] = "0",
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="Only those of this CloudEvents type.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, metavar="COUNT", help="The largest number of events.")] = 20,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """List the events that the server accepted and still keeps, oldest first."""
    with connected(server) as client:
        page = client.events(after=after, type=type, limit=limit)
    if json:
        output.print_json(page)
        return
    if not page["events"]:
        output.hint('There are no events yet: kindcast publish \'{"target": "laptop", "price": 350}\'')
        return
    rows = [
        (str(each["sequence"]), output.ago(each["accepted_at"]), _count(each["matched"]), _data(each["event"]))
        for each in page["events"]
    ]
    output.table(("event", "accepted", "matches", "data"), rows)
    if len(rows) == limit:
        output.hint(f"There may be more: kindcast events --after {page['cursor']}")


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
        output.warn(f"{each['subscription']}: undecided, {each['reason']}")
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
    """Say why an event that was accepted matched a subscription, or why it did not."""
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
        str | None, typer.Argument(metavar="ID", autocompletion=ids, help="Only those of this subscription.")
    ] = None,
    redrive: Annotated[bool, typer.Option("--redrive", help="Send the messages of this subscription again.")] = False,
    ticket: Annotated[
        str | None, typer.Option(envvar="KINDCAST_TICKET", metavar="TICKET", help="With --redrive: the ticket.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """List the messages that webhooks did not accept before they were disabled; or send them again (--redrive)."""
    if redrive and subscription is None:
        raise typer.BadParameter("name the subscription whose messages are sent again", param_hint="ID")
    with connected(server) as client:
        if redrive:
            assert subscription is not None
            answer: Mapping[str, Any] = client.redrive(subscription, ticket=ticket)
        else:
            answer = client.dead_letters(subscription=subscription)
    if json:
        output.print_json(answer)
    elif redrive:
        output.paragraph(f"{answer['redriven']} messages are sent again", "bold green")
    elif not answer["dead_letters"]:
        output.hint("There are no dead letters.")
    else:
        rows = [
            (str(each["subscription"]), str(each["cursor"]), str(each["reason"] or ""), _data(each["event"]))
            for each in answer["dead_letters"]
        ]
        output.table(("subscription", "cursor", "reason", "data"), rows)


def _sequence(event: str) -> str:
    if not event.isdecimal():
        raise typer.BadParameter(
            f"{event!r} is not the number of an event; kindcast events lists them", param_hint="EVENT"
        )
    return event


def _count(matched: int | None) -> str:
    """Subscriptions that got an event; not told where attributes are hidden from the key."""
    return "–" if matched is None else str(matched)


def _data(event: Any) -> str:
    text = json_text.dumps(event.get("data", event), ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
