"""What the broker's thread holds in memory: the matcher, and what it must know of every subscription at match time.

Invariant: between groups it says what the last commit says. Inside a group every change of it registers how to undo it
(`Group.on_undo`), so a command or a commit that fails leaves no trace.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from semantic import Matcher, Vocabulary
from semantic.declarations import Declarations
from server.broker.roll import Roll
from server.operators.registry import EMPTY, Registry

__all__ = ["State"]


@dataclass(slots=True)
class State:
    """Owned by the broker's thread. Others may read `vocabulary`, one reference to a frozen thing."""

    roll: Roll
    """Every subscription that is not purged, and the matcher of those that match."""
    new_matcher: Callable[[Vocabulary], Matcher]
    """An empty one, as the settings want it, without operators."""
    declarations: Declarations = field(default_factory=Declarations)
    """What the vocabulary was made of, beside its ontologies."""
    operators: Registry = EMPTY
    """Those that subscriptions may call. The matcher knows them, and leaves asking to others."""
    parked_under: str = ""
    """The version of the vocabulary under which something was parked last: what it is made of is on disk."""
    snapshot: str | None = None
    """The token of the snapshot on disk that the store knows; what changes after it is noted there. None: nothing is
    noted, and no snapshot may be used."""
    unsaved: int = 0
    """Changes that were noted since that snapshot."""
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
    def matcher(self) -> Matcher:
        return self.roll.matcher

    @property
    def vocabulary(self) -> Vocabulary:
        return self.matcher.vocabulary
