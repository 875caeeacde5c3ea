"""The commands `kindcast key`, `kindcast audit` and `kindcast tenant`: who may use a server, and what they did.

With `--data` the keys are created in a data folder, whether its server runs or not. The first key is created in this
way.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected, credentials
from kindcast.server.cli.output import CommandFailed, group, page
from kindcast.server.cli.serve import check_database, load_settings
from kindcast.server.cli.subscriptions import LifeOption, seconds

__all__ = ["audit", "commands", "tenants"]

commands = group("key", "Make, list, replace and revoke API keys.")
audit = group("audit", "Show and export the audit log: who changed what, and who was refused.")

DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data folder of a server on this machine, in place of --server."),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="KINDCAST_DATABASE",
        help="With --data: the server's database, if it is not SQLite.",
    ),
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the key: kindcast key list shows it.")]
PAGE = 1_000
AS_COMMAND = "command line"


@commands.command("create", epilog=page("kindcast key create --role admin --data ./shop"))
def create(
    role: Annotated[str, typer.Option(metavar="ROLE", help="admin, ontologist, publisher, subscriber or auditor.")],
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="TENANT",
            help="The tenant of the key.  [that of --tenant; without it all tenants for admin, else default]",
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="TEXT", help="A name of your choice, to tell keys apart.")] = "",
    ttl: LifeOption = None,
    data: DataOption = None,
    database: DatabaseOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Create a key. The key is shown only once."""
    of = of or credentials()["tenant"] or None
    if data is not None:
        with _store(data, database, new=True) as store:
            made: Mapping[str, Any] = _create(store, role, of, name, ttl)
    else:
        ends = None if ttl is None else datetime.fromtimestamp(time.time() + ttl, UTC).isoformat()
        with connected(server, tenant=None) as client:  # it may not exist yet
            made = client.create_key(role, tenant=of, name=name, expires_at=ends)
    _show_made(made, json)


