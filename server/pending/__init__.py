"""Late matching: candidates that wait for operators, decided outside the broker's thread."""

from kindcast.server.pending.service import ParkingService, running_parking

__all__ = ["ParkingService", "running_parking"]
