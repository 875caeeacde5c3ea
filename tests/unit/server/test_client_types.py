"""Each call of the clients has the type of what its route answers."""

import inspect
import re
from typing import Any, get_args

import pytest

from kindcast import AsyncClient, Client
from kindcast.server.answers import ANSWERS
from kindcast.server.client.calls import Calls, described

CALLS = {name: call for part in Calls.__mro__ for name, call in vars(part).items() if isinstance(call, described)}
ANY_KIND = {"declarations", "declaration", "delete_declaration"}
"""Their route depends on what they are given."""
NOTHING = {"ready", "unsubscribe"}
"""What is answered tells nothing that the status does not."""


class Described(Calls):
    def __init__(self) -> None:
        self.tickets = {}


def requested(name: str) -> tuple[str, str, Any]:
    """Method and path of a call, and the type that it says it answers."""
    describe = CALLS[name]._describe
    stated = inspect.signature(describe, eval_str=True)
    given = [
        each
        for each in list(stated.parameters.values())[1:]
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    values = [{} if "Mapping" in str(each.annotation) else b"" if each.annotation is bytes else 1 for each in given]
    call = describe(Described(), *values)
    return call.method, call.path, get_args(stated.return_annotation)[0]


def answered(method: str, path: str) -> list[Any]:
    """What the route answers; one without a parameter where another one would fit, too."""
    found = [
        (route.count("{"), list(types.values()))
        for route, types in ANSWERS.items()
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", route), f"{method} {path}")
    ]
    return min(found, key=lambda each: each[0])[1] if found else []


@pytest.mark.parametrize("name", sorted(CALLS.keys() - ANY_KIND - NOTHING))
def test_call_says_what_its_route_answers(name: str) -> None:
    method, path, said = requested(name)
    assert said in answered(method, path)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_help_shows_the_members_of_an_answer(client: type) -> None:
    """By the name of a type, whose annotations are the members."""
    answer = inspect.signature(client.publish).return_annotation  # type: ignore[attr-defined]
    assert {"accepted", "matched", "rejected"} <= set(answer.__annotations__)
