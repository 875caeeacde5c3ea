"""The types of the answers of the HTTP API, and the table of which route returns which.

The OpenAPI document is made from these types (`kindcast.server.api.descriptions`). The clients use them, and tests
compare every answer of the application with them. A member that is not always present is `NotRequired`. Later versions
may add members to answers, but never remove any.

**To add a route:** its line in `ANSWERS`, and its headers in `ROUTE_HEADERS`; a test fails otherwise.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Self

from typing_extensions import TypedDict

__all__ = ["ANSWERS", "HEADERS", "LIMITS", "OF_ERRORS", "ROUTE_HEADERS", "Bytes", "Lines", "Stream", "Text"]

Json = dict[str, Any]

# ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Note(TypedDict):
    """A remark. `code` is stable. `attribute` is empty if the note is about no attribute."""

    code: str
    attribute: str
    detail: str


class Fault(TypedDict):
    """One fault with its place: in JSON (`pointer`), in a text, or in the parameters."""

    detail: str
    code: NotRequired[str]
    pointer: NotRequired[str]
    parameter: NotRequired[str]
    line: NotRequired[int]
    column: NotRequired[int]
    suggestions: NotRequired[list[Json]]


class ProblemDocument(TypedDict):
    """An error (RFC 9457). `type` ends in a stable code: docs/problems.md lists them. Some codes have more members."""

    type: str
    title: str
    status: int
    detail: str
    instance: NotRequired[str]
    errors: NotRequired[list[Fault]]


class Some(TypedDict):
    """A count, and the first items."""

    count: int
    listed: list[Any]


Change = TypedDict("Change", {"from": Any, "to": Any})
"""The value before and after a change."""

# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────

Status = Literal["active", "paused", "failing", "disabled_by_failures", "expired"]


class Subscription(TypedDict):
    """A subscription as anybody may see it. Times are RFC 3339 in UTC. The values of secrets are hidden."""

    id: str
    status: Status
    status_reason: str | None
    expression: NotRequired[str]
    where: NotRequired[Json]
    filters: NotRequired[list[Json]]
    types: list[str] | None
    source: str | None
    canonical: str
    clauses: int
    cost: float
    notes: list[Note]
    flagged: bool
    sink: str | None
    protocol: str | None
    protocolsettings: Json | None
    sinkcredential: Json | None
    metadata: Json | None
    attributes: list[str] | None
    throttling: float | None
    created_at: str
    expires_at: str
    vocabulary_version: str
    cursor: str
    times_sent: int
    times_failed: int
    last_success: str | None
    last_failure: str | None
    last_error: str | None
    consecutive_errors: int
    next_attempt_at: str | None
    undecided: int
    last_undecided: str | None
    last_undecided_reason: str | None
    last_undecided_kind: str | None


class PastEvents(TypedDict):
    """The result of `start_at` for a new subscription: how many stored events were read, matched, wait for operators,
    and could not be read any more."""

    events: int
    matched: int
    undecided: int
    unreadable: int


class CreatedSubscription(Subscription):
    """A new subscription. Ticket and secret are not shown again."""

    ticket: str
    secret: NotRequired[str]
    backfill: NotRequired[PastEvents]


class ChangedSubscription(Subscription):
    """A changed subscription. `secret` is a new secret, for its first sink or after a rotation."""

    secret: NotRequired[str]


class TestDelivery(TypedDict):
    """The result of a test message. `status_code` is null if there was no answer. `seconds` is the time until the
    answer or until the failure."""

    subscription: str
    webhook_id: str
    at: str
    outcome: Literal["delivered", "failed", "gone"]
    status_code: int | None
    detail: str
    seconds: float


class SubscriptionState(Subscription):
    """The state of a subscription. `pending` is the number of its waiting messages, and `pending_since` the time when
    the event of the oldest was accepted. `discarded` is the number of messages that were deleted because of their age
    before they were delivered or acknowledged."""

    pending: int
    pending_since: str | None
    discarded: int
    waiting_for_operators: int


class SubscriptionList(TypedDict):
    """A page of subscriptions. `cursor` is that of the next page, if there is one."""

    subscriptions: list[Subscription]
    cursor: str | None


class ImportedLine(TypedDict):
    """An imported subscription. `was` is its old id. `ticket` is the new ticket; it is missing if the old ticket was
    kept with `ticket_hash`."""

    line: int
    was: str | None
    id: str
    ticket: NotRequired[str]
    secret: NotRequired[str]


class SubscriptionFeatures(TypedDict):
    """What the CloudEvents Subscriptions API supports here."""

    dialects: list[str]
    protocols: list[str]
    credentialtypes: list[str]
    specversions: list[str]


class CloudEventsSubscription(TypedDict):
    """A subscription in the form of the CloudEvents Subscriptions API."""

    id: str
    sink: str
    protocol: str
    source: NotRequired[str]
    types: NotRequired[list[str]]
    filters: NotRequired[list[Json]]
    protocolsettings: NotRequired[Json]
    sinkcredential: NotRequired[Json]
    status: Status
    expires_at: str


class CreatedCloudEventsSubscription(CloudEventsSubscription):
    """A new subscription in the form of the CloudEvents Subscriptions API. Ticket and secret are not shown again."""

    ticket: str
    secret: str


class RejectedLine(TypedDict):
    line: int
    problem: ProblemDocument


class Imported(TypedDict):
    created: list[ImportedLine]
    rejected: list[RejectedLine]


class PlannedCall(TypedDict):
    call: str
    expected_seconds: float
    expected_true: float
    asked_with_probability: float
    held_by_clauses: int


class PlannedClause(TypedDict):
    calls: list[PlannedCall]
    expected_seconds: float
    expected_true: float


class SubscriptionPlan(TypedDict):
    subscription: str
    planner: str
    clauses: list[PlannedClause]
    expected_seconds: float


# ── delivery ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Retracted(TypedDict):
    """The event that is withdrawn, with its source, id and sequence number at its delivery."""

    source: str
    id: str
    sequence: int


class Message(TypedDict):
    """A message. `event` is the CloudEvent as it was accepted. `cursor` is the value to acknowledge or to continue
    after. `sequence` is the number of the event, where it is not the cursor."""

    cursor: str
    event: Json
    bindings: list[Json]
    subscription: str
    vocabulary_version: str | None
    late: NotRequired[bool]
    sequence: NotRequired[int]
    retracted: NotRequired[Retracted]


class StreamToken(TypedDict):
    """The token with which a browser opens one stream."""

    token: str
    expires_at: str


class MessagePage(TypedDict):
    events: list[Message]
    cursor: str
    expiring: NotRequired[str]
    expired: NotRequired[bool]


class Cursor(TypedDict):
    cursor: str


class DeadLetter(Message):
    reason: str | None
    last_failure: str | None


class DeadLetters(TypedDict):
    dead_letters: list[DeadLetter]
    cursor: str | None


class Redriven(TypedDict):
    subscription: str
    status: Status
    redriven: int


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class AcceptedEvent(TypedDict):
    id: str
    source: str
    sequence: int
    matched: int | None
    notes: list[Note]
    duplicate: NotRequired[bool]
    undecided: NotRequired[int]


class RejectedEvent(TypedDict):
    index: int
    problem: ProblemDocument
    line: NotRequired[int]


class Published(TypedDict):
    """The answer to a publisher. `matched` is null if shards match the events later."""

    accepted: int
    duplicates: int
    matched: int | None
    rejected: list[RejectedEvent]
    events: NotRequired[list[AcceptedEvent]]


class DeliveredMatches(TypedDict):
    """The answer to delivered matches. `accepted` and `duplicates` count events. `matched`, `repeated` and `unmatched`
    count matches. `silent` lists subscriptions that do not exist or get nothing now."""

    accepted: int
    duplicates: int
    matched: int
    repeated: int
    unmatched: int
    silent: list[str]
    rejected: list[RejectedEvent]


class StoredEvent(TypedDict):
    sequence: int
    event: Json
    accepted_at: str
    vocabulary_version: str
    matched: int | None
    notes: list[Note]


class EventPage(TypedDict):
    events: list[StoredEvent]
    cursor: str


class Undecided(TypedDict):
    subscription: str
    state: Literal["waiting", "given_up"]
    reason: str
    kind: str | None
    tries: int
    since: str
    next_try_at: str | None


class Attempt(TypedDict):
    attempt: int
    at: str
    outcome: Literal["delivered", "failed", "gone"]
    status_code: int | None
    detail: str


class DeliveryTrace(TypedDict):
    subscription: str
    by: Literal["webhook", "broker", "pull or stream"]
    state: Literal["delivered", "pending", "dead letter"]
    late: bool
    bindings: list[Json]
    attempts: list[Attempt]


class DescribedProperty(TypedDict):
    """The property of an attribute. If the name has several segments, `path` has the label of each."""

    label: NotRequired[str]
    iris: NotRequired[list[str]]
    path: NotRequired[list[str]]


class ExplainedPredicate(TypedDict):
    text: str
    reason: str
    attribute: NotRequired[str | None]
    property: NotRequired[DescribedProperty]
    negated: NotRequired[bool]
    verdict: NotRequired[bool | None]
    values: NotRequired[list[Json]]
    seconds: NotRequired[float]


class ExplainedClause(TypedDict):
    matches: bool | None
    predicates: list[ExplainedPredicate]
    bindings: NotRequired[list[Json]]


class Explanation(TypedDict):
    """Why an event matches or not, by clause and predicate. `index` explains the search in the index. For a document
    with several events, `events` has the explanation of each, with its id."""

    id: NotRequired[str]
    events: NotRequired[list["Explanation"]]
    matches: bool | None
    summary: str
    canonical: str
    clauses: list[ExplainedClause]
    notes: list[Note]
    index: NotRequired[Json]
    subscription: NotRequired[str]
    status: NotRequired[Status]
    recorded: NotRequired[bool]
    circumstances: NotRequired[list[str]]
    vocabulary_version: NotRequired[str]


class Trace(StoredEvent):
    undecided: list[Undecided]
    deliveries: list[DeliveryTrace]
    deliveries_truncated: bool
    explanation: NotRequired[Explanation]


class SubscriptionMatch(TypedDict):
    """A match. `event` is the id of the event, if a document has several events."""

    event: NotRequired[str]
    subscription: str
    bindings: list[Json]
    bindings_truncated: NotRequired[bool]


class UndecidedMatch(TypedDict):
    subscription: str
    kind: str
    reason: str


class OperatorCall(TypedDict):
    call: str
    why: str
    expected_seconds: float
    expected_true: float
    held: bool | None
    failure: Json | None
    settled: int


class OperatorCalls(TypedDict):
    planner: str
    calls: list[OperatorCall]
    asked: int
    saved: int


class AskedShards(TypedDict):
    """The numbers of the shards that were searched, which are those at the requested server, and the total number of
    shards."""

    asked: list[int]
    of: int


class EventMatches(TypedDict):
    """The matches of an event. For a document with several events, `events` has the matches of each, with its id."""

    id: NotRequired[str]
    events: NotRequired[list["EventMatches"]]
    matches: list[SubscriptionMatch]
    notes: NotRequired[list[Note]]
    problem: NotRequired[ProblemDocument]
    undecided: NotRequired[list[UndecidedMatch]]
    operators: NotRequired[OperatorCalls]
    shards: NotRequired[AskedShards]


class Matched(TypedDict):
    """The answer to a match request: the matches of one `event`, or the list `results` for `events`."""

    events: NotRequired[list[EventMatches]]
    matches: NotRequired[list[SubscriptionMatch]]
    notes: NotRequired[list[Note]]
    undecided: NotRequired[list[UndecidedMatch]]
    operators: NotRequired[OperatorCalls]
    shards: NotRequired[AskedShards]
    results: NotRequired[list[EventMatches]]
    vocabulary_version: str


# ── vocabulary ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Recompiled(TypedDict):
    """The effect of a change on the subscriptions. `flagged` subscriptions use something that was removed."""

    recompiled: int
    changed: int
    flagged: Some
    unflagged: Some


class ImpactedSubscriptions(TypedDict):
    live: int
    changed: int
    listed: list[Json]


class Impact(TypedDict):
    """The live subscriptions whose meaning changes, and why: by concept, attribute, unit, word, …"""

    vocabulary_version: Change
    subscriptions: ImpactedSubscriptions
    terms: Some
    attributes: Some
    units: Some
    words: Some
    texts: Some
    pairs: Some
    names: Some
    dates: Some
    excluded: NotRequired[Some]


class OtherTenants(TypedDict):
    """The effect of a change of a shared ontology in the other tenants, as counts. `unread` are tenants that could not
    be read. `behind` are open tenants that could not follow yet; they are tried again."""

    tenants: int
    subscriptions: int
    changed: int
    gain: int
    lose: int
    flagged: int
    unread: int
    behind: int


class _LoadReport(TypedDict):
    """The load report of a document."""

    triples: NotRequired[int]
    concepts: NotRequired[int]
    individuals: NotRequired[int]
    retired: NotRequired[int]
    undeclared: NotRequired[int]
    edges: NotRequired[int]
    derived_edges: NotRequired[int]
    roots: NotRequired[int]
    max_depth: NotRequired[int]
    multi_parent: NotRequired[int]
    synonyms: NotRequired[int]
    languages: NotRequired[dict[str, int]]
    merged: NotRequired[int]
    merged_across: NotRequired[list[Any]]
    unmerged: NotRequired[list[Any]]
    deprecated: NotRequired[int]
    inferred: NotRequired[int]
    inferred_examples: NotRequired[list[Any]]
    unsatisfiable: NotRequired[list[str]]
    unresolved_imports: NotRequired[list[str]]
    warnings: NotRequired[list[str]]


class Ontology(_LoadReport):
    """A version of an ontology, with its load report."""

    name: str
    version: int
    active: bool
    shared: bool
    sha256: str
    format: str
    reason: Literal["none", "rdfs", "owl"]
    relations: list[Any]
    created_at: str
    activated_at: str | None


class LoadedOntology(_LoadReport):
    """The load report of an upload, with the effect if the version is active. In a dry run it has the effect that the
    upload would have, and `version` only if the same version is stored."""

    name: str
    version: NotRequired[int]
    dry_run: NotRequired[bool]
    active: bool
    sha256: str
    format: str
    reason: Literal["none", "rdfs", "owl"]
    relations: list[Any]
    vocabulary_version: str
    subscriptions: NotRequired[Recompiled]
    impact: NotRequired[Impact]
    others: NotRequired[OtherTenants]


class OntologyList(TypedDict):
    ontologies: list[Ontology]
    vocabulary_version: str
    concepts: int


class OntologyVersions(TypedDict):
    name: str
    versions: list[Ontology]


class ChangedConcepts(TypedDict):
    count: int
    concepts: list[Json]


OntologyDifference = TypedDict(
    "OntologyDifference",
    {
        "name": str,
        "from": int,
        "to": int,
        "added": ChangedConcepts,
        "removed": ChangedConcepts,
        "moved": ChangedConcepts,
        "merged": ChangedConcepts,
        "split": ChangedConcepts,
        "deprecated": ChangedConcepts,
        "restored": ChangedConcepts,
        "relabelled": ChangedConcepts,
    },
)
"""The differences between two versions."""


class ActivatedOntology(TypedDict):
    name: str
    dry_run: bool
    vocabulary_version: str
    version: NotRequired[int]
    subscriptions: NotRequired[Recompiled]
    impact: NotRequired[Impact]
    others: NotRequired[OtherTenants]


class DeletedOntology(TypedDict):
    name: str
    dry_run: bool
    vocabulary_version: str
    subscriptions: NotRequired[Recompiled]
    impact: NotRequired[Impact]
    others: NotRequired[OtherTenants]


class Reading(TypedDict):
    """How events with linked data are read (rule 20)."""

    linked_data: Literal["graphs", "plain"]
    unknown_contexts: Literal["refuse", "plain"]


class Rules(TypedDict):
    """The matching rules in use. `impact` is their effect here when they were first used."""

    meaning: int
    since: str | None
    impact: Impact | None
    reading: Reading


class DeclarationChange(TypedDict):
    """The effect of a declaration or of its deletion; nothing if it was the same before."""

    dry_run: bool
    kind: str
    name: str
    vocabulary_version: str
    version: NotRequired[int]
    active: NotRequired[bool]
    subscriptions: NotRequired[Recompiled]
    impact: NotRequired[Impact]


class DeclarationVersion(TypedDict):
    version: int
    active: bool
    created_at: str


class _Declared(TypedDict):
    name: str
    version: int
    created_at: str
    declaration: Any


class Declaration(_Declared):
    versions: list[DeclarationVersion]


class AttributeList(TypedDict):
    attributes: list[_Declared]
    vocabulary_version: str


class SynonymList(TypedDict):
    synonyms: list[_Declared]
    vocabulary_version: str


class SchemaList(TypedDict):
    """The event types; or, for several requested `types`, their common schema (`view`)."""

    schemas: NotRequired[list[_Declared]]
    types: NotRequired[list[str]]
    view: NotRequired[Json]
    vocabulary_version: str


class DeclaredSplit(TypedDict):
    """A declared envelope, or a shipped one, which has no version."""

    name: str
    declaration: Json
    versions: list[DeclarationVersion]
    version: NotRequired[int]
    created_at: NotRequired[str]
    shipped: NotRequired[bool]


class SplitsList(TypedDict):
    splits: list[_Declared]
    shipped: dict[str, Json]
    vocabulary_version: str


class AliasesList(TypedDict):
    aliases: list[_Declared]
    vocabulary_version: str


class RelationList(TypedDict):
    """All unions of relations."""

    relations: list[_Declared]
    vocabulary_version: str


CodeSystemList = TypedDict("CodeSystemList", {"code-systems": list[_Declared], "vocabulary_version": str})


class Contexts(TypedDict):
    """All contexts, or the one whose URL was requested."""

    contexts: NotRequired[list[_Declared]]
    shipped: NotRequired[list[str] | bool]
    vocabulary_version: NotRequired[str]
    name: NotRequired[str]
    version: NotRequired[int]
    created_at: NotRequired[str]
    declaration: NotRequired[Json]
    versions: NotRequired[list[DeclarationVersion]]


class Label(TypedDict):
    value: str
    lang: str | None


class Concept(TypedDict):
    iri: str
    iris: list[str]
    label: str
    labels: list[Label]
    synonyms: list[Any]
    definition: Any
    deprecated: bool
    ontology: str | None
    parents: list[Any]
    children_count: int


class ShortConcept(TypedDict):
    iri: str
    label: str


class FoundConcept(TypedDict):
    iri: str
    label: str
    matched: str
    lang: str | None


class FoundConcepts(TypedDict):
    concepts: list[FoundConcept]
    vocabulary_version: str


class ResolvedTerm(TypedDict):
    term: str
    level: str
    ambiguous: bool
    candidates: list[Concept]
    replaced: list[Json]
    set_aside: list[str]
    vocabulary_version: str


class PlacedConcept(ShortConcept):
    """A concept as a node of a tree."""

    children_count: NotRequired[int]


class RootPage(TypedDict):
    concepts: list[PlacedConcept]
    count: int
    cursor: str | None
    vocabulary_version: str


class PictureOfConcept(TypedDict):
    """The neighbours of a concept. `edges` are pairs of indices of `nodes`, the narrower concept first. The first node
    is the concept."""

    concept: Concept
    nodes: list[PlacedConcept]
    edges: list[tuple[int, int]]
    children_count: int
    vocabulary_version: str


class UseOfConcept(TypedDict):
    concept: Concept
    descendants_count: int
    subscriptions: Some
    events: Some
    examined: dict[str, int]
    vocabulary_version: str


class UnknownTerm(TypedDict):
    term: str
    attribute: str
    count: int
    last_sequence: int
    suggestions: list[Json]


class UnknownProperty(TypedDict):
    """An unknown property. `attribute`, `last_sequence` and `source` are those of the newest of the `count` events that
    have it."""

    iri: str
    attribute: str
    count: int
    last_sequence: int
    source: str


class UnknownTerms(TypedDict):
    terms: list[UnknownTerm]
    count: int
    properties: list[UnknownProperty]
    properties_count: int
    examined: dict[str, int]
    vocabulary_version: str


class Completion(TypedDict):
    """A completion. `insert` replaces the last `replace` characters before the position."""

    insert: str
    label: str
    kind: str
    replace: int
    matched: NotRequired[str | None]
    lang: NotRequired[str | None]
    iri: NotRequired[str]
    property: NotRequired[DescribedProperty]


class CheckedExpression(TypedDict):
    """A checked expression: its meaning if it is `valid`, else its mistakes."""

    valid: bool
    errors: list[Fault]
    detail: NotRequired[str]
    canonical: NotRequired[str]
    where: NotRequired[Json]
    words: NotRequired[str]
    clauses: NotRequired[int]
    cost: NotRequired[float]
    notes: NotRequired[list[Note]]
    completions: NotRequired[list[Completion]]
    vocabulary_version: str


class ShippedVocabulary(TypedDict):
    name: str
    bytes: int
    format: str


class ShippedVocabularies(TypedDict):
    vocabularies: list[ShippedVocabulary]


class WatchedEvent(TypedDict):
    """An accepted event with some of the subscriptions that got it. `matched` counts all; it is null if attributes are
    hidden from the caller. A large event is null."""

    sequence: int
    accepted_at: float
    source: str
    type: str
    matched: int | None
    subscriptions: list[str]
    event: Json | None


class WatchedEvents(TypedDict):
    """The events since the last message of the live tail. `skipped` is the number of those that are missing."""

    events: list[WatchedEvent]
    skipped: int


class RecentEvents(TypedDict):
    events: list[WatchedEvent]


class MeasuredSeries(TypedDict):
    description: str
    values: list[float | None]


class OperatorSeries(TypedDict):
    """The statistics of an operator: the seconds of a call, and the share of calls that hold."""

    cost: list[float | None]
    selectivity: list[float | None]


class History(TypedDict):
    """The measurements of a server. `operators` are the most frequently called ones."""

    step_seconds: float
    times: list[float]
    series: dict[str, MeasuredSeries]
    operators: dict[str, OperatorSeries]


class SentAttempt(TypedDict):
    sequence: int
    attempt: int
    at: str | None
    outcome: str
    status_code: int | None
    detail: str


class SentAttempts(TypedDict):
    subscription: str
    attempts: list[SentAttempt]


class ConceptPage(TypedDict):
    concept: Concept
    concepts: list[PlacedConcept]
    count: int
    cursor: str | None
    vocabulary_version: str


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobProgress(TypedDict):
    stage: str
    done: int
    total: int | None


class Job(TypedDict):
    """A job. It has a `result` when it is done, or a `problem` when it has failed."""

    id: str
    status: Literal["running", "done", "failed"]
    progress: JobProgress
    result: NotRequired[Json]
    problem: NotRequired[ProblemDocument]


class BacktestDay(TypedDict):
    day: str
    events: int
    matched: int


class BacktestReport(TypedDict):
    canonical: str
    vocabulary_version: str
    events: int
    matched: int
    unreadable: int
    undecided: int
    days: list[BacktestDay]
    clauses: list[Json]
    samples: list[Json]
    notes: list[Note]


class BacktestJob(TypedDict):
    id: str
    status: Literal["running", "done", "failed"]
    progress: JobProgress
    result: NotRequired[BacktestReport]
    problem: NotRequired[ProblemDocument]


# ── operators ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Expected(TypedDict):
    cost: float
    selectivity: float


class Learned(Expected):
    calls: int
    failures: int
    recent_calls: float
    recent_trues: float


class Circuit(TypedDict):
    state: str
    failures_in_a_row: NotRequired[int]
    last_failure: NotRequired[str | None]


class OperatorState(TypedDict):
    """An operator, with its declaration and statistics."""

    name: str
    kind: str
    version: str
    arguments: list[str]
    declared: Expected
    learned: Learned
    subscriptions: int
    circuit: NotRequired[Circuit]
    running: NotRequired[int]
    waiting: NotRequired[int]
    failed: NotRequired[int]
    registration: NotRequired[Json]


class LearnedCall(Learned):
    call: str


class OperatorDetail(OperatorState):
    predicates: list[LearnedCall]


class OperatorList(TypedDict):
    operators: list[OperatorState]


class DeletedOperator(TypedDict):
    name: str
    deleted: bool


class Retried(TypedDict):
    again: int


class OperatorData(TypedDict):
    kind: str
    name: NotRequired[str]
    entries: int
    uploaded: bool


class OperatorDataList(TypedDict):
    data: list[OperatorData]


class DeletedOperatorData(TypedDict):
    kind: str
    name: str
    deleted: bool


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Health(TypedDict):
    status: str
    warning: NotRequired[str]
    check: NotRequired[str]


class AsyncApiDocument(TypedDict):
    """AsyncAPI 3: https://www.asyncapi.com/docs/reference/specification/v3.0.0"""

    asyncapi: str
    info: Json
    defaultContentType: str
    servers: Json
    channels: Json
    operations: Json
    components: Json


