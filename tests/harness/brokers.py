"""Real message brokers of the tests' own, on free ports, that a test may kill and start again on the same data.

Where a broker is not installed, tests skip and say so (Debian: `make brokers`).
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.ports import free_port

__all__ = [
    "SAVED_SECONDS",
    "Broker",
    "KafkaCluster",
    "Secured",
    "running_kafka",
    "running_mosquitto",
    "running_nats",
    "running_rabbitmq",
    "running_redis",
]

PATIENCE_SECONDS = 240.0
SAVED_SECONDS = 3.0
"""After which a broker has saved what it confirmed: mosquitto saves every second."""
FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


class Broker:
    """One process on one port and one folder, at most."""

    def __init__(
        self, scheme: str, port: int, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.log = folder / "broker.log"
        self._command, self._folder = command, folder
        self._environment = os.environ | dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens. A process that does not is killed."""
        try:
            self._start()
        except BaseException:
            self.kill()
            raise

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._listens():
            assert self._process.poll() is None, self.log.read_text("utf-8", "replace")
            assert time.monotonic() < until, self.log.read_text("utf-8", "replace")
            time.sleep(0.02)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to it and its children."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: it confirms nothing until `go_on`."""
        assert self._process is not None, "not started"
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        assert self._process is not None, "not started"
        os.killpg(self._process.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):  # children may outlive it
                os.killpg(self._process.pid, how)
            self._process.wait(PATIENCE_SECONDS)
            until = time.monotonic() + PATIENCE_SECONDS
            while self._listens() and time.monotonic() < until:  # a child may end later than its parent
                time.sleep(0.02)


