"""A server with a certificate: https, wss, new certificates without a restart, and clients that trust its authority."""

import contextlib
import errno
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from kindcast.server.api import http_protocol
from kindcast.server.api.http_protocol import ServerCertificate
from kindcast.server.cli import serve
from kindcast.server.client import Client, ServerUnreachable
from kindcast.server.errors import CertificateUnusable
from tests.harness.certificates import Authority
from tests.harness.server_thread import running_app
from tests.integration.conftest import Kindcast
from tests.integration.test_server_keys import until

PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> tuple[Path, Path]:
    return authority.issue(tmp_path)


@pytest.fixture
def server(files: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    with running_app(tmp_path / "data", tls_certificate=files[0], tls_key=files[1]) as url:
        yield url


def _context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def _serial(url: str, authority: Authority) -> str:
    """Of the certificate that a new connection meets."""
    port = httpx.URL(url).port
    assert port is not None
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as plain,
        _context(authority).wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        assert secure.version() in ("TLSv1.2", "TLSv1.3")
        assert secure.selected_alpn_protocol() is None
        told = secure.getpeercert()
        assert told is not None
        return str(told["serialNumber"])


def test_https_and_wss(server: str, authority: Authority, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients, commands, streams and WebSockets; who does not trust the authority is told what to do."""
    assert server.startswith("https://")
    with Client(server, ca=str(authority.file)) as client:
        made = client.subscribe("a exists")
        assert client.publish({"a": 1, "text": "x" * 200_000})["matched"] == 1
        message = next(client.listen(made["id"], after=0))
        assert len(message["event"]["data"]["text"]) == 200_000
    address = f"{server.replace('https', 'wss')}/v1/subscriptions/{made['id']}/ws?after=0"
    with connect(address, ssl=_context(authority), open_timeout=PATIENCE_SECONDS) as reader:
        assert json.loads(reader.recv(PATIENCE_SECONDS))["event"]["data"]["a"] == 1
    monkeypatch.setenv("KINDCAST_SERVER", server)
    refused = kindcast("subscriptions")
    assert (refused.status, "--ca FILE" in refused.err) == (1, True)
    assert kindcast("subscriptions", "--ca", str(authority.file)).status == 0
    missing = kindcast("subscriptions", "--ca", "nowhere.pem")
    assert (missing.status, "nowhere.pem" in missing.err) == (1, True)
    monkeypatch.setenv("KINDCAST_CA", str(authority.file))
    assert made["id"] in kindcast("subscriptions").out
    monkeypatch.delenv("KINDCAST_CA")
    with Client(server) as client, pytest.raises(ServerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        client.subscriptions()
    with pytest.raises(httpx.TransportError):  # no plain text at this port
        httpx.get(server.replace("https", "http"))


def test_sessions_are_for_https_only_there(server: str, authority: Authority) -> None:
    """The cookie is `Secure`, since the server knows that it speaks TLS itself."""
    with Client(server, ca=str(authority.file)) as client:
        key = client.create_key("admin")["key"]
    with httpx.Client(verify=_context(authority), headers={"Sec-Fetch-Site": "same-origin"}) as browser:
        told = browser.post(f"{server}/v1/session", json={"key": key})
        assert told.headers["set-cookie"].startswith("__Host-kindcast-")
        assert "Secure" in told.headers["set-cookie"]
        assert browser.get(f"{server}/v1/subscriptions").status_code == 200


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize(("days", "state"), [(-0.1, "problem"), (1, "warning"), (30, "ok")])
def test_doctor_says_until_when_the_certificate_is_valid(
    days: float, state: str, runs: bool, authority: Authority, tmp_path: Path, kindcast: Kindcast
) -> None:
    """That of the server that runs, or of the settings."""
    certificate, key = authority.issue(tmp_path, left=timedelta(days=days))
    (tmp_path / "settings.toml").write_text(f'tls_certificate = "{certificate}"\ntls_key = "{key}"\nport = 0\n')
    given = ("--config", str(tmp_path / "settings.toml"), "--data", str(tmp_path / "data"))
    with contextlib.ExitStack() as stack:
        if runs:
            url = stack.enter_context(running_app(tmp_path / "data", tls_certificate=certificate, tls_key=key))
            stack.enter_context(serve.running(tmp_path / "data", url))
        told = kindcast("doctor", *given, "--json")
    found = [each for each in told.json["checks"] if each["check"] == "certificate"]
    assert [each["state"] for each in found] == [state]


def test_new_certificate_without_a_restart(server: str, authority: Authority, files: tuple[Path, Path]) -> None:
    """Connections that there are go on; files that cannot be used change nothing."""
    first = _serial(server, authority)
    with httpx.Client(verify=_context(authority)) as old:
        assert old.get(f"{server}/readyz").status_code == 200
        authority.issue(files[0].parent)
        until(lambda: _serial(server, authority) != first)
        second = _serial(server, authority)
        files[0].write_text("no certificate")
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            assert _serial(server, authority) == second
            time.sleep(0.2)
        assert old.get(f"{server}/readyz").status_code == 200
        authority.issue(files[0].parent)
        until(lambda: _serial(server, authority) not in (first, second))


def test_new_files_are_used_when_their_permissions_are_corrected(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although their content is as it was when the server could not read them."""

    def forbidden(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(http_protocol, "LOOK_SECONDS", 0.0)
    certificate = ServerCertificate(*authority.issue(tmp_path))
    first = certificate.context()
    _, key = authority.issue(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", forbidden)
        assert certificate.context() is first
    assert certificate.context() is first
    key.chmod(0o640)
    assert certificate.context() is not first


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("missing", "cannot be read: No such file"),
        ("mismatch", "does not belong to the first certificate"),
        ("passphrase", "has a passphrase"),
        ("garbage", "must contain a certificate and its key"),
        ("no key", "or name the file of the key"),
    ],
)
def test_what_is_wrong_with_the_files_is_told(wrong: str, told: str, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue(tmp_path, passphrase=b"secret" if wrong == "passphrase" else None)
    if wrong == "missing":
        key.unlink()
    elif wrong == "mismatch":
        (tmp_path / "other").mkdir()
        certificate = authority.issue(tmp_path / "other")[0]
    elif wrong == "garbage":
        certificate.write_bytes(os.urandom(100))
    with pytest.raises(CertificateUnusable, match=told):
        ServerCertificate(certificate, None if wrong == "no key" else key)


def test_wrong_scheme_in_an_address_is_told(server: str, tmp_path: Path, kindcast: Kindcast) -> None:
    """Something listens there, so it does not help to start a server."""
    plain = server.replace("https:", "http:")
    assert f"Does it speak https? --server {server}" in kindcast("subscriptions", "--server", plain).err
    with running_app(tmp_path / "plain") as other:
        secure = other.replace("http:", "https:")
        assert f"Does it speak http? --server {other}" in kindcast("subscriptions", "--server", secure).err


def test_certificate_and_key_in_one_file(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue(tmp_path)
    certificate.write_bytes(key.read_bytes() + certificate.read_bytes())
    assert ServerCertificate(certificate, None).context() is not None


def test_serve_says_where_it_listens_or_why_not(
    files: tuple[Path, Path], authority: Authority, tmp_path: Path, kindcast: Kindcast
) -> None:
    options = ["serve", "--port", "0", "--data", str(tmp_path / "served"), "--tls-certificate", str(files[0])]
    failed = kindcast(*options)
    assert (failed.status, "must contain a certificate and its key" in failed.err) == (1, True)
    command = [sys.executable, "-m", "kindcast.server.cli", *options, "--tls-key", str(files[1]), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["listening"]
        assert httpx.get(f"{address}/readyz", verify=_context(authority)).status_code == 200
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_handshakes_that_are_never_finished(files: tuple[Path, Path], authority: Authority, tmp_path: Path) -> None:
    """They are closed after `header_seconds`, and at the limit of connections make room for others."""
    settings = {"max_connections_per_address": 4, "tls_certificate": files[0], "tls_key": files[1]}
    with running_app(tmp_path / "data", header_seconds=60.0, **settings) as url, contextlib.ExitStack() as stack:
        port = httpx.URL(url).port
        assert port is not None
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]
        assert httpx.get(f"{url}/readyz", verify=_context(authority)).status_code == 200
        for each in silent[:10]:
            each.settimeout(PATIENCE_SECONDS)
            assert _is_closed(each)
    with running_app(tmp_path / "more", header_seconds=0.3, **settings) as url:
        port = httpx.URL(url).port
        assert port is not None
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as each:
                each.sendall(sent)
                assert _is_closed(each), sent


def _is_closed(connection: socket.socket) -> bool:
    """Whether the server ends it, perhaps after an alert of TLS."""
    try:
        return connection.recv(1_000) == b"" or connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(("trusted", "everywhere"), [(True, False), (False, False), (True, True)])
def test_a_proxy_speaks_tls(trusted: bool, everywhere: bool, tmp_path: Path) -> None:
    """What it says of its client counts if it is trusted: scheme and address; also where the server listens on `::`,
    and the system writes IPv4 addresses as IPv6 ones."""
    proxies = ("127.0.0.1",) if trusted else ()
    with running_app(tmp_path, everywhere=everywhere, trusted_proxies=proxies) as url:
        port = httpx.URL(url).port
        client_address = "::ffff:192.0.2.7" if everywhere else "192.0.2.7"  # nginx may listen in the same way
        forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": client_address}
        first = httpx.post(f"{url}/v1/keys", json={"role": "admin"}).json()["key"]  # a proxy may not make it
        key = {"Authorization": f"Bearer {first}"}
        with httpx.Client(headers=forwarded) as client:
            made = client.post(f"{url}/v1/keys", json={"role": "auditor"}, headers=key)
            assert made.status_code == 201
            page = {"Origin": f"https://127.0.0.1:{port}"}  # the page that a browser has from the proxy
            assert client.post(f"{url}/v1/keys", json={"role": "auditor"}, headers=key | page).status_code == (
                201 if trusted else 403
            )
            entries = client.get(f"{url}/v1/audit", headers=key).json()["entries"]
        assert {each["address"] for each in entries} == {"192.0.2.7" if trusted else "127.0.0.1"}
