"""The commands `kindcast tenant`: the teams that share a server."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.output import group, page

__all__ = ["commands"]

commands = group("tenant", "Tenants: the teams that share a server, and their limits.")


def _limit(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a limit: write it as events_per_second=100") from None


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The tenant: up to 40 of a-z, 0-9 and -.")]
LimitOption = Annotated[
    list[Any] | None,
    typer.Option("--limit", metavar="NAME=NUMBER", parser=_limit, help="A limit; may be given several times."),
]


@commands.command("create", epilog=page("kindcast tenant create bakery --limit subscriptions=1000"))
def create(
    name: NameArgument, limit: LimitOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Create a tenant. Then create its first key: kindcast key create --role admin --of NAME."""
    with connected(server) as client:
        made = client.create_tenant(name, limits=dict(limit or ()))
    _show([made], made, json)


@commands.command("list", epilog=page("kindcast tenant list"))
def list_all(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """List the tenants, with their keys and limits."""
    with connected(server) as client:
        answer = client.tenants()
    _show(answer["tenants"], answer, json)


@commands.command("limit", epilog=page("kindcast tenant limit bakery --limit events_per_second=100"))
def limit_tenant(
    name: NameArgument, limit: LimitOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Replace the limits of a tenant. Without --limit, those of the server's settings apply."""
    with connected(server) as client:
        told = client.limit_tenant(name, dict(limit or ()))
    _show([told], told, json)


@commands.command("delete", epilog=page("kindcast tenant delete bakery"))
def delete(name: NameArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Delete a tenant whose keys are all revoked, with all its data. This cannot be undone."""
    with connected(server) as client:
        told = client.delete_tenant(name)
    if json:
        output.print_json(told)
    else:
        output.paragraph(f"deleted {name}")


def _show(tenants: Sequence[Mapping[str, Any]], answer: Mapping[str, Any], json: bool) -> None:
    if json:
        output.print_json(answer)
        return
    rows = [
        (
            each["name"],
            str(each["keys"]),
            "open" if each["open"] else "closed",
            ", ".join(f"{name}={value:g}" for name, value in each["limits"].items()) or "no limits",
        )
        for each in tenants
    ]
    output.table(("tenant", "keys", "state", "limits"), rows)
