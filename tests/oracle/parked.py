"""What becomes of events that hang on operators, worked out on a page: for tests of the server's parking.

Every operator is in one mode; a candidate is asked about at once, and again when its next try is due.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["EXPRESSIONS", "FORESEEN", "NAMES", "TRIES", "Clause", "Data", "Mode", "Model", "Waits", "truth"]

TRIES = 2
"""One at once and one more: then it is given up."""

Mode = Literal["says", "error", "hang", "gone"]
Verdict = bool | Literal["failed", "held"]
NAMES = ("left", "right", "count")


Data = tuple[int, int, int]
"""What the operators `left` and `right` say of an event, and its number."""


@dataclass(frozen=True)
class Clause:
    """Calls with what they must come to, beside what needs no operator: `least` of the event's number; `above`: the
    number that the operator `count` binds must be above it."""

    calls: Mapping[str, bool]
    least: int = 0
    above: int = -1

    @property
    def has_variables(self) -> bool:
        return "count" in self.calls


EXPRESSIONS: dict[str, tuple[Clause, ...]] = {
    "left()": (Clause({"left": True}),),
    "not right()": (Clause({"right": False}),),
    "left() and right()": (Clause({"left": True, "right": True}),),
    "left() or right()": (Clause({"left": True}), Clause({"right": True})),
    "n >= 1 and left() or n >= 2": (Clause({"left": True}, least=1), Clause({}, least=2)),
    "right() and count(?x) and ?x > 1": (Clause({"right": True, "count": True}, above=1),),
    "n >= 2": (Clause({}, least=2),),
    "count(?x) and ?x > 0 or left()": (Clause({"count": True}, above=0), Clause({"left": True})),
    "count(?x) or n >= 2": (Clause({"count": True}), Clause({}, least=2)),
}

FORESEEN = sorted(
    name
    for name, clauses in EXPRESSIONS.items()
    if all(len(clause.calls) <= 1 for clause in clauses)
    and (sum(map(len, (clause.calls for clause in clauses))) <= 1 or any(clause.has_variables for clause in clauses))
)
"""Of these the model says at any time what has become of them. Of the others it depends on the order of the plan which
call is the one that they wait for, or that failed; only what becomes of them in the end does not."""


@dataclass
class Waits:
    """A candidate that an operator has yet to decide. `held`: the operators that are being asked and do not answer,
    each with the number of its registration."""

    tries: int = 0
    given_up: bool = False
    held: frozenset[tuple[str, int]] = frozenset()


@dataclass
class Model:
    """What is true. Events by their number, subscriptions by name; a pair is (event, subscription)."""

    modes: dict[str, Mode] = field(default_factory=lambda: dict.fromkeys(NAMES, "gone"))
    registered: Counter[str] = field(default_factory=Counter)
    live: dict[str, str] = field(default_factory=dict)
    made: int = 0
    data: list[Data] = field(default_factory=list)
    waits: dict[tuple[int, str], Waits] = field(default_factory=dict)
    got: dict[tuple[int, str], tuple[bool, int | None]] = field(default_factory=dict)
    """Whether late, and what `?x` is bound to."""
    undecided: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)

    @property
    def next_name(self) -> str:
        return f"s{self.made}"

    def publish(self, data: Data) -> None:
        number = len(self.data)
        self.data.append(data)
        for name, expression in self.live.items():
            clauses = _open(expression, data)
            if any(not clause.calls for clause in clauses) and not any(clause.has_variables for clause in clauses):
                self.got[number, name] = (False, None)
            elif clauses:
                self.waits[number, name] = Waits()
                self.totals["parked"] += 1
        self.ask([pair for pair in self.waits if pair[0] == number])

    def ask(self, pairs: Iterable[tuple[int, str]]) -> None:
        """The operators are asked about these now."""
        for pair in list(pairs):
            waits, verdict = self.waits[pair], self.verdict(*pair)
            waits.held = self._holding(*pair) if verdict == "held" else frozenset()
            if verdict == "failed":
                waits.tries += 1
                waits.given_up = waits.tries == TRIES
                self.undecided[pair[1]] += waits.given_up
                self.totals["parked_given_up"] += waits.given_up
            elif verdict != "held":
                del self.waits[pair]
                self.totals["parked_matched" if verdict else "parked_unmatched"] += 1
                if verdict:
                    self.got[pair] = (True, self._bound(*pair))

    def verdict(self, number: int, name: str) -> Verdict:
        """By the operators as they are now: one clause that holds is enough, if none is asked yet whose bindings the
        match is to carry; what hangs outweighs what failed."""
        data = self.data[number]
        clauses = _open(self.live[name], data)
        found = [self._clause(each, data) for each in clauses]
        carries = any(each.has_variables for each in clauses)
        verdicts: tuple[Verdict, ...] = ("held", True, "failed") if carries else (True, "held", "failed")
        return next((verdict for verdict in verdicts if verdict in found), False)

    def possible(self, command: str, what: Any) -> bool:
        """Whether the server should do it."""
        match command:
            case "subscribe":
                return all(self.modes[call] != "gone" for clause in EXPRESSIONS[what] for call in clause.calls)
            case "remove":
                uses = {call for each in self.live.values() for clause in EXPRESSIONS[each] for call in clause.calls}
                return self.modes[what] != "gone" and what not in uses
        return True

    def apply(self, command: str, what: Any) -> None:
        """A command that happened."""
        waiting = [pair for pair, waits in self.waits.items() if not waits.given_up]
        match command:
            case "publish":
                self.publish(what)
            case "subscribe":
                self.live[self.next_name] = what
                self.made += 1
            case "unsubscribe":
                del self.live[what]
                self.totals["parked_withdrawn"] += sum(name == what for _, name in waiting)
                self.waits = {pair: waits for pair, waits in self.waits.items() if pair[1] != what}
                self.got = {pair: late for pair, late in self.got.items() if pair[1] != what}
            case "operator":
                self.modes[what[0]] = what[1]
                self.registered[what[0]] += 1
            case "remove":
                self.modes[what] = "gone"
            case "due":
                self.ask(pair for pair in waiting if not self.waits[pair].held)
            case "again":
                given_up = [pair for pair, waits in self.waits.items() if waits.given_up]
                self.totals["parked_given_up"] -= len(given_up)
                self.waits |= {pair: Waits() for pair in given_up}
                self.ask(given_up)
            case "restart":
                if what is not None:
                    self.modes[what] = "gone"
                self.registered.update(NAMES)
                self.ask(pair for pair in waiting if self.waits[pair].held)

    def asked(self, name: str) -> int:
        """How many events an operator, as it is registered now, is being asked about at least."""
        now = (name, self.registered[name])
        return len({number for (number, _), waits in self.waits.items() if now in waits.held})

    def _holding(self, number: int, name: str) -> frozenset[tuple[str, int]]:
        data = self.data[number]
        open = [each for each in _open(self.live[name], data) if self._clause(each, data) is not False]
        hanging = {call for clause in open for call in clause.calls if self.modes[call] == "hang"}
        return frozenset((call, self.registered[call]) for call in hanging)

    def _bound(self, number: int, name: str) -> int | None:
        data = self.data[number]
        binding = (each for each in _open(self.live[name], data) if each.has_variables)
        return data[2] if any(self._clause(each, data) is True for each in binding) else None

    def _clause(self, clause: Clause, data: Data) -> Verdict:
        modes = [self.modes[call] for call in clause.calls]
        well = {call: wanted for call, wanted in clause.calls.items() if self.modes[call] == "says"}
        if any(_says(call, data) != wanted for call, wanted in well.items()):
            return False
        if "hang" in modes:
            return "held"
        return "failed" if {"error", "gone"} & set(modes) else data[2] > clause.above


def _open(expression: str, data: Data) -> list[Clause]:
    """The clauses whose cheap part holds."""
    return [clause for clause in EXPRESSIONS[expression] if data[2] >= clause.least]


def _says(call: str, data: Data) -> bool:
    return call == "count" or data[NAMES.index(call)] == 1


def truth(expression: str, data: Data) -> bool:
    """Whether an event is for a subscription, were all operators well."""
    return any(
        all(_says(call, data) == wanted for call, wanted in clause.calls.items()) and data[2] > clause.above
        for clause in _open(expression, data)
    )
