"""The commands `kindcast subscribe` and `kindcast subscriptions`: create, manage, export and import subscriptions."""

import json as json_text
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from kindcast.server.cli import output
from kindcast.server.cli.completion import expressions, ids
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, TicketOption, connected
from kindcast.server.cli.documents import OutputOption, open_for_owner, tell_written, text_lines, writable, write_lines
from kindcast.server.cli.output import CommandFailed, InExpression, group, page
from kindcast.server.client import ProblemError
from kindcast.server.connectors.broker_url import SCHEMES

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["LifeOption", "commands", "seconds", "subscribe"]

commands = group(
    "subscriptions", "List subscriptions, and show, renew, pause, resume, replay or delete them.", no_args_is_help=False
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", autocompletion=ids, help="The subscription.")]
PASSWORD = "KINDCAST_SINK_PASSWORD"
"""The variable with the password of a sink. An option would be visible in the list of processes."""
SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}


def seconds(text: str) -> float:
    """Parses a duration: `90`, `90s`, `15min`, `12h`, `7d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)?", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 15min, 12h or 7d")
    return float(match[1]) * SECONDS[match[2] or "s"]


def _tree(text: str) -> dict[str, Any]:
    try:
        tree = json_text.loads(text)
    except json_text.JSONDecodeError as error:
        raise typer.BadParameter(f"not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(tree, dict):
        raise typer.BadParameter('a tree must be a JSON object, such as {"isa": ["target", "Computer"]}')
    return tree


LifeOption = Annotated[
    float | None, typer.Option("--ttl", metavar="TIME", parser=seconds, help="The lifetime: 90s, 15min, 12h, 7d.")
]


def subscribe(
    expression: Annotated[
        str | None,
        typer.Argument(
            metavar="EXPRESSION",
            autocompletion=expressions,
            help="The expression: 'target isa Computer and price <= 400'",
        ),
    ] = None,
    where: Annotated[
        dict[str, Any] | None,
        typer.Option(metavar="JSON", parser=_tree, help="The subscription as a JSON tree instead of text."),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Deliver to this address: a webhook, or a broker (mqtt://, kafka://, …)."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="HTTP, MQTT, NATS, AMQP or KAFKA; by default that of the sink's URL."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="The topic, subject, queue or exchange/key at the broker.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A setting of the protocol, such as mode=binary; may be given several times."
        ),
    ] = None,
    sink_user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The user at the sink; the password is in KINDCAST_SINK_PASSWORD."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name of your own, which the console shows.")
    ] = None,
    ttl: LifeOption = None,
    start_at: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Match stored events, too: earliest, or from a time (RFC 3339) or event number on."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Create a subscription. Every later event that matches is stored for it, and delivered if it has a sink."""
    if (expression is None) == (where is None):
        raise typer.BadParameter("give either an expression or --where with a tree", param_hint="EXPRESSION")
    more = _way(sink, protocol, topic, setting or [], sink_user)
    if name is not None:
        more["metadata"] = {"name": name}
    with connected(server, repeating=True) as client:
        try:
            past = {} if start_at is None else {"start_at": int(start_at) if start_at.isdecimal() else start_at}
            created = client.subscribe(expression, where=where, sink=sink, ttl_seconds=ttl, **past, **more)
        except ProblemError as error:
            if expression is None:
                raise
            raise InExpression(error, expression) from error
    if json:
        output.print_json(created)
        return
    if quiet:
        output.paragraph(created["id"])
        return
    _show_created(created)


