"""The commands `kindcast operators`: list operators and their cost, and manage remote ones."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.completion import operators
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.output import group, page

__all__ = ["commands"]

commands = group("operators", "List, register and delete operators of a server.")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=operators, help="The name of the operator in subscriptions.")
]


@commands.command("list", epilog=page("kindcast operators list"))
def list_all(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """List all operators, with their measured cost and selectivity."""
    with connected(server) as client:
        found = client.operators()
    if json:
        output.print_json(found)
        return
    columns = ("name", "kind", "calls", "holds", "cost", "circuit", "subscriptions")
    output.table(columns, [_row(each) for each in found["operators"]])


@commands.command("show", epilog=page("kindcast operators show inRegion"))
def show(name: NameArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show one operator, and its most frequent calls."""
    with connected(server) as client:
        found = client.operator(name)
    if json:
        output.print_json(found)
        return
    output.table(("name", "kind", "calls", "holds", "cost", "circuit", "subscriptions"), [_row(found)])
    calls = [
        (each["call"], str(each["calls"]), f"{each['selectivity']:.3f}", _seconds(each["cost"]))
        for each in found["predicates"]
    ]
    if calls:
        output.table(("call", "calls", "holds", "cost"), calls)


@commands.command("register", epilog=page("kindcast operators register crowd https://crowds.example.org/ask"))
def register(
    name: NameArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that requests are posted to.")],
    version: Annotated[
        str, typer.Option(metavar="NAME", help="The version of the service; answers of another version are not reused.")
    ] = "1",
    arguments: Annotated[
        int | None, typer.Option(metavar="COUNT", help="How many constants and @attributes a call has.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An attribute to send; may be given several times. By default all are sent."),
    ] = None,
    cost: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="The cost to assume before it is measured.")
    ] = None,
    selectivity: Annotated[
        float | None, typer.Option(metavar="SHARE", help="The selectivity to assume before it is measured.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long a call may take.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="COUNT", help="The largest number of calls at one time.")
    ] = None,
    cache: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long an answer is reused.")] = None,
    speculate: Annotated[
        bool,
        typer.Option("--speculate", help="Start calls as soon as they may be needed, without waiting for other calls."),
    ] = False,
    retries: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Retries after a broken connection, within the timeout.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header to send; may be given several times.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Register a service as an operator, or change it."""
    given: dict[str, Any] = {
        "url": url,
        "version": version,
        "arguments": arguments,
        "attributes": attribute or None,
        "cost": cost,
        "selectivity": selectivity,
        "timeout_seconds": timeout,
        "concurrency": concurrency,
        "cache_seconds": cache,
        "speculate": speculate or None,
        "retries": retries,
        "headers": dict(_header(each) for each in header) if header else None,
    }
    with connected(server) as client:
        told = client.register_operator(name, {key: value for key, value in given.items() if value is not None})
    if json:
        output.print_json(told)
        return
    output.paragraph(f"{name} can be called by subscriptions", "bold green")


@commands.command("delete", epilog=page("kindcast operators delete crowd"))
def delete(name: NameArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Delete a remote operator that no subscription calls."""
    with connected(server) as client:
        told = client.delete_operator(name)
    if json:
        output.print_json(told)
        return
    output.paragraph(f"{name} is deleted")


@commands.command("retry", epilog=page("kindcast operators retry"))
def retry(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Ask operators again about the events that they could not decide."""
    with connected(server) as client:
        told = client.retry_operators()
    if json:
        output.print_json(told)
        return
    output.paragraph(f"{told['again']} candidates are tried again")


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    learned = each["learned"]
    circuit = each.get("circuit", {}).get("state", "-")
    return (
        each["name"],
        each["kind"],
        str(learned["calls"]),
        f"{learned['selectivity']:.3f}",
        _seconds(learned["cost"]),
        circuit,
        str(each["subscriptions"]),
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1000:.3g} ms"


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise typer.BadParameter(f"{text!r}: write NAME:VALUE")
    return name.strip(), value.strip()
