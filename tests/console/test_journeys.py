"""The journeys through the console in a real Chromium, on a running server that is empty at first. Wherever a journey
stops for a picture, the page is checked wide and narrow, in light and in dark colours: nothing sticks out or is cut
off, and axe-core finds no serious fault (where it is installed: `make console-tests`). Nothing is asked of another
origin.

Without a Chromium and its driver these tests skip, and say what to install.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from kindcast.semantic.shipped_vocabularies import shipped
from tests.console.__main__ import DOCS
from tests.console.journeys import JOURNEYS, first_visit
from tests.harness.browser import ELEMENT, Browser, running_browser
from tests.harness.receiver import running_receiver
from tests.harness.server_thread import running_app

REPOSITORY = Path(__file__).parents[2]
AXE = Path(os.environ.get("KINDCAST_AXE", REPOSITORY / ".venv/axe/node_modules/axe-core/axe.min.js"))

COLOURS = "light", "dark"
SIZES = (1280, 900), (400, 800)


class Form(NamedTuple):
    """How somebody looks at the console."""

    colours: str
    size: tuple[int, int]


FORMS = tuple(map(Form, COLOURS, SIZES))
RULES_OF_COLOURS = "color-contrast", "link-in-text-block"
"""Of axe-core. All others find the same in other colours."""

WIDTHS = """
    const page = document.documentElement;
    const wide = [...document.querySelectorAll("main *, header *")].filter((each) => {
        if (!each.checkVisibility() || each.closest(".table, .stream, pre, svg, .editor, .results")) return false;
        const box = each.getBoundingClientRect();
        return box.right > page.clientWidth + 1 || box.left < -1;
    });
    const covered = [...document.querySelectorAll("main button, main a, header a")].filter((each) => {
        const box = each.getBoundingClientRect();
        if (each.closest(".stream, .results, .table, [role=tree]")) return false;  // may be scrolled out
        if (!each.checkVisibility() || box.bottom > innerHeight || box.top < 0 || box.width < 2) return false;
        const there = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        return there && !each.contains(there) && !there.contains(each) && !there.closest("#said");
    });
    const cut = [...document.querySelectorAll("td")].filter((each) => innerWidth <= 640  // rows are blocks there
        && each.checkVisibility() && each.scrollWidth > each.clientWidth + 1);
    return [...wide, ...covered, ...cut].map((each) => each.outerHTML.slice(0, 200))
        .concat(page.scrollWidth > page.clientWidth ? ["the page scrolls sideways"] : []);
