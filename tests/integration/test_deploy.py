"""The files of deploy/: a real nginx with the recipe in front of a real server, the systemd unit, the container files.

No container is started: machines that run this have no engine. What the files name is run without one.
"""

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from kindcast.server.settings import unknown_variables
from tests.harness.certificates import Authority
from tests.harness.ports import free_port
from tests.harness.postgresql import PostgreSQL
from tests.harness.server_process import running_server
from tests.harness.waiting import until

PATIENCE_SECONDS = 30.0
KINDCAST = (sys.executable, "-m", "kindcast.server.cli")
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
ANALYZE = shutil.which("systemd-analyze")
CLIENT_CONNECTIONS = 8
"""Of one client address. The recipe allows more."""
ANOTHER_ADDRESS = "127.0.0.2"
"""Of this machine, and of no proxy: clients connect from it."""


@dataclass(frozen=True)
class Front:
    """nginx in front of a server."""

    url: str
    direct: str
    key: dict[str, str]
    context: ssl.SSLContext

    def client(self, url: str | None = None, **headers: str) -> httpx.Client:
        transport = httpx.HTTPTransport(verify=self.context, local_address=ANOTHER_ADDRESS)
        return httpx.Client(
            base_url=url or self.url, transport=transport, headers=self.key | headers, timeout=PATIENCE_SECONDS
        )


