"""PostgreSQL with the right indexes: subscriptions as rows, an event as a query.

| asked for | stands as | found by |
|---|---|---|
| a string | its number, -1 where none is asked | B-tree over all strings, `= ANY (-1, value)` |
| a concept | the node | B-tree over all concepts, `= ANY (the value and all above it)` |
| numbers only | `int4range` of the first ones | GiST over them, `@> value`; the others are compared |

The planner is free to scan instead; its statistics are fresh. A server of our own is started in a temporary folder, on
a socket, with memory for everything, and ended with it.
"""

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tests.benchmarks.baselines.conditions import Ints, intervals
from tests.benchmarks.workload_papers import CONCEPT, NUMBER, STRING, Drawing

__all__ = ["Postgres", "PostgresServer", "missing"]

RANGES = 4
"""Ranges in the GiST index: with more, it grows faster than it narrows."""
SETTINGS = "-c shared_buffers=1GB -c work_mem=256MB -c maintenance_work_mem=512MB -c fsync=off -c max_wal_size=8GB"
"""Memory for everything, and no waiting for a disk; one worker a query, as all others have."""
ONE_WORKER = "-c max_parallel_workers_per_gather=0 -c max_parallel_maintenance_workers=0 -c jit=off"


def missing() -> str:
    """What a server needs and is not here; empty where all is."""
    if _initdb() is None:
        return "PostgreSQL is not installed: no initdb in /usr/lib/postgresql or on the path"
    if find_spec("psycopg") is None:
        return "psycopg is not installed: pip install -e '.[bench]'"
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and there is no setpriv to leave it"
    return ""


class PostgresServer:
    """A cluster of its own, as a context. Raises `RuntimeError` with what is `missing`."""

    def __init__(self) -> None:
        initdb = _initdb()
        if initdb is None or missing():
            raise RuntimeError(missing())
        self._programs = initdb.parent
        self._user, self._switch = getpass.getuser(), list[str]()
        self.folder = Path(tempfile.mkdtemp(prefix="kindcast-postgres-"))
        if os.getuid() == 0:  # initdb refuses to run as root
            account = pwd.getpwnam("nobody")
            self._user = account.pw_name
            self._switch = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
            os.chown(self.folder, account.pw_uid, account.pw_gid)

    @property
    def address(self) -> str:
        """What `psycopg.connect` takes."""
        return f"host={self.folder} user={self._user} dbname=postgres"

    def __enter__(self) -> "PostgresServer":
        data = str(self.folder / "data")
        try:
            self._call("initdb", "-D", data, "-U", self._user, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
            options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' {SETTINGS} {ONE_WORKER}"
            self._call("pg_ctl", "-D", data, "-l", str(self.folder / "log"), "-o", options, "-w", "start")
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._switch, str(self._programs / program), *arguments]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, timeout=120)


class Postgres:
    """A drawing in a server. Exact. `match` is one prepared query."""

    def __init__(self, drawing: Drawing, server: PostgresServer) -> None:
        import psycopg

        self._drawing = drawing
        self._connection = psycopg.connect(server.address, autocommit=True)
        self._names = [j for j, kind in enumerate(drawing.kinds) if kind != NUMBER]
        self._ranges = [] if self._names else list(range(min(RANGES, len(drawing.kinds))))
        self._compared = [j for j in range(len(drawing.kinds)) if j not in self._ranges and drawing.kinds[j] == NUMBER]
        self._node_of = {int(place): node for node, place in zip(*_walked(drawing), strict=True)}
        columns = [f"name{j} int4 NOT NULL" for j in self._names] + [f"range{j} int4range" for j in self._ranges]
        columns += [f"low{j} int4 NOT NULL, high{j} int4 NOT NULL" for j in self._compared]
        self._run(f"CREATE TABLE subscriptions (id int4 NOT NULL, {', '.join(columns)})")
        self._copy()
        if self._names:
            self._run(f"CREATE INDEX ON subscriptions ({', '.join(f'name{j}' for j in self._names)})")
        else:
            self._run(f"CREATE INDEX ON subscriptions USING gist ({', '.join(f'range{j}' for j in self._ranges)})")
        self._run("VACUUM (ANALYZE) subscriptions")
        conditions = [f"name{j} = ANY (%s)" for j in self._names] + [f"range{j} @> %s::int4" for j in self._ranges]
        conditions += [f"low{j} <= %s AND high{j} >= %s" for j in self._compared]
        self._query = f"SELECT id FROM subscriptions WHERE {' AND '.join(conditions)}"

    def match(self, event: Ints) -> Ints:
        """The numbers of the subscriptions that `event` matches, ascending."""
        values = event.tolist()
        given: list[Any] = [self._operands(j, values[j]) for j in self._names]
        given += [values[j] for j in self._ranges]
        given += [value for j in self._compared for value in (values[j], values[j])]
        found = self._connection.execute(self._query, given, prepare=True).fetchall()
        return np.sort(np.array([row[0] for row in found], dtype=np.int32))

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def _operands(self, j: int, value: int) -> list[int]:
        """What a subscription may ask of this value."""
        if self._drawing.kinds[j] == STRING:
            return [-1, value]
        above, node = [-1], self._node_of[value]
        while node >= 0:
            above.append(node)
            node = (node - 1) // 2 if node else -1
        return above

    def _copy(self) -> None:
        drawing = self._drawing
        low, high = intervals(drawing)
        concepts = [j for j, kind in enumerate(drawing.kinds) if kind == CONCEPT]
        columns: list[list[Any]] = [list(range(low.shape[1]))]
        for j in self._names:
            if j in concepts:
                columns.append(np.where(drawing.asked[:, j], drawing.nodes[:, concepts.index(j)], -1).tolist())
            else:
                columns.append(low[j].tolist())
        columns += [
            [f"[{least},{most}]" for least, most in zip(low[j].tolist(), high[j].tolist(), strict=True)]
            for j in self._ranges
        ]
        columns += [each for j in self._compared for each in (low[j].tolist(), high[j].tolist())]
        with self._connection.cursor().copy("COPY subscriptions FROM STDIN") as copy:
            for row in zip(*columns, strict=True):
                copy.write_row(row)

    def _run(self, statement: str) -> None:
        self._connection.execute(statement)  # type: ignore[call-overload]


def _initdb() -> Path | None:
    """Of the newest version that is installed."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    beside = shutil.which("initdb")
    return programs[-1] if programs else Path(beside) if beside else None


def _walked(drawing: Drawing) -> tuple[list[int], list[int]]:
    """Nodes of the tree, and their places in a walk from the root; none where there are no concepts."""
    if CONCEPT not in drawing.kinds:
        return [], []
    nodes, places = [], []
    waiting = [(0, 0, drawing.height)]
    while waiting:
        node, place, height = waiting.pop()
        nodes.append(node)
        places.append(place)
        if height:
            waiting += [(2 * node + 1, place + 1, height - 1), (2 * node + 2, place + (1 << height), height - 1)]
    return nodes, places
