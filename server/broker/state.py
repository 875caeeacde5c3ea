"""What the broker's thread holds in memory: the matcher, and what it must know of every subscription at match time.

Invariant: between groups it says what the last commit says. Inside a group every change of it registers how to undo it
(`Group.on_undo`), so a command or a commit that fails leaves no trace.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from semantic import Matcher, Vocabulary
from semantic.declarations import Declarations

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
    """An empty one, as the settings want it."""
    declarations: Declarations = field(default_factory=Declarations)
    """What the vocabulary was made of, beside its ontologies."""
    live: dict[str, Live] = field(default_factory=dict)
    commits: int = 0
    sequence: int = 0
    last_accepted_at: float = 0.0

    @property
    def vocabulary(self) -> Vocabulary:
        return self.matcher.vocabulary