"""


@pytest.mark.slow
def test_journeys_work_and_every_page_is_sound(tmp_path: Path) -> None:
    """All journeys, one after the other, in turn on a wide page in light colours and on a narrow one in dark ones.
    `make console-pictures` makes each in both."""
    (tmp_path / "data").mkdir()
    with (
        running_browser(tmp_path / "profile") as browser,
        running_app(tmp_path / "data", allow_private_sinks=True) as address,
    ):
        faults: list[str] = []
        form = FORMS[0]

        def check(name: str) -> None:
            browser.wait("!document.querySelector('main[aria-busy=true]')")  # the page before is dimmed meanwhile
            for width, height in SIZES:
                browser.size(width, height)
                for colours in COLOURS:
                    browser.colours(colours)
                    rules = RULES_OF_COLOURS if colours == "dark" else ()
                    found = [*browser.run(WIDTHS), *axe_faults(browser, *rules)]
                    faults.extend(f"{name}, {colours}, {width} wide: {each}" for each in found)
            take(form)

        def take(form: Form) -> None:
            browser.colours(form.colours)
            browser.size(*form.size)

        for number, journey in enumerate(JOURNEYS):
            form = FORMS[number % len(FORMS)]
            take(form)
            journey(browser, address, check)
        assert browser.run("return document.documentElement.dataset.theme") == form.colours
        assert not faults, "\n".join(faults)
        origins = {urlsplit(each).netloc for each in browser.requested() if each.startswith(("http", "ws"))}
        assert origins == {urlsplit(address).netloc}
        severe = [each["message"] for each in browser.log("browser") if "Content Security Policy" in each["message"]]
        assert severe == []


@pytest.mark.slow
def test_live_follows_what_was_asked_for_and_pages_say_when_the_server_is_away(tmp_path: Path) -> None:
    """Also the last of many subscriptions, whose first messages are older than the retention; each message once. If the
    subscription is deleted meanwhile, the page says so."""
    (tmp_path / "data").mkdir()
    hide = """
        Object.defineProperty(document, "hidden", {value: arguments[0], configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    """
    with running_browser(tmp_path / "profile") as browser:
        with running_app(tmp_path / "data", retention_seconds=0.1, sweep_seconds=0.05) as address:
            lines = "\n".join('{"expression": "n = 1"}' for _ in range(201))
            created = httpx.post(f"{address}/v1/subscriptions/import", content=lines).json()["created"]
            made = created[-1]["id"]
            httpx.post(f"{address}/v1/events", json={"n": 1, "word": "early"}).raise_for_status()
            waiting = f"{address}/v1/subscriptions/{made}/events"
            browser.until(lambda: httpx.get(waiting).status_code == 410, "the retention")
        with running_app(tmp_path / "data") as address:
            browser.open(f"{address}/console#/live?subscription={made}")
            browser.wait(f"[...document.querySelectorAll('select')].some((each) => each.value === '{made}')")
            httpx.post(f"{address}/v1/events", json={"n": 1, "word": "late"}).raise_for_status()
            browser.see("late", within=".stream")
            browser.run(hide, True)
            browser.run(hide, False)
            httpx.post(f"{address}/v1/events", json={"n": 1, "word": "last"}).raise_for_status()
            browser.see("last", within=".stream")
            assert browser.run("return document.querySelectorAll('.event').length") == 2
            browser.open(f"{address}/console#/live")
            browser.wait("document.querySelector('main select').value === ''")
            browser.see("last", within=".stream")
            browser.run(hide, True)
            with httpx.stream("GET", f"{address}/v1/events/stream") as other:
                lines = other.iter_lines()
                next(lines)
                httpx.post(f"{address}/v1/events", json={"n": 1, "word": "meanwhile"}).raise_for_status()
                next(line for line in lines if "meanwhile" in line)  # it is in no later message
            browser.run(hide, False)
            browser.see("meanwhile", within=".stream .event:first-child")
        browser.see("The server does not answer.", within="#said")
        with running_app(tmp_path / "data") as address:
            browser.open(f"{address}/console#/live?subscription={created[0]['id']}")
            browser.see("Choose an event")
            deleted = {"Kindcast-Ticket": created[0]["ticket"]}
            httpx.delete(f"{address}/v1/subscriptions/{created[0]['id']}", headers=deleted).raise_for_status()
            browser.see("there is no subscription", within="#said")
            browser.open(f"{address}/console#/deliveries/{made}")
            browser.see("What you can do")  # the page before names the subscription too
        browser.see("The server does not answer.", within="#said")


@pytest.mark.slow
def test_pages_go_on_after_what_is_gone_or_away(tmp_path: Path) -> None:
    """Back shows the concept before. An address of a deleted subscription shows all events. The editor asks again."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        shop, headers = shipped("shop").read_bytes(), {"Content-Type": "text/turtle"}
        httpx.put(f"{address}/v1/ontologies/shop", content=shop, headers=headers).raise_for_status()
        browser.open(f"{address}/console#/vocabulary")
        for word in ("Printer", "Scanner"):
            browser.type("Search in any language", word)
            browser.click(word, ".results button")
            browser.wait(f"document.querySelector('main').innerText.includes('#{word}')")
        browser.command("POST", "/back")
        browser.wait(
            "location.hash.includes('Printer') && document.querySelector('main').innerText.includes('#Printer')"
        )
        browser.open(f"{address}/console#/live?follow=sub_gone")
        browser.see("there is no subscription", within="#said")
        browser.see("No events yet.", within=".stream")
        browser.open(f"{address}/console#/subscribe")
        browser.see("Write what you want")
        browser.run("window.there = fetch; window.fetch = () => Promise.reject(new Error('away'))")
        browser.type("What do you want to hear of?", "price > 7")
        browser.see("The server does not answer.")
        browser.run("window.fetch = window.there")
        browser.see("price is more than 7")
        browser.type("Name (yours)", "Tom's")
        browser.click("Create the subscription")
        browser.wait(
            "[...document.querySelectorAll('pre')].some((it) => it.textContent.includes(arguments[0]))",
            r"kindcast subscribe 'price > 7' --ttl 30d --name 'Tom'\''s'",
        )


@pytest.mark.slow
def test_owner_of_a_subscription_whose_matches_are_hidden_sees_why_and_may_delete_it(tmp_path: Path) -> None:
    """A declaration hides an attribute from the role of the owner, so the subscription is paused. Its attempts are
    refused; its state, the reason and the buttons are shown. One that an administrator paused says so, too."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        admin = {"Authorization": f"Bearer {httpx.post(f'{address}/v1/keys', json={'role': 'admin'}).json()['key']}"}
        mine = httpx.post(f"{address}/v1/keys", json={"role": "subscriber"}, headers=admin).json()["key"]
        owner = {"Authorization": f"Bearer {mine}"}
        hidden, paused = (
            httpx.post(f"{address}/v1/subscriptions", json={"expression": each}, headers=owner).json()["id"]
            for each in ("grade > 5", "price > 5")
        )
        httpx.post(f"{address}/v1/subscriptions/{paused}/pause", headers=admin).raise_for_status()
        declaration = {"readable_by": ["auditor"]}
        httpx.put(f"{address}/v1/attributes/grade", json=declaration, headers=admin).raise_for_status()
        browser.open(f"{address}/console#/deliveries/{paused}")
        browser.type("Key", mine)
        browser.press("Enter")
        browser.see("It is paused", "paused by an administrator")
        browser.open(f"{address}/console#/deliveries/{hidden}")
        browser.see("It is paused", "this uses 'grade'", "What you can do")
        browser.run("window.confirm = () => true")
        browser.click("Delete", "button")
        browser.see("Deliveries", "price > 5")
        kept = httpx.get(f"{address}/v1/subscriptions", headers=admin).json()["subscriptions"]
        assert [each["id"] for each in kept] == [paused]


@pytest.mark.slow
def test_what_is_drawn_again_keeps_the_focus_and_what_was_unfolded(tmp_path: Path) -> None:
    """Also if it has more parts than before: the age of the oldest message that waits."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        made = httpx.post(f"{address}/v1/subscriptions", json={"expression": "n = 1"}).json()["id"]
        browser.open(f"{address}/console#/deliveries/{made}")
        browser.see("What you can do")
        browser.run("document.querySelectorAll('.figure summary')[1].click()")
        browser.run("[...document.querySelectorAll('button')].find((each) => each.innerText === 'Replay').focus()")
        httpx.post(f"{address}/v1/events", json={"n": 1}).raise_for_status()
        browser.see("the oldest waits for")
        assert browser.run("return document.activeElement.innerText") == "Replay"
        unfolded = browser.run("return [...document.querySelectorAll('.figure:has([open])')].map((e) => e.innerText)")
        assert [each.split("\n")[1] for each in unfolded] == ["dead letters"]


@pytest.mark.slow
def test_lines_below_numbers_name_the_server_and_the_tenant_of_the_page(tmp_path: Path) -> None:
    """The key is of all tenants, and the page shows another one than `default`. Each line gets what is shown."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        key = httpx.post(f"{address}/v1/keys", json={"role": "admin"}).json()["key"]
        headers = {"Authorization": f"Bearer {key}", "Kindcast-Tenant": "acme"}
        first = {"role": "publisher", "tenant": "acme"}
        httpx.post(
            f"{address}/v1/keys", json=first, headers=headers | {"Kindcast-Tenant": "default"}
        ).raise_for_status()
        httpx.put(f"{address}/v1/ontologies/shop?format=ttl", content=shipped("shop").read_bytes(), headers=headers)
        made = httpx.post(f"{address}/v1/subscriptions", json={"expression": "n = 1"}, headers=headers).json()["id"]
        httpx.post(f"{address}/v1/events", json={"n": 1}, headers=headers).raise_for_status()
        concepts = httpx.get(f"{address}/v1/ontologies", headers=headers).json()["concepts"]

        def told(page: str, figure: str) -> tuple[str, str]:
            """What the two lines of a figure get: over HTTP, and on the command line."""
            browser.open(f"{address}/console?{page}#/{page}")
            browser.see(figure)
            shown = "[...document.querySelectorAll('.figure')].find((each) => each.innerText.includes(arguments[0]))"
            lines = browser.wait(f"{shown}?.querySelector('pre').textContent", figure).split("\n")
            (_, *options, url), (_, *command) = (shlex.split(each.replace("$KINDCAST_KEY", key)) for each in lines)
            sent = dict(each.split(": ", 1) for each in options if each != "-H")
            program = [sys.executable, "-m", "kindcast.server.cli", *command, "--key", key]
            result = subprocess.run(program, capture_output=True, text=True, timeout=60.0)
            return httpx.get(url, headers=sent).text, result.stdout + result.stderr

        browser.open(f"{address}/console")
        browser.type("Key", key)
        browser.press("Enter")
        browser.see("Sign out")
        chosen = """{method: "PATCH", headers: {"Content-Type": "application/json"}, body: '{"tenant": "acme"}'}"""
        browser.run_later(f"fetch('v1/session', {chosen}).then(arguments[0])")
        for answer in told("start", "concepts"):
            assert json.loads(answer)["concepts"] == concepts
        for answer in told("start", "active subscriptions"):
            assert re.search(r'\b1 active|"active":1\b', answer), answer
        for answer in told(f"deliveries/{made}", "wait for delivery"):
            assert re.search(r"pending\W+1\b", answer), answer


@pytest.mark.slow
def test_page_that_is_opened_after_the_session_ended_says_so(tmp_path: Path) -> None:
    """The key was revoked meanwhile. Whoever types next types the key."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        admin = {"Authorization": f"Bearer {httpx.post(f'{address}/v1/keys', json={'role': 'admin'}).json()['key']}"}
        made = httpx.post(f"{address}/v1/keys", json={"role": "auditor"}, headers=admin).json()
        browser.open(f"{address}/console")
        browser.type("Key", made["key"])
        browser.press("Enter")
        browser.see("What there is")
        httpx.delete(f"{address}/v1/keys/{made['id']}", headers=admin).raise_for_status()
        browser.click("Vocabulary", "nav a")
        browser.see("You have no key?")
        browser.see("The session has ended: sign in again.", within="#said")
        assert browser.run("return document.activeElement.id") == "key"


@pytest.mark.slow
def test_filter_that_changes_the_address_keeps_the_focus(tmp_path: Path) -> None:
    """An arrow key chooses the next state at once: further keys must reach the same list."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        browser.open(f"{address}/console#/deliveries")
        browser.see("Nobody has subscribed yet.")
        browser.run("arguments[0].focus()", {ELEMENT: browser.labelled("State")})
        for state in ("active", "paused"):
            browser.press("Down")
            browser.wait(f"location.hash.endsWith('status={state}') && document.activeElement.value === '{state}'")
        browser.type("Search in names, ids and expressions", "shop", clear=False)
        browser.press("Enter")
        browser.wait("location.hash.includes('q=shop') && document.activeElement.value === 'shop'")


@pytest.mark.slow
def test_row_of_live_that_is_too_old_gives_the_focus_to_the_oldest(tmp_path: Path) -> None:
    """Else the next Tab would begin at the top of the page."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        lines = "\n".join(f'{{"n": {n}}}' for n in range(200))
        headers = {"Content-Type": "application/x-ndjson"}
        httpx.post(f"{address}/v1/events", content=lines, headers=headers).raise_for_status()
        browser.open(f"{address}/console#/live")
        browser.wait("document.querySelectorAll('.event').length === 200")
        browser.run("document.querySelector('.event:last-child').focus()")
        httpx.post(f"{address}/v1/events", json={"n": 200}).raise_for_status()
        browser.see('{"n":200}', within=".stream .event:first-child")
        assert '{"n":1}' in browser.run("return document.activeElement.innerText").splitlines()


@pytest.mark.slow
def test_escape_closes_completions_that_are_on_their_way(tmp_path: Path) -> None:
    """Else Enter, which should begin a line, would take one of them. Further text opens the list again."""
    late = """
        const there = fetch;
        window.fetch = (...all) => new Promise((go) => (window.go = go)).then(() => there(...all));
    """
    offers = "document.querySelectorAll('.completions li').length"
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        browser.open(f"{address}/console#/subscribe")
        browser.see("Write what you want")
        browser.run(late)
        browser.type("What do you want to hear of?", "price > 7 ")
        browser.wait("Boolean(window.go)")
        browser.press("Escape")
        browser.run("go()")
        browser.see("price is more than 7")
        assert browser.run(f"return {offers}") == 0
        browser.run("window.go = null")
        browser.press("a")
        browser.wait("Boolean(window.go)")
        browser.run("go()")
        browser.wait(offers)


@pytest.mark.slow
def test_completions_of_another_text_are_not_inserted(tmp_path: Path) -> None:
    """Who types faster than the server answers, or moves the caret, sees a list that does not fit yet."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        httpx.post(f"{address}/v1/events", json={"price": 5}).raise_for_status()
        browser.open(f"{address}/console#/subscribe")
        for more, after in (("ice", "not price\n"), ("\ue012", "not p\nr")):  # letters, and the key Left
            browser.type("What do you want to hear of?", "not pr")
            browser.wait("document.querySelectorAll('.completions li').length")
            browser.run("window.there ??= fetch; window.fetch = () => new Promise(() => {})")
            browser.press(*more, "Enter")
            assert browser.run("return document.querySelector('textarea').value") == after
            browser.run("window.fetch = there")


@pytest.mark.slow
def test_keys_of_an_input_method_choose_no_completion(tmp_path: Path) -> None:
    """Who writes Chinese ends each word with Enter, while the list of completions is open."""
    press = """
        const event = new KeyboardEvent("keydown", {key: "Enter", isComposing: arguments[0]});
        document.querySelector("textarea").dispatchEvent(event);
        return document.querySelector("textarea").value;
    """
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        httpx.post(f"{address}/v1/events", json={"price": 5}).raise_for_status()
        browser.open(f"{address}/console#/subscribe")
        browser.type("What do you want to hear of?", "p")

        def pressed() -> bool:
            return [browser.run(press, composing) for composing in (True, False)] == ["p", "price "]

        browser.until(pressed, "a completion by Enter, and none by the input method")


@pytest.mark.slow
def test_past_of_one_expression_is_looked_for_at_a_time(tmp_path: Path) -> None:
    """With many events it takes long: the page says so, and what was written meanwhile waits for no other text."""
    slow = """
        const there = fetch;
        window.asked = [];
        window.fetch = async (path, options) => {
            if (path === "v1/backtests") window.asked.push(JSON.parse(options.body).expression);
            if (path.startsWith("v1/backtests/")) await new Promise((go) => (window.go = go));
            return there(path, options);
        };
    """
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        httpx.post(f"{address}/v1/events", json={"price": 5}).raise_for_status()
        browser.open(f"{address}/console#/subscribe")
        browser.see("Write what you want")
        browser.run(slow)
        browser.type("What do you want to hear of?", "price > 1")
        browser.see("Looking through the stored events")
        browser.wait("Boolean(window.go)")
        for more, now in (("2", "more than 12"), ("3", "more than 123")):
            browser.type("What do you want to hear of?", more, clear=False)
            browser.see(now)
            time.sleep(1.0)  # after that the past is looked for
        browser.run("setInterval(() => window.go(), 50)")
        browser.see("It would have matched", "0 / 1")
        browser.run("document.querySelector('textarea').click()")  # of the same text nothing is asked again
        time.sleep(1.5)
        assert browser.run("return window.asked") == ["price > 1", "price > 123", "price > 123"]


@pytest.mark.slow
def test_names_in_scripts_from_right_to_left_end_at_the_left(tmp_path: Path) -> None:
    """Their punctuation too, which has no direction of its own."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        turtle = """<urn:a> a <http://www.w3.org/2002/07/owl#Class> ;
            <http://www.w3.org/2000/01/rdf-schema#label> "\u0645\u0631\u062d\u0628\u0627!"@ar ."""
        httpx.put(f"{address}/v1/ontologies/greetings?format=ttl", content=turtle.encode()).raise_for_status()
        browser.open(f"{address}/console#/vocabulary?term=urn:a")
        browser.type("Search in any language", "\u0645\u0631\u062d")
        browser.wait("document.querySelector('.picture') && document.querySelector('.results button')")
        wrong = browser.run(
            """
            const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), wrong = [];
            const left = (node, place) => {
                const range = document.createRange();
                range.setStart(node, place);
                range.setEnd(node, place + 1);
                return range.getBoundingClientRect().left;
            };
            let count = 0;
            while (walker.nextNode()) {
                const node = walker.currentNode, text = node.data.trimEnd();
                if (!text.endsWith("!") || node.parentElement.closest("title")) continue;
                count++;
                if (left(node, text.length - 1) > left(node, 0)) wrong.push(node.parentElement.outerHTML);
            }
            return count < 5 ? ["too few names"] : wrong;
            """
        )
        assert wrong == []


@pytest.mark.slow
def test_placeholders_can_be_read_in_all_colours(tmp_path: Path) -> None:
    """They say how to search. axe-core does not look at them."""
    contrast = """
        const input = document.querySelector("input[type=search]");
        const light = (colour) => {
            const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((each) => each / 255);
            const linear = (each) => (each <= 0.04 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
            const [red, green, blue] = parts.map(linear);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
        };
        const [low, high] = [getComputedStyle(input, "::placeholder").color, getComputedStyle(input).backgroundColor]
            .map(light).sort((one, other) => one - other);
        return input.placeholder ? high / low : 0;
    """
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        for scheme in COLOURS:
            browser.colours(scheme)
            browser.open(f"{address}/console#/deliveries")
            browser.wait("document.querySelector('input[type=search]')")
            assert browser.run(contrast) >= 4.5, scheme


@pytest.mark.slow
def test_header_does_not_cover_what_gets_the_focus(tmp_path: Path) -> None:
    """On the way back through a long page, with Shift and Tab."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        lines = "\n".join('{"expression": "n = 1"}' for _ in range(60))
        httpx.post(f"{address}/v1/subscriptions/import", content=lines).raise_for_status()
        browser.size(1280, 600)
        browser.open(f"{address}/console#/deliveries")
        browser.wait("document.querySelectorAll('td a').length === 60")
        covered = browser.run(
            """
            const header = document.querySelector("header").getBoundingClientRect().bottom;
            return [...document.querySelectorAll("td a")].reverse().filter((each) => {
                each.focus();
                return each.getBoundingClientRect().top < header;
            }).length;
            """
        )
        assert covered == 0


@pytest.mark.slow
def test_all_messages_of_a_disabled_sink_are_counted(tmp_path: Path) -> None:
    """More than the page lists."""
    (tmp_path / "data").mkdir()
    with (
        running_browser(tmp_path / "profile") as browser,
        running_receiver() as receiver,
        running_app(tmp_path / "data", allow_private_sinks=True) as address,
    ):
        receiver.script("/gone", 410)
        body = {"expression": "n = 1", "sink": f"{receiver.url}/gone"}
        made = httpx.post(f"{address}/v1/subscriptions", json=body).raise_for_status().json()["id"]
        events = "\n".join('{"n": 1}' for _ in range(60))
        headers = {"Content-Type": "application/x-ndjson"}
        httpx.post(f"{address}/v1/events", content=events, headers=headers).raise_for_status()
        browser.open(f"{address}/console#/deliveries/{made}")
        browser.see("Delivery was given up", "Messages that wait: 60")


@pytest.mark.slow
def test_start_shows_what_there_is_without_a_vocabulary(tmp_path: Path) -> None:
    """A server that is used without one is not empty."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        browser.open(f"{address}/")
        browser.see("Welcome to kindcast")
        httpx.post(f"{address}/v1/subscriptions", json={"expression": "price > 1"}).raise_for_status()
        browser.command("POST", "/refresh")
        browser.see("What there is", "price > 1", "There is no vocabulary yet")
        browser.click("Load a vocabulary", "main a")
        browser.click("Load shop", "button")
        browser.see("shop is loaded")


@pytest.mark.slow
def test_start_says_which_vocabularies_are_not_in_force(tmp_path: Path) -> None:
    """One that is only stored is not the first of the three clicks."""
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        stored = f"{address}/v1/ontologies/shop?format=ttl&activate=false"
        httpx.put(stored, content=shipped("shop").read_bytes()).raise_for_status()
        browser.open(f"{address}/console")
        browser.see("What there is", "not in force")
        browser.run("localStorage.setItem('kindcast.first', JSON.stringify({name: 'shop'})); location.reload()")
        browser.see("Welcome to kindcast")
        assert "shop is loaded" not in browser.text("main")


@pytest.mark.slow
def test_pages_of_other_sites_change_nothing_and_frame_nothing(tmp_path: Path) -> None:
    """A page of another origin on the same machine can neither publish nor show the console in a frame."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        running_browser(tmp_path / "profile") as browser,
        running_app(tmp_path / "a") as victim,
        running_app(tmp_path / "b") as other,
    ):
        browser.open(f"{other}/healthz")
        sent = browser.run_later(
            """
            const done = arguments[1];
            fetch(arguments[0] + "/v1/events", {method: "POST", mode: "no-cors", body: '{"price": 1}'})
                .then(() => done("sent"), () => done("failed"));
            """,
            victim,
        )
        assert sent in ("sent", "failed")
        assert httpx.get(f"{victim}/v1/events").json()["events"] == []
        browser.run(
            """
            const frame = document.createElement("iframe");
            frame.src = arguments[0] + "/console";
            frame.addEventListener("load", () => { document.body.dataset.loaded = "yes"; });
            document.body.append(frame);
            """,
            victim,
        )
        browser.wait("document.body.dataset.loaded")
        refused = [each["message"] for each in browser.log("browser") if "frame-ancestors" in each["message"]]
        assert refused


def test_pictures_of_the_docs_have_their_stops() -> None:
    """`python -m tests.console` can start, and makes all pictures of the console in the docs."""
    stops = re.findall(r'\bshot\("([^"]+)"\)', (REPOSITORY / "tests/console/journeys.py").read_text("utf-8"))
    kept = {path.stem for path in (REPOSITORY / "docs/pictures").glob("console-*.webp")}
    assert DOCS.keys() <= set(stops)
    assert {f"console-{name}" for name in DOCS.values()} == kept


def axe_faults(browser: Browser, *rules: str) -> Iterator[str]:
    """What axe-core calls serious or critical on the page, by some of its rules or by all."""
    if not AXE.exists():
        return
    if not browser.run("return Boolean(window.axe)"):
        browser.run(AXE.read_text("utf-8") + "; window.axe = window.axe || axe;")
    found = browser.run_later(
        """
        const done = arguments[1];
        axe.run(document, arguments[0]).then((it) => done(it.violations), (error) => done(String(error)));
        """,
        {"runOnly": list(rules)} if rules else {},
    )
    assert isinstance(found, list), found
    for each in found:
        if each["impact"] in ("serious", "critical"):
            yield f"{each['id']}: {each['help']}: {[node['html'][:150] for node in each['nodes'][:3]]}"


@pytest.mark.slow
def test_axe_finds_no_serious_fault_where_it_is_installed(tmp_path: Path) -> None:
    """The first visit again, so that a missing axe-core is told."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make console-tests")
    (tmp_path / "data").mkdir()
    with running_browser(tmp_path / "profile") as browser, running_app(tmp_path / "data") as address:
        first_visit(browser, address, lambda name: None)
        assert list(axe_faults(browser)) == []
