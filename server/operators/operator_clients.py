"""Calls of operators: the answers about one event, and the clients, with deadline, concurrency limit, circuit breaker,
answer cache and statistics.

    planner ──▶ Deferred ──▶ EventAnswers ──▶ DirectClient: a built-in operator answers at once
                                  │    └────▶ QueuedClient: a service or a process answers later; the answer is cached
                                  └ no answer yet: `NotAnswered`; the planner goes on with calls that need not wait

A call with a valid answer is not repeated for the same event, not even in a later try (`AnswerCache`). A client of a
service or a process:

    start ──▶ running? ──▶ cached? ──▶ queue full? ──▶ circuit ──▶ call, with deadline ──▶ Answered, or OperatorFailed

Equal calls for any events and subscriptions are made once and shared. A call is cancelled when no waiter is left. Calls
run on the event loop of the server; other threads use `start`.
"""

import asyncio
import contextlib
import hashlib
import logging
import random
import threading
import time
from codecs import BOM_UTF8
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import httpcore
import msgspec
from sqlalchemy import Connection

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.model import Instant, Quantity
from kindcast.semantic.operators import (
    START_SECONDS,
    Cancellation,
    FailureKind,
    NotAnswered,
    Operator,
    OperatorFailed,
    Remembered,
    run,
    stop,
)
from kindcast.server.clock import CLOCK
from kindcast.server.errors import ServerError
from kindcast.server.operators.registry import Entry, Event, Registration, Registry, missing
from kindcast.server.security.egress import Connections, EarlyAnswer, EndlessAnswer, Sink, SinkRefused, check_sink
from kindcast.server.settings import Settings
from kindcast.server.store.servers import CircuitState, claim_probe, find_circuits, store_circuit

if TYPE_CHECKING:
    from kindcast.server.broker.group import Group

T = TypeVar("T")