class Member(TypedDict):
    """One of several servers on a database. `applied` is the commit whose vocabulary and operators it has, `commit` its
    own last commit, and `leases` the number of subscriptions for which it delivers."""

    id: str
    program: str
    lives_for_seconds: float
    applied: int
    commit: int | None
    leases: int


class ShardStatus(TypedDict):
    """A shard of the subscriptions. `server` holds it, if any does. `events` is the number of accepted events that it
    has not matched; the oldest was accepted `lag_seconds` ago."""

    shard: int
    server: str | None
    position: int
    events: int
    lag_seconds: float


class Queue(TypedDict):
    waiting: int
    oldest_seconds: float


class ServerStatus(TypedDict):
    server: str
    program: str
    database: Literal["sqlite", "postgresql"]
    trouble: str | None
    queue: Queue
    lag_seconds: float
    layout: int
    commits: int
    ledger: dict[str, int]
    subscriptions: dict[str, int]
    servers: list[Member]
    shards: list[ShardStatus]


class ClockConfirmed(TypedDict):
    time: str
    was: str | None


# ── which route answers which ─────────────────────────────────────────────────────────────────────────────────────────


class Text(str):
    """An answer that is text with this media type."""


class Lines(str):
    """An answer in NDJSON. The type does not describe its lines."""