@commands.command("list", epilog=page("kindcast key list"))
def list_all(
    data: DataOption = None,
    database: DatabaseOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """List the keys, without their secrets."""
    if data is not None:
        with _store(data, database) as store:
            answer: Mapping[str, Any] = {"keys": [each.shown() for each in store.load()[1]]}
    else:
        with connected(server) as client:
            answer = client.keys()
    if json:
        output.print_json(answer)
        return
    if not answer["keys"]:
        output.hint(
            "There are no keys: everyone who reaches the server may do everything. kindcast key create --role admin"
        )
        return
    output.table(
        ("id", "role", "tenant", "name", "expires"),
        [
            (each["id"], each["role"], each["tenant"] or "all", each["name"], output.ago(each["expires_at"]) or "never")
            for each in answer["keys"]
        ],
    )


@commands.command("rotate", epilog=page("kindcast key rotate 0123456789abcdef --overlap 1h"))
def rotate(
    id: IdArgument,
    overlap: Annotated[
        float | None, typer.Option(metavar="TIME", parser=seconds, help="How long the old key still works.  [1d]")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Replace a key by a new one with the same rights. Both work for a while."""
    with connected(server) as client:
        made = client.rotate_key(_id_in(id), overlap_seconds=overlap)
    _show_made(made, json)


@commands.command("revoke", epilog=page("kindcast key revoke 0123456789abcdef"))
def revoke(
    id: IdArgument,
    data: DataOption = None,
    database: DatabaseOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Revoke a key at once. With --data this may be the last one: then the server is open again, on this machine
    only."""
    id = _id_in(id)
    if data is not None:
        with _store(data, database) as store:
            if not store.delete_key(id):
                raise CommandFailed(f"there is no key {id}", f"See them: kindcast key list --data {output.word(data)}")
    else:
        with connected(server) as client:
            client.revoke_key(id)
    if json:
        output.print_json({"id": id, "revoked": True})
    else:
        output.paragraph(f"revoked {id}")


def _id_in(text: str) -> str:
    """Returns the id of a key that was given as a whole. The secret does not leave this process.

    >>> _id_in(f"kindcast_0123456789abcdef_{43 * 'x'}"), _id_in("0123456789abcdef")
    ('0123456789abcdef', '0123456789abcdef')
    """
    found = re.fullmatch(r"(?:kindcast_)?([0-9a-f]{16})(?:_.*)?", text.strip())
    return found[1] if found else text


@commands.command("show", epilog=page("kindcast key show"))
def show(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show which key is in use, and what it may do."""
    with connected(server) as client:
        answer = client.who_am_i()
    if json:
        output.print_json(answer)
        return
    rows = [("who", answer["who"] or "nobody: the server needs a key")]
    rows += [(name, str(answer[name])) for name in ("name", "role", "tenant") if answer[name]]
    if answer["ends_at"]:
        rows.append(("expires", output.ago(answer["ends_at"])))
    output.table(("", ""), [*rows, ("may", ", ".join(answer["permissions"]) or "nothing")])


@audit.command("list", epilog=page("kindcast audit list"))
def read_audit(
    who: Annotated[str | None, typer.Option(metavar="NAME", help='Only requests of this key: "key ID".')] = None,
    after: Annotated[int | None, typer.Option(metavar="NUMBER", help="Entries after this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, metavar="COUNT", help="The largest number of entries.")] = 100,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="The newest entries first.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show who changed what, from where, and with what result."""
    with connected(server) as client:
        answer: Mapping[str, Any] = client.audit(after=after, limit=limit, who=who, newest_first=newest_first or None)
    if json:
        output.print_json(answer)
        return
    if not answer["entries"]:
        none = "There are no entries. Only a server with keys writes some."
        output.hint(none if who is None and after is None else "There are no such entries.")
        return
    names = ("number", "at", "tenant", "who", "address", "action", "outcome", "detail")
    output.table(names, [[str(each[name]) for name in names] for each in answer["entries"]])
    if len(answer["entries"]) == limit:
        asked = ("" if who is None else f" --who {output.word(who)}") + (" --newest-first" if newest_first else "")
        output.hint(f"There may be more: kindcast audit list --after {answer['cursor']}{asked}")


@audit.command("export", epilog=page("kindcast audit export > audit.ndjson"))
def export_audit(server: ServerOption = DEFAULT_SERVER) -> None:
    """Write the whole audit log as NDJSON: one entry per line."""
    after, more = 0, True
    with connected(server) as client:
        while more:
            answer: Mapping[str, Any] = client.audit(after=after, limit=PAGE)
            for each in answer["entries"]:
                output.print_json(each)
            after, more = int(answer["cursor"]), len(answer["entries"]) == PAGE


@contextmanager
def _store(data: Path, database: str | None, *, new: bool = False) -> Iterator[Any]:
    """A context manager with the store of keys. Only a `new` one may have a folder that does not exist: it is made."""
    from kindcast.server.errors import ServerError  # the libraries of the server
    from kindcast.server.store.system import SystemStore

    settings = load_settings(None, data=data, database=database)
    if settings.database is None and not new and not data.is_dir():
        raise CommandFailed(f"there is no folder {data}", "Give the data folder of kindcast serve.")
    check_database(settings)
    store = SystemStore(settings)
    try:
        store.open()
        yield store
    except ServerError as error:
        raise CommandFailed(str(error)) from error
    finally:
        store.close()


def _create(store: Any, role: str, tenant: str | None, name: str, ttl: float | None) -> dict[str, Any]:
    from typing import get_args

    from kindcast.server.security.keys import DEFAULT_TENANT, TENANT, Key, Role, hash_of, new_key
    from kindcast.server.store.system import AuditEntry

    if role not in get_args(Role):
        raise typer.BadParameter(
            f"there is no role {role!r}; known are {', '.join(get_args(Role))}", param_hint="--role"
        )
    if tenant is not None and not TENANT.fullmatch(tenant):
        raise typer.BadParameter("the name of a tenant has up to 40 characters of a-z, 0-9 and -", param_hint="--of")
    if role != "admin":
        tenant = tenant or DEFAULT_TENANT
        if not any(each.role == "admin" for each in store.load()[1]):
            raise CommandFailed(
                "the first key must be for an administrator", "Make it with: kindcast key create --role admin"
            )
    now = time.time()
    id, key = new_key()
    made = Key(
        id=id,
        hash=hash_of(key),
        role=role,  # type: ignore[arg-type]  # one of them, as was just checked
        tenant=tenant,
        name=name,
        created_at=now,
        expires_at=None if ttl is None else now + ttl,
        created_by=AS_COMMAND,
        origin=id,
    )
    store.add_key(made)
    detail = f"made key {id}, {role} of {tenant or 'all tenants'}"
    store.record(
        [
            AuditEntry(
                at=now, tenant=tenant or "", who=AS_COMMAND, address="", action="key create", outcome=201, detail=detail
            )
        ]
    )
    return {**made.shown(), "key": key}


def _show_made(made: Mapping[str, Any], json: bool) -> None:
    if json:
        output.print_json(made)
        return
    rows = [(name, str(made[name])) for name in ("key", "id", "role") if made.get(name)]
    rows.append(("tenant", made["tenant"] or "all"))
    if made.get("expires_at"):
        rows.append(("expires", output.ago(made["expires_at"])))
    output.table(("", ""), rows)
    output.hint("Keep the key: it is not shown again. Commands read it from the variable KINDCAST_KEY.")


# ── tenants ───────────────────────────────────────────────────────────────────────────────────────────────────────────


tenants = group("tenant", "Create, list, limit and delete tenants: the teams that share a server.")


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


@tenants.command("create", epilog=page("kindcast tenant create bakery --limit subscriptions=1000"))
def create_tenant(
    name: NameArgument, limit: LimitOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Create a tenant. Then create its first key: kindcast key create --role admin --of NAME."""
    with connected(server) as client:
        made = client.create_tenant(name, limits=dict(limit or ()))
    _show_tenants([made], made, json)


@tenants.command("list", epilog=page("kindcast tenant list"))
def list_tenants(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """List the tenants, with their keys and limits."""
    with connected(server) as client:
        answer = client.tenants()
    _show_tenants(answer["tenants"], answer, json)


@tenants.command("limit", epilog=page("kindcast tenant limit bakery --limit events_per_second=100"))
def limit_tenant(
    name: NameArgument, limit: LimitOption = None, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Replace the limits of a tenant. Without --limit, the limits of the server's settings apply."""
    with connected(server) as client:
        told = client.limit_tenant(name, dict(limit or ()))
    _show_tenants([told], told, json)


@tenants.command("delete", epilog=page("kindcast tenant delete bakery"))
def delete_tenant(name: NameArgument, server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Delete a tenant whose keys are all revoked, with all its data. This cannot be undone."""
    with connected(server) as client:
        told = client.delete_tenant(name)
    if json:
        output.print_json(told)
    else:
        output.paragraph(f"deleted {name}")


def _show_tenants(found: Sequence[Mapping[str, Any]], answer: Mapping[str, Any], json: bool) -> None:
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
        for each in found
    ]
    output.table(("tenant", "keys", "state", "limits"), rows)