__all__ = [
    "AnswerCache",
    "Answered",
    "Circuit",
    "EventAnswers",
    "Limits",
    "OperatorClient",
    "OperatorClients",
    "RemoteOperator",
    "SharedCalls",
    "SharedCircuits",
]


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of an operator, and the seconds that it took. The seconds are 0.0 for all waiters of a shared call
    except the first."""

    value: object
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class DirectClient:
    """The client of a built-in operator, which answers at once in the calling thread."""

    function: Callable[..., object]

    def status(self) -> dict[str, Any]:
        """Returns the state in the form of other clients. A direct call has no circuit breaker, so it is always
        closed."""
        return {"circuit": {"state": "closed"}}

    def close(self) -> None:
        """Does nothing, because there is nothing to free."""


class QueuedClient(Protocol):
    """The client of an operator that answers later: a remote service, or a plug-in in a child process."""

    def start(self, event: Event, arguments: tuple[Any, ...]) -> "Future[Answered]":
        """Starts a call. May be called in any thread. Cancel the future if the answer is no longer needed."""

    def forget(self, event: Event, arguments: tuple[Any, ...]) -> None:
        """Removes the answer to this call from the cache. May be called in any thread."""

    def status(self) -> dict[str, Any]:
        """Returns the state of the circuit breaker and the number of calls, as the API shows them."""

    def close(self) -> None:
        """Ends the client. No call may be started afterwards."""


OperatorClient = DirectClient | QueuedClient

Question = tuple[OperatorClient, str]
"""A client and the arguments as text: within one event, equal questions have equal answers."""


@dataclass(slots=True)
class _Kept:
    """The answers about one event, the number of its users, and its subscriptions that are tried again later."""

    answers: dict[Question, object] = field(default_factory=dict)
    users: int = 0
    postponed: set[str] = field(default_factory=set)


class AnswerCache:
    """The answers about events that are being decided or that wait for a further try, so that no call is repeated. It
    is in memory, for at most `MOST` events; the oldest are dropped first. For one event loop."""

    MOST = 10_000

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @contextlib.contextmanager
    def of(self, event: int, ids: Iterable[str]) -> Iterator[tuple[dict[Question, object], set[str]]]:
        """A context manager for the task that decides the candidates `ids` of an event. It yields the known answers,
        which the task extends, and the set in which the task notes the candidates that are tried again. The answers are
        dropped when no task and no further try needs them."""
        kept = self._kept.setdefault(event, _Kept())
        self._kept.move_to_end(event)
        kept.postponed.difference_update(ids)
        kept.users += 1
        try:
            yield kept.answers, kept.postponed
        finally:
            kept.users -= 1
            if not kept.users and not kept.postponed:
                self._kept.pop(event, None)
            while len(self._kept) > self.MOST:
                self._kept.popitem(last=False)


class EventAnswers:
    """Calls operators about one event. Only one thread at a time may use it. `woken` is called, in any thread, for each
    answer that arrives after `NotAnswered` was raised for it."""

    def __init__(
        self,
        clients: Mapping[str, OperatorClient],
        *,
        woken: Callable[[], None],
        answers: dict[Question, object] | None = None,
    ) -> None:
        """`answers` are already known; new ones are added."""
        self._clients = clients
        self._woken = woken
        self._answers = {} if answers is None else answers
        self.not_answered = 0
        """How often `ask` has raised `NotAnswered`."""
        self._started: dict[Question, Future[Answered]] = {}
        self._waiting: Counter[Question] = Counter()
        self._failed: dict[Question, OperatorFailed] = {}
        self._refused: set[Question] = set()

    def ask(self, name: str, event: Event, arguments: tuple[Any, ...]) -> object:
        """Returns the answer of an operator. Raises `NotAnswered`, `OperatorFailed`, and any error of a built-in
        operator."""
        client = self._clients.get(name)
        if client is None:
            raise missing(name)
        if isinstance(client, DirectClient):
            return client.function(event, *arguments)
        question = (client, repr(arguments))  # plain values: equal texts mean equal arguments
        refuse = partial(self._refuse, question, client, event, arguments)
        if question in self._answers:
            return Remembered(self._answers[question], refuse=refuse)
        if question in self._failed:
            raise self._failed[question]
        future = self._started.get(question)
        if future is None:
            future = self._started[question] = client.start(event, arguments)
            future.add_done_callback(lambda _: self._woken())
        if not future.done():
            self._waiting[question] += 1
            self.not_answered += 1
            raise NotAnswered("has not answered yet", future.done, partial(self._drop, question))
        del self._started[question]
        try:
            answered = future.result()
        except OperatorFailed as failed:
            self._failed[question] = failed.again()
            raise
        self._answers[question] = answered.value
        return Remembered(answered.value, answered.seconds, refuse)

    @property
    def has_answers(self) -> bool:
        """Whether any answer is known."""
        return bool(self._answers)

    def knows(self, name: str, arguments: tuple[object, ...]) -> bool:
        """Whether the answer of an operator to these arguments is known."""
        client = self._clients.get(name)
        return client is not None and (client, repr(arguments)) in self._answers

    @property
    def is_waiting(self) -> bool:
        """Whether a call has not been answered yet."""
        return not all(each.done() for each in self._started.values())

    def close(self) -> None:
        """Cancels the calls that are not answered yet, and forgets invalid answers, so that the next try calls the
        operators again."""
        for each in self._started.values():
            each.cancel()
        for question in self._refused:
            self._answers.pop(question, None)

    def _refuse(self, question: Question, client: QueuedClient, event: Event, arguments: tuple[Any, ...]) -> None:
        self._refused.add(question)
        client.forget(event, arguments)

    def _drop(self, question: Question) -> None:
        self._waiting[question] -= 1
        if not self._waiting[question] and question in self._started:
            self._started.pop(question).cancel()


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────────

MAX_ANSWER_BYTES = 65_536
"""The maximum size of an answer: enough for a thousand bindings, and small enough that a faulty service cannot fill the
memory."""


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    holds: bool | msgspec.UnsetType = msgspec.UNSET
    bindings: list[list[bool | int | float | str | dict[str, Any]]] | msgspec.UnsetType = msgspec.UNSET


class RemoteOperator:
    """Calls one remote service. Runs on one event loop. `SharedCalls` sets the limits."""

    def __init__(self, name: str, registration: Registration, connections: Connections, *, allow_private: bool) -> None:
        self._name = name
        self._registration = registration
        self._connections = connections
        self._allow_private = allow_private

    async def __call__(self, event: Event, arguments: tuple[Any, ...]) -> object:
        """Returns a bool or a list of bindings. If the connection breaks, the call is tried again. Raises
        `OperatorFailed`."""
        body = self._question(event, arguments)
        tries = 1 + self._registration.retries
        while True:
            tries -= 1
            try:
                return _read(await self._post(body))
            except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError) as error:
                if not tries:
                    kind: FailureKind = "timed_out" if isinstance(error, httpcore.TimeoutException) else "failed"
                    raise OperatorFailed(_in_words(error), kind=kind) from None
            except SinkRefused as error:
                raise OperatorFailed(f"cannot be called: {error}") from None
            except (httpcore.ProtocolError, httpcore.UnsupportedProtocol):
                raise OperatorFailed("did not answer in HTTP") from None

    async def _post(self, body: bytes) -> bytes:
        service = check_sink(self._registration.url, allow_private=self._allow_private)
        async with self._connections.request(service, "POST", self._headers(service), body) as answer:
            if answer.status != 200:
                raise OperatorFailed(f"answered with status {answer.status}; 200 is expected")
            found = bytearray()
            async for piece in answer.aiter_stream():
                found += piece
                if len(found) > MAX_ANSWER_BYTES:
                    raise OperatorFailed(f"answered more than {MAX_ANSWER_BYTES:,} bytes")
            return bytes(found)

    def _headers(self, service: Sink) -> list[tuple[bytes, bytes]]:
        own = {"content-type": "application/json", "accept": "application/json", "user-agent": "kindcast"}
        given = {name.lower(): value for name, value in self._registration.headers.items()}
        headers = [(name.encode(), value.encode()) for name, value in (given | own).items()]
        return [(b"Host", service.netloc), *headers]

    def _question(self, event: Event, arguments: tuple[Any, ...]) -> bytes:
        question = {
            "operator": self._name,
            "version": self._registration.version,
            "arguments": [each.text if isinstance(each, Instant) else each for each in arguments],
            "event": event,
        }
        return msgspec.json.encode(question)


def _in_words(error: Exception) -> str:
    """Returns why a connection gave no answer."""
    if isinstance(error, EarlyAnswer):
        return f"answers calls twice: {error}"
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        return f"cannot be reached: {type(error).__name__}"
    if isinstance(error, EndlessAnswer):
        return f"gave no whole answer: {error}"
    return f"broke off, or did not answer in HTTP: {type(error).__name__}"


def _read(body: bytes) -> object:
    """Returns the answer in the form that the function of an operator returns. Raises `OperatorFailed` if the body is
    not an answer."""
    try:
        answer = _answer.decode(body.removeprefix(BOM_UTF8))
        if (answer.holds is msgspec.UNSET) == (answer.bindings is msgspec.UNSET):
            raise _wrong_form("exactly one of the two members is needed")
        if answer.bindings is msgspec.UNSET:
            return answer.holds
        return [tuple(map(_value, binding)) for binding in answer.bindings]
    except msgspec.ValidationError as error:
        raise _wrong_form(error) from None
    except msgspec.DecodeError:
        raise OperatorFailed("its answer is not JSON") from None
    except ValueError as error:  # of a quantity, or a text that is not UTF-8
        raise _wrong_form(error) from None


def _wrong_form(reason: object) -> OperatorFailed:
    return OperatorFailed(
        f'its answer has the wrong form: {reason}; expected {{"holds": …}} or {{"bindings": [[…], …]}}'
    )


def _value(value: object) -> object:
    if isinstance(value, dict):
        number, unit = value.get("value"), value.get("unit")
        if len(value) != 2 or isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError("an object in a binding must be a quantity with value and unit")
        if not isinstance(unit, str):
            raise ValueError("the unit of a quantity must be a text")
        return Quantity(number, unit)
    return value


_answer = msgspec.json.Decoder(_Answer)


# A circuit breaker: an operator that fails repeatedly gets no calls for a while, and then one call as a test.
#
# closed ──FAILURES in a row──▶ open ──its pause is over──▶ half open: one call, the others wait for it
#    ▲                            ▲                             │ failed: a longer pause
#    └────────── answered ────────┴─────────────────────────────┘

FAILURES = 5
"""The number of failures in a row that open the circuit. A lower number may be chance; a higher one would delay
candidates by as many timeouts."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""The pause doubles from the first to the longest: a short failure costs one second, a broken service gets one call
per minute."""


OTHER_PROBE_SECONDS = 1.0
"""How long a server waits that may not test an operator, because another server does."""
SHARE_SECONDS = 1.0
"""How often a server reads what the others have found."""

_log = logging.getLogger("kindcast.operators")


class Circuit:
    """The circuit breaker of one operator. It runs on one event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = CLOCK.now,
        *,
        claim: Callable[[], Awaitable[bool]] | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`claim` asks whether this server may make the one call after a pause; without it, it always may. `changed` is
        called when the circuit opens or closes, when a pause is prolonged, and when that one call ends."""
        self._clock = clock
        self._claim = claim
        self._changed = changed
        self._pause = FIRST_PAUSE_SECONDS
        self._until: float | None = None
        self._probe: asyncio.Future[None] | None = None
        self.failures = 0
        """The number of failures in a row."""
        self.reason = ""
        """The reason of the last failure."""

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        if self._until is None:
            return "closed"
        return "half_open" if self._probe is not None or self._clock() >= self._until else "open"

    @property
    def until(self) -> float | None:
        """The end of the pause; None if there is none."""
        return self._until

    async def enter(self) -> None:
        """Call this before each call. It waits while another call tests whether the operator works again. After it
        returns, call `succeeded`, `failed` or `left`. Raises `OperatorFailed` of the kind `circuit_open`."""
        while self._until is not None:
            if self._probe is not None:
                await asyncio.shield(self._probe)
                continue
            if self._clock() < self._until:
                reason = f"failed {self.failures} times in a row and is not called for a while: {self.reason}"
                raise OperatorFailed(reason, kind="circuit_open", after=self._until - self._clock())
            self._probe = asyncio.get_running_loop().create_future()
            if self._claim is None or await self._claimed(self._claim):
                return
            if self._until is not None:  # it may have closed meanwhile
                self._until = self._clock() + OTHER_PROBE_SECONDS

    async def _claimed(self, claim: Callable[[], Awaitable[bool]]) -> bool:
        """Whether this server may make the one call. Calls that come meanwhile wait."""
        granted = False
        try:
            granted = await claim()
        finally:
            if not granted:
                self._end_probe()
        return granted

    def succeeded(self) -> None:
        """Records that the operator answered."""
        was_open = self._until is not None
        self.failures, self._pause, self._until = 0, FIRST_PAUSE_SECONDS, None
        self._end_probe()
        if was_open:
            self._changed()

    def failed(self, reason: str) -> None:
        """Records that the operator failed or did not answer in time."""
        self.failures += 1
        self.reason = reason
        was_probe = self._end_probe()
        if was_probe:
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        if was_probe or (self._until is None and self.failures >= FAILURES):
            self._until = self._clock() + self._pause
            self._changed()

    def left(self) -> None:
        """Records that the call ended without a result, for example because it was cancelled."""
        if self._end_probe():
            self._changed()

    def _end_probe(self) -> bool:
        """Lets waiting calls go on. Returns whether this server made the one call after a pause."""
        probe, self._probe = self._probe, None
        if probe is not None and not probe.done():
            probe.set_result(None)
        return probe is not None

    def told(self, operator: str) -> CircuitState:
        """Returns the state for other servers."""
        left = None if self._until is None else self._until - self._clock()
        return CircuitState(operator, self.failures, self._pause, left, self.reason)

    def learn(self, told: CircuitState) -> None:
        """Takes over the state that another server has found. If this server makes the one call after a pause, only the
        result of this call counts."""
        if self._probe is not None:
            return
        if told.left is not None:
            self.failures, self._pause, self.reason = told.failures, told.pause, told.reason
            self._until = self._clock() + told.left
        elif self._until is not None:
            self.failures, self._pause, self._until = 0, FIRST_PAUSE_SECONDS, None


class BrokerAccess(Protocol):
    """The part of the broker's interface that circuits use."""

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def submit(self, work: Callable[["Group"], T]) -> T: ...