class Bytes(str):
    """An answer that is bytes with this media type."""


class Stream(str):
    """An answer in server-sent events of these types."""

    events: tuple[str, ...]

    def __new__(cls, *events: str) -> Self:
        made = super().__new__(cls, "text/event-stream")
        made.events = events
        return made


_CHANGED: dict[int, Any] = {200: DeclarationChange, 201: DeclarationChange}

# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class ApiKey(TypedDict):
    """A key without its secret. `tenant` is null for an administrator of all tenants. `used` is how much of each limit
    is in use; rates are those of the last ten seconds. Subscriptions are counted while the tenant is open."""

    id: str
    role: Literal["admin", "ontologist", "publisher", "subscriber", "auditor"]
    tenant: str | None
    name: str
    created_at: str
    expires_at: str | None
    limits: dict[str, float]
    created_by: str | None
    used: NotRequired[dict[str, float]]


class NewApiKey(ApiKey):
    """A new key. `key` is shown only once."""

    key: str


class RotatedApiKey(NewApiKey):
    replaces: str
    replaced_until: str


class ApiKeys(TypedDict):
    keys: list[ApiKey]


class Tenant(TypedDict):
    """A tenant. `created_at` is null for the tenant `default` if it has no key of its own. `open`: its matcher is in
    memory now. `used` is how much of each limit is in use; subscriptions are counted only while it is open."""

    name: str
    created_at: str | None
    keys: int
    open: bool
    limits: dict[str, float]
    used: dict[str, float]


