"""The command-line application: registers all commands, and converts failures to messages and exit statuses.

0 done 1 it failed 2 wrong use 130 interrupted
"""

import re
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from kindcast.semantic.errors import IndexingError, SemanticError
from kindcast.server.cli import (
    INTERRUPTED,
    bench,
    completion,
    connect,
    declarations,
    demo,
    doctor,
    events,
    keys,
    listen,
    maintenance,
    matching,
    ontologies,
    operators,
    output,
    serve,
    spark,
    subscriptions,
)
from kindcast.server.cli.connection import add_key_options
from kindcast.server.cli.output import WIDTH, CommandFailed, Commands, InExpression, page, print_json_error
from kindcast.server.client import ProblemError, UnexpectedAnswer
from kindcast.server.client.problem_error import UnusableArgument

__all__ = ["FAILED", "application", "main"]

FAILED = 1

BROKEN = re.compile("[\ud800-\udfff]")
"""The characters that Python puts in place of bytes of an argument that are not valid text."""

FAILURES = (
    *(CommandFailed, InExpression, ProblemError, UnexpectedAnswer, UnusableArgument),
    *(SemanticError, IndexingError, OSError),
)
"""Errors that are shown as messages. Any other exception is a bug and keeps its traceback."""

application = typer.Typer(
    name="kindcast",
    help="A publish/subscribe server that understands kinds: subscribe to a concept, and receive every event about it "
    "or anything beneath it, in whatever language or unit it was published.",
    epilog=page(
        "kindcast demo",
        "kindcast serve --detach",
        "kindcast doctor",
        "kindcast publish --help",
        statuses="0 after success, 1 after a failure (the command says why), 2 after a wrong call, 130 after an "
        "interruption.",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # takes longer than the rest of this option

        typer.echo(f"kindcast {version('kindcast')}")
        raise typer.Exit


@application.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


application.command("serve", epilog=page("kindcast serve --port 9000 --data ./shop"))(serve.serve)
application.command("stop", epilog=page("kindcast stop --data ./shop"))(serve.stop)
application.add_typer(ontologies.commands)
application.add_typer(declarations.commands)
application.add_typer(declarations.contexts)
application.add_typer(ontologies.concept_commands)
application.add_typer(operators.commands)
application.command("subscribe", epilog=page("kindcast subscribe 'target isa Computer and price <= 400'"))(
    subscriptions.subscribe
)
application.add_typer(subscriptions.commands)
application.command("publish", epilog=page('kindcast publish \'{"target": "laptop", "price": 350}\''))(events.publish)
application.command(
    "connect", epilog=page("kindcast connect mqtt://localhost --topic 'home/{room}/temperature' --type reading")
)(connect.connect)
application.command("events", epilog=page("kindcast events --after 100 --limit 50"))(events.events)
application.command("trace", epilog=page("kindcast trace 17"))(events.trace)
application.command("why", epilog=page("kindcast why 17 sub_123"))(events.why)
application.command("dead-letters", epilog=page("kindcast dead-letters sub_123"))(events.dead_letters)
application.command(
    "listen",
    epilog=page(
        "kindcast listen --to 'target isa Computer'",
        "kindcast listen sub_123 --after 0 --format csv --columns target,price,seller.email > offers.csv",
    ),
)(listen.listen)
application.command(
    "matches",
    epilog=page(
        "kindcast matches sub_123",
        "kindcast matches sub_123 --format csv --columns target,price,seller.email > offers.csv",
        "kindcast matches sub_123 --after 17 --limit 10 --format json",
    ),
)(listen.matches)
application.command(
    "match",
    epilog=page("kindcast match --ontology shop.ttl --subscription 'target isa Computer' --event offers.ndjson"),
)(matching.match_offline)
application.command(
    "explain",
    epilog=page("kindcast explain --ontology shop.ttl --subscription 'target isa Computer' --event offer.json"),
)(matching.explain_offline)
application.command("backtest", epilog=page("kindcast backtest 'target isa Computer and price <= 400'"))(
    matching.backtest
)
application.add_typer(events.archive)
application.add_typer(spark.commands)
application.add_typer(keys.commands)
application.add_typer(keys.audit)
application.add_typer(keys.tenants)
application.add_typer(maintenance.clock)
application.command("repair", epilog=page("kindcast repair --data ./shop"))(maintenance.repair)
application.command(
    "doctor",
    epilog=page(
        "kindcast doctor",
        "kindcast doctor --data ./shop --json",
        statuses="0 if there is no problem, even with warnings; 1 if there is a problem.",
    ),
)(doctor.doctor)
application.command("backup", epilog=page("kindcast backup monday --data ./shop"))(maintenance.backup)
application.command("restore", epilog=page("kindcast restore monday --data ./shop-again"))(maintenance.restore)
application.command("check", epilog=page("kindcast check monday"))(maintenance.check)
application.command(
    "status", epilog=page("kindcast status --server http://127.0.0.1:9000", statuses="1 if the server refuses changes.")
)(maintenance.status)
application.command(
    "bench", epilog=page("kindcast bench", "kindcast bench --subscriptions 100000 --seconds 20 --json")
)(bench.bench)
application.command("demo", epilog=page("kindcast demo --pace 0"))(demo.demo)


@cache
def _command() -> Any:
    """Builds the command with all of its sub-commands and options. This is slow, so it is done once a process."""
    command = get_command(application)
    add_key_options(command)
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command: from `arguments`, or from those of the process. Ends with SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    output.accept_any_text()
    try:
        if "--data=" in given or ("--data", "") in pairwise(given):
            raise CommandFailed("--data is empty: write the path of a folder, . for the current one")
        completion.run(lambda: _command()(given, prog_name="kindcast"))
    except BrokenPipeError:
        # The reader of the output has closed it, so there is nothing to report and nowhere to report it.
        sys.stderr.close()
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except FAILURES as error:
        _fail(_of_argument(error.__cause__, given) or error, given)
    except UnicodeEncodeError as error:
        told = _of_argument(error, given)
        if told is None:
            raise
        _fail(told, given)


def _of_argument(error: BaseException | None, given: Sequence[str]) -> CommandFailed | None:
    """Returns what to say if an argument with broken bytes caused this error."""
    broken = next((each for each in given if BROKEN.search(each)), None)
    if broken is None or not isinstance(error, UnicodeEncodeError):
        return None
    shown = broken.encode("utf-8", "backslashreplace").decode()
    return CommandFailed(f"the argument {shown} is not text in {sys.getfilesystemencoding()}")


def _fail(error: Exception, given: Sequence[str]) -> NoReturn:
    if "--json" in given:
        print_json_error(output.as_json(error))
    else:
        output.show(error)
    sys.exit(FAILED)
