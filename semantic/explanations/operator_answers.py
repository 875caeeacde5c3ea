"""What the operators of a clause said about one event, in words: for explanations.

Every call of the clause is made, even where an earlier one has decided: who asks why wants to see all of it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kindcast.semantic.conditions.normal_form import Atom
from kindcast.semantic.conditions.operator_clauses import expensive_clause, is_expensive
from kindcast.semantic.language import to_text
from kindcast.semantic.matching.operator_layer import OperatorLayer
from kindcast.semantic.model import CanonicalEvent, Instant, Not, OperatorCall, Quantity, ValueConstraint
from kindcast.semantic.operators.calls import Answer, Call, OperatorFailed, ask, unified
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.joining import joined, reported
from kindcast.semantic.operators.readings import EventView
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["OperatorTeller", "as_json"]


class OperatorTeller:
    """Verdicts of operators on one event. Each call is made once, however many clauses hold it."""

    def __init__(self, vocabulary: Vocabulary, event: CanonicalEvent, operators: Mapping[str, Operator]) -> None:
        self._vocabulary = vocabulary
        self._event = event
        self._operators = operators
        self._view = EventView(event)
        self._said: dict[Call, tuple[Answer | OperatorFailed, float]] = {}

    def clause(self, atoms: Sequence[Atom]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(the verdict on each expensive atom, as a predicate of an explanation; the joined bindings of all)."""
        expensive = [atom for atom in atoms if is_expensive(atom)]
        rows = self._rows(expensive)
        predicates = [self._predicate(atom, rows) for atom in expensive]
        constraints = [atom.predicate for atom in expensive if isinstance(atom.predicate, ValueConstraint)]
        kept = [row for row in rows or () if self._allowed(row, constraints)]
        if rows is not None and not kept and all(each["verdict"] for each in predicates):
            reason = "no bindings of its calls agree in all variables and satisfy all constraints at once"
            told = {"text": "bindings join", "attribute": "", "negated": False, "values": []}
            predicates.append(told | {"verdict": False, "reason": reason})
        shown, _ = reported((row for row in kept if row), self._vocabulary.units)
        return predicates, [{name: as_json(value) for name, value in row} for row in shown]

    def _rows(self, atoms: Sequence[Atom]) -> list[dict[str, Any]] | None:
        """The joined bindings before any value constraint; None where an operator failed."""
        sources = []
        for atom in atoms:
            if isinstance(atom.predicate, OperatorCall) and not atom.negated:
                if atom.predicate.name not in self._operators:
                    return None
                call, names = unified(atom.predicate, self._operators)
                answer, _ = self._answer(call)
                if isinstance(answer, OperatorFailed):
                    return None
                if names:
                    sources.append((names, answer.bindings))
        return joined(sources, (), self._vocabulary.units)

    def _allowed(self, row: Mapping[str, Any], constraints: Sequence[ValueConstraint]) -> bool:
        source = [(tuple(row), [tuple(row.values())])]
        return bool(joined(source, constraints, self._vocabulary.units))

    def _predicate(self, atom: Atom, rows: list[dict[str, Any]] | None) -> dict[str, Any]:
        predicate = atom.predicate
        text = to_text(Not(predicate) if atom.negated else predicate)
        told: dict[str, Any] = {"text": text, "attribute": "", "negated": atom.negated, "values": []}
        match predicate:
            case OperatorCall():
                return told | {"attribute": predicate.name} | self._call(atom, predicate, text)
            case ValueConstraint():
                if rows is None:
                    return told | {"verdict": False, "reason": f"{text}: its variables have no value"}
                count = sum(self._allowed(row, [predicate]) for row in rows)
                reason = f"{text}: {count} of {len(rows)} joined bindings satisfy it"
                return told | {"verdict": count > 0, "reason": reason}
            case _:
                return told | self._group(atom, text)

    def _call(self, atom: Atom, predicate: OperatorCall, text: str) -> dict[str, Any]:
        absent = [name for name in atom.attributes if name not in self._view]
        if predicate.name not in self._operators:
            return {"verdict": False, "reason": f"{text}: there is no operator {predicate.name}"}
        if absent:
            return {"verdict": False, "reason": f"{text}: {' and '.join(absent)} is absent"}
        call, names = unified(predicate, self._operators)
        answer, seconds = self._answer(call)
        if isinstance(answer, OperatorFailed):
            return {"verdict": False, "reason": f"{text}: undecided, {answer}", "seconds": seconds}
        said = f"{len(answer.bindings)} bindings" if names else "yes" if answer.holds else "no"
        told = {"verdict": answer.holds is not atom.negated, "seconds": seconds}
        return told | {"reason": f"{text}: the operator says {said}"}

    def _group(self, atom: Atom, text: str) -> dict[str, Any]:
        part = expensive_clause([atom], self._operators, self._vocabulary)
        layer = OperatorLayer(self._operators, "naive", self._vocabulary.units)
        if part is None or not part.possible:
            return {"verdict": False, "reason": f"{text}: an operator of it is gone"}
        layer.add(0, part)
        decision = layer.decide([0], self._event)
        if decision.undecided:
            return {"verdict": False, "reason": f"{text}: undecided, {decision.undecided[0]}"}
        holds = 0 in decision.matched
        return {"verdict": holds, "reason": f"{text}: the group has {'no' if holds else 'a'} joined binding"}

    def _answer(self, call: Call) -> tuple[Answer | OperatorFailed, float]:
        if call not in self._said:
            began = time.perf_counter()
            answer: Answer | OperatorFailed
            try:
                answer = ask(call, self._operators[call.operator], self._view, self._vocabulary.units)
            except OperatorFailed as failure:
                answer = failure
            self._said[call] = answer, time.perf_counter() - began
        return self._said[call]


def as_json(value: object) -> object:
    """A bound value as JSON writes it."""
    if isinstance(value, Quantity):
        return {"value": value.value, "unit": value.unit}
    return value.text if isinstance(value, Instant) else value