class Tenants(TypedDict):
    tenants: list[Tenant]


class AuditedRequest(TypedDict):
    """An entry of the audit log: who did what, from where. `outcome` is the status of the answer."""

    number: int
    at: str
    tenant: str
    who: str
    address: str
    action: str
    outcome: int
    detail: str


class AuditPage(TypedDict):
    entries: list[AuditedRequest]
    cursor: str


class UsageOfDay(TypedDict):
    who: str
    tenant: str
    day: str
    requests: int
    refused: int
    events: int
    bytes: int


class Usage(TypedDict):
    usage: list[UsageOfDay]


class BrowserSession(TypedDict):
    """The sender of the request, and what it may do. `who` is null if a key is needed and there is none."""

    needs_key: bool
    who: str | None
    name: str | None
    role: Literal["admin", "ontologist", "publisher", "subscriber", "auditor"] | None
    tenant: str | None
    all_tenants: bool
    permissions: list[str]
    ends_at: str | None


ANSWERS: Mapping[str, Mapping[int, Any]] = {
    "GET /v1/session": {200: BrowserSession},
    "POST /v1/session": {200: BrowserSession},
    "PATCH /v1/session": {200: BrowserSession},
    "DELETE /v1/session": {200: BrowserSession},
    "GET /v1/keys": {200: ApiKeys},
    "POST /v1/keys": {201: NewApiKey},
    "POST /v1/keys/{id}/rotate": {201: RotatedApiKey},
    "DELETE /v1/keys/{id}": {200: ApiKey},
    "GET /v1/tenants": {200: Tenants},
    "POST /v1/tenants": {201: Tenant},
    "PATCH /v1/tenants/{name}": {200: Tenant},
    "DELETE /v1/tenants/{name}": {200: Tenant},
    "GET /v1/audit": {200: AuditPage},
    "GET /v1/audit/export": {200: Lines("application/x-ndjson")},
    "GET /v1/usage": {200: Usage},
    "PUT /v1/ontologies/{name}": {200: LoadedOntology, 201: LoadedOntology, 202: Job},
    "GET /v1/ontologies/{name}": {200: Ontology},
    "DELETE /v1/ontologies/{name}": {200: DeletedOntology},
    "GET /v1/ontologies": {200: OntologyList},
    "GET /v1/ontologies/{name}/versions": {200: OntologyVersions},
    "GET /v1/ontologies/{name}/records": {200: Bytes("application/octet-stream")},
    "GET /v1/ontologies/{name}/diff": {200: OntologyDifference},
    "POST /v1/ontologies/{name}/activate": {200: ActivatedOntology},
    "POST /v1/ontologies/{name}/rollback": {200: ActivatedOntology},
    "GET /v1/rules": {200: Rules},
    "PUT /v1/attributes/{name}": _CHANGED,
    "GET /v1/attributes/{name}": {200: Declaration},
    "DELETE /v1/attributes/{name}": {200: DeclarationChange},
    "GET /v1/attributes": {200: AttributeList},
    "PUT /v1/synonyms/{name}": _CHANGED,
    "GET /v1/synonyms/{name}": {200: Declaration},
    "DELETE /v1/synonyms/{name}": {200: DeclarationChange},
    "GET /v1/synonyms": {200: SynonymList},
    "PUT /v1/rates": _CHANGED,
    "GET /v1/rates": {200: Declaration},
    "DELETE /v1/rates": {200: DeclarationChange},
    "PUT /v1/schemas/{type}": _CHANGED,
    "GET /v1/schemas/{type}": {200: Declaration},
    "DELETE /v1/schemas/{type}": {200: DeclarationChange},
    "GET /v1/schemas": {200: SchemaList},
    "PUT /v1/contexts": _CHANGED,
    "GET /v1/contexts": {200: Contexts},
    "DELETE /v1/contexts": {200: DeclarationChange},
    "PUT /v1/code-systems/{name}": _CHANGED,
    "GET /v1/code-systems/{name}": {200: Declaration},
    "DELETE /v1/code-systems/{name}": {200: DeclarationChange},
    "GET /v1/code-systems": {200: CodeSystemList},
    "PUT /v1/splits/{name}": _CHANGED,
    "GET /v1/splits/{name}": {200: DeclaredSplit},
    "DELETE /v1/splits/{name}": {200: DeclarationChange},
    "GET /v1/splits": {200: SplitsList},
    "PUT /v1/relations/{name}": _CHANGED,
    "GET /v1/relations/{name}": {200: Declaration},
    "DELETE /v1/relations/{name}": {200: DeclarationChange},
    "GET /v1/relations": {200: RelationList},
    "PUT /v1/aliases/{name}": _CHANGED,
    "GET /v1/aliases/{name}": {200: Declaration},
    "DELETE /v1/aliases/{name}": {200: DeclarationChange},
    "GET /v1/aliases": {200: AliasesList},
    "GET /v1/jobs/{id}": {200: Job},
    "GET /v1/concepts": {200: FoundConcepts},
    "GET /v1/concepts/resolve": {200: ResolvedTerm},
    "GET /v1/concepts/ancestors": {200: ConceptPage},
    "GET /v1/concepts/descendants": {200: ConceptPage},
    "GET /v1/concepts/children": {200: ConceptPage},
    "GET /v1/concepts/parents": {200: ConceptPage},
    "GET /v1/concepts/roots": {200: RootPage},
    "GET /v1/concepts/around": {200: PictureOfConcept},
    "GET /v1/concepts/usage": {200: UseOfConcept},
    "GET /v1/terms/unknown": {200: UnknownTerms},
    "POST /v1/check": {200: CheckedExpression},
    "GET /v1/shipped": {200: ShippedVocabularies},
    "GET /v1/shipped/{name}": {200: Text("text/turtle")},
    "GET /v1/events/stream": {200: Stream("events")},
    "GET /v1/events/recent": {200: RecentEvents},
    "GET /v1/series": {200: History},
    "GET /v1/subscriptions/{id}/attempts": {200: SentAttempts},
    "POST /v1/subscriptions": {201: CreatedSubscription},
    "GET /v1/subscriptions": {200: SubscriptionList},
    "GET /v1/subscriptions/export": {200: Lines("application/x-ndjson")},
    "POST /v1/subscriptions/export": {200: Lines("application/x-ndjson")},
    "POST /v1/subscriptions/import": {200: Imported},
    "GET /v1/subscriptions/{id}": {200: SubscriptionState},
    "PATCH /v1/subscriptions/{id}": {200: ChangedSubscription},
    "DELETE /v1/subscriptions/{id}": {200: Subscription},
    "GET /v1/subscriptions/{id}/plan": {200: SubscriptionPlan},
    "POST /v1/subscriptions/{id}/renew": {200: Subscription},
    "POST /v1/subscriptions/{id}/pause": {200: Subscription},
    "POST /v1/subscriptions/{id}/resume": {200: Subscription},
    "POST /v1/subscriptions/{id}/rotate-secret": {200: ChangedSubscription},
    "POST /v1/subscriptions/{id}/test": {200: TestDelivery},
    "POST /v1/subscriptions/{id}/stream-tokens": {201: StreamToken},
    "POST /v1/subscriptions/{id}/replay": {200: Subscription},
    "GET /v1/subscriptions/{id}/events": {200: MessagePage},
    "POST /v1/subscriptions/{id}/ack": {200: Cursor},
    "GET /v1/subscriptions/{id}/stream": {200: Stream("match", "expiring", "end"), 204: None},
    "GET /v1/dead-letters": {200: DeadLetters},
    "POST /v1/dead-letters/redrive": {200: Redriven},
    "OPTIONS /v1/cloudevents/subscriptions": {200: SubscriptionFeatures},
    "POST /v1/cloudevents/subscriptions": {201: CreatedCloudEventsSubscription},
    "GET /v1/cloudevents/subscriptions": {200: list[CloudEventsSubscription]},
    "OPTIONS /v1/cloudevents/subscriptions/{id}": {200: SubscriptionFeatures},
    "GET /v1/cloudevents/subscriptions/{id}": {200: CloudEventsSubscription},
    "PUT /v1/cloudevents/subscriptions/{id}": {200: CloudEventsSubscription},
    "DELETE /v1/cloudevents/subscriptions/{id}": {200: CloudEventsSubscription},
    "POST /v1/events": {202: Published},
    "GET /v1/events": {200: EventPage},
    "GET /v1/events/{sequence}/trace": {200: Trace},
    "POST /v1/ngsi-ld/notifications": {202: Published},
    "POST /v1/onerecord/notifications": {202: Published},
    "POST /v1/matches": {202: DeliveredMatches},
    "POST /v1/match": {200: Matched},
    "POST /v1/explain": {200: Explanation},
    "POST /v1/backtests": {202: BacktestJob},
    "GET /v1/backtests/{id}": {200: BacktestJob},
    "GET /v1/operators": {200: OperatorList},
    "GET /v1/operators/{name}": {200: OperatorDetail},
    "PUT /v1/operators/{name}": {200: OperatorState, 201: OperatorState},
    "DELETE /v1/operators/{name}": {200: DeletedOperator},
    "POST /v1/operators/retry": {200: Retried},
    "GET /v1/operator-data": {200: OperatorDataList},
    "PUT /v1/operator-data/regions": {200: OperatorData, 201: OperatorData},
    "DELETE /v1/operator-data/regions": {200: DeletedOperatorData},
    "PUT /v1/operator-data/windows": {200: OperatorData, 201: OperatorData},
    "DELETE /v1/operator-data/windows": {200: DeletedOperatorData},
    "PUT /v1/operator-data/tables/{name}": {200: OperatorData, 201: OperatorData},
    "DELETE /v1/operator-data/tables/{name}": {200: DeletedOperatorData},
    "GET /healthz": {200: Health},
    "GET /readyz": {200: Health},
    "GET /v1/status": {200: ServerStatus},
    "POST /v1/clock/confirm": {200: ClockConfirmed},
    "GET /asyncapi.json": {200: AsyncApiDocument},
    "GET /metrics": {200: Text("text/plain")},
}
"""Method and path as in the OpenAPI document → status → type of the answer."""