class SharedCircuits:
    """The circuits of the remote operators, which all servers of one database share. So an operator that is out of
    order gets one call after a pause, not one from each server. Calls of an operator that works cost nothing more. For
    one event loop."""

    def __init__(self, broker: BrokerAccess) -> None:
        self._broker = broker
        self._circuits: dict[str, tuple[Entry, Circuit]] = {}
        self._changed: set[str] = set()
        self._woken = asyncio.Event()

    def circuit(self, entry: Entry, seconds: float) -> Circuit:
        """Returns a new circuit for a registered operator, whose calls take at most so many seconds. An earlier one of
        the same name is not shared any more."""
        name = entry.operator.name

        def changed() -> None:
            if self._circuits.get(name) is shared:
                self._changed.add(name)
                self._woken.set()

        made = Circuit(claim=partial(self._claim, name, seconds), changed=changed)
        shared = self._circuits[name] = entry, made
        self._changed.discard(name)
        self._woken.set()  # others may know its state
        return made

    def forget(self, name: str) -> None:
        """Does not share the circuit of this name any more."""
        self._circuits.pop(name, None)
        self._changed.discard(name)

    async def run(self) -> None:
        """Exchanges the states with the other servers, until it is cancelled."""
        while True:
            try:
                await self.exchange()
            except Exception as error:
                _log.error("the circuits of operators cannot be shared; trying again: %s", error)
                await asyncio.sleep(SHARE_SECONDS)
            with contextlib.suppress(TimeoutError):  # `wait_for` of Python 3.11 may ignore a cancellation
                async with asyncio.timeout(SHARE_SECONDS):
                    await self._woken.wait()
            self._woken.clear()

    async def exchange(self) -> None:
        """Stores what has changed here, then takes over what others have found. Raises `StoreUnavailable`."""
        if not self._circuits:
            return
        names, self._changed = self._changed, set()
        told = [self._circuits[name] for name in names]
        states = [(entry, circuit.told(entry.operator.name)) for entry, circuit in told]
        try:
            if states:
                await self._broker.submit(partial(_store_circuits, states=states))
        except BaseException:
            self._changed |= names & self._circuits.keys()
            raise
        # A circuit that is made during the read has nothing to do with what is read.
        circuits = dict(self._circuits)
        for each in await self._broker.read(find_circuits):
            known = circuits.get(each.operator)
            if known is not None and known is self._circuits.get(each.operator) and each.operator not in self._changed:
                known[1].learn(each)

    async def _claim(self, name: str, seconds: float) -> bool:
        seconds += OTHER_PROBE_SECONDS
        try:
            return await self._broker.submit(lambda group: claim_probe(group.connection, name, seconds))
        except ServerError as error:
            _log.error("the other servers cannot be asked about the operator %s; trying again: %s", name, error)
            return False


