"""A demonstration that a person can follow: a real server, real events, and why each match is one."""

from server.demo.performance import perform

__all__ = ["perform"]
