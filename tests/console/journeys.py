"""What people do in the console, step by step, in a real browser. Tests run these journeys; `make console-pictures`
makes a picture wherever one of them calls `shot`.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import httpx

from kindcast.semantic.shipped_vocabularies import shipped
from tests.harness.browser import Browser
from tests.harness.operator_service import running_service
from tests.harness.receiver import running_receiver

__all__ = [
    "JOURNEYS",
    "Shot",
    "access",
    "brick",
    "deliveries",
    "first_visit",
    "health",
    "live",
    "operators",
    "subscribe",
    "vocabulary",
]

Shot = Callable[[str], None]
"""Takes a picture under a name."""

REAL_DATA = Path(folder) if (folder := os.environ.get("KINDCAST_TEST_DATA")) else None
COMPUTER = "https://kindcast.dev/ontologies/shop#Computer"
TABLE_FITS = "[...document.querySelectorAll('.table')].some((each) => each.scrollWidth <= each.clientWidth)"


def first_visit(browser: Browser, address: str, shot: Shot) -> None:
    """An empty server: the first match in three clicks, and why."""
    browser.open(f"{address}/")
    browser.see("Welcome to kindcast")
    shot("start")
    browser.click("Load shop", "button")
    browser.see("shop is loaded")
    browser.double_click("Subscribe", "li button")
    browser.see("this browser keeps its ticket")
    another = httpx.post(f"{address}/v1/subscriptions", json={"expression": "price <= 320 USD"}).json()
    browser.double_click("Send three events")
    browser.see("2 of 3 events matched")  # events, not matches
    httpx.delete(f"{address}/v1/subscriptions/{another['id']}", headers={"Kindcast-Ticket": another["ticket"]})
    shot("first-match")
    _answers(browser, "v1/events", "told.events.forEach((each) => { each.matched = null; })")  # as shards answer
    browser.run("document.querySelector('h2[tabindex]').parentElement.remove()")
    browser.click("Send three events")
    browser.see("2 of 3 events matched")
    browser.click("Why not?", "a")
    browser.see("Event 6", "No match because of price alone")
    shot("why-not")
    browser.open(f"{address}/console#/constructor")  # is no page
    browser.see("What there is", "Send an event")
    begun = "localStorage.setItem('kindcast.first', JSON.stringify({name: 'shop', subscription: 'deleted'}))"
    browser.run(f"{begun}; location.reload()")  # of another server, or long ago
    browser.see("What there is", "Send an event")
    browser.wait("document.querySelectorAll('.figure b')[2].innerText === '1'")  # now, not at the last measurement
    browser.type("Event as JSON", json.dumps({"k" * 4000: 2**63 + 1}))
    browser.click("Send", "main button")
    browser.see("kkk … kkk", "publish it as a string", within="#said")  # long, and nothing of it is above the screen
    assert browser.run("return document.getElementById('said').getBoundingClientRect().top") >= 0
    assert len(httpx.get(f"{address}/v1/subscriptions").json()["subscriptions"]) == 1  # not two by a double click
    assert len(httpx.get(f"{address}/v1/events").json()["events"]) == 6
    shot("overview")


def vocabulary(browser: Browser, address: str, shot: Shot) -> None:
    """Search in another language, the tree by keyboard, a new version compared and tried before it is in force, and
    back; a word that nobody understood becomes a synonym."""
    browser.open(f"{address}/console#/vocabulary")
    browser.see("Hierarchy", "Product")
    browser.type("Search in any language", "台式")
    browser.click("Desktop PC", ".results button")
    browser.see("Who asks for it", "#1")
    browser.click("Product", "[role=treeitem] .node")
    browser.wait("document.querySelectorAll('[role=treeitem]').length > 3")
    browser.wait("document.querySelector('h2')?.innerText && document.body.innerText.includes('#Product')")
    count = browser.run("return document.querySelectorAll('[role=treeitem]').length")
    browser.press("Down", "Right")
    browser.wait("document.querySelectorAll('[role=treeitem]').length > arguments[0]", count)
    browser.press("Enter")
    browser.wait("document.querySelector('.picture .here text')?.textContent !== 'Product'")
    _hold(browser, "concepts/around?term=https%3A%2F%2Fkindcast.dev%2Fontologies%2Fshop%23Party&")
    browser.click("Party", "[role=treeitem] .node")
    browser.click("Condition of a product", "[role=treeitem] .node")
    browser.wait("document.querySelector('.picture')?.ariaLabel.startsWith('Condition')")
    _let_go(browser)
    assert "Condition" in browser.run("return document.querySelector('.picture').ariaLabel")  # not the one before
    browser.run("window.answering = window.fetch; window.fetch = () => Promise.reject(new TypeError('away'))")
    browser.type("Search in any language", "Comp")
    browser.see("The server does not answer.", within=".results")
    page = "new Response('<html>Bad Gateway</html>', {status: 502})"
    browser.run(f"window.fetch = () => Promise.resolve({page})")
    browser.type("Search in any language", "Compu")
    browser.see("A proxy answered in place of the server: HTTP 502", within=".results")
    browser.run("window.fetch = (path, options) => window.answering('/' + path, options)")  # a proxy's path is removed
    browser.run("history.replaceState(null, '', '/behind/console'); location.hash = '#/vocabulary/upload'")
    browser.wait(f"document.querySelector('.how pre')?.textContent.includes('{address}/behind/v1/ontologies/NAME')")
    browser.open(f"{address}/console#/vocabulary?term=Computer")
    browser.see("A device that runs programs", "电脑", "concepts beneath it: 1")
    browser.wait("document.querySelector('[role=treeitem][tabindex=\\'0\\']').dataset.iri === arguments[0]", COMPUTER)
    shot("concept")

    newer = shipped("shop").read_text("utf-8").replace("rdfs:subClassOf shop:Laptop ;", "rdfs:subClassOf shop:Device ;")
    browser.open(f"{address}/console#/vocabulary/upload")
    browser.see("Drop a file here")
    for file, offered in (("_möbel.ttl", "m-bel"), ("家具.ttl", ""), ("n" * 101 + ".ttl", "n" * 100)):
        _drop(browser, file, "")
        assert browser.run("return document.querySelector('input[pattern]').value") == offered  # a name that is allowed
    _drop(browser, "another.ttl", "")
    _drop(browser, "shop.ttl", newer)
    name = browser.run("return document.querySelector('input[pattern]').value")
    assert name == "shop"  # not that of the file before
    browser.type("Name", "a shop")
    assert browser.run("return document.querySelector('input[pattern]').validity.patternMismatch")
    assert browser.run("return document.querySelector('input[pattern]').title").startswith("English letters, digits")
    browser.type("Name", "shop")
    browser.click("Upload", "main button")
    browser.see("Version 2 of shop is stored, and not in force yet")
    shot("upload")
    browser.click("See what it would change", "a")
    browser.see("moved: 3", "Chromebook")
    browser.click("Dry run", "button")
    browser.see("1 of 1 live subscriptions would mean something else", "loses 3")
    shot("dry-run")
    browser.click("Put version in force", "button")
    browser.see("Version 2 is in force", "Done: what it did", "loses 3")
    assert httpx.get(f"{address}/v1/ontologies/shop").json()["version"] == 2
    browser.click("Roll back", "button")
    browser.see("Version 1 is in force")
    assert httpx.get(f"{address}/v1/ontologies/shop").json()["version"] == 1

    for price in (1, 2):
        httpx.post(f"{address}/v1/events", json={"target": "Klapperkiste", "price": price}).raise_for_status()
    httpx.post(f"{address}/v1/events", json={"target": "Compter", "price": 3}).raise_for_status()
    browser.open(f"{address}/console#/vocabulary/unknown")
    browser.see("Klapperkiste", "Compter")
    shot("unknown-terms")
    browser.click("= Computer", "button")
    browser.see("now means Computer")
    assert httpx.get(f"{address}/v1/concepts/resolve?term=Compter").json()["candidates"][0]["iri"] == COMPUTER

    wide = f'<urn:k:0> <http://www.w3.org/2000/01/rdf-schema#label> "{"W" * 50}" .\n' + "".join(
        f"<urn:k:{each}> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <urn:k:Top> .\n" for each in range(501)
    )
    httpx.put(f"{address}/v1/ontologies/wide?format=nt", content=wide).raise_for_status()
    browser.open(f"{address}/console#/vocabulary/constructor")  # is no part
    browser.see("Hierarchy")
    browser.click("Top", "[role=treeitem] .node")
    browser.see("500 of 501 are shown")
    fits = "text.getBBox().width <= text.parentElement.querySelector('rect').getBBox().width"
    browser.wait(f"[...document.querySelectorAll('.picture text')].length > 20 && {_every('.picture text', fits)}")
    page = httpx.get(f"{address}/v1/concepts/children?term=urn:k:Top&limit=500").json()
    rest = httpx.get(f"{address}/v1/concepts/children?term=urn:k:Top&cursor={page['cursor']}").json()["concepts"]
    browser.run("location.hash = '#/vocabulary?term=' + arguments[0]", rest[0]["iri"])
    browser.wait("document.querySelector('[aria-selected=true]')?.dataset.iri === arguments[0]", rest[0]["iri"])
    httpx.delete(f"{address}/v1/ontologies/wide").raise_for_status()


def _every(selector: str, condition: str) -> str:
    """Whether a condition about `text` holds for all elements, in JavaScript."""
    return f"[...document.querySelectorAll('{selector}')].every((text) => {condition})"


def _answers(browser: Browser, path: str, change: str) -> None:
    """The page gets answers of `path` with a change of what was `told`."""
    browser.run(
        f"""
        const fetched = window.fetch;
        window.fetch = async (path, options) => {{
            const answer = await fetched(path, options);
            if (path !== "{path}") return answer;
            const told = await answer.json();
            {change};
            return new Response(JSON.stringify(told), {{status: answer.status, headers: answer.headers}});
        }};
        """
    )


def _hold(browser: Browser, part: str) -> None:
    """Requests whose address has `part` wait until `_let_go`, as if the server were slow."""
    browser.run(
        """
        const fetched = window.fetch, held = new Promise((go) => { window.letGo = go; });
        window.late = [];
        window.fetch = async (path, options) => {
            if (!String(path).includes(arguments[0])) return fetched(path, options);
            const answer = held.then(() => fetched(path, options));
            window.late.push(answer.then((it) => it.clone().text()));
            return answer;
        };
        """,
        part,
    )


def _let_go(browser: Browser) -> None:
    """Returns when the answers have come and the page has done something about them, if it does."""
    browser.run_later(
        """
        const done = arguments[0];
        window.letGo();
        Promise.all(window.late).then(() => setTimeout(() => requestAnimationFrame(done), 100));
        """
    )


def _drop(browser: Browser, name: str, content: str) -> None:
    """Lets a file fall where files are dropped."""
    browser.run(
        """
        const carried = new DataTransfer();
        carried.items.add(new File([arguments[1]], arguments[0]));
        const drop = document.querySelector(".drop");
        drop.dispatchEvent(new DragEvent("dragover", {dataTransfer: carried, cancelable: true, bubbles: true}));
        drop.dispatchEvent(new DragEvent("drop", {dataTransfer: carried, cancelable: true, bubbles: true}));
        """,
        name,
        content,
    )


def brick(browser: Browser, address: str, shot: Shot) -> None:
    """Brick, a real vocabulary of some 1,700 concepts, where the test data are: uploaded and in force, searched, its
    tree opened down to what was found; a subscription to a kind, and an event of a kind beneath it in another unit."""
    if REAL_DATA is None:
        return
    browser.open(f"{address}/console#/vocabulary/upload")
    browser.see("Drop a file here")
    _drop(browser, "Brick-1.5.ttl", (REAL_DATA / "ontologies" / "Brick-1.5.ttl").read_text("utf-8"))
    browser.click("Put it in force at once", "label")
    browser.click("Upload", "main button")
    browser.see("Version 1 of Brick-1.5 is in force.", "deprecated")
    shot("brick-upload")
    browser.open(f"{address}/console#/vocabulary")
    browser.type("Search in any language", "zone air temperature sens")
    browser.click("Zone Air Temperature Sensor", ".results button")
    browser.wait("document.querySelector('.picture .here text')")
    browser.wait("document.querySelector('[role=treeitem][aria-selected=true] .node')?.innerText.includes('Zone Air')")
    browser.see("Subscriptions that name it or one of the", "Subscribe to this kind")
    shot("brick-concept")
    browser.open(f"{address}/console#/subscribe")
    browser.type("What do you want to hear of?", 'type isa "Temperature Sensor" and value > 30 degC')
    browser.see("value is more than 30")
    browser.type("Name (yours)", "Hot rooms")
    browser.click("Create the subscription", "button")
    browser.see("The subscription is made")
    event = {"type": "https://brickschema.org/schema/Brick#Zone_Air_Temperature_Sensor", "value": "88 degF"}
    told = httpx.post(f"{address}/v1/events", json=event).raise_for_status().json()["events"][0]
    assert told["matched"] == 1
    browser.open(f"{address}/console#/live?event={told['sequence']}")
    browser.see("Why, or why not", "read as")
    browser.wait("[...document.querySelectorAll('.path span')].some((each) => each.innerText === 'Temperature Sensor')")
    shot("brick-why")


def subscribe(browser: Browser, address: str, shot: Shot) -> None:
    """An expression written with completions, a mistake mended by a click, its past, a test, and the subscription."""
    browser.open(f"{address}/console#/subscribe")
    browser.see("What it means")
    browser.open(f"{address}/console#/subscribe?concept={COMPUTER.replace('#', '%23')}")
    browser.see("target is a kind of Computer")
    browser.type("What do you want to hear of?", "price > 7")
    browser.see("price is more than 7")
    browser.run("document.getElementById('expression').id = 'before'")
    browser.run("document.querySelector('.tools select').dispatchEvent(new Event('change'))")
    browser.wait("document.getElementById('expression')")  # the page is drawn again
    assert browser.run("return document.getElementById('expression').value") == "price > 7"
    browser.type("What do you want to hear of?", "target isa Festpl")
    browser.see("Hard disk", within=".completions")
    shot("completions")
    browser.press("Enter")
    browser.wait("document.getElementById('expression').value === 'target isa Festplatte '")
    browser.see("target is a kind of Hard disk")
    browser.type("What do you want to hear of?", 'note = "don\'t"')
    shown = "[...document.querySelectorAll('pre')].some((each) => each.textContent.includes(arguments[0]))"
    browser.wait(shown, "kindcast backtest 'note = \"don'\\''t\"'")  # one word of a shell
    browser.type("What do you want to hear of?", "target isa Compter2 and price <= 400 USD")
    browser.see("Did you mean")
    browser.wait("document.querySelector('.editor mark')?.textContent === 'Compter2'")
    shot("mistake")
    for written, suggestion, corrected in (
        ("price <= 400 usd and note exists", "USD", "price <= 400 USD and note exists"),
        ("price between [5 USD, 10 usd]", "USD", "price between [5 USD, 10 USD]"),
        ("price == 400", "=", "price = 400"),
        ("price<=400&&note exists", "and", "price<=400 and note exists"),
        ("price < $400", "400 USD", "price < 400 USD"),
        ("target isa 'Hard dsk'", "Hard disk", 'target isa "Hard disk"'),
        ('note = "\U0001f600" and target isa Compter2', "Computer", 'note = "\U0001f600" and target isa Computer'),
    ):
        browser.run(_WRITE, written)
        browser.click(suggestion, ".note button")
        assert browser.run("return document.getElementById('expression').value") == corrected
        browser.see("In plain words")
    browser.run(_WRITE, "price between 5 and 10")
    browser.see("Did you mean", "[5, 10]")  # to be written by hand: it is no name
    assert not browser.run("return document.querySelector('.note button')")
    browser.run(_WRITE, 'note = "\U0001f600"')  # JavaScript counts this character twice
    browser.see("note is \U0001f600")
    browser.run(_WRITE, 'note = "\U0001f600" and target isa Festpl')
    browser.see("Hard disk", within=".completions")
    browser.press("Enter")
    browser.wait(
        "document.getElementById('expression').value === arguments[0]", 'note = "\U0001f600" and target isa Festplatte '
    )
    assert browser.run_later(_CHANGE_AT_ONCE) == 0  # the past of what stands there no longer is not asked for
    browser.type("What do you want to hear of?", "target isa Computer and price <= 400 USD")
    browser.see("target is a kind of Computer and price is at most 400 USD")
    browser.see("It would have matched", "events of the last week", "This excludes the most events")
    browser.open(f"{address}/console#/health")
    browser.see("Events a second")
    browser.open(f"{address}/console#/subscribe")  # what was written is still there
    browser.see("target is a kind of Computer and price is at most 400 USD")
    browser.click("Try it on the next events", "button")
    browser.see("Waiting for events")

    def tried() -> bool:
        httpx.post(f"{address}/v1/events", json={"target": "Laptop", "price": "20 USD"}).raise_for_status()
        return "✓ matches" in browser.text("body")

    browser.until(tried, "an event that was tried")
    event = {"specversion": "1.0", "id": "none", "source": "urn:no-data", "type": "t"}
    body = json.dumps([event, event | {"id": "large", "data": {"target": "Laptop", "price": 3, "text": "x" * 9_000}}])
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    httpx.post(f"{address}/v1/events", content=body, headers=headers).raise_for_status()
    browser.see("urn:no-data", '"price":3,')  # also an event without data, and one that the stream leaves out
    for text, mistakes in (
        ("price <= (", True),
        ("target isa Computer and price <= 400 USD", False),
    ):  # of what is written now
        browser.type("What do you want to hear of?", text)
        shown = "return !!document.querySelector('.columns > :last-child > :last-child > .note')"
        browser.until(lambda shown=shown, wanted=mistakes: tried() and browser.run(shown) == wanted, text)
    browser.type("Name (yours)", "Cheap computers")
    before = len(httpx.get(f"{address}/v1/subscriptions").json()["subscriptions"])
    browser.double_click("Create the subscription")
    browser.see("The subscription is made", "Ticket and secret are shown only now")
    assert len(httpx.get(f"{address}/v1/subscriptions").json()["subscriptions"]) == before + 1
    shot("subscribed")


_WRITE = """
    const text = document.getElementById("expression");
    text.focus();
    text.value = arguments[0];
    text.selectionStart = text.selectionEnd = text.value.length;
    text.dispatchEvent(new Event("input"));
