"""What the broker's thread holds in memory: the matcher, and what it must know of every subscription at match time.

Invariant: between groups it says what the last commit says. Inside a group every change of it registers how to undo it
(`Group.on_undo`), so a command or a commit that fails leaves no trace.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from semantic import Matcher, Vocabulary
from semantic.declarations import Declarations
from server.operators.registry import EMPTY, Registry

__all__ = ["Live", "State"]


@dataclass(slots=True)
class Live:
    """A subscription that is not purged. `matching`: it is in the matcher (neither paused nor expired, and its
    expression has a meaning under the vocabulary)."""

    number: int
    id: str
    status: str
    expires_at: float
    matching: bool


@dataclass(slots=True)
class State:
    """Owned by the broker's thread. Others may read `vocabulary`, one reference to a frozen thing."""

    matcher: Matcher
    new_matcher: Callable[[Vocabulary], Matcher]
    """An empty one, as the settings want it, without operators."""
    declarations: Declarations = field(default_factory=Declarations)
    """What the vocabulary was made of, beside its ontologies."""
    live: dict[str, Live] = field(default_factory=dict)
    operators: Registry = EMPTY
    """Those that subscriptions may call. The matcher knows them, and leaves asking to others."""
    parked_under: str = ""
    """The version of the vocabulary under which something was parked last: what it is made of is on disk."""
    commits: int = 0
    sequence: int = 0
    last_accepted_at: float = 0.0

    def empty_matcher(self, vocabulary: Vocabulary) -> Matcher:
        """One without subscriptions that knows the operators and leaves asking them to others. Any thread."""
        matcher = self.new_matcher(vocabulary)
        for operator in self.operators.known.values():
            matcher.declare(operator)
        matcher.defers = True
        return matcher

    @property
    def vocabulary(self) -> Vocabulary:
        return self.matcher.vocabulary
