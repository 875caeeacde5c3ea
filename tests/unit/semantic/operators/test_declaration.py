"""What an operator may be."""

from typing import Any

import pytest

from kindcast import InvalidSubscription, Matcher, Vocabulary, operator
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.model import Instant, Quantity
from kindcast.semantic.operators.calls import run, time_left
from kindcast.semantic.operators.declaration import operators_by_name
from kindcast.semantic.operators.failures import TryLater


@operator("near", cost=0.5, selectivity=0.2)
def near(event: object, place: str, distance: float = 1.0) -> bool:
    """Always near."""
    return True


def test_operator_is_still_the_function() -> None:
    """Decorating loses nothing: it can be called and tested by itself."""
    assert near({}, "Vienna") is True
    assert (near.name, near.cost, near.selectivity, near.version) == ("near", 0.5, 0.2, "1")


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("not a name", {}, "letters, digits and _"),
        ("p", {"selectivity": 1.5}, "a probability"),
        ("p", {"cost": 0.0}, "a number of seconds"),
        ("p", {"cost": float("inf")}, "a number of seconds"),
        ("p", {"timeout": 0}, "timeout must be a number of seconds, not 0"),
        ("p", {"concurrency": 0}, "concurrency must be from 1 to 64"),
        ("p", {"binds": (list,)}, "it binds bool, int, float, str, Quantity or Instant"),
        ("p", {"isolated": True}, "must be defined at the top level of a module"),
    ],
)
def test_operator_nonsense_is_refused(name: str, fields: dict[str, Any], said: str) -> None:
    """The error says what is expected."""
    with pytest.raises(InvalidDeclaration, match=said):
        operator(name, **fields)(lambda event: True)


def test_operator_without_a_name_is_refused_at_once() -> None:
    """`@operator` alone decorates nothing; the error comes from this line and not from the matcher."""
    with pytest.raises(InvalidDeclaration, match=r'write @operator\("name"\)'):

        @operator  # type: ignore[arg-type]
        def near(event: Any) -> bool:
            return True


def test_operators_by_name_two_of_one_name_are_refused() -> None:
    """Which one is meant could not be told."""
    with pytest.raises(InvalidDeclaration, match="two operators have the name 'near'"):
        operators_by_name([near, near])
    with pytest.raises(InvalidDeclaration, match="decorate the function"):
        Matcher(Vocabulary.from_ontologies([]), operators=[lambda event: True])  # type: ignore[list-item]


@operator("typed", binds=(int, str))
def typed(event: object, place: str, within: Quantity | int, image: tuple[Any, ...], *more: bool | None) -> Any:
    """One parameter of each kind."""
    return event["answer"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        ('typed("Vienna", 5 km, @image)', None),
        ('typed("Vienna", 5, @image, true, false, ?a, ?b)', None),
        ("typed(5, 5 km, @image)", "place is for text, not for a number"),
        ('typed("Vienna", "far", @image)', "within is for a number or a number with a unit, not for text"),
        ('typed("Vienna", 5, "image")', "image is for the values of an attribute (@name), not for text"),
        ('typed("Vienna", 5, @image, 1)', "more is for true or false, not for a number"),
        ('typed("Vienna", 5)', "it takes (place, within, image, more) and its variables; the call has 2 arguments"),
        ('typed("Vienna", 5, @image, ?a)', "it binds 2 variables, or none; the call has 1"),
        ('typed("Vienna", 5, @image, ?a, ?a)', "it binds 2 variables, or none; the call has 1"),
    ],
)
def test_typed_signature_calls_that_do_not_fit_are_refused_with_the_parameter(call: str, refused: str | None) -> None:
    """A subscriber learns what is wrong when subscribing, not when an event fails."""
    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[typed])
    if refused is None:
        matcher.add("s", call)
        return
    with pytest.raises(InvalidSubscription) as found:
        matcher.add("s", call)
    assert found.value.problems[0].code == "wrong-arguments"
    assert found.value.problems[0].detail == f"typed: {refused}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([(1, "a")], None),
        ([(1.5, "a")], None),
        ([("a", "b")], "bound a str, int is declared"),
        ([(True, "b")], "bound a bool, int is declared"),
        ([(1, Instant("2026-01-01T00:00:00Z"))], "bound a Instant, str is declared"),
    ],
)
def test_declared_bindings_of_another_type_are_a_failure(answer: Any, reason: str | None) -> None:
    """An operator that lies about its variables decides nothing."""
    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[operator("p", binds=(int, str))(lambda event: answer)])
    matcher.add("s", "p(?a, ?b)")
    decided = matcher.decide({})
    if reason is None:
        assert [each.subscription for each in decided.matches] == ["s"]
    else:
        assert reason in decided.undecided[0].reason