"""
"""Writes an expression. The driver of the browser cannot type characters beyond the first plane of Unicode."""

_CHANGE_AT_ONCE = """
    const [done] = arguments, text = document.getElementById("expression");
    const write = (value) => { text.value = value; text.dispatchEvent(new Event("input")); };
    const begun = performance.now();
    new MutationObserver((_, seen) => {
        if (!document.body.innerText.includes("price is more than 77")) return;
        seen.disconnect();
        write("price > (");
        const backtests = () => performance.getEntriesByType("resource")
            .filter((each) => each.startTime > begun && each.name.includes("/backtests"));
        setTimeout(() => done(backtests().length), 1500);
    }).observe(document.body, {childList: true, subtree: true});
    write("price > 77");
"""
"""Changes an expression as soon as its meaning is shown. Gives how many backtests were begun since."""


def live(browser: Browser, address: str, shot: Shot) -> None:
    """Events appear as they come; pause holds them; a click tells why."""
    browser.open(f"{address}/console#/live")
    browser.see("only events that matched")
    browser.wait("document.querySelectorAll('.event').length > 0")
    event = {"specversion": "1.0", "id": "a", "source": "urn:shop:1", "type": "offer"}
    httpx.put(f"{address}/v1/schemas/offer", json={"x-kindcast-retracts": "withdraws"}).raise_for_status()

    def send(id: str, data: object) -> None:
        headers = {"Content-Type": "application/cloudevents+json"}
        body = json.dumps(event | {"id": id, "data": data})
        httpx.post(f"{address}/v1/events", content=body, headers=headers).raise_for_status()

    def seen() -> bool:
        send("first", {"target": "Tablet", "price": "77 USD"})  # once; later ones are repetitions
        return "77 USD" in browser.text(".stream")

    browser.until(seen, "the event")
    focused = "return document.activeElement.dataset.sequence"
    chosen = browser.run("document.querySelector('.event').focus(); " + focused)
    send("focus", {"target": "Tablet", "price": "66 USD"})
    browser.see("66 USD", within=".stream")
    assert browser.run(focused) == chosen  # the focus stays where it was
    browser.click("Pause", "button")
    send("second", {"target": "Tablet", "price": "88 USD"})
    browser.see("Paused; events that wait: 1")
    assert "88 USD" not in browser.text(".stream")
    browser.click("Go on", "button")
    browser.see("88 USD", within=".stream")
    first = browser.run("return document.querySelectorAll('.event')[2].dataset.sequence")
    _hold(browser, f"events/{first}/trace")
    browser.click("77 USD", ".event")
    browser.click("88 USD", ".event")
    browser.see("Why, or why not", "satisfies", '"88 USD"')
    _let_go(browser)
    assert '"88 USD"' in browser.text(".columns > :last-child")  # not the one that was chosen before
    browser.wait("[...document.querySelectorAll('.path span')].map((each) => each.innerText).includes('Computer')")
    shot("live")
    chosen = browser.run("return document.querySelector('.event[aria-current]').dataset.sequence")
    browser.command("POST", "/refresh")
    browser.see(f"Event {chosen}", '"88 USD"')  # what is shown is in the address
    send("tiny", {"target": "Tablet", "price": "0.0000003 USD"})
    browser.click("0.0000003 USD", ".event")
    browser.see("3E-7 USD", within=".predicate:last-child")
    made = httpx.get(f"{address}/v1/subscriptions").json()["subscriptions"][0]
    browser.open(f"{address}/console?of-a-source#/live?subscription={made['id']}&source=urn:shop:1")
    browser.see("88 USD", within=".stream")
    assert "台式机" not in browser.text(".stream")
    assert browser.text(".event .when").startswith("#")  # when it came to this page says nothing about the event
    send("third", {"withdraws": "second"})
    browser.see("withdraws event ", within=".stream")
    assert f"/v1/subscriptions/{made['id']}/stream" in browser.run(
        "return document.querySelector('.how pre').textContent"
    )
    browser.click("withdraws event", ".event")
    browser.see("withdraws event", within=".event[aria-current]")
    browser.command("POST", "/refresh")
    browser.wait("document.querySelector('main select')?.value === arguments[0]", made["id"])
    assert "source=urn%3Ashop%3A1&event=" in browser.run("return location.hash")


def deliveries(browser: Browser, address: str, shot: Shot) -> None:
    """Why a webhook is late; pausing with the ticket that the browser keeps; without it the server refuses."""
    with running_receiver() as receiver:
        receiver.script("/late", *[500] * 50)
        name = "Odd \u202ename" + "!" * 150  # a character that turns the direction is shown, and moves nothing
        body = {"expression": f'price > 400 or note = "{"x" * 40}"', "metadata": {"name": name}}
        odd = httpx.post(f"{address}/v1/subscriptions", json=body).raise_for_status().json()
        body = {"expression": "price <= 400", "sink": f"{receiver.url}/late", "metadata": {"name": "Late webhook"}}
        made = httpx.post(f"{address}/v1/subscriptions", json=body).raise_for_status().json()
        httpx.post(f"{address}/v1/events", json={"price": 4}).raise_for_status()
        for page in ("#/deliveries", "?of-a-state#/deliveries?status=bogus"):  # is no state that is offered
            browser.open(f"{address}/console{page}")
            browser.see("Late webhook", "Odd \\u202ename")
        body = {"expression": f'note = "{"W" * 9000}"', "metadata": {"name": "\U0001f600" * 5_000}}
        long = httpx.post(f"{address}/v1/subscriptions", json=body).raise_for_status().json()
        for page in ("deliveries", "start"):  # one long text leaves room for all others
            browser.open(f"{address}/console?long#/{page}")
            browser.see("Late webhook", "\U0001f600…", "WW…")
            browser.wait("document.documentElement.scrollHeight < 5000")
        browser.open(f"{address}/console#/deliveries")
        browser.see("WW…")
        browser.wait(TABLE_FITS)
        browser.wait("document.querySelector('tbody tr').innerText.includes('WW…')")  # the newest is the first
        shot("deliveries")
        browser.type("Search in names, ids and expressions", "late WEBHOOK")
        browser.press("Enter")
        browser.wait("document.querySelectorAll('tbody tr').length === 1")
        browser.see("Late webhook", within="tbody")
        browser.wait("document.querySelector('.how pre').textContent.includes('q=late+WEBHOOK')")
        for each in (odd, long):
            httpx.delete(f"{address}/v1/subscriptions/{each['id']}", headers={"Kindcast-Ticket": each["ticket"]})
        browser.open(f"{address}/console#/deliveries/{made['id']}")
        browser.see(
            "Delivery is late: attempts that failed in a row", "the sink answered 500", "The next attempt is at"
        )
        shot("late-webhook")
        browser.click("Pause", "button")
        browser.see("does not have it: paste it here")
        assert httpx.get(f"{address}/v1/subscriptions/{made['id']}").json()["status"] != "paused"
        browser.type("Ticket", f" \u200b{made['ticket']}\u201d")  # with what was copied beside it
        browser.press("Enter")
        browser.wait("!document.body.innerText.includes('does not have it: paste it here')")
        browser.click("Pause", "button")
        browser.see("It is paused")
        browser.wait("document.activeElement.innerText === 'Resume'")  # the focus stays for whoever uses the keyboard
        assert httpx.get(f"{address}/v1/subscriptions/{made['id']}").json()["status"] == "paused"
        browser.click("Resume", "button")
        browser.see("It matches again")
        browser.click("Send a test message", "button")
        browser.see("Test message: failed (500")
        receiver.recover("/late")
        browser.click("Replay", "button")
        browser.see("It is read again from cursor")
        browser.wait("document.activeElement.innerText === 'Replay'")
        browser.see("Nothing waits.")
        headers = {"Kindcast-Ticket": made["ticket"]}
        httpx.delete(f"{address}/v1/subscriptions/{made['id']}", headers=headers).raise_for_status()


def health(browser: Browser, address: str, shot: Shot) -> None:
    """Figures now, and the operators."""
    browser.open(f"{address}/console#/health")
    browser.see("Events a second", "ready", "Operators")
    shot("health")
    drawn = "plot('p', [0, 60, 120], [null, 5, null], String).outerHTML"
    plot = browser.run_later(f"import('./console/dom.js').then(({{plot}}) => arguments[0]({drawn}))")
    assert "now –, most 5" in plot  # not now
    assert 'd="M240.0 8.0h0"' in plot  # a dot
    _hold(browser, "v1/subscriptions")
    browser.run("location.hash = '#/deliveries'")
    browser.wait("document.querySelector('main[aria-busy=true] h1').innerText === 'Health'")  # not yet the new page
    _let_go(browser)
    browser.wait("document.querySelector('main:not([aria-busy]) h1').innerText === 'Deliveries'")


def operators(browser: Browser, address: str, shot: Shot) -> None:
    """Why an event matched, and why another did not, where a service decides it; its cost and answers in Health."""
    with running_service() as service:
        for name, path in (("crowded", "yes"), ("raining", "no")):
            body = {"url": f"{service.url}/{path}", "arguments": 1, "attributes": ["spot"]}
            httpx.put(f"{address}/v1/operators/{name}", json=body).raise_for_status()
        made = []
        for expression in ("crowded(@spot)", "raining(@spot)"):
            body = {"expression": f"spot exists and {expression}"}
            made.append(httpx.post(f"{address}/v1/subscriptions", json=body).raise_for_status().json())
        event = httpx.post(f"{address}/v1/events", json={"spot": "Harbour"}).raise_for_status().json()["events"][0]

        def decided() -> bool:
            trace = httpx.get(f"{address}/v1/events/{event['sequence']}/trace").raise_for_status().json()
            return not trace["undecided"]

        browser.until(decided, "the answers of the services")
        for each, name, shown in zip(made, ("crowded", "raining"), ("yes", "no"), strict=True):
            browser.open(f"{address}/console#/live?event={event['sequence']}&subscription={each['id']}")
            browser.see("Why, or why not", f"{name}(@spot)", "The operator took")
            shot(f"operator-{shown}")
        browser.open(f"{address}/console#/health")
        browser.see("crowded", "raining", "closed: calls go through")
        shot("health-operators")
        for each in made:
            headers = {"Kindcast-Ticket": each["ticket"]}
            httpx.delete(f"{address}/v1/subscriptions/{each['id']}", headers=headers).raise_for_status()


def languages(browser: Browser, address: str, shot: Shot) -> None:
    """The whole interface in German and Chinese, chosen in the menu, and kept."""
    browser.open(f"{address}/console#/start")
    made = (
        httpx.post(f"{address}/v1/subscriptions", json={"expression": "target isa Computer"}).raise_for_status().json()
    )
    event = httpx.post(f"{address}/v1/events", json={"target": "Laptop", "price": 5}).raise_for_status().json()
    pages = {
        "concept": "vocabulary?term=Computer",
        "upload": "vocabulary/upload",
        "versions": "vocabulary/versions/shop",
        "unknown-terms": "vocabulary/unknown",
        "subscribe": "subscribe",
        "why": f"live?event={event['events'][0]['sequence']}",
        "deliveries": "deliveries",
        "subscription": f"deliveries/{made['id']}",
        "health": "health",
        "access": "access",
    }
    for language, words in (("de", "Wortschatz"), ("zh", "词汇")):
        browser.open(f"{address}/console#/health")
        browser.wait("document.querySelector('main h1')")
        browser.run(  # while the page start is on its way
            """
            const choose = () => {
                const chosen = document.querySelector(".tools select");
                chosen.focus();
                chosen.value = arguments[0];
                chosen.dispatchEvent(new Event("change"));
            };
            addEventListener("hashchange", choose, { once: true });
            location.hash = "#/start";
            """,
            language,
        )
        browser.see(words)
        assert browser.run("return document.documentElement.lang") == language
        browser.wait("document.body.dataset.page === 'start'")
        browser.wait("document.activeElement.matches('.tools select')")  # it is set after the page is drawn
        shot(f"start-{language}")
        for name, page in pages.items():
            browser.open(
                f"{address}/console?{name}#/{page}"
            )  # another address, so that nothing of the page before is left
            browser.wait(
                "document.querySelector('main h1')?.innerText && !document.querySelector('main [aria-busy=true]')"
            )
            shot(f"{name}-{language}")
    browser.open(f"{address}/console#/start")
    browser.run("localStorage.removeItem('kindcast.language'); location.reload()")
    browser.see("What there is")


def access(browser: Browser, address: str, shot: Shot) -> None:
    """The first key, made and used in the console; a subscriber's key shows less, and ends its session with itself."""
    browser.open(f"{address}/console#/access")
    browser.see("There is no key: whoever reaches this server may do everything")
    shot("no-keys")
    browser.type("Name (yours)", "Ann" + "n" * 120)
    browser.click("Make a key", "button")
    browser.see("The key is made")
    admin = {"Authorization": f"Bearer {browser.text('.secret')}"}
    browser.click("Sign in with it", "button")
    browser.see("n (admin)", "Sign out")
    browser.wait(TABLE_FITS)
    browser.run("document.querySelector('form details input').value = '-5'")
    browser.click("Make a key", "button")
    browser.wait("document.querySelector('form details').open")  # else nobody sees what is wrong
    browser.run("document.querySelector('form details input').value = ''")
    browser.type("Name (yours)", "Kitchen")
    browser.click("Make a key", "button")
    browser.see("The key is made", "Kitchen")
    other = browser.text(".secret")
    shot("keys")
    browser.open(f"{address}/console#/access/tenants")
    browser.see("you act here")
    shot("tenants")
    httpx.post(f"{address}/v1/keys", json={"role": "auditor", "tenant": "other"}, headers=admin).raise_for_status()
    for tenant, event in (("other", "visibilitychange"), ("default", "focus")):
        browser.run_later(_CHOSEN_ELSEWHERE, tenant, event)
        browser.wait("document.querySelector('.tools').innerText.includes('other') === arguments[0]", tenant == "other")
    browser.open(f"{address}/console?in-another-tenant#/access/tenants")
    browser.click("Act here", "button")
    browser.see("· other", within=".tools")
    browser.open(f"{address}/console#/subscribe")
    browser.type("What do you want to hear of?", "price <= 77 USD")
    browser.see("It would have matched")
    for each in httpx.get(f"{address}/v1/keys", headers=admin).json()["keys"]:
        if each["tenant"] == "other":
            httpx.delete(f"{address}/v1/keys/{each['id']}", headers=admin).raise_for_status()
    httpx.delete(f"{address}/v1/tenants/other", headers=admin).raise_for_status()
    browser.click("Create the subscription", "button")  # in the tenant that the page shows, not in another one
    browser.see("there is no tenant 'other'", "You act in the tenant default now.", within="#said")
    browser.wait("!document.querySelector('.tools').innerText.includes('other')")
    browser.see("It would have matched")  # what was written
    made = httpx.get(f"{address}/v1/subscriptions?limit=1000", headers=admin).json()["subscriptions"]
    assert not [each for each in made if "77" in each["canonical"]]
    browser.open(f"{address}/console#/access/tenants")
    browser.see("you act here")
    limits = {"limits": {"subscriptions": 500, "matches_per_event": 900}}
    httpx.patch(f"{address}/v1/tenants/default", json=limits, headers=admin).raise_for_status()
    browser.run("location.reload()")
    browser.see("/ 500", "matches of an event: 900", within="table")
    browser.open(f"{address}/console#/access/usage")
    browser.see("Ann", within="table")
    shot("usage")
    browser.open(f"{address}/console#/access/audit")
    browser.see("signed in", "POST /v1/keys", within="table")
    shot("audit-log")
    browser.open(f"{address}/console?of-a-time#/access/audit?hours=ever")  # is no time that is offered
    browser.see("signed in", within="table")
    browser.click("Sign out", "button")
    browser.see("You have no key?")
    shot("sign-in")
    browser.type("Key", "kindcast_wrong")
    browser.press("Enter")
    browser.see("this key is unknown")
    browser.type("Key", other)
    browser.click("Sign in", "button")
    browser.see("Kitchen (subscriber)", "What there is")
    shown = browser.run(
        "return [...document.querySelectorAll('nav[aria-label=Pages] a')].map((each) => each.innerText)"
    )
    assert shown == ["Start", "Vocabulary", "Subscribe", "Live", "Deliveries"]
    shot("start-of-a-subscriber")
    browser.open(f"{address}/console#/health")
    browser.see("Your key has the role subscriber, which may not see this page.")
    browser.open(f"{address}/console#/live")
    browser.see("Choose an event")
    assert "all events" not in browser.text("main")
    browser.open(f"{address}/console#/subscribe")
    browser.type("What do you want to hear of?", "target isa Computer and price <= 400 USD")
    browser.see("It would have matched", "events of the last week")
    browser.open(f"{address}/console#/vocabulary/versions?to=77")  # is no version that is offered
    browser.see("Compare")
    assert "From version" not in browser.text("main")
    id = other.split("_")[1]
    httpx.delete(f"{address}/v1/keys/{id}", headers=admin).raise_for_status()
    browser.click("Compare", "button")
    browser.see("You have no key?")
    browser.see("The session has ended: sign in again.", within="#said")
    assert browser.text("#said").count("The session has ended") == 1
    more = httpx.post(f"{address}/v1/keys", json={"role": "admin"}, headers=admin).json()
    browser.type("Key", more["key"])
    browser.press("Enter")
    browser.see("Sign out")
    browser.open(f"{address}/console#/live")
    browser.see("Choose an event")
    browser.wait("document.getElementById('said').innerText === ''")
    httpx.delete(f"{address}/v1/keys/{more['id']}", headers=admin).raise_for_status()
    browser.see("The session has ended: sign in again.", within="#said")  # also where nobody pressed a button
    browser.open(f"{address}/console#/subscribe")
    browser.wait("!document.querySelector('main[aria-busy=true]')")  # the form before has the same words
    browser.see("You have no key?")
    browser.type("Key", admin["Authorization"].split()[1])
    browser.press("Enter")
    browser.see("What it means")
    assert browser.run("return document.getElementById('expression').value") == ""  # what somebody else has begun


_CHOSEN_ELSEWHERE = """
    const body = JSON.stringify({tenant: arguments[0]});
    const chosen = fetch("v1/session", {method: "PATCH", body, headers: {"Content-Type": "application/json"}});
    const place = arguments[1] === "focus" ? window : document;
    chosen.then(() => place.dispatchEvent(new Event(arguments[1]))).then(arguments[2]);
"""
"""As if another tab or window had chosen a tenant, and the reader came back to this one."""

JOURNEYS = (first_visit, vocabulary, brick, subscribe, live, deliveries, operators, health, languages, access)
"""In this order, on one server that is empty at first."""


def pictures_in(browser: Browser, folder: Path, prefix: str) -> Shot:
    """Takes pictures into a folder."""
    return lambda name: browser.picture(folder / f"{prefix}-{name}.png")
