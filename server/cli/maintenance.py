"""Commands for administrators: `kindcast backup`, `restore`, `check`, `status`, `repair` and `clock confirm`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.output import CommandFailed, group, page
from kindcast.server.cli.serve import check_database, data_folder, is_elsewhere, load_settings, stopped

__all__ = [
    "backup",
    "check",
    "clock",
    "repair",
    "restore",
    "status",
]

DataOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The data folder of the server.  [KINDCAST_DATA, or kindcast-data]")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The database, if it is not in the data folder.  [KINDCAST_DATABASE]"),
]
FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="The backup.")]


def backup(
    folder: FolderArgument, data: DataOption = None, database: DatabaseOption = None, json: JsonOption = False
) -> None:
    """Copy all data of a server into a new folder, also while it runs: subscriptions with their cursors and tickets,
    events, matches, ontologies, declarations, keys and tenants. A server can be started on the folder."""
    from kindcast.server.store import backup as store

    settings = load_settings(None, data=data, database=database)
    _check_exists(settings)
    with output.errors().status("copying …"):
        made = _done(lambda: store.backup(settings.database_url, settings.data, folder))
    _tell(made, f"the backup is in {folder}", json)
    if not json:
        other = "   (or --database postgresql://…)" if made.restores_anywhere else ""
        output.hint(f"To restore it: kindcast restore {output.word(folder)} --data NEW{other}")


def restore(
    folder: FolderArgument, data: DataOption = None, database: DatabaseOption = None, json: JsonOption = False
) -> None:
    """Restore a backup into an empty data folder or an empty PostgreSQL database. If it is interrupted, nothing is
    restored."""
    from kindcast.server.store import backup as store

    settings = load_settings(None, data=data, database=database)
    with output.errors().status("copying …"):
        made = _done(lambda: store.restore(folder, settings.database, settings.data))
    _tell(made, f"{folder} is restored", json)
    if not json:
        where = f"--data {output.word(settings.data)}" if settings.database is None else "--database URL --data NEW"
        output.hint(f"To start a server on it: kindcast serve {where}")


def check(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="A backup; by default the database of --data is checked.")
    ] = None,
    data: DataOption = None,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Compare all stored data with its digests, and check the totals, in a backup or in the database of a server, also
    while it runs. The exit status is 1 if anything is wrong."""
    from kindcast.server.settings import sqlite_url
    from kindcast.server.store import backup as store

    settings = load_settings(None, data=folder or data, database=None if folder else database)
    if folder is None:
        _check_exists(settings)
    address = sqlite_url(folder / store.MAIN) if folder else settings.database_url
    with output.errors().status("reading all of it …"):
        found = _done(lambda: store.check(address, settings.data))
    if json:
        output.print_json({"damage": found.damage, "rows": found.rows})
    else:
        for line in found.damage or ["all stored data is intact"]:
            output.paragraph(line, "bold red" if found.damage else "bold green")
        output.hint(", ".join(f"{name}: {number:,}" for name, number in found.rows.items()))
    if found.damage:
        raise typer.Exit(1)