# ── the headers of answers ────────────────────────────────────────────────────────────────────────────────────────────

HEADERS: Mapping[str, str] = {
    "Allow": "The methods that the address supports, with 405.",
    "Cache-Control": "`no-store`: nobody may keep the answer.",
    "ETag": "The tag of this state, for `If-Match`.",
    "Link": 'The next page, if there is one: `<…>; rel="next"`.',
    "Location": "The address of what was made.",
    "Preference-Applied": "`respond-async`, if the request preferred it.",
    "RateLimit": "What is left of the limits of the key and its tenant.",
    "RateLimit-Policy": "The limits of the key and its tenant.",
    "Retry-After": "In how many seconds the request may be sent again, with 429 and a temporary 503.",
    "WWW-Authenticate": "How to send a key, with 401.",
}
"""The headers that answers may have, beside those of HTTP that all servers send, and what they hold."""

LIMITS = ("RateLimit", "RateLimit-Policy")
"""The headers of answers to requests that need a permission, if the key or its tenant has limits."""

OF_ERRORS = (*LIMITS, "Allow", "Retry-After", "WWW-Authenticate")

_OF_SUBSCRIPTION = "/v1/subscriptions/{id}"
_OF_CLOUDEVENTS = "/v1/cloudevents/subscriptions"