def _store_circuits(group: "Group", states: Iterable[tuple[Entry, CircuitState]]) -> None:
    """Stores the states of circuits. A registration that was replaced meanwhile says nothing about the present one."""
    entries = group.state.operators.entries
    for entry, state in states:
        if entries.get(state.operator) is entry:
            store_circuit(group.connection, state)


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

MOST_KEPT = 10_000
"""The maximum number of cached answers of one operator."""

WAITING_EACH = 8
"""The maximum number of calls that run or wait, per possible running call. Further calls are refused."""
MOST_WAITING = 500
"""The maximum of that number: half of the events that are decided at once (`EVENTS_AT_ONCE`). So one slow operator can
neither fill the memory nor delay all others."""
SHORTEST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""The shortest and longest time before a refused call is tried again, in seconds."""

Call = Callable[[Event, tuple[Any, ...]], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one operator: the `seconds` that a call may take, the number of concurrent calls, and how long an
    answer is cached. `attributes` are the attributes of an event that the operator sees, and so a part of the cache key
    (None: all)."""

    seconds: float
    concurrency: int
    keep_seconds: float = 0.0
    attributes: tuple[str, ...] | None = None


@dataclass(slots=True, eq=False)
class _Flight:
    """A running call and its waiters."""

    askers: "list[Future[Answered]]" = field(default_factory=list)
    task: "Future[Answered] | None" = None


