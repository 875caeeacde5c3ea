"""Candidates that hang on operators: decided beside the broker, whatever the operators do."""

from kindcast.server.pending.service import ParkingService, running_parking

__all__ = ["ParkingService", "running_parking"]
