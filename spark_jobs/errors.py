"""The exceptions of jobs; each message says what to do.

JobFailed
├── NoJava             there is no Java 17 or newer
├── NoArchive          nothing to read at the place that was named
├── UnusableSnapshot   the snapshot of a matcher is damaged, or of another version
└── UnusableOutput     the output folder holds something else, or cannot be written
"""

__all__ = ["JobFailed", "NoArchive", "NoJava", "UnusableOutput", "UnusableSnapshot"]


class JobFailed(Exception):
    """A job cannot do what it was asked for. The text says what to do."""


class NoJava(JobFailed):
    """Spark needs a Java runtime."""


class NoArchive(JobFailed):
    """There is nothing to read."""


class UnusableSnapshot(JobFailed):
    """The snapshot cannot be opened."""


class UnusableOutput(JobFailed):
    """The output folder cannot be used."""
