"""Operators: functions that evaluate expensive predicates, with their declared cost, selectivity and bindings.

    @operator("locIn", cost=0.02, selectivity=0.1)
    def loc_in(event, region: str): ...

Installed packages provide operators through entry points of the group `kindcast.operators`:

    [project.entry-points."kindcast.operators"]
    harbour = "harbour.operators:boats"            an operator, a list of operators, or a function that returns these

An entry point that cannot be imported, or that provides something else, is reported by name. The others are loaded.
"""

import importlib.metadata
import inspect
import logging
import re
import threading
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.model import AttributeRef, Constant, Instant, Quantity, Term, Variable
from kindcast.semantic.operators.failures import in_words

__all__ = [
    "GROUP",
    "KINDS",
    "NAME",
    "BrokenPlugin",
    "Operator",
    "Plugins",
    "constant_given",
    "entry_points_at_start",
    "load_operators",
    "load_plugins",
    "operator",
    "operators_by_name",
    "signature_of",
]

# Signatures: the kinds of arguments that an operator's function takes, from its annotations, and the check of a call.
#
#     def near(event, place: str, within: Quantity, image: tuple): ...       near("Vienna", 5 km, @image, ?d)
#
# The annotations `str`, `bool`, `int`, `float`, `Quantity`, `Instant` and unions of them stand for constants. The
# annotation `tuple` stands for the values of an attribute. A parameter without annotation, or with any other
# annotation, takes everything.