def _recipe(text: str, changes: dict[str, str]) -> str:
    """The recipe, with what an administrator changes; each must stand in it once."""
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@contextmanager
def _running_nginx(folder: Path, recipe: str, port: int) -> Iterator[None]:
    assert NGINX is not None
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file, log = folder / "nginx.conf", folder / "error.log"
    user = "user root;" if os.geteuid() == 0 else ""  # else its workers may not enter the folder
    file.write_text(
        f"{user} daemon off; pid {folder}/nginx.pid; error_log {log}; worker_processes 1; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{recipe}\n}}\n",
        encoding="utf-8",
    )
    command = [NGINX, "-p", str(folder), "-e", str(log), "-c", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _listens(port):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, "nginx does not listen"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _listens(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS)
    except httpx.ConnectError:
        return False
    except httpx.HTTPError:
        pass
    return True


@pytest.fixture(scope="module")
def front(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    if NGINX is None:
        pytest.skip("this machine has no nginx")
    folder = tmp_path_factory.mktemp("nginx")
    folder.chmod(0o755)
    authority = Authority(folder)
    certificate, secret = authority.issue(folder)
    made = subprocess.run(
        [*KINDCAST, "key", "create", "--role", "admin", "--data", str(folder / "data"), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    settings = {"KINDCAST_TRUSTED_PROXIES": "127.0.0.1", "KINDCAST_ALLOWED_HOSTS": "kindcast.example"}
    with running_server(folder / "data", settings) as server:
        port = free_port()
        recipe = _recipe(
            (repository / "deploy" / "nginx.conf").read_text(encoding="utf-8"),
            {
                "server 127.0.0.1:8080;": f"server 127.0.0.1:{server.port};",
                "limit_conn kindcast_clients 128;": f"limit_conn kindcast_clients {CLIENT_CONNECTIONS};",
                "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
                "/etc/kindcast/server.pem": str(certificate),
                "/etc/kindcast/server.key": str(secret),
            },
        )
        context = ssl.create_default_context(cafile=authority.file)
        key = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}"}
        with _running_nginx(folder, recipe, port):
            yield Front(f"https://127.0.0.1:{port}", server.url, key, context)


def _subscribe(client: httpx.Client, expression: str) -> str:
    made = client.post("/v1/subscriptions", json={"expression": expression}).raise_for_status().json()
    return f"/v1/subscriptions/{made['id']}"


def _publish(client: httpx.Client, data: dict[str, Any]) -> None:
    assert client.post("/v1/events", json=data).raise_for_status().status_code == 202


def test_nginx_stream_gives_each_event_before_the_next_is_published(front: Front) -> None:
    """Nothing on the way keeps an event back until more have come."""
    with front.client() as client, front.client() as reader:
        path = _subscribe(client, "streamed exists")
        with reader.stream("GET", f"{path}/stream", params={"after": "0"}) as stream:
            assert stream.status_code == 200
            lines = stream.iter_lines()
            for number in range(3):
                _publish(client, {"streamed": number})
                line = next(each for each in lines if each.startswith("data:"))
                assert json.loads(line.removeprefix("data:"))["event"]["data"] == {"streamed": number}


def test_nginx_websocket_passes_frames_both_ways(front: Front) -> None:
    with front.client() as client:
        path = _subscribe(client, "framed exists")
        address = front.url.replace("https", "wss", 1) + f"{path}/ws?after=0"
        with connect(address, ssl=front.context, additional_headers=front.key) as websocket:
            _publish(client, {"framed": 1})
            message = json.loads(websocket.recv(timeout=PATIENCE_SECONDS))
            assert message["event"]["data"] == {"framed": 1}
            websocket.send(json.dumps({"ack": message["cursor"]}))
            assert json.loads(websocket.recv(timeout=PATIENCE_SECONDS)) == {"acked": message["cursor"]}


def test_nginx_audit_log_has_the_address_of_the_client_and_not_what_it_claims(front: Front) -> None:
    with front.client(**{"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9"}) as client:
        _subscribe(client, "addressed exists")
        entries = client.get("/v1/audit").raise_for_status().json()["entries"]
    seen = {entry["address"] for entry in entries if entry["action"] == "POST /v1/subscriptions"}
    assert seen == {ANOTHER_ADDRESS}


def test_nginx_passes_on_no_prefix_that_a_client_claims(front: Front) -> None:
    with front.client(**{"X-Forwarded-Prefix": "/elsewhere"}) as client:
        made = client.post("/v1/subscriptions", json={"expression": "prefixed exists"}).raise_for_status()
    assert made.headers["location"] == f"/v1/subscriptions/{made.json()['id']}"


def test_server_believes_no_forwarded_address_of_another_than_the_proxy(front: Front) -> None:
    """A client that goes round nginx cannot choose its address."""
    with front.client(front.direct, **{"X-Forwarded-For": "203.0.113.9"}) as client:
        _subscribe(client, "direct exists")
        entries = client.get("/v1/audit").raise_for_status().json()["entries"]
    assert "203.0.113.9" not in {entry["address"] for entry in entries}


def test_nginx_host_is_checked_by_the_server(front: Front) -> None:
    """The name of the recipe is allowed; the name of somebody else is refused."""
    with front.client() as client:
        assert client.get("/v1/subscriptions", headers={"Host": "kindcast.example"}).status_code == 200
        refused = client.get("/v1/subscriptions", headers={"Host": "elsewhere.example"})
        assert 400 <= refused.status_code < 500


def test_nginx_body_that_the_server_allows_is_passed_on(front: Front) -> None:
    """More than nginx's own bound of 1 MB."""
    with front.client() as client:
        _publish(client, {"large": "x" * 4_000_000})


def test_nginx_refuses_one_client_more_streams_than_others_leave_it(front: Front) -> None:
    """Otherwise one client takes all connections of nginx."""
    with ExitStack() as stack, front.client() as client:
        path = _subscribe(client, "many exists") + "/stream"
        statuses = [stack.enter_context(client.stream("GET", path)).status_code for _ in range(CLIENT_CONNECTIONS)]
        assert set(statuses) == {200}
        assert client.get("/v1/subscriptions").status_code == 429
    with front.client() as client:
        until(lambda: client.get("/v1/subscriptions").status_code == 200)


def _unit(repository: Path) -> str:
    return (repository / "deploy" / "kindcast.service").read_text(encoding="utf-8")


@pytest.mark.skipif(ANALYZE is None, reason="this machine has no systemd-analyze")
def test_systemd_accepts_the_unit(repository: Path, tmp_path: Path) -> None:
    """Every line is known to systemd. Only the program stands elsewhere: it must exist."""
    assert ANALYZE is not None
    unit = tmp_path / "kindcast.service"

    def complaints(text: str) -> str:
        unit.write_text(text, encoding="utf-8")
        ran = subprocess.run([ANALYZE, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
        return "".join(line for line in ran.stderr.splitlines(True) if "kindcast.service" in line)

    text = _recipe(_unit(repository), {"/opt/kindcast/bin/kindcast": "/bin/true"})
    assert complaints(text) == ""
    assert "ProtectSystm" in complaints(text.replace("ProtectSystem=", "ProtectSystm="))


def test_unit_command_and_variables_start_a_server(repository: Path, tmp_path: Path) -> None:
    """The settings that it names exist, and the data comes to the folder that it names."""
    text = _unit(repository)
    (command,) = re.findall(r"^ExecStart=/opt/kindcast/bin/kindcast (.+)$", text, re.M)
    (variables,) = re.findall(r"^Environment=(.+)$", text, re.M)
    named = dict(each.split("=", 1) for each in shlex.split(variables))
    assert unknown_variables(named) == []
    moved = {name: f"{tmp_path}{folder}" for name, folder in named.items()}  # below the folder of the test
    environment = os.environ | moved

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*KINDCAST, *arguments], env=environment, capture_output=True, text=True, timeout=120)

    data = tmp_path / "var/lib/kindcast"
    started = run(*command.split(), "--detach", "--port", str(free_port()))
    try:
        assert started.returncode == 0, started.stderr
        assert (data / "kindcast.db").exists()
    finally:
        assert run("stop", "--data", str(data)).returncode == 0


def _compose(repository: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    loaded: dict[str, Any] = yaml.safe_load((repository / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def test_compose_command_and_variables_start_a_server_on_postgresql(
    repository: Path, tmp_path: Path, postgresql: PostgreSQL
) -> None:
    """As the image runs it, with folders, port and database of this test: a key is made first, and then it listens."""
    image = (repository / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    (variables,) = re.findall(r"^ENV PATH=\S+ (.+)$", image, re.M)
    named = dict(each.split("=", 1) for each in shlex.split(variables))
    told = _compose(repository)["services"]["server"]["environment"]
    assert told["KINDCAST_DATABASE"].startswith("postgresql+psycopg://")
    named |= told | {"KINDCAST_DATABASE": postgresql.new_database(), "KINDCAST_PORT": str(free_port())}
    assert unknown_variables(named) == []
    named["KINDCAST_DATA"] = f"{tmp_path}{named['KINDCAST_DATA']}"
    del named["KINDCAST_CACHE"]  # its kernels would be compiled for this test alone

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*KINDCAST, *arguments]
        return subprocess.run(command, env=os.environ | named, capture_output=True, text=True, timeout=120)

    made = run("key", "create", "--role", "admin", "--data", named["KINDCAST_DATA"], "--json")
    assert made.returncode == 0, made.stderr
    (command,) = re.findall(r"^CMD (\[.+\])$", image, re.M)
    started = run(*json.loads(command), "--detach")
    try:
        assert started.returncode == 0, started.stderr
        headers = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}", "Host": "server"}
        url = f"http://127.0.0.1:{named['KINDCAST_PORT']}/v1/subscriptions"
        assert httpx.get(url, headers=headers).status_code == 200
        assert httpx.get(url, headers={"Host": "server"}).status_code == 401
    finally:
        assert run("stop", "--data", named["KINDCAST_DATA"]).returncode == 0


def test_compose_connector_waits_for_its_broker(repository: Path) -> None:
    """Its options and variables exist. Where nobody listens it tries again until it is told to stop."""
    connector = _compose(repository)["services"]["connector"]
    assert unknown_variables(connector["environment"]) == []
    arguments = [each.replace("broker:4222", f"127.0.0.1:{free_port()}") for each in connector["command"]]
    process = subprocess.Popen(
        [*KINDCAST, *arguments, "--server", "http://127.0.0.1:9"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        assert process.stderr is not None
        told = [process.stderr.readline().decode() for _ in range(2)]
        assert "the broker cannot be reached" in told[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_image_is_made_of_files_that_exist(repository: Path) -> None:
    """The lock files that it installs are here, and not among what the build leaves out."""
    image = (repository / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    locks = re.findall(r"-r (\S+)", image)
    assert locks
    left_out = (repository / ".dockerignore").read_text(encoding="utf-8").split()
    for name in (*locks, "pyproject.toml", "README.md", "server", "kindcast"):
        assert (repository / name).exists()
        assert name not in left_out