def status(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Show the state of a server: its queue, how long messages wait, the totals of its database, and the servers that
    share it. The exit status is 1 if the server refuses changes."""
    with connected(server) as client:
        told = client.status()
    if json:
        output.print_json(told)
    else:
        _show_status(told)
    if told["trouble"]:
        raise typer.Exit(1)


def _show_status(told: Mapping[str, Any]) -> None:
    sums, queue = told["ledger"], told["queue"]
    by_status = ", ".join(f"{number:,} {name}" for name, number in sorted(told["subscriptions"].items()))
    rows = [
        ("server", f"{told['server']}, {told['program']}"),
        ("state", told["trouble"] or "takes requests"),
        ("database", f"{told['database']}, layout {told['layout']}, {told['commits']:,} commits"),
        ("queue", f"{queue['waiting']:,} waiting, the oldest for {queue['oldest_seconds']:g} s"),
        ("lag", f"the oldest message to a sink has waited for {told['lag_seconds']:g} s"),
        ("subscriptions", by_status or "none"),
        ("events", f"{sums['accepted']:,} accepted, {sums['duplicates']:,} repeated, {sums['matched']:,} matched"),
        (
            "matches",
            f"{sums['matches']:,} = {sums['delivered']:,} delivered + {sums['pending']:,} pending"
            f" + {sums['dead']:,} dead + {sums['discarded']:,} discarded",
        ),
    ]
    output.table(("", ""), rows)
    if told["servers"]:
        columns = ("server", "version", "lives for", "delivers for", "last commit")
        members = [
            (
                each["id"],
                each["program"].partition(" with ")[0].removeprefix("kindcast "),
                f"{each['lives_for_seconds']:.1f} s",
                f"{each['leases']:,}",
                f"{each['commit'] or 0:,}",
            )
            for each in told["servers"]
        ]
        output.table(columns, members)
    if told.get("shards"):
        shards = [
            (str(each["shard"]), each["server"] or "–", f"{each['events']:,}", f"{each['lag_seconds']:.1f} s")
            for each in told["shards"]
        ]
        output.table(("shard", "matched by", "events behind", "lag"), shards)


def _done(work: Any) -> Any:
    from kindcast.server.errors import ServerError

    try:
        return work()
    except (ServerError, FileExistsError) as error:
        raise CommandFailed(str(error)) from error


def _check_exists(settings: Any) -> None:
    """Raises CommandFailed if no database is named and the data folder has none."""
    check_database(settings)
    path = settings.data / "kindcast.db"
    if settings.database is None and not path.exists():
        raise CommandFailed(f"there is no database {path}", "Name the data folder of the server: --data DIR")


def _tell(made: Any, done: str, json: bool) -> None:
    import msgspec

    if json:
        output.print_json(msgspec.to_builtins(made))
    else:
        output.paragraph(done, "bold green")
        counts = f"{output.plural(made.sequence, 'position')}, {output.plural(made.commits, 'commit')}"
        output.hint(f"{counts}, layout {made.layout}, of {made.source}")


clock = group("clock", "Confirm the time of a server after the clock of its machine jumped.")


@clock.command("confirm", epilog=page("kindcast clock confirm"))
def confirm(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Confirm that the clock of the server's machine is right, so that subscriptions and events expire by it again."""
    with connected(server) as client:
        told = client.confirm_clock()
    if json:
        output.print_json(told)
        return
    output.paragraph(f"the time is {told['time']}", "bold green")
    if told["was"]:
        output.hint(f"before: {told['was']}")


def repair(
    data: DataOption = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Accept that commits are missing: the next start serves the remaining data."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check the databases of a stopped server, with all tenants, and the file of its keys, and report what is missing
    or damaged."""
    from kindcast.server.store.integrity import accept, examine, examine_keys, tenants_in

    data = data_folder(data)
    database = data / "kindcast.db"
    if is_elsewhere(data):
        raise CommandFailed(
            f"{data} is the data folder of a server whose database is elsewhere",
            f"kindcast repair reads SQLite. For PostgreSQL: kindcast check --data {output.word(data)} --database URL",
        )
    with stopped(data):
        found = examine(database)
        found["damage"] += examine_keys(database)
        tenants = dict(tenants_in(data))
        for name, of_tenant in tenants.items():
            told = examine(of_tenant)
            found["damage"] += [f"tenant {name}: {each}" for each in told["damage"]]
            if told["missing_commits"]:
                found["damage"].append(f"tenant {name}: {told['missing_commits']:,} commits are missing")
                found["missing_commits"] += told["missing_commits"]
        if accept_loss:
            for each in (database, *tenants.values()):
                accept(each)
        useless = examine_keys(database) if accept_loss else []
    if json:
        output.print_json(found | {"accepted": accept_loss})
    else:
        for line in found["damage"] or ["all databases are intact" if tenants else "the database is intact"]:
            output.paragraph(line)
        output.paragraph(
            f"{found['missing_commits']:,} commits are missing", "bold" if found["missing_commits"] else ""
        )
        if useless:
            output.hint("To start without keys, move this file away. To keep the keys, put a back-up of it back.")
        elif accept_loss:
            output.hint("the next start serves the remaining data")
        elif found["missing_commits"]:
            output.hint(f"To serve the remaining data: kindcast repair --data {output.word(data)} --accept-loss")
    if useless or ((found["damage"] or found["missing_commits"]) and not accept_loss):
        raise typer.Exit(1)