KINDS: dict[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "text",
    Quantity: "quantity",
    Instant: "instant",
    tuple: "attribute",
}
"""Annotation → kind of argument, as users read it."""


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a function. Annotations are evaluated to types if possible, else kept as written."""
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return inspect.signature(function)


def kind_of_type(annotation: object) -> str | None:
    """Returns the kind of a type of `KINDS`; None for other types."""
    return KINDS.get(annotation) if isinstance(annotation, type) else None


def kinds_given(signature: inspect.Signature) -> dict[str, frozenset[str] | None]:
    """Returns parameter → the kinds that it takes, without the event parameter. None means all kinds."""
    return {each.name: _kinds(each.annotation) for each in list(signature.parameters.values())[1:]}


def constant_given(constant: Constant) -> object:
    """Returns a constant as it is passed to a function. A term is passed as its IRI, or as its text without an IRI."""
    value = constant.value
    return (value.iri or value.text) if isinstance(value, Term) else value


def misfit(signature: inspect.Signature, arguments: Sequence[Constant | AttributeRef | Variable]) -> str | None:
    """Returns why a call with these arguments does not fit the signature; None if it fits. Variables are ignored.

    >>> def near(event, place: str, image: tuple): ...
    >>> misfit(signature_of(near), [Constant("Vienna"), Constant(5)])
    'image is for the values of an attribute (@name), not for a number'
    """
    given = [each for each in arguments if not isinstance(each, Variable)]
    try:
        bound = signature.bind(None, *given)
    except TypeError:
        shape = ", ".join(list(signature.parameters)[1:])
        return f"it takes ({shape}) and its variables; the call has {len(given)} arguments"
    kinds = kinds_given(signature)
    for name, value in bound.arguments.items():
        taken = kinds.get(name)
        for each in value if isinstance(value, tuple) else (value,):
            if taken is not None and each is not None and (kind := _kind_of(each)) not in taken:
                return f"{name} is for {_words(taken)}, not for {_words({kind})}"
    return None


def _kinds(annotation: object) -> frozenset[str] | None:
    """Returns the kinds that a parameter with this annotation takes; None means all kinds."""
    if annotation is inspect.Parameter.empty:
        return None
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = [_kinds(each) for each in typing.get_args(annotation) if each is not type(None)]
        return None if None in parts else frozenset().union(*(part for part in parts if part is not None))
    kind = kind_of_type(tuple if origin is tuple else annotation)
    return None if kind is None else frozenset({kind})


def _kind_of(argument: Constant | AttributeRef) -> str:
    if isinstance(argument, AttributeRef):
        return "attribute"
    value = argument.value
    return "text" if isinstance(value, Term) else KINDS[type(value)]


_IN_WORDS = {
    "attribute": "the values of an attribute (@name)",
    "boolean": "true or false",
    "instant": "a date-time",
    "number": "a number",
    "quantity": "a number with a unit",
    "text": "text",
}


def _words(kinds: typing.AbstractSet[str]) -> str:
    return " or ".join(_IN_WORDS[kind] for kind in sorted(kinds))


NAME = r"[A-Za-z_][A-Za-z0-9_]*"
MOST_AT_ONCE: Final = 64
"""Maximum number of concurrent calls of one operator: each may be a process."""
SLOW_SECONDS = 10.0
"""After this time the log says which plug-in is being imported."""
CacheKey = Callable[..., Hashable] | Literal["arguments"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Operator:
    """An operator. `function(event, *arguments)` gets the event as attribute → tuple of values, then the constants and
    the values of attributes (`@name`, a tuple) of the call, in their order. Variables are not passed.

    The function returns a bool. For a call with variables, it returns an iterable of bindings: tuples with one value
    for each distinct variable, in order of first appearance. With a single variable, the bare value is enough. `None`
    and empty results mean false. The function raises `TryLater` or `FailedForGood` if it has no answer. Any other
    exception counts as `TryLater`.

    Options, besides the name:

    `cost`, `selectivity`   estimates until measurements exist: seconds of a call, probability that it is true
    `version`               distinguishes operators of the same name: their answers are never shared
    `binds`                 the types of the variables, in order: a call has that many distinct variables, or none.
                            None: any number, of any type
    `batch`                 `batch(asked)` answers several calls at once. It takes a sequence of `(event, *arguments)`
                            and returns as many answers in the same order, each a value as `function` returns it or an
                            exception
    `cache_key`             `cache_key(event, *arguments)` returns what the answer depends on. Calls with the same
                            constants and the same key share an answer, also across events. `"arguments"`: the answer
                            depends on the arguments only. None, as the option or as the key: no answer is reused
    `check`                 `check(*arguments)` returns what is wrong with the constants of a call, or None. With an
                            error, the subscription is refused. Attributes and variables are passed as `AttributeRef`
                            and `Variable`
    `cache_seconds`         how long an answer may be reused; None: until the cache is full
    `timeout`               maximum seconds of a call. A function in its own process is killed then. A function in this
                            process cannot be killed and should check `time_left()` itself
    `concurrency`           maximum number of concurrent calls
    `speculate`             calls start as soon as a subscription may need them, without waiting for the answers of its
                            other calls: more calls, earlier answers. Has an effect only if calls are asynchronous (on a
                            server)
    `isolated`              the function runs in processes of its own; a process that hangs or crashes is killed and
                            replaced. The function must be defined at the top level of a module that can be imported
    """

    name: str
    function: Callable[..., Any]
    cost: float = 0.001
    selectivity: float = 0.5
    version: str = "1"
    binds: tuple[type, ...] | None = None
    batch: Callable[[Sequence[tuple[Any, ...]]], Sequence[Any]] | None = None
    check: Callable[..., str | None] | None = None
    cache_key: CacheKey | None = None
    cache_seconds: float | None = None
    timeout: float | None = None
    concurrency: int = 1
    speculate: bool = False
    isolated: bool = False
    signature: inspect.Signature = field(init=False, repr=False)

    def __post_init__(self) -> None:
        problem = next(filter(None, self._problems()), None)
        if problem is not None:
            raise InvalidDeclaration(f"operator {self.name!r}: {problem}")
        object.__setattr__(self, "signature", signature_of(self.function))

    def _problems(self) -> Iterable[str | None]:
        if not re.fullmatch(NAME, self.name):
            yield "a name has only letters, digits and _, and does not begin with a digit"
        if not 0 <= self.selectivity <= 1:
            yield f"selectivity is a probability, not {self.selectivity}"
        for name, seconds in (("cost", self.cost), ("timeout", self.timeout), ("cache_seconds", self.cache_seconds)):
            if seconds is not None and not 0 < seconds < float("inf"):
                yield f"{name} must be a number of seconds, not {seconds}"
        if not 1 <= self.concurrency <= MOST_AT_ONCE:
            yield f"concurrency must be from 1 to {MOST_AT_ONCE}, not {self.concurrency}"
        for each in self.binds or ():
            if kind_of_type(each) in (None, "attribute"):
                yield f"it binds bool, int, float, str, Quantity or Instant, not {each!r}"
        if inspect.iscoroutinefunction(self.function):
            yield "an operator is called without an event loop: write def, not async def"
        if self.isolated and "<" in getattr(self.function, "__qualname__", "<"):
            yield "a function that runs in its own process must be defined at the top level of a module"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the function directly."""
        return self.function(*arguments, **named)

    def misfit(self, arguments: Sequence[Constant | AttributeRef | Variable]) -> str | None:
        """Returns why a call with these arguments does not fit the operator; None if it fits."""
        variables = len({each.name for each in arguments if isinstance(each, Variable)})
        if self.binds is not None and variables not in (0, len(self.binds)):
            return f"it binds {len(self.binds)} variables, or none; the call has {variables}"
        return misfit(self.signature, arguments)

    def unreadable(self, arguments: Sequence[Constant | AttributeRef | Variable]) -> str | None:
        """Returns the problem that `check` reports for these arguments, which fit the signature; None if there is
        none. A check that raises is a problem, too."""
        try:
            return None if self.check is None else self.check(*map(_plain, arguments))
        except Exception as error:  # a plug-in may raise anything
            return f"its check of this constant raised {in_words(error)}"

    def key(self, event: Mapping[str, tuple[Any, ...]], arguments: Sequence[Any]) -> Hashable | None:
        """Returns what the answer depends on besides the constants of the call; None if it must not be reused."""
        if self.cache_key is None:
            return None
        return tuple(arguments) if self.cache_key == "arguments" else self.cache_key(event, *arguments)


