"""What a match means, decided one by one as docs/matching-semantics.md says. Slow on purpose; shares no code."""

from tests.oracle.brute_force import holds, matching
from tests.oracle.world import Declaration, World

__all__ = ["Declaration", "World", "holds", "matching"]
