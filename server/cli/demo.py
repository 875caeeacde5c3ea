"""The command `kindcast demo`: a guided tour on a temporary server."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from kindcast.server.cli import output
from kindcast.server.cli.matching import draw
from kindcast.server.cli.output import CommandFailed
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["CHEAPER", "JOHNS_OFFER", "OFFERS", "PAPER_WISH", "VOCABULARY", "WISHES", "running_server"]


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Subscriptions and events after the CTPS paper (section 3, Figures 1-3).

VOCABULARY = "shop.ttl"


@dataclass(frozen=True, slots=True)
class Wish:
    """A subscription. `plain` is the most similar one that is possible without a vocabulary."""

    who: str
    text: str
    plain: str


PAPER_WISH = Wish("Anna", "target isa Computer and price <= 400 USD", 'target = "Computer" and price <= 400 USD')
WISHES = (
    PAPER_WISH,
    Wish(
        "Bruno",
        "Artikel isa Drucker and not Zustand isa Gebraucht",
        'Artikel = "Drucker" and not Zustand = "Gebraucht"',
    ),
    Wish(
        "陈",
        "产品 isa 存储设备 and size >= 500 GB",
        '产品 = "存储设备" and size >= 500 GB',
    ),
    Wish(
        "Dora",
        'target isa "Mobile device" and seller.contact exists',
        'target = "Mobile device" and seller.contact exists',
    ),
)

JOHNS_OFFER: dict[str, Any] = {
    "target": "Desktop PC",
    "manufacturer": "HP",
    "price": {"value": 450, "currency": "USD"},
    "hardDisk": {"size": "40 GB", "manufacturer": "IBM"},
    "seller": {"name": "John", "cellPhoneNumber": "123456789"},
}
"""The event of the paper's Figure 2: a computer, but not for at most 400."""

CHEAPER: dict[str, Any] = {**JOHNS_OFFER, "price": {"value": 350, "currency": "USD"}}

OFFERS: tuple[dict[str, Any], ...] = (
    {"target": "Laser printer", "condition": "new", "price": "189 USD"},
    {"target": "notebook", "price": "349 USD", "seller": {"name": "Ms Okafor", "email": "okafor@example.org"}},
    {"target": "Maus", "price": "12 USD"},
    {"target": "Computer", "price": "380 USD"},
    {"target": "Multifunktionsdrucker", "Zustand": "neu", "Preis": "249 USD"},
    {"target": "固态硬盘", "size": "1 TB", "price": "79 USD"},
    JOHNS_OFFER,
    {"target": "Convertible", "price": "399.50 USD"},
    {"target": "Tintenstrahldrucker", "condition": "refurbished", "price": "35 USD"},
    {"target": "hard disk drive", "size": {"value": 250, "unit": "GB"}, "price": "15 USD"},
    {"target": "手机", "price": "120 USD", "seller": {"name": "Li", "电话": "555-0199"}},
    {"target": "台式机", "price": "310 USD", "seller": {"name": "王"}},
    CHEAPER,
)


# ── server ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A server process on a free local port, with a temporary folder. It is stopped at the end, and the folder is removed.

START_SECONDS = 60.0
"""The time limit for the start. Even a busy machine starts a server in some seconds."""
STOP_SECONDS = 10.0


class DemoServerFailed(Exception):
    """The server of the demonstration did not start. The message ends with its output."""


@contextmanager
def running_server() -> Iterator[str]:
    """A context manager with the address of a running server. Process and data are always removed afterwards.

    The caller's KINDCAST_* settings are not passed on, so that the demonstration is the same for everybody.
    """
    with tempfile.TemporaryDirectory(prefix="kindcast-demo-") as folder:
        log = Path(folder) / "server.log"
        command = [
            sys.executable,
            "-m",
            "kindcast.server.cli",
            "serve",
            "--port",
            "0",
            "--data",
            f"{folder}/data",
            "--json",
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KINDCAST_")}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
            )
        try:
            yield _address(process, log)
        finally:
            _stop(process)


def _address(process: "subprocess.Popen[str]", log: Path) -> str:
    """Returns the address that the server prints when it is ready. A server that ends before has failed."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait(START_SECONDS)
        raise DemoServerFailed(f"the server did not start:\n{log.read_text(encoding='utf-8', errors='replace')}")
    return str(json.loads(line)["listening"])


def _stop(process: "subprocess.Popen[str]") -> None:
    """Stops the server. A second Ctrl-C does not end the wait: a server that still stops would write into the folder
    while it is removed."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    signal.signal(signal.SIGINT, handler)