def operator(
    name: str,
    *,
    cost: float = 0.001,
    selectivity: float = 0.5,
    version: str = "1",
    binds: tuple[type, ...] | None = None,
    batch: Callable[[Sequence[tuple[Any, ...]]], Sequence[Any]] | None = None,
    check: Callable[..., str | None] | None = None,
    cache_key: CacheKey | None = None,
    cache_seconds: float | None = None,
    timeout: float | None = None,
    concurrency: int = 1,
    speculate: bool = False,
    isolated: bool = False,
) -> Callable[[Callable[..., Any]], Operator]:
    """Makes a function an operator. `Operator` describes the options. Raises `InvalidDeclaration` for invalid options.

    >>> @operator("longer", cost=0.01)
    ... def longer(event, length: int):
    ...     return any(len(name) > length for name in event.get("name", ()))
    >>> longer({"name": ("kindcast",)}, 3)
    True
    """
    if not isinstance(name, str):
        raise InvalidDeclaration('an operator needs a name: write @operator("name")')

    def made(function: Callable[..., Any]) -> Operator:
        return Operator(
            name=name,
            function=function,
            cost=cost,
            selectivity=selectivity,
            version=version,
            binds=binds,
            batch=batch,
            check=check,
            cache_key=cache_key,
            cache_seconds=cache_seconds,
            timeout=timeout,
            concurrency=concurrency,
            speculate=speculate,
            isolated=isolated,
        )

    return made


def _plain(argument: Constant | AttributeRef | Variable) -> Any:
    return constant_given(argument) if isinstance(argument, Constant) else argument


def operators_by_name(operators: Any) -> Mapping[str, Operator]:
    """Returns the operators by name. Raises `InvalidDeclaration` for an item that is not an operator, and for two
    operators of the same name."""
    found: dict[str, Operator] = {}
    for each in operators:
        if not isinstance(each, Operator):
            raise InvalidDeclaration(f"{each!r} is not an operator: decorate the function with @operator(name)")
        if each.name in found:
            raise InvalidDeclaration(f"two operators have the name {each.name!r}")
        found[each.name] = each
    return found


GROUP = "kindcast.operators"
BARE_NAMES = ("index", "semantic", "server", "spark_jobs")
"""Names under which our packages were imported before they became packages of `kindcast`."""

log = logging.getLogger("kindcast.operators")


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An entry point whose operators could not be loaded, and the reason."""

    name: str
    package: str
    reason: str

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of package {self.package!r}: {self.reason}"


@dataclass(slots=True)
class Plugins:
    """The installed plug-ins: operators by name, the package of each operator, and the broken plug-ins."""

    operators: dict[str, Operator] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    broken: list[BrokenPlugin] = field(default_factory=list)


@cache
def entry_points_at_start() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Returns the entry points of the plug-ins that were installed at the first call. Later calls do not read the
    metadata of all packages again."""
    return tuple(importlib.metadata.entry_points(group=GROUP))


def load_operators(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> dict[str, Operator]:
    """Returns the operators of all installed plug-ins, or of these entry points, by name. A broken plug-in is logged
    and skipped."""
    found = load_plugins(entry_points)
    for each in found.broken:
        log.warning("%s", each)
    return found.operators


def load_plugins(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> Plugins:
    """Returns the operators of all installed plug-ins, with their packages and the broken plug-ins.

    Entry points are loaded in the order of their names. If two provide an operator of the same name, the second one is
    broken."""
    found = Plugins()
    points = importlib.metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    for point in sorted(points, key=lambda each: (each.name, each.value)):
        package = point.dist.name if point.dist is not None else point.value.partition(":")[0]
        try:
            with _told_if_slow(point.name, package):
                brought = _brought(point.load())
            for operator in brought:
                if operator.name in found.operators:
                    reason = f"the operator {operator.name!r} exists already, from {found.packages[operator.name]!r}"
                    raise InvalidDeclaration(reason)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # importing a package may exit, or panic in Rust
            reason = str(error) if isinstance(error, InvalidDeclaration) else in_words(error)
            if isinstance(error, ModuleNotFoundError) and error.name in BARE_NAMES:
                reason += f": import kindcast.{error.name} instead, or its names from kindcast"
            found.broken.append(BrokenPlugin(point.name, package, reason))
            continue
        for operator in brought:
            found.operators[operator.name] = operator
            found.packages[operator.name] = package
    return found


@contextmanager
def _told_if_slow(name: str, package: str) -> Iterator[None]:
    """A context manager that writes into the log that a plug-in is still being imported: a server waits for it."""
    words = "the plug-in %r of package %r is still being imported"
    timer = threading.Timer(SLOW_SECONDS, log.warning, (words, name, package))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _brought(loaded: Any) -> list[Operator]:
    if callable(loaded) and not isinstance(loaded, Operator):
        loaded = loaded()
    brought = [loaded] if isinstance(loaded, Operator) else list(loaded)
    strange = [each for each in brought if not isinstance(each, Operator)]
    if strange:
        raise InvalidDeclaration(f"{strange[0]!r} is not an operator: decorate the function with @operator(name)")
    names = [each.name for each in brought]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidDeclaration(f"it has two operators with the name {twice[0]!r}")
    return brought