class SharedCalls:
    """The client of a remote operator or a plug-in. A call that is not answered in time is cancelled."""

    def __init__(
        self,
        call: Call,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        *,
        closed: Callable[[], None] = lambda: None,
        circuit: Circuit | None = None,
    ) -> None:
        """`closed` frees the resources of the call. Without a `circuit` it gets one of its own."""
        self.limits = limits
        self.circuit = circuit or Circuit()
        self._call = call
        self._loop = loop
        self._room = asyncio.Semaphore(limits.concurrency)
        self._kept: OrderedDict[bytes, tuple[float, object]] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}
        self._guard = threading.Lock()
        self._closed = closed
        self._waiting = 0
        self._mean_seconds = 0.1
        self._last_began = time.perf_counter()
        self._running = 0
        self._failed = 0

    def start(self, event: Event, arguments: tuple[Any, ...]) -> "Future[Answered]":
        """Starts a call, or shares a running call with the same attributes and arguments. May be called in any
        thread."""
        plain, key = self._key(event, arguments)
        asker: Future[Answered] = Future()
        with self._guard:
            flight = self._flights.get(key)
            begins = flight is None
            if flight is None:
                flight = self._flights[key] = _Flight()
            flight.askers.append(asker)
        asker.add_done_callback(lambda done: self._leave(key, flight, done))
        if begins:
            flight.task = asyncio.run_coroutine_threadsafe(self._ask(key, plain, arguments), self._loop)
            flight.task.add_done_callback(lambda done: self._land(key, flight, done))
        return asker

    def forget(self, event: Event, arguments: tuple[Any, ...]) -> None:
        """Removes the answer to this call from the cache. May be called in any thread."""
        self._kept.pop(self._key(event, arguments)[1], None)

    def _key(self, event: Event, arguments: tuple[Any, ...]) -> tuple[dict[str, tuple[Any, ...]], bytes]:
        """Returns what the operator sees of an event, and the key of the call."""
        seen = event if self.limits.attributes is None else [name for name in self.limits.attributes if name in event]
        plain = {name: tuple(event[name]) for name in sorted(seen)}
        return plain, hashlib.blake2b(repr((plain, arguments)).encode(errors="surrogatepass"), digest_size=32).digest()

    def _leave(self, key: bytes, flight: _Flight, asker: "Future[Answered]") -> None:
        """A waiter no longer needs the answer. When no waiter is left, the call is cancelled."""
        if asker.cancelled():
            with self._guard:
                if asker in flight.askers:
                    flight.askers.remove(asker)
                unneeded = not flight.askers
                if unneeded and self._flights.get(key) is flight:
                    del self._flights[key]
            if unneeded and flight.task is not None:
                flight.task.cancel()

    def _land(self, key: bytes, flight: _Flight, done: "Future[Answered]") -> None:
        """Gives the result to all waiters. Only the first gets the seconds, so that the planner counts the cost of a
        call once."""
        with self._guard:
            if self._flights.get(key) is flight:
                del self._flights[key]
            askers, flight.askers = flight.askers, []
        failed = OperatorFailed("was cancelled") if done.cancelled() else done.exception()
        for asker in askers:
            if not asker.set_running_or_notify_cancel():
                continue
            if isinstance(failed, OperatorFailed):
                asker.set_exception(failed)
                failed = failed.again()
            elif failed is not None:
                asker.set_exception(failed)
            else:
                answered = done.result()
                asker.set_result(answered)
                done = Future()
                done.set_result(Answered(answered.value, 0.0))

    async def _ask(self, key: bytes, event: Mapping[str, tuple[Any, ...]], arguments: tuple[Any, ...]) -> Answered:
        """Returns the answer, from the cache or by a call. Raises `OperatorFailed`."""
        if (kept := self._kept.get(key)) is not None and kept[0] > time.monotonic():
            return Answered(kept[1], 0.0)
        if self._waiting >= min(WAITING_EACH * self.limits.concurrency, MOST_WAITING):
            seconds = max(self._mean_seconds, time.perf_counter() - self._last_began)  # it may hang
            expected = seconds * WAITING_EACH * random.uniform(0.5, 1.5)
            after = min(max(expected, SHORTEST_WAIT), LONGEST_WAIT)
            raise OperatorFailed("has too many calls at present", kind="busy", after=after)
        self._waiting += 1
        try:
            async with self._room:
                return await self._asked(key, event, arguments)
        finally:
            self._waiting -= 1

    def status(self) -> dict[str, Any]:
        """Returns the state of the circuit breaker and the number of calls."""
        circuit: dict[str, Any] = {"state": self.circuit.state}
        if self.circuit.failures:
            circuit |= {"failures_in_a_row": self.circuit.failures, "last_failure": self.circuit.reason}
        return {"circuit": circuit, "running": self._running, "waiting": self._waiting - self._running,
                "failed": self._failed}  # fmt: skip

    def close(self) -> None:
        """Frees the resources. All waiters must have cancelled."""
        self._closed()

    async def _asked(self, key: bytes, event: Event, arguments: tuple[Any, ...]) -> Answered:
        await self.circuit.enter()
        began = self._last_began = time.perf_counter()
        self._running += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                value = await self._call(event, arguments)
        except TimeoutError:
            raise self._failure(f"did not answer within {self.limits.seconds:g} s", "timed_out") from None
        except OperatorFailed as error:
            if error.for_good:  # the operator works and says that there is no answer
                self.circuit.succeeded()
                raise
            raise self._failure(str(error), error.kind, error.after) from None
        except asyncio.CancelledError:
            self.circuit.left()
            raise
        except Exception as error:  # any other error is a failure of the operator
            raise self._failure(f"failed: {type(error).__name__}: {error}") from error
        finally:
            self._running -= 1
        self.circuit.succeeded()
        if self.limits.keep_seconds:
            self._keep(key, value)
        seconds = time.perf_counter() - began
        self._mean_seconds += 0.1 * (seconds - self._mean_seconds)
        return Answered(value, seconds)

    def _failure(self, reason: str, kind: FailureKind = "failed", after: float | None = None) -> OperatorFailed:
        self._failed += 1
        self.circuit.failed(reason)
        return OperatorFailed(reason, kind=kind, after=after)

    def _keep(self, key: bytes, value: object) -> None:
        self._kept[key] = (time.monotonic() + self.limits.keep_seconds, value)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


