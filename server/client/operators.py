"""The calls about operators: what there is, and registering remote ones."""

from collections.abc import Mapping
from typing import Any

import msgspec

from server.client.call import Call, Json, described, get, path_of, post

__all__ = ["OperatorCalls"]


class OperatorCalls:
    """Changes need nothing else on this machine's loopback, where everybody is an administrator."""

    @described
    def operators(self) -> Call[Json]:
        """All operators, with what was declared and what was learned of them."""
        return get(path_of("operators"))

    @described
    def operator(self, name: str) -> Call[Json]:
        """One operator, with the calls that were made most."""
        return get(path_of("operators", name))

    @described
    def register_operator(self, name: str, registration: Mapping[str, Any]) -> Call[Json]:
        """Registers a remote operator (`url`, and what else it says of itself), or changes it."""
        return Call(
            method="PUT",
            path=path_of("operators", name),
            read=dict,
            content=msgspec.json.encode(dict(registration)),
            headers={"Content-Type": "application/json"},
        )

    @described
    def delete_operator(self, name: str) -> Call[Json]:
        """Deletes a remote operator that no subscription calls."""
        return Call(method="DELETE", path=path_of("operators", name), read=dict)

    @described
    def retry_operators(self) -> Call[Json]:
        """Tries again all that operators could not decide in all their tries."""
        return post(path_of("operators", "retry"), {})

    @described
    def subscription_plan(self, id: str) -> Call[Json]:
        """What the operators of a subscription are expected to cost, call by call."""
        return get(path_of("subscriptions", id, "plan"))