# ── subscribers ───────────────────────────────────────────────────────────────────────────────────────────────────────
# One thread per subscription, each with its own stream of server-sent events.


@dataclass(frozen=True, slots=True)
class Delivered:
    """A received message: its subscriber, its event, and when it came by `time.monotonic`."""

    wish: Wish
    sequence: str
    data: dict[str, Any]
    at: float


class Audience:
    """Subscribes for every wish and listens until the server stops. `ids` maps who → subscription."""

    def __init__(self, server: str, wishes: tuple[Wish, ...]) -> None:
        self.ids: dict[str, str] = {}
        self.canonical: dict[str, str] = {}
        self._server = server
        self._came: queue.Queue[Delivered] = queue.Queue()
        from kindcast.server.client import Client

        with Client(server) as client:
            for wish in wishes:
                created = client.subscribe(wish.text)
                self.ids[wish.who], self.canonical[wish.who] = created["id"], created["canonical"]
        for wish in wishes:
            # Daemon threads, because they wait in a read until the server ends.
            threading.Thread(target=self._listen, args=(wish,), daemon=True).start()

    def wait_for(self, count: int, seconds: float) -> list[Delivered]:
        """Returns the next `count` messages; fewer if they do not come in time."""
        deadline = time.monotonic() + seconds
        came: list[Delivered] = []
        while len(came) < count:
            try:
                came.append(self._came.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        return came

    def _listen(self, wish: Wish) -> None:
        from kindcast.server.client import Client

        try:
            with Client(self._server) as client:
                for message in client.listen(self.ids[wish.who], after="0"):
                    event = message["event"]
                    self._came.put(Delivered(wish, message["cursor"], event.get("data", {}), time.monotonic()))
        except ProblemError:
            return  # the demonstration is over


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Vocabulary, subscriptions, events, deliveries and explanations, in this order.

DELIVERY_SECONDS = 10.0
"""The time limit for deliveries. A delivery takes milliseconds, on an overloaded machine more."""
MISSED = "台式机"
"""The offer whose match needs a vocabulary, which the demonstration explains."""


class DeliveryMissing(Exception):
    """A match was decided and did not arrive. The demonstration then fails."""


def perform(screen: Console, *, pace: float) -> None:
    """Shows all steps on `screen`, with pauses of `pace` seconds. Raises if a result is not as expected."""
    from kindcast.server.client import Client

    began = time.monotonic()
    _headline(screen, "A server that understands kinds")
    with running_server() as server, Client(server) as client:
        _say(
            screen,
            f"A separate server started in {time.monotonic() - began:.1f} s on {server}, with a temporary folder.",
        )
        _load(screen, client)
        audience = _wish(screen, server, pace)
        delivered = _offer(screen, client, audience, pace)
        _compare(screen, delivered)
        _explain(screen, client, audience)
    _what_next(screen)
    _say(screen, f"The server and its data are removed. The demo took {time.monotonic() - began:.0f} s.", "dim")


def _load(screen: Console, client: "Client") -> None:
    from kindcast.semantic.shipped_vocabularies import shipped

    report = client.put_ontology("shop", shipped(VOCABULARY).read_bytes(), format="turtle")
    tongues = ", ".join(f"{count} labels in {tag}" for tag, count in report["languages"].items() if tag)
    _say(screen, f"{VOCABULARY} is loaded: {report['concepts']} kinds of things, {tongues}.")


def _wish(screen: Console, server: str, pace: float) -> Audience:
    _headline(screen, "Four people subscribe, each in their own words")
    audience = Audience(server, WISHES)
    for wish in WISHES:
        _pause(pace)
        screen.print(Text.assemble((f"{wish.who:>7}  ", "bold magenta"), wish.text))
    return audience


def _offer(screen: Console, client: "Client", audience: Audience, pace: float) -> list[Delivered]:
    _headline(screen, "Offers arrive as plain JSON; matches are delivered as server-sent events")
    delivered: list[Delivered] = []
    for offer in OFFERS:
        _pause(pace)
        screen.print(Text.assemble(("  offer  ", "bold"), json.dumps(offer, ensure_ascii=False)), soft_wrap=True)
        published = time.monotonic()
        answer = client.publish(offer)
        expected = int(answer["events"][0]["matched"] or 0)
        came = audience.wait_for(expected, DELIVERY_SECONDS)
        if len(came) < expected:
            raise DeliveryMissing(f"{expected} matches were decided, {len(came)} arrived in {DELIVERY_SECONDS:.0f} s")
        for each in sorted(came, key=lambda one: one.at):
            took = max(each.at - published, 0.0) * 1_000
            screen.print(
                Text.assemble(("      →  ", "green"), (each.wish.who, "bold magenta"), (f"  {took:.0f} ms", "dim"))
            )
        delivered += came
    return delivered


def _compare(screen: Console, delivered: list[Delivered]) -> None:
    """Shows the matches without a vocabulary: the same matcher with plain strings and numbers."""
    from kindcast.semantic import Matcher, Vocabulary  # other commands need no matcher

    plain = Matcher(Vocabulary.from_ontologies([]), engine="naive")  # compiles nothing
    for wish in WISHES:
        plain.add(wish.who, wish.plain)
    found = sum(len(plain.match(offer)) for offer in OFFERS)
    _headline(screen, "What plain string comparison would have found")
    _say(
        screen,
        f"{len(OFFERS)} offers gave {len(delivered)} matches. Without a vocabulary, subscriptions can only name "
        f"exact words ({PAPER_WISH.plain}, …): then the same offers give {found}.",
    )


def _explain(screen: Console, client: "Client", audience: Audience) -> None:
    anna = audience.ids[PAPER_WISH.who]
    for question, offer in (
        (f"Why did {PAPER_WISH.who} get the “{MISSED}”, which her subscription does not mention?", _missed_offer()),
        ("Why did she not get John's HP desktop for 450 dollars?", JOHNS_OFFER),
        ("And when John asked for 350?", CHEAPER),
    ):
        _headline(screen, question)
        told = client.explain(offer, anna)
        screen.print(draw(told))
        _say(screen, told["summary"], "bold")


def _missed_offer() -> dict[str, Any]:
    return next(offer for offer in OFFERS if offer["target"] == MISSED)


DOCS = "http://127.0.0.1:8080/docs"


def _what_next(screen: Console) -> None:
    _headline(screen, "What to try next")
    is_on_path = which("kindcast") is not None  # not if make demo began it
    path = "source .venv/bin/activate", "in two other terminals: put the command kindcast on the path"
    for command, does in (
        ("kindcast serve" if is_on_path else "make serve", f"a server that keeps running; try its API at {DOCS}"),
        *(() if is_on_path else (path,)),
        ("kindcast ontology load shop.ttl", "in a second terminal: load this vocabulary, or one of yours"),
        ("kindcast listen --to 'target isa Computer'", "wait there for offers"),
        ("""kindcast publish '{"target": "Notebook"}'""", "in a third terminal: publish one"),
    ):
        screen.print(Text.assemble("  ", (f"{command:<46}", "cyan"), does), soft_wrap=True)
    _say(screen, "README.md has the five-minute tour, docs/tutorial.md the rest.")


def _headline(screen: Console, text: str) -> None:
    screen.print()
    screen.print(Rule(Text(text, style="bold"), align="left", style="dim"))


def _say(screen: Console, text: str, style: str = "") -> None:
    screen.print(Text(text, style=style))


def _pause(pace: float) -> None:
    if pace > 0:
        time.sleep(pace)


# ── command ───────────────────────────────────────────────────────────────────────────────────────────────────────────

DEFAULT_PACE = 0.25
"""The seconds between two steps: long enough to read an offer, and the demonstration still takes only a few seconds."""


def demo(
    pace: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="The pause between two steps.")
    ] = DEFAULT_PACE,
) -> None:
    """Show what kindcast does on a temporary server: subscriptions by kind, offers, deliveries, and explanations."""
    signal.signal(signal.SIGTERM, output.leave)
    screen = output.screen()
    if not screen.file.isatty():  # `is_terminal` is also true if FORCE_COLOR is set
        screen.width = 110  # lines and trees, no rows of data
    try:
        perform(screen, pace=pace)
    except (DemoServerFailed, DeliveryMissing) as error:
        raise CommandFailed(str(error)) from error