ROUTE_HEADERS: Mapping[str, tuple[str, ...]] = {
    "PUT /v1/ontologies/{name}": ("ETag", "Location", "Preference-Applied"),
    "GET /v1/ontologies/{name}": ("ETag",),
    "POST /v1/backtests": ("Location",),
    **dict.fromkeys(
        (
            *(f"{method} /v1/session" for method in ("GET", "POST", "PATCH", "DELETE")),
            *("POST /v1/keys", "POST /v1/keys/{id}/rotate", f"POST {_OF_SUBSCRIPTION}/stream-tokens"),
            *("GET /v1/events/stream", f"GET {_OF_SUBSCRIPTION}/stream"),
        ),
        ("Cache-Control",),
    ),
    "GET /v1/subscriptions": ("Link",),
    "POST /v1/subscriptions": ("ETag", "Location"),
    **{
        f"{method} {_OF_SUBSCRIPTION}{path}": ("ETag",)
        for method, path in (
            *(("GET", ""), ("PATCH", ""), ("DELETE", "")),
            *(("POST", f"/{change}") for change in ("renew", "pause", "resume", "rotate-secret", "replay")),
        )
    },
    f"GET {_OF_CLOUDEVENTS}": ("Link",),
    f"POST {_OF_CLOUDEVENTS}": ("ETag", "Location"),
    f"OPTIONS {_OF_CLOUDEVENTS}": ("Allow",),
    f"GET {_OF_CLOUDEVENTS}/{{id}}": ("ETag",),
    f"PUT {_OF_CLOUDEVENTS}/{{id}}": ("ETag",),
    f"OPTIONS {_OF_CLOUDEVENTS}/{{id}}": ("Allow",),
}
"""The headers of successful answers of a route. Tests compare every answer of the application with this table."""
