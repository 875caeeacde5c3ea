"""Late matching: candidates that wait for operators, decided outside the broker's thread."""

from kindcast.server.pending.decision import LateMatchingService, running_late_matching

__all__ = ["LateMatchingService", "running_late_matching"]
