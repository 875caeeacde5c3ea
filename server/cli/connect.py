"""The command `kindcast connect`: publishes the messages of a broker to a server."""

import fcntl
import hashlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, new_client
from kindcast.server.cli.output import CommandFailed

if TYPE_CHECKING:
    from kindcast.server.connectors.broker_url import BrokerUrl, Topic
    from kindcast.server.connectors.source import Options, Tally

__all__ = ["connect"]

STATE_NEEDED = "Name a folder for the ids of messages that have none: --state FOLDER."


def connect(
    url: Annotated[
        str,
        typer.Argument(
            envvar="KINDCAST_BROKER",
            metavar="URL",
            help="mqtt://, nats://, amqp://, kafka:// or redis:// with host and port. If it has a password, use "
            "the variable.",
        ),
    ],
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC",
            help="What to read, with the wildcards of the broker; may be repeated. {name} is one level and becomes "
            "the attribute ce.name.",
        ),
    ],
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="The CloudEvents type of plain JSON.")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The beginning of the source of plain JSON, before the topic; default: the URL of the broker.",
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="MEMBER", help="The member of plain JSON that is the id of the event.")
    ] = None,
    group: Annotated[
        str,
        typer.Option(metavar="NAME", help="The name under which the broker stores how far this connector has read."),
    ] = "kindcast",
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", metavar="TOPIC", help="The topic for bad messages.")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="COUNT", help="The largest number of messages in one request.")
    ] = 500,
    create: Annotated[bool, typer.Option("--create", help="Create the stream or queue if there is none.")] = False,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The folder for ids of messages that have none; default: ~/.local/state."),
    ] = None,
    wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.0, help="Stop when no message came for this long.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Publish the messages of MQTT, NATS, RabbitMQ, Kafka or Redis to a server, until SIGTERM or Ctrl-C. A message is
    acknowledged only after the server has stored it."""
    from kindcast.server.connectors.bindings import DEFAULT_TYPE
    from kindcast.server.connectors.broker_url import WrongUrl, parse_topic, parse_url
    from kindcast.server.connectors.source import Options

    try:
        broker = parse_url(url)
        topics = [parse_topic(each, broker.protocol) for each in topic]
    except WrongUrl as error:
        raise typer.BadParameter(str(error)) from None
    if not group:
        raise typer.BadParameter("the name of a group must not be empty", param_hint="--group")
    if dead_letters is not None:
        _check_dead_letters(dead_letters, broker, topics)
    options = Options(
        topics=topics,
        source=source or broker.shown,
        type=type or DEFAULT_TYPE,
        id_member=id,
        batch=batch,
        dead_letters=dead_letters,
        idle_seconds=wait,
    )
    journal = _journal(broker, group, topic, state)
    begun = f"reading {', '.join(topic)} of {broker.shown}"
    _run(server, broker, options, group=group, create=create, journal=journal, json=json, begun=begun)


def _journal(broker: "BrokerUrl", group: str, topic: list[str], state: Path | None) -> Path | None:
    """Returns the file for ids of messages in the folder `state`. Returns None if the broker gives each message an
    id."""
    if broker.protocol not in ("MQTT", "AMQP"):
        return None
    reader = hashlib.sha256("\n".join([broker.shown, group, *topic]).encode()).hexdigest()[:16]
    return (state or _state_folder()) / f"{broker.protocol.lower()}-{reader}.json"


def _check_dead_letters(dead_letters: str, broker: "BrokerUrl", topics: "Sequence[Topic]") -> None:
    """Raises typer.BadParameter if bad messages cannot be published to this topic."""
    from kindcast.server.connectors.broker_url import WrongUrl, check_place

    try:
        check_place(dead_letters, broker.protocol)
    except WrongUrl as error:
        raise typer.BadParameter(str(error), param_hint="--dead-letters") from None
    if any(each.holds(dead_letters) for each in topics):
        raise typer.BadParameter(
            f"this connector reads {dead_letters}, so bad messages would come again and again",
            param_hint="--dead-letters",
        )


def _run(
    server: str,
    broker: "BrokerUrl",
    options: "Options",
    *,
    group: str,
    create: bool,
    journal: Path | None,
    json: bool,
    begun: str,
) -> None:
    """Publishes messages until a signal, or until none comes any more. Says `begun` at the start. Raises
    CommandFailed."""
    import asyncio

    from kindcast.server.connectors.source import (
        MISSING,
        BrokerLost,
        BrokerRefused,
        Connector,
        Journal,
        JournalDamaged,
        open_source,
    )

    async def work() -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(new_client(server))
            connector = Connector(
                lambda: open_source(broker, options.topics, group=group, batch=options.batch, create=create),
                client,
                options,
                Journal(None if journal is None else stack.enter_context(_own_file(journal))),
                tell=output.warn,
                progress=_show_json if json else lambda tally, per_second: output.hint(tally.line(per_second)),
            )
            loop = asyncio.get_running_loop()
            for each in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(each, connector.stop)
            output.hint(begun)
            began = time.monotonic()
            await connector.run()
            tally = connector.tally
            if not json:
                output.paragraph(tally.line(tally.read / max(time.monotonic() - began, 1e-9)))

    try:
        asyncio.run(work())
    except ImportError as error:
        raise CommandFailed(f"{MISSING} ({error})") from error
    except (BrokerRefused, JournalDamaged) as error:
        raise CommandFailed(f"{str(error).rstrip('.')}.") from error
    except BrokerLost as error:
        raise CommandFailed(f"the broker cannot be reached: {error}") from error
    except OSError as error:  # the file of the journal, or its folder
        if error.filename is None:
            raise CommandFailed(str(error)) from error
        raise CommandFailed(f"{error.filename} cannot be used: {error.strerror}", STATE_NEEDED) from error


def _show_json(tally: "Tally", per_second: float) -> None:
    output.print_json(
        {
            "read": tally.read,
            "accepted": tally.accepted,
            "known": tally.known,
            "bad": tally.bad,
            "acknowledged": tally.acknowledged,
            "connections": tally.connections,
            "per_second": round(per_second, 1),
        }
    )


@contextmanager
def _own_file(file: Path) -> Iterator[Path]:
    """Yields this file, or one with a number after its name: the first that no other connector uses meanwhile. Several
    connectors may read one queue."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        own = file if number == 1 else file.with_stem(f"{file.stem}-{number}")
        with own.with_suffix(".lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield own
            return


def _state_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kindcast"
    except RuntimeError as error:  # a container may run as a user that it does not know
        raise CommandFailed("the user has no home folder.", STATE_NEEDED) from error
