"""`kindcast operators`: the commands on a real server."""

import pytest

from tests.integration.conftest import Kindcast

pytestmark = pytest.mark.usefixtures("shop_server")


def test_operators_are_registered_listed_shown_and_deleted(kindcast: Kindcast) -> None:
    """The whole life of a remote operator from the command line, in words and as JSON."""
    told = kindcast(
        *("operators", "register", "crowd", "https://crowds.example.org/ask", "--arguments", "1"),
        *("--attribute", "image", "--timeout", "2", "--header", "Authorization:Bearer x", "--cost", "0.3"),
        *("--speculate", "--retries", "2"),
    )
    assert told.status == 0, told.err
    assert "crowd" in told.out
    listed = kindcast("operators", "list", "--json").json["operators"]
    (crowd,) = [each for each in listed if each["name"] == "crowd"]
    assert crowd["registration"]["headers"] == {"Authorization": "(hidden)"}
    assert crowd["registration"]["attributes"] == ["image"]
    assert (crowd["registration"]["speculate"], crowd["registration"]["retries"]) == (True, 2)
    assert "remote" in kindcast("operators", "list").out
    assert "crowd" in kindcast("operators", "show", "crowd").out
    assert kindcast("operators", "retry", "--json").json == {"again": 0}
    assert kindcast("operators", "delete", "crowd").status == 0
    gone = kindcast("operators", "delete", "crowd")
    assert gone.status == 1
    assert "crowd" in gone.err


def test_operator_to_a_private_address_is_refused_in_words(kindcast: Kindcast) -> None:
    """The address is judged before anything is stored."""
    refused = kindcast("operators", "register", "inside", "http://127.0.0.1/ask")
    assert refused.status == 1
    assert "Traceback" not in refused.err