def test_failures_that_an_operator_tells_name_the_call() -> None:
    """Neither `TryLater` nor an exception decides anything; the reader sees which call it was."""

    @operator("later")
    def later(event: object, camera: str) -> bool:
        raise TryLater("it is booting", after=5)

    @operator("broken")
    def broken(event: object) -> bool:
        raise KeyError("x")

    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[later, broken])
    matcher.add("a", 'later("C1")')
    matcher.add("b", "broken()")
    reasons = [each.reason for each in matcher.decide({}).undecided]
    assert reasons == ["later('C1'): it is booting", "broken(): raised KeyError: 'x'"]


def test_failures_have_a_reason_that_every_database_can_store() -> None:
    """An exception may have any text: characters that are none, null characters, megabytes."""

    @operator("odd")
    def odd(event: object, region: str) -> bool:
        raise ValueError(f"at \ud800\0: {'x' * 5_000_000}, the end")

    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[odd])
    matcher.add("a", 'odd("r")')
    (undecided,) = matcher.decide({}).undecided
    assert undecided.reason.startswith("odd('r'): raised ValueError: at ??: xxx")
    assert undecided.reason.endswith("x, the end")
    assert len(undecided.reason) < 10_000


def test_failure_of_an_exception_without_a_text_is_that_of_its_operator() -> None:
    """An exception of a library may raise another one when it is asked for its text."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @operator("mute", check=lambda *place: _raise(Mute()) if place else None)
    def mute(event: object, *place: str) -> bool:
        raise Mute

    @operator("begins")
    def begins(event: object) -> Any:
        yield 1
        raise Mute

    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[mute, begins])
    matcher.add("a", "mute()")
    matcher.add("b", "begins(?x)")
    assert [each.reason for each in matcher.decide({}).undecided] == ["mute(): raised Mute", "begins(?1): raised Mute"]
    with pytest.raises(InvalidSubscription, match="raised Mute"):
        matcher.add("c", 'mute("here")')


def _raise(error: Exception) -> str:
    raise error


def test_check_that_raises_refuses_the_subscription() -> None:
    """The subscriber cannot repair the operator, but sees which one it is."""

    @operator("odd", check=lambda place: str(1 / 0))
    def odd(event: object, place: str) -> bool:
        return True

    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[odd])
    with pytest.raises(InvalidSubscription, match="odd: its check of this constant raised ZeroDivisionError"):
        matcher.add("a", 'odd("here")')


def test_time_left_is_told_to_an_operator_that_has_a_timeout() -> None:
    """In the matcher's process nobody can stop a function but itself."""
    seen: list[float | None] = []
    with_timeout = operator("a", timeout=5_000)(lambda event: bool(seen.append(time_left())))
    without = operator("b")(lambda event: bool(seen.append(time_left())))
    assert run(with_timeout, [({},)]) == run(without, [({},)]) == [False]
    assert seen[0] is not None
    assert 4_000 < seen[0] <= 5_000
    assert seen[1] is None
    assert time_left() is None
