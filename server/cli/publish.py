"""The command `kindcast publish`: events from a file, a pipe or the command line."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, TaskID

from kindcast.server.cli import output, problems
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import Line, event_lines
from kindcast.server.cli.problems import CommandFailed

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["publish"]

BATCH = 500
"""Events of one request: enough that the commit costs little an event, little enough that progress is seen."""
SHOWN_EVENTS = 10
"""Events reported one by one; for more only the totals are shown."""
LIVE_LINES = 1
"""From standard input each line is published when it comes: somebody may be typing."""


def publish(
    events: Annotated[
        str, typer.Argument(metavar="EVENTS", help="A file (JSON, NDJSON), - for standard input, or the JSON itself.")
    ],
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="The CloudEvents type of plain JSON.")] = None,
    source: Annotated[str | None, typer.Option(metavar="URI", help="The CloudEvents source of plain JSON.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Publish events. When this returns without an error they are on the server's disk."""
    context = {name: value for name, value in (("type", type), ("source", source)) if value is not None}
    tally = Tally()
    with connected(server) as client, ExitStack() as stack:
        bar = stack.enter_context(output.progress())
        task = bar.add_task("publishing", total=None)
        size = LIVE_LINES if events == "-" else BATCH
        for lines in _batches(event_lines(events), size):
            _send(client, lines, context, tally, json)
            _advance(bar, task, len(lines))
    if not json:
        tally.show()
    if tally.refused:
        rest = "; the others were" if tally.accepted or tally.duplicates else ""
        were = "event was" if tally.refused == 1 else "events were"
        raise CommandFailed(f"{tally.refused:,} {were} not accepted{rest}.")
    if not tally.read:
        raise CommandFailed(f"there is no event in {events}.")


@dataclass
class Tally:
    """The results so far. `told` are the first answers, to be shown."""

    read: int = 0
    accepted: int = 0
    duplicates: int = 0
    matched: int = 0
    undecided: int = 0
    refused: int = 0
    told: list[dict[str, Any]] = field(default_factory=list)

    def take(self, answer: Mapping[str, Any]) -> None:
        """Adds the answer to one request."""
        self.accepted += int(answer.get("accepted") or 0)
        self.duplicates += _count(answer.get("duplicates"))
        for event in answer.get("events") or ():
            self.matched += int(event.get("matched") or 0)
            self.undecided += int(event.get("undecided") or 0)
            if len(self.told) <= SHOWN_EVENTS:
                self.told.append(event)

    def show(self) -> None:
        """The sum, and each event where there are few."""
        twice = f", {self.duplicates} known already" if self.duplicates else ""
        open = f", {self.undecided:,} undecided" if self.undecided else ""
        found = f"{_plural(self.matched, 'match', 'es')}{open}"
        output.paragraph(f"accepted {_plural(self.accepted, 'event')}{twice}, {found}")
        if self.undecided:
            output.hint("Undecided: subscriptions whose operators have not answered yet; their matches follow.")
        if len(self.told) > SHOWN_EVENTS:
            return
        for event in self.told:
            number = f"{event['sequence']}  " if "sequence" in event else ""
            output.paragraph(
                f"  {number}{event['id']}: {_plural(int(event.get('matched') or 0), 'match', 'es')}", "dim"
            )
            for note in event.get("notes") or ():
                output.warn(str(note.get("detail", note)) if isinstance(note, dict) else str(note))


def _batches(lines: Iterator[Line], size: int) -> Iterator[list[Line]]:
    while batch := list(itertools.islice(lines, size)):
        yield batch


def _send(client: "Client", lines: list[Line], context: dict[str, str], tally: Tally, json: bool) -> None:
    tally.read += len(lines)
    good: list[tuple[int, dict[str, Any]]] = []
    for line in lines:
        if line.event is None:
            tally.refused += 1
            problems.show(CommandFailed(f"event {line.number}: {line.problem}"))
        else:
            good.append((line.number, line.event))
    if not good:
        return
    answer = client.publish([event for _, event in good], **context)
    tally.take(answer)
    for refusal in answer["rejected"]:
        tally.refused += 1
        problem = refusal["problem"]
        number = good[refusal["index"]][0]
        problems.show(CommandFailed(f"event {number}: {problem['detail'] or problem['title']}"))
    if json:
        output.print_json(answer)


def _advance(bar: Progress, task: TaskID, count: int) -> None:
    bar.advance(task, count)


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list) else int(value or 0)


def _plural(count: int, noun: str, ending: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else ending}"
