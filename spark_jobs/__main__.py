"""The command line of the jobs: `python -m kindcast.spark_jobs match …`, started by `kindcast spark` or spark-submit.

spark-submit is given this file. Progress and summary are reported as JSON lines on standard output
(`kindcast.spark_jobs.report`). The exit status is 2 for invalid arguments, and 1 if the job fails.
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kindcast.semantic.errors import IndexingError, SemanticError
from kindcast.spark_jobs.report import (
    JobFailed,
    NoArchive,
    UnusableOutput,
    as_lines,
    is_heard,
    tell_note,
    tell_problem,
    tell_result,
)

if TYPE_CHECKING:
    from kindcast.spark_jobs.snapshot import Inputs, Snapshot

__all__ = ["main"]

MASTERS = re.compile(r"local(\[|-cluster\[|$)|spark://|k8s://|yarn$")
WINDOW = re.compile(r"[^-]*\d\s*[a-zA-Z][^-]*")
URI = re.compile(r"[a-z][a-z0-9+.-]+:/")
JAVA_ENDS_WITHIN = 3.0
"""Seconds that Java has to remove its temporary files."""
MISSING = "pyspark is not installed: pip install 'kindcast[spark]' (and Java 17 or newer)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        import pyspark  # noqa: F401  only to check that it is installed
    except ImportError:
        tell_problem(MISSING)
        return 1
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    run: Callable[[argparse.Namespace], dict[str, Any]] = given.run
    try:
        _check_output(given.output, given.archive)
        tell_result(_with_reasons(run(given), given))
    except (JobFailed, SemanticError, IndexingError, OSError) as error:
        tell_problem(_of_output(error, given.output) or str(error))
        return 1
    except PySparkException as error:
        tell_problem(f"Spark refuses: {str(error).partition(chr(10))[0]}")
        return 1
    except Py4JJavaError as error:
        tell_problem(f"Spark refuses: {str(error.java_exception.getMessage()).partition(chr(10))[0]}")
        return 1
    return 0


def _check_output(output: Path | None, archive: str | None) -> None:
    """Raises `UnusableOutput` if `output` exists and is not a folder, is a URI, or would be read as a part of
    `archive`."""
    if output is None:
        return
    if URI.match(str(output)):
        raise UnusableOutput(
            f"--output {output.name}: jobs write into folders, not to a URI; read the archive with the functions of "
            "kindcast.spark_jobs, and write the result with Spark's own writer (docs/scale.md has an example)"
        )
    if output.exists() and not output.is_dir():
        raise UnusableOutput(f"{output} is a file: --output must name a folder")
    if archive is None or URI.match(archive) or not output.resolve().is_relative_to(Path(archive).resolve()):
        return
    if not any(part.startswith(("_", ".")) for part in output.resolve().relative_to(Path(archive).resolve()).parts):
        raise UnusableOutput(
            f"{output} is in the archive {archive}, so the next run would read it as events: name a folder elsewhere"
        )


def _of_output(error: Exception, output: Path | None) -> str | None:
    """Returns the problem of a job that cannot write its output; None if something else failed."""
    if output is None or not isinstance(error, OSError) or not isinstance(error.filename, str):
        return None
    path = Path(error.filename)
    if not path.is_relative_to(output) and not output.is_relative_to(path):
        return None
    return f"--output {output} cannot be written: {error.strerror} ({path}). Name a folder that you may write to"


def _with_reasons(result: dict[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """Returns the result of a job, with the most frequent reasons for rejected events."""
    from kindcast.spark_jobs.output import quarantine_reasons

    if not result.get("quarantined"):
        return result
    told: dict[str, Any] = {}
    for name, value in result.items():
        told[name] = value
        if name == "quarantined":
            told["quarantine_reasons"] = quarantine_reasons(Path(given.output))
    return told


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spark_jobs", description="Archives and streams through the matcher.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, about in (
        ("match", _match, "an archive against all subscriptions"),
        ("normalise", _normalise, "a raw archive to canonical events"),
        ("learn", _learn, "statistics of predicates and values"),
        ("stream", _stream, "a stream against all subscriptions"),
        ("backtest", _backtest, "one expression over an archive"),
    ):
        command = commands.add_parser(name, help=about)
        command.set_defaults(run=run)
        command.add_argument("--archive", metavar="PATH", help="a file or folder: JSON lines, CSV, Parquet")
        command.add_argument("--output", type=Path, required=name != "backtest", metavar="DIR")
        command.add_argument("--ontology", type=Path, action="append", default=[], metavar="FILE")
        command.add_argument(
            "--relations", default="", metavar="NAMES", help="relations to keep as hierarchies, separated by commas"
        )
        command.add_argument("--reason", default="none", choices=("none", "rdfs", "owl"), help="what to infer")
        command.add_argument(
            "--declarations",
            type=Path,
            metavar="FILE",
            help="JSON: attributes, synonyms, rates, schemas, contexts, code_systems, aliases, splits, unions, reading",
        )
        command.add_argument(
            "--subscriptions", type=Path, metavar="FILE", help="NDJSON: an object with id and expression on each line"
        )
        command.add_argument("--inputs", type=Path, metavar="DIR", help="records as fetched from a server")
        command.add_argument("--shards", type=int, metavar="N", help="number of parts of the subscriptions")
        command.add_argument(
            "--master", metavar="MASTER", help="the Spark master; default: local[*], or that of spark-submit"
        )
        command.add_argument("--time", metavar="NAME", help="the member of plain data with the time of the event")
        command.add_argument("--numbers", default="", metavar="NAMES", help="columns of CSV that hold numbers")
        if name in ("match", "stream"):
            command.add_argument("--explode", action="store_true", help="one row per match instead of per event")
            command.add_argument("--matched-only", action="store_true", help="no rows for events without matches")
        if name == "match":
            command.add_argument(
                "--distinct",
                action="store_true",
                help="only the first event with the same source, id and declared revision",
            )
        if name == "stream":
            command.add_argument("--source", default="files", metavar="NAME", help="files, socket, kafka, …")
            command.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the source")
            command.add_argument(
                "--window",
                default="1 hour",
                help="how long a second event with the same source, id and declared revision counts as a repetition",
            )
            command.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="between micro-batches")
            command.add_argument("--once", action="store_true", help="stop when all present data is matched")
            command.add_argument("--outbox", action="store_true", help="write matches for POST /v1/matches, too")
        if name == "backtest":
            command.add_argument("--expression", metavar="TEXT")
            command.add_argument("--language", default="en", metavar="TAG", help="language of labels in explanations")
            command.add_argument(
                "--asked", type=Path, metavar="FILE", help="JSON: expression and language; beside `operator_data`"
            )
    return parser


def _match(given: argparse.Namespace) -> dict[str, Any]:
    from kindcast.spark_jobs.match import Chosen, match_archive

    chosen = Chosen(explode=given.explode, matched_only=given.matched_only)
    archive = _archive(given)
    _check_subscriptions(given)
    with _snapshot(given) as snapshot:
        return match_archive(
            _session(given),
            archive,
            given.output,
            snapshot,
            chosen=chosen,
            read=_read(given),
            distinct=given.distinct,
            progress=as_lines,
        )


def _normalise(given: argparse.Namespace) -> dict[str, Any]:
    from kindcast.spark_jobs.normalise import normalise_archive

    archive = _archive(given)
    with _snapshot(given) as snapshot:
        return normalise_archive(_session(given), archive, given.output, snapshot, read=_read(given), progress=as_lines)


def _learn(given: argparse.Namespace) -> dict[str, Any]:
    from kindcast.spark_jobs.learn import learn_archive

    archive = _archive(given)
    with _snapshot(given) as snapshot:
        return learn_archive(_session(given), archive, given.output, snapshot, read=_read(given), progress=as_lines)


def _backtest(given: argparse.Namespace) -> dict[str, Any]:
    from kindcast.spark_jobs.match import backtest_archive

    archive = _archive(given)
    expression, language, hides_linked = _asked(given)
    data = None if given.asked is None else given.asked.absolute().with_name("operator_data")  # for workers anywhere
    with tempfile.TemporaryDirectory(prefix="kindcast-") as below:
        snapshot = _inputs(given).snapshot(Path(below))
        return backtest_archive(
            *(_session(given), archive, snapshot, expression),
            read=_read(given),
            progress=as_lines,
            note=tell_note,
            language=language,
            data=data,
            hides_linked=hides_linked,
        )


def _asked(given: argparse.Namespace) -> tuple[str | dict[str, Any], str, bool]:
    """Returns the expression of a backtest, as text or tree, the language of its explanations, and whether samples of
    linked data are hidden."""
    if given.asked is not None:
        asked = json.loads(given.asked.read_text(encoding="utf-8"))
        return asked["expression"], asked["language"], asked["hides_linked"]
    expression = _needed(given.expression, "--expression")
    return json.loads(expression) if expression.startswith("{") else expression, given.language, False


def _stream(given: argparse.Namespace) -> dict[str, Any]:
    from kindcast.spark_jobs.output import Output
    from kindcast.spark_jobs.stream import FILES

    for each in given.option:
        if "=" not in each:
            raise JobFailed(f"--option {each}: write name=value")
    if not WINDOW.fullmatch(given.window):
        raise JobFailed(f"--window {given.window!r} is no time: write for example '1 hour' or '90 minutes'")
    options = dict(each.partition("=")[::2] for each in given.option)
    if given.source == FILES:
        options.setdefault("path", _needed(given.archive, "--archive"))
        if "://" not in options["path"] and not Path(options["path"]).is_dir():
            raise NoArchive(f"there is no folder {options['path']}: name the folder where files arrive")
    _check_subscriptions(given)
    with Output(given.output).held():
        return _streamed(given, options)


def _streamed(given: argparse.Namespace, options: Mapping[str, str]) -> dict[str, Any]:
    from kindcast.spark_jobs.match import Chosen
    from kindcast.spark_jobs.output import worst_of
    from kindcast.spark_jobs.stream import Written, start_stream, stream_events

    counts = {"batches": 0, "events": 0, "matches": 0, "quarantined": 0}

    def told(batch: int, written: Written) -> None:
        counts["batches"] += 1
        for name, number in asdict(written).items():
            counts[name] += number
        unread = f", {written.quarantined} lines that are no events" if written.quarantined else ""
        as_lines(f"batch {batch}: {written.events} events, {written.matches} matches{unread}", counts["events"], None)

    newest = _Newest(_inputs(given), given.output, told=not given.once)  # reports errors before Java is started
    session = _session(given)
    query = start_stream(
        stream_events(session, given.source, options, _read(given)),
        given.output,
        newest,
        window=given.window,
        trigger_seconds=None if given.once else given.every,
        chosen=Chosen(explode=given.explode, matched_only=given.matched_only),
        outbox=given.outbox,
        told=told,
    )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    as_lines("waiting for events", 0, None)
    while query.isActive and is_heard() and not stopping.wait(0.2):
        pass
    query.stop()
    failure = query.exception()
    if failure is not None and not stopping.is_set():
        raise JobFailed(f"the stream ended: {worst_of(failure)}")
    return counts | {
        "subscriptions": sum(shard.subscriptions for shard in newest.snapshot.shards),
        "refused": [asdict(each) for each in newest.snapshot.refused],
    }


class _Newest:
    """Returns the snapshot of the inputs as they are now. If they cannot be read, the last snapshot stays in use, and a
    note says so. With `told`, notes name the subscriptions that are left out; the result names them at the end."""

    def __init__(self, inputs: "Inputs", output: Path, *, told: bool) -> None:
        self._inputs, self._below, self._told = inputs, output / "_kindcast" / "snapshots", told
        self._failure = ""
        self.snapshot = inputs.snapshot(self._below)
        self._tell()

    def __call__(self) -> "Snapshot":
        from kindcast.spark_jobs.snapshot import forget_older

        try:
            found, failure = self._inputs.snapshot(self._below), ""
        except (JobFailed, SemanticError, IndexingError, OSError) as error:
            found, failure = self.snapshot, f"the subscriptions stay as they are: {error}"
        if failure and failure != self._failure:
            tell_note(failure)
        self._failure = failure
        if found.folder != self.snapshot.folder:
            self.snapshot = found
            forget_older(found)
            self._tell()
        return found

    def _tell(self) -> None:
        for each in self.snapshot.refused if self._told else ():
            tell_note(f"{each.subscription} was left out: {each.reason}")


# ── what the commands share ─────────────────────────────────────────────────────────────────────────────────────────


def _session(given: argparse.Namespace) -> Any:
    from kindcast.spark_jobs.session import spark_session

    as_lines("start", 0, None)
    if given.master is not None and not MASTERS.match(given.master):
        raise JobFailed(
            f"--master {given.master} is not a Spark master: write local[2], spark://host:7077, k8s://… or yarn"
        )
    return spark_session(master=given.master)


@contextmanager
def _snapshot(given: argparse.Namespace) -> "Iterator[Snapshot]":
    """A context manager with the snapshot of the inputs. Older ones are deleted when the job has succeeded."""
    from kindcast.spark_jobs.snapshot import forget_older

    as_lines("compile", 0, None)
    snapshot = _inputs(given).snapshot(given.output / "_kindcast" / "snapshots")
    yield snapshot
    forget_older(snapshot)


def _inputs(given: argparse.Namespace) -> "Inputs":
    from kindcast.spark_jobs.snapshot import Inputs

    return Inputs(
        ontologies=tuple(given.ontology),
        relations=_names(given.relations),
        reason=given.reason,
        declarations=given.declarations,
        subscriptions=given.subscriptions,
        folder=given.inputs,
        shards=given.shards,
    )


def _check_subscriptions(given: argparse.Namespace) -> None:
    """Raises `JobFailed` if neither subscriptions nor inputs are given."""
    if given.subscriptions is None and given.inputs is None:
        raise JobFailed("--subscriptions is missing: name the file of subscriptions")


def _read(given: argparse.Namespace) -> Any:
    from kindcast.spark_jobs.reading import ReadOptions

    return ReadOptions(time_from=given.time, numbers=_names(given.numbers))


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _archive(given: argparse.Namespace) -> str:
    """Returns the path or URI of the archive. A note names the columns of `--numbers` that it does not have. Raises
    `JobFailed`."""
    from kindcast.spark_jobs.reading import check_archive, unknown_columns

    archive = _needed(given.archive, "--archive")
    check_archive(archive)
    if absent := unknown_columns(archive, _names(given.numbers)):
        tell_note(f"--numbers names {', '.join(absent)}, but no CSV file of the archive has such a column")
    return archive


def _needed(value: str | None, option: str) -> str:
    if value is None:
        raise JobFailed(f"{option} is missing")
    return value


def _stoppable() -> int:
    """Runs the command of this process. SIGTERM interrupts it, so that it removes its temporary folders."""
    stopped: list[int] = []

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        return main()
    finally:
        if stopped:
            with suppress(ChildProcessError, ProcessLookupError):  # something else waited for it
                _end_java()


def _end_java() -> None:
    """Ends the child of this process, which is Java. It does not notice the end of the job while it starts Spark."""
    found = [int(pid) for each in Path("/proc/self/task").glob("*/children") for pid in each.read_text().split()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in found:
            os.kill(pid, number)  # nobody else has the number before it is waited for
        deadline = time.monotonic() + JAVA_ENDS_WITHIN
        while found and time.monotonic() < deadline:
            found = [pid for pid in found if os.waitpid(pid, os.WNOHANG)[0] == 0]
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(_stoppable())