def _way(
    sink: str | None, protocol: str | None, topic: str | None, settings: list[str], user: str | None
) -> dict[str, Any]:
    """Returns protocol, protocolsettings and sinkcredential of a sink."""
    if sink is None:
        if protocol or topic or settings or user:
            raise typer.BadParameter("give --sink as well", param_hint="--sink")
        return {}
    scheme = SCHEMES.get(sink.partition(":")[0].lower())
    name = protocol.upper() if protocol is not None else scheme.protocol if scheme is not None else None
    way: dict[str, Any] = {} if name is None else {"protocol": name}
    chosen: dict[str, Any] = {}
    for each in settings:
        member, mark, value = each.partition("=")
        if not mark:
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--setting")
        chosen[member] = json_text.loads(value) if re.fullmatch(r"\d{1,9}|true|false", value) else value
    if topic is not None:
        from kindcast.server.delivery.broker_sinks import BROKER_PROTOCOLS

        known = next((each for key, each in BROKER_PROTOCOLS.items() if key == name), None)
        if known is None:
            raise typer.BadParameter("only the sink of a broker has a topic", param_hint="--topic")
        chosen[known.place] = topic
    if chosen:
        way["protocolsettings"] = chosen
    if user is not None:
        password = os.environ.get(PASSWORD)
        if password is None:
            raise typer.BadParameter(f"put the password into the variable {PASSWORD}", param_hint="--sink-user")
        way["sinkcredential"] = {"credentialtype": "PLAIN", "identifier": user, "secret": password}
    return way


def _show_created(created: Mapping[str, Any]) -> None:
    rows = [("id", created["id"]), ("means", output.expression(created["canonical"])), ("ticket", created["ticket"])]
    if created.get("secret"):
        rows.append(("secret", created["secret"]))
    rows.append(("expires", output.ago(created.get("expires_at"))))
    if past := created.get("backfill"):
        rows.append(("past events", f"{past['matched']:,} of {past['events']:,} match"))
    output.paragraph("subscribed", "bold green")
    output.table(("", ""), rows)
    for note in created.get("notes") or ():
        output.warn(str(note.get("detail", note)) if isinstance(note, dict) else str(note))
    kept = "ticket and the secret: they are" if created.get("secret") else "ticket: it is"
    output.hint(f"Keep the {kept} not shown again.")
    if not created.get("sink"):
        output.hint(f"Next: kindcast listen {created['id']}")