# ── operator clients ──────────────────────────────────────────────────────────────────────────────────────────────────
# The clients of all operators of a registry: called directly, in child processes, or over HTTP.


class OperatorClients:
    """The clients of all operators of a server, on its event loop. A client, with its circuit breaker, is kept while
    the registry has the same entry."""

    def __init__(self, settings: Settings, shared: SharedCircuits | None = None) -> None:
        """`shared` are the circuits of all servers of the database; None if there is only this one."""
        self._settings = settings
        self._shared = shared
        self._connections = Connections(allow_private=settings.allow_private_sinks)
        self._loop = asyncio.get_running_loop()
        self._made: dict[str, tuple[Entry, OperatorClient]] = {}

    @property
    def by_name(self) -> Mapping[str, OperatorClient]:
        """The client of each operator, by name. It is a copy and may be kept in any thread."""
        return {name: client for name, (_, client) in self._made.items()}

    def follow(self, registry: Registry) -> None:
        """Creates the clients that `registry` needs, and closes the others."""
        made: dict[str, tuple[Entry, OperatorClient]] = {}
        for name, entry in registry.entries.items():
            before = self._made.pop(name, None)
            if before is not None and before[0] is entry:
                made[name] = before
                continue
            if before is not None:
                self._close(name, before[1])
            if entry.kind != "missing":
                made[name] = (entry, self._new_client(entry))
        for name, (_, client) in self._made.items():
            self._close(name, client)
        self._made = made

    def _close(self, name: str, client: OperatorClient) -> None:
        client.close()
        if self._shared is not None:
            self._shared.forget(name)

    async def close(self) -> None:
        """Ends all processes and connections. No call may be started afterwards."""
        for _, client in self._made.values():
            client.close()
        self._made = {}
        await self._connections.close()

    def _new_client(self, entry: Entry) -> OperatorClient:
        operator = entry.operator
        if entry.registration is not None:
            asked = entry.registration
            remote = RemoteOperator(
                operator.name, asked, self._connections, allow_private=self._settings.allow_private_sinks
            )
            limits = Limits(
                seconds=asked.timeout_seconds,
                concurrency=asked.concurrency,
                keep_seconds=asked.cache_seconds,
                attributes=asked.attributes,
            )
            shared = None if self._shared is None else self._shared.circuit(entry, limits.seconds)
            return SharedCalls(remote, limits, self._loop, circuit=shared)
        if entry.kind == "builtin":
            return DirectClient(operator.function)
        plugin = _Plugin(operator, operator.timeout or self._settings.operator_timeout_seconds)
        limits = Limits(seconds=plugin.longest_seconds, concurrency=operator.concurrency)
        return SharedCalls(plugin, limits, self._loop, closed=plugin.close)


class _Plugin:
    """Calls the function of a plug-in, in child processes if possible, so that a call that hangs can be killed."""

    def __init__(self, operator: Operator, seconds: float) -> None:
        self._operator = _isolated(replace(operator, timeout=seconds, batch=None))
        # A process is killed at the operator's timeout, which does not include its start. A function that cannot run in
        # a process cannot be killed: its thread is abandoned.
        self.longest_seconds = seconds + 1.0 + (START_SECONDS if self._operator.isolated else 0.0)
        self._threads = ThreadPoolExecutor(operator.concurrency, f"kindcast-operator-{operator.name}")

    async def __call__(self, event: Event, arguments: tuple[Any, ...]) -> object:
        cancellation = Cancellation()
        loop = asyncio.get_running_loop()

        def ask() -> Any:
            return run(self._operator, [(event, *arguments)], cancellation=cancellation)[0]

        try:
            found = await loop.run_in_executor(self._threads, ask)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        if isinstance(found, OperatorFailed):
            raise found
        return found

    def close(self) -> None:
        stop(self._operator)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _isolated(operator: Operator) -> Operator:
    try:
        return replace(operator, isolated=True)
    except InvalidDeclaration:  # a nested function, which another process could not import
        return operator
