"""The snippets of docs/webhooks.md accept what the server signs, and refuse what somebody else sends."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kindcast.server.delivery.webhook import Delivery, WebhookSender
from tests.harness.receiver import Received, running_receiver

SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = '{"cursor":"42","event":{"data":{"target":"Größe"}},"bindings":[],"subscription":"sub_1"}'
CASES = {
    "as sent": (SECRET, None, True),
    "while the secret is rotated": (OTHER, SECRET, True),
    "another secret": (OTHER, None, False),
    "another body": (SECRET, None, False),
    "an old timestamp": (SECRET, None, False),
}


def sent(secret: str, old: str | None) -> Received:
    """A delivery as a receiver gets it, over a real connection."""

    async def send(url: str) -> None:
        sender = WebhookSender(allow_private=True, timeout=30.0)
        await sender.send(
            Delivery(sink=url, secret=secret, old_secret=old, message_id="msg_sub_1_42", body=BODY.encode())
        )
        await sender.close()

    with running_receiver() as receiver:
        asyncio.run(send(receiver.url + "/hook"))
        return receiver.requests()[0]


@pytest.fixture(params=CASES)
def received(request: pytest.FixtureRequest) -> tuple[Received, bool]:
    """What arrives, and whether it is genuine."""
    secret, old, genuine = CASES[request.param]
    got = sent(secret, old)
    headers = {name.lower(): value for name, value in got.headers.items()}
    if request.param == "an old timestamp":
        headers["webhook-timestamp"] = str(int(headers["webhook-timestamp"]) - 3_600)
    body = got.body.replace(b"42", b"43") if request.param == "another body" else got.body
    return replace(got, headers=headers, body=body), genuine


def snippet(repository: Path, language: str) -> str:
    found = re.findall(
        rf"^```{language}\n(.*?)^```$", (repository / "docs" / "webhooks.md").read_text("utf-8"), re.M | re.S
    )
    return str(found[0])


def test_python_snippet(repository: Path, received: tuple[Received, bool]) -> None:
    names: dict[str, Any] = {}
    exec(snippet(repository, "python"), names)
    got, genuine = received
    assert names["is_genuine"](got.headers, got.body, SECRET) is genuine


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_javascript_snippet(repository: Path, tmp_path: Path, received: tuple[Received, bool]) -> None:
    got, genuine = received
    asked = ", ".join(json.dumps(each) for each in (got.headers, got.body.decode(), SECRET))
    (tmp_path / "check.mjs").write_text(
        f"{snippet(repository, 'javascript')}\nconsole.log(isGenuine({asked}));", "utf-8"
    )
    seen = subprocess.run(["node", "check.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == str(genuine).lower()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_shell_snippet(repository: Path, tmp_path: Path, received: tuple[Received, bool]) -> None:
    got, genuine = received
    (tmp_path / "body.json").write_bytes(got.body)
    given = {name: got.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")} | {"secret": SECRET}
    command = ["bash", "-c", snippet(repository, "bash")]
    seen = subprocess.run(command, cwd=tmp_path, env=os.environ | given, capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == ("genuine" if genuine else "forged")