@commands.callback(invoke_without_command=True, epilog=page("kindcast subscriptions"))
def list_all(context: typer.Context, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """List subscriptions, and renew, pause, resume, replay or delete them."""
    if context.invoked_subcommand is not None:
        return
    with connected(server) as client:
        answer = client.subscriptions()
    if json:
        output.print_json(answer)
        return
    found = answer["subscriptions"]
    if not found:
        output.hint("There is no subscription yet: kindcast subscribe 'target isa Computer and price <= 400'")
        return
    rows = [
        (
            each["id"],
            each["status"] + (", flagged" if each.get("flagged") else ""),
            output.expression(each["canonical"]),
            output.ago(each.get("expires_at")),
        )
        for each in found
    ]
    output.table(("id", "status", "means", "expires"), rows)
    if answer.get("cursor"):
        output.hint("There are more. Programs read all pages with the cursor of --json.")


@commands.command("show", epilog=page("kindcast subscriptions show sub_123"))
def show(id: IdArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show one subscription: its status, its counters and its last failure."""
    with connected(server) as client:
        found = client.subscription(id)
    _show(found, json)


@commands.command("renew", epilog=page("kindcast subscriptions renew sub_123 --ttl 7d --ticket TICKET"))
def renew(
    id: IdArgument,
    ttl: LifeOption = None,
    ticket: TicketOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Set how long a subscription lives from now on."""
    with connected(server) as client:
        _show(client.renew(id, ttl_seconds=ttl, ticket=ticket), json)


@commands.command("pause", epilog=page("kindcast subscriptions pause sub_123 --ticket TICKET"))
def pause(
    id: IdArgument, ticket: TicketOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Pause a subscription. Events published meanwhile are not kept for it."""
    with connected(server) as client:
        _show(client.pause(id, ticket=ticket), json)


@commands.command("resume", epilog=page("kindcast subscriptions resume sub_123 --ticket TICKET"))
def resume(
    id: IdArgument, ticket: TicketOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Resume a subscription that was paused, or disabled because its sink failed for too long."""
    with connected(server) as client:
        _show(client.resume(id, ticket=ticket), json)


@commands.command("rotate-secret", epilog=page("kindcast subscriptions rotate-secret sub_123 --ticket TICKET"))
def rotate_secret(
    id: IdArgument,
    overlap: Annotated[
        float | None,
        typer.Option(
            metavar="TIME", parser=seconds, help="How long deliveries are signed with the old secret as well: 12h, 7d."
        ),
    ] = None,
    ticket: TicketOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Get a new webhook secret. For a while, deliveries are signed with both secrets."""
    with connected(server) as client:
        _show(client.rotate_secret(id, overlap_seconds=overlap, ticket=ticket), json)


@commands.command("test", epilog=page("kindcast subscriptions test sub_123 --ticket TICKET"))
def send_test(
    id: IdArgument, ticket: TicketOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Send one test message to the sink; to a webhook it is signed. The exit status is 1 if it was not accepted."""
    with connected(server) as client:
        told = client.test_sink(id, ticket=ticket)
    if json:
        output.print_json(told)
    elif told["outcome"] == "delivered":
        status = told["status_code"]
        by = "the broker confirmed it" if status is None else f"the sink answered {status}"
        output.paragraph(f"delivered: {by} after {told['seconds']:.3f} s")
    else:
        output.warn(f"not delivered after {told['seconds']:.3f} s: {told['detail']}")
    if told["outcome"] != "delivered":
        raise typer.Exit(1)


@commands.command(
    "replay", epilog=page("kindcast subscriptions replay sub_123 --since 2026-11-23T08:00:00Z --ticket TICKET")
)
def replay(
    id: IdArgument,
    after: Annotated[str | None, typer.Option(metavar="CURSOR", help="Only messages after this cursor.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events accepted at or after this time (RFC 3339).")
    ] = None,
    ticket: TicketOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Deliver messages again, if the server still has them."""
    with connected(server) as client:
        _show(client.replay(id, after=after, since=since, ticket=ticket), json)


@commands.command("delete", epilog=page("kindcast subscriptions delete sub_123 --ticket TICKET"))
def delete(
    id: IdArgument, ticket: TicketOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Delete a subscription with its waiting messages."""
    with connected(server) as client:
        client.unsubscribe(id, ticket=ticket)
    if json:
        output.print_json({"id": id, "deleted": True})
    else:
        output.paragraph(f"deleted {id}")


def _show(found: Mapping[str, Any], json: bool) -> None:
    if json:
        output.print_json(found)
        return
    rows = [
        (name.replace("_", " "), _told(name, value)) for name, value in found.items() if value not in (None, [], {})
    ]
    output.table(("", ""), rows)


def _told(name: str, value: Any) -> str:
    if name.endswith("_at"):
        return f"{value} ({output.ago(value)})"
    if name in ("expression", "canonical"):
        return output.expression(value)
    return value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False)


# ── export and import, as lines of JSON (NDJSON) ──────────────────────────────────────────────────────────────────────

LINES, CHARACTERS = 5_000, 4 << 20
"""The maximum size of one request of an import: below the default limits of a server."""
REQUESTS = 2
"""The number of prepared requests of an import: while the server works on one, the next is read from the file. They are
sent one after another, because two at the same time compete for the server's interpreter and take longer."""
IMPORT_SECONDS = 300.0


@commands.command(
    "export",
    epilog=page(
        "kindcast subscriptions export --output wishes.ndjson",
        "kindcast subscriptions export | kindcast subscriptions import - --server http://127.0.0.1:9000",
    ),
)
def export_subscriptions(
    to: OutputOption = None,
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets", help="With webhook secrets, credentials and hashes of tickets; needs an administrator's key."
        ),
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Write all subscriptions in a form that can be imported, one per line. Secrets, credentials and tickets are left
    out unless --secrets is given: then ids and tickets stay valid after the import."""
    with connected(server) as client:
        answer = client.download("/v1/subscriptions/export", method="POST" if secrets else "GET")
        count = write_lines(to, _lines(answer), private=secrets)
    tell_written(count, "subscription", to, json)


@commands.command(
    "import",
    epilog=page(
        "kindcast subscriptions import wishes.ndjson --tickets tickets.ndjson",
        statuses="0 if every line became a subscription, 1 if a line was refused (the others are still imported).",
    ),
)
def import_subscriptions(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Lines of JSON (also gzip); - is standard input.")],
    tickets: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file for the tickets, as lines of JSON; by default they are printed."),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Goes on with an import of the same file that broke off: the key that it printed."
        ),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Create a subscription from each line, with a new id and ticket, unless the line has those of an export with
    --secrets. A line has the form of subscriptions export or of POST /v1/subscriptions. A line that is refused does not
    stop the others. If there is no answer, the lines are sent again, and each still becomes only one subscription."""
    made = refused = 0
    key = idempotency_key or str(uuid4())
    with connected(server, repeating=True) as client, _kept(tickets) as kept, output.progress() as bar:
        task = bar.add_task("subscriptions", total=None, visible=kept is not None)
        for start, answer in _answers(client, file, key):
            for each in answer["created"]:
                made += 1
                told = {
                    name: each[name] for name in ("line", "was", "id", "ticket", "secret") if each.get(name) is not None
                }
                told["line"] += start
                if kept is not None:
                    kept.write(json_text.dumps(told, ensure_ascii=False) + "\n")
                elif json:
                    output.print_json(told)
                else:
                    output.paragraph(f"{told.get('was', '')}  {told['id']}  {told.get('ticket', '')}".strip())
            for each in answer["rejected"]:
                refused += 1
                output.show(ProblemError.of(each["problem"]), f"line {each['line'] + start}")
            bar.update(task, completed=made)
    if kept is not None or not json:
        output.hint(f"imported {output.plural(made, 'subscription')}")  # some may have existed before
    if refused:
        raise CommandFailed(f"{output.plural(refused, 'line')} of {file} {'was' if refused == 1 else 'were'} refused.")
    if not made:
        raise CommandFailed(f"there is no subscription in {file}.")


def _answers(client: "Client", file: str, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Sends the lines of a file, and yields the answers in order, each with the number of lines before its request. If
    a request fails, no other is sent. The error is raised after the answers to those that were sent, because they have
    tickets. The request of a line depends on `key` and on the lines before it, so a repeated import makes nothing
    twice."""
    requests = _requests(text_lines(file))
    sent: deque[tuple[int, Future[dict[str, Any]]]] = deque()
    failure: Exception | KeyboardInterrupt | None = None
    answered = False
    with ThreadPoolExecutor(1) as pool:
        while True:
            try:
                while failure is None and len(sent) < REQUESTS and (request := next(requests, None)) is not None:
                    sent.append((request[0], pool.submit(_send, client, request[1], f"{key}/{request[0]}")))
                if not sent:
                    break
                start, answer = sent.popleft()
                told = answer.result()
            except (Exception, KeyboardInterrupt) as error:
                failure = failure or error
            else:
                answered = True
                yield start, told
    in_doubt = isinstance(failure, ConnectionError | TimeoutError | KeyboardInterrupt)
    in_doubt = in_doubt or (isinstance(failure, ProblemError) and failure.status >= 500)
    if in_doubt or (failure is not None and answered):
        output.hint(
            "It is unknown whether other lines became subscriptions. To go on without making any twice, send the same "
            f"file again with --idempotency-key {key}"
        )
    if failure is not None:
        raise failure


def _send(client: "Client", lines: list[str], key: str) -> dict[str, Any]:
    from kindcast.server.client.calls import Call, path_of

    return client.send(
        Call(
            method="POST",
            path=path_of("subscriptions", "import"),
            read=dict,
            headers={"Content-Type": "application/x-ndjson", "Idempotency-Key": key},
            content="".join(lines).encode(),
            timeout=IMPORT_SECONDS,
            repeatable=True,
        )
    )


def _requests(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the lines of each request, and the number of lines before them."""
    before, batch, size = 0, list[str](), 0
    for line in lines:
        if batch and (len(batch) == LINES or size + len(line) > CHARACTERS):
            yield before, batch
            before, batch, size = before + len(batch), [], 0
        batch.append(line if line.endswith("\n") else line + "\n")
        size += len(line)
    if batch:
        yield before, batch


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yields the lines of a text that arrives in chunks."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in whole if line)
    if rest:
        yield rest.decode()


@contextmanager
def _kept(tickets: Path | None) -> Iterator[IO[str] | None]:
    """A context manager with the file of the tickets, which only its owner may read. It is created before anything is
    sent."""
    if tickets is None:
        yield None
        return
    with writable(tickets), open(tickets, "a", buffering=1, encoding="utf-8", opener=open_for_owner) as file:
        yield file