def program(name: str, package: str) -> str:
    """Its path; skips the test where it is not installed."""
    found = shutil.which(name, path=FOLDERS)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {package})")
    return found


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with TLS alone, for one user. Its certificate is for 127.0.0.1 and localhost."""

    certificate: Path
    key: Path
    user: str
    password: str


@contextmanager
def _running(broker: Broker) -> Iterator[Broker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@contextmanager
def running_mosquitto(
    folder: Path, secured: Secured | None = None, rights: str | None = None, settings: str = ""
) -> Iterator[Broker]:
    """An MQTT broker that saves its sessions to disk every second. It always writes all: after each change is slow.
    `rights` are the lines of its file of access rights, `settings` more lines of its settings."""
    path = program("mosquitto", "mosquitto")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    if secured is None:
        access = "allow_anonymous true\n"
    else:
        users = folder / "users"
        users.touch(mode=0o600)
        subprocess.run(
            [program("mosquitto_passwd", "mosquitto"), "-b", str(users), secured.user, secured.password],
            check=True,
            capture_output=True,
        )
        access = f"password_file {users}\ncertfile {secured.certificate}\nkeyfile {secured.key}\n"
    if rights is not None:
        (folder / "rights").write_text(rights)
        (folder / "rights").chmod(0o600)
        access += f"acl_file {folder}/rights\n"
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\n{access}persistence true\npersistence_location {folder}/\n"
        "autosave_interval 1\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        f"user {os.environ.get('USER', 'root') if os.getuid() else 'root'}\n{settings}"
    )
    scheme = "mqtt" if secured is None else "mqtts"
    with _running(Broker(scheme, port, [path, "-c", str(folder / "mosquitto.conf")], folder)) as broker:
        yield broker


@contextmanager
def running_nats(folder: Path, secured: Secured | None = None, settings: str | None = None) -> Iterator[Broker]:
    """A NATS server with JetStream, on disk. `settings` are the lines of its file."""
    path = program("nats-server", "nats-server")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [path, "-a", "127.0.0.1", "-p", str(port), "--jetstream", "--store_dir", str(folder)]
    if secured is not None:
        command += ["--tls", "--tlscert", str(secured.certificate), "--tlskey", str(secured.key)]
        command += ["--user", secured.user, "--pass", secured.password]
    if settings is not None:
        (folder / "nats.conf").write_text(settings)
        command += ["-c", str(folder / "nats.conf")]
    with _running(Broker("nats" if secured is None else "tls", port, command, folder)) as broker:
        yield broker


@contextmanager
def running_rabbitmq(folder: Path, secured: Secured | None = None) -> Iterator[Broker]:
    """RabbitMQ with queues on disk, and a port mapper (epmd) of its own, which Erlang would otherwise start as a daemon
    that nobody ends."""
    path = program("rabbitmq-server", "rabbitmq-server")
    folder.mkdir(parents=True, exist_ok=True)
    program_folder = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"), None)
    if program_folder is not None:
        path = str(program_folder / "rabbitmq-server")  # Debian's wrapper insists on an account of its own
    port, distribution, mapper = free_port(), free_port(), free_port()
    if secured is None:
        access = f"listeners.tcp.1 = 127.0.0.1:{port}\n"
    else:
        access = (
            f"listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{port}\nssl_options.verify = verify_none\n"
            f"ssl_options.certfile = {secured.certificate}\nssl_options.keyfile = {secured.key}\n"
            f"default_user = {secured.user}\ndefault_pass = {secured.password}\n"
        )
    (folder / "rabbitmq.conf").write_text(
        f"{access}loopback_users = none\nlog.console = true\nlog.file = false\n"
        "vm_memory_high_watermark.relative = 0.6\ndisk_free_limit.absolute = 10MB\n"
    )
    environment = {
        "HOME": str(folder),
        "RABBITMQ_BASE": str(folder),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_NODENAME": f"kindcast{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2",
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    (folder / "plugins").write_text("[].\n")
    scheme = "amqp" if secured is None else "amqps"
    with (
        _running(Broker("epmd", mapper, [program("epmd", "erlang-base")], folder, environment)),
        _running(Broker(scheme, port, [path], folder, environment)) as broker,
    ):
        yield broker


@contextmanager
def running_redis(folder: Path, secured: Secured | None = None) -> Iterator[Broker]:
    """Redis that writes each command to a file before it answers."""
    path = program("redis-server", "redis-server")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [path, "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes", "--save", ""]
    if secured is None:
        command += ["--port", str(port)]
    else:
        command += ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"]
        command += ["--tls-cert-file", str(secured.certificate), "--tls-key-file", str(secured.key)]
        command += ["--tls-ca-cert-file", str(secured.certificate)]
        command += ["--user", secured.user, "on", f">{secured.password}", "~*", "+@all", "--user", "default", "off"]
    with _running(Broker("redis" if secured is None else "rediss", port, command, folder)) as broker:
        yield broker


class KafkaCluster:
    """The mock cluster of librdkafka, in this process: topics in memory, a group coordinator, no other guarantees."""

    def __init__(self, brokers: int = 1) -> None:
        from confluent_kafka import Producer

        settings = {"test.mock.num.brokers": brokers, "bootstrap.servers": "", "linger.ms": 5}
        self._producer = Producer(settings | {"message.max.bytes": 100_000_000})
        places = self._producer.list_topics(timeout=PATIENCE_SECONDS).brokers.values()
        self.url = "kafka://" + ",".join(f"{each.host}:{each.port}" for each in places)

    def publish(
        self, topic: str, *records: tuple[bytes, Mapping[str, str]], key: str | None = None, time: int = 0
    ) -> None:
        """Returns when the cluster has them. `time` is theirs, in milliseconds; 0 is now."""
        for body, headers in records:
            while True:
                try:
                    self._producer.produce(topic, body, key=key, headers=dict(headers), timestamp=time)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(PATIENCE_SECONDS) == 0


@contextmanager
def running_kafka() -> Iterator[KafkaCluster]:
    """Skips the test where librdkafka is not installed."""
    pytest.importorskip("confluent_kafka", reason="the extra `connect` is not installed")
    yield KafkaCluster()
