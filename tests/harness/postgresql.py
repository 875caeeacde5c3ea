"""A PostgreSQL cluster of the tests' own, on a socket in a temporary folder, with a database for each who asks."""

import getpass
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

__all__ = ["PostgreSQL", "driver_url", "running_postgresql"]

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


class PostgreSQL:
    """A cluster that runs."""

    def __init__(self, folder: Path, user: str, control: Callable[[str], None]) -> None:
        self._folder, self._user, self._control = folder, user, control
        self._made = 0

    def restart(self) -> None:
        """Breaks off whatever it does, as when the power fails, and starts it again."""
        self._control("restart")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """All its processes stop until the end of the block. The system goes on accepting connections for it."""
        first = (self._folder / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0]
        others = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii").split()
        numbers = [int(first), *map(int, others)]
        for number in numbers:
            os.kill(number, signal.SIGSTOP)
        try:
            yield
        finally:
            for number in numbers:
                os.kill(number, signal.SIGCONT)

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._made += 1
        name = f"database_{self._made}"
        engine = create_engine(driver_url(self._url("postgres")), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://{self._user}@/{database}?host={self._folder}"


def driver_url(url: str) -> str:
    """The same for SQLAlchemy."""
    return url.replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """Skips the test where PostgreSQL, its driver, or a user who may run it is missing."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    if not PROGRAMS or not (PROGRAMS[-1] / "initdb").exists():
        pytest.skip("PostgreSQL is not installed: no initdb in /usr/lib/postgresql")
    folder = Path(tempfile.mkdtemp(prefix="kindcast-postgresql-"))  # others may not enter pytest's folder
    user = getpass.getuser()
    switch: list[str] = []
    if os.getuid() == 0:  # initdb refuses to run as root
        user = "nobody"
        if shutil.which("setpriv") is None:
            pytest.skip("PostgreSQL does not run as root, and there is no setpriv to leave it")
        account = pwd.getpwnam(user)
        switch = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        os.chown(folder, account.pw_uid, account.pw_gid)

    def call(program: str, *arguments: str) -> None:
        command = [*switch, str(PROGRAMS[-1] / program), *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=120)

    call("initdb", "-D", str(folder / "data"), "-U", user, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}'"

    def control(command: str) -> None:
        mode = () if command == "start" else ("-m", "immediate")
        call("pg_ctl", "-D", str(folder / "data"), "-l", str(folder / "log"), "-o", options, *mode, "-w", command)

    control("start")
    try:
        yield PostgreSQL(folder, user, control)
    finally:
        control("stop")
        shutil.rmtree(folder)
