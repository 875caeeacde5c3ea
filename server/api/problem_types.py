"""All problem types of the HTTP API: code → status and meaning. docs/problems.md shows the same table to users.

A problem's `type` is `https://kindcast.dev/problems/<code>`. A code, once published, keeps its meaning; clients may
compare codes, never sentences. To add one: a line here and in docs/problems.md, then `raise Problem("<code>", detail)`.
"""

from typing import Final, NamedTuple

__all__ = ["PROBLEM_TYPES", "TYPES", "ProblemType", "title"]

TYPES: Final = "https://kindcast.dev/problems/"


class ProblemType(NamedTuple):
    """One type of problem: the status of its answers and what it means to a client. `others` are statuses that some of
    its answers have instead."""

    status: int
    meaning: str
    others: tuple[int, ...] = ()


PROBLEM_TYPES: Final[dict[str, ProblemType]] = {
    # the request itself
    "malformed-request": ProblemType(400, "The request does not have the form that this address expects."),
    "malformed-json": ProblemType(400, "The body is not JSON."),
    "too-deep": ProblemType(400, "The JSON is nested too deeply."),
    "client-left": ProblemType(400, "The client closed the connection before the request was complete."),
    "invalid-cursor": ProblemType(400, "The cursor was not made by this list."),
    "cursor-gone": ProblemType(410, "The events after this cursor are older than the retention."),
    "invalid-request": ProblemType(422, "A parameter or a member of the body is missing, unknown or wrong.", (400,)),
    "not-in-this-version": ProblemType(501, "This version does not have the feature that the request uses.", (400,)),
    "unsupported-media-type": ProblemType(415, "The address does not accept this content type."),
    "unsupported-encoding": ProblemType(415, "The body has a content encoding that the server does not accept."),
    "body-too-large": ProblemType(413, "The body has more bytes than the limit."),
    "head-too-large": ProblemType(431, "The request line or the headers are larger than the limit."),
    "too-slow": ProblemType(408, "The request did not arrive within the time limit."),
    "wrong-host": ProblemType(421, "The Host header does not name this server."),
    "wrong-origin": ProblemType(403, "A page of another site may not make this request."),
    "precondition-failed": ProblemType(412, "The resource is not in the state that the condition names."),
    "not-found": ProblemType(404, "There is nothing at this address."),
    "method-not-allowed": ProblemType(405, "The address does not have this method."),
    # events
    "invalid-event": ProblemType(422, "An event breaks a rule of CloudEvents or of its event type."),
    "no-event-accepted": ProblemType(422, "No event of the request was accepted; `rejected` says why."),
    "too-many-events": ProblemType(413, "The request has more events than the limit."),
    "too-many-matches": ProblemType(422, "The event matches more subscriptions than the limit; it was not stored."),
    "unknown-context": ProblemType(422, "A JSON-LD document needs unknown contexts; `contexts` lists them."),
    "unknown-event": ProblemType(404, "There is no such event, or it is older than the retention."),
    # subscriptions and deliveries
    "invalid-subscription": ProblemType(422, "The expression has mistakes; `errors` has their places.", (400,)),
    "too-costly": ProblemType(422, "The answer takes longer than the time limit."),
    "unknown-subscription": ProblemType(404, "There is no such subscription."),
    "subscription-expired": ProblemType(409, "The subscription expired too long ago to be renewed."),
    "ticket-missing": ProblemType(401, "The change needs the ticket of the subscription."),
    "ticket-wrong": ProblemType(403, "The ticket is not that of the subscription."),
    "sink-missing": ProblemType(422, "The request has settings for a webhook, but no sink."),
    "sink-refused": ProblemType(422, "The address of the sink is not allowed.", (400,)),
    "backfill-too-large": ProblemType(422, "More past events were accepted since `start_at`, or match, than allowed."),
    "idempotency-key-reused": ProblemType(
        422, "There is another subscription of this Idempotency-Key or id, or what it made was changed since."
    ),
    "too-many-subscriptions": ProblemType(507, "The limit of subscriptions is reached."),
    "too-many-lines": ProblemType(413, "The import has more lines than the limit."),
    "index-full": ProblemType(507, "The memory limit of the index is reached."),
    # ontologies, declarations, concepts
    "malformed-ontology": ProblemType(400, "The document cannot be read in its format."),
    "unsupported-format": ProblemType(415, "The format of the ontology is not known."),
    "inconsistent-ontology": ProblemType(422, "The ontology contradicts itself."),
    "ontology-too-costly": ProblemType(422, "Reading or classifying the ontology takes more than the limit."),
    "reasoner-unavailable": ProblemType(501, "The reasoner is not installed."),
    "unknown-relation": ProblemType(422, "The ontology does not have the requested relation."),
    "unknown-ontology": ProblemType(404, "There is no such ontology, or no such version."),
    "ontology-in-use": ProblemType(409, "Subscriptions depend on this ontology; `subscriptions` names some."),
    "nothing-before": ProblemType(409, "No other version was active before."),
    "invalid-declaration": ProblemType(422, "The declaration has mistakes; `errors` lists them."),
    "unknown-declaration": ProblemType(404, "There is no such declaration."),
    "unknown-concept": ProblemType(404, "No concept has this name; `suggestions` has similar ones."),
    "ambiguous-term": ProblemType(409, "Several concepts have this name; `candidates` lists them."),
    # operators
    "unknown-operator": ProblemType(404, "There is no such remote operator."),
    "unknown-operator-data": ProblemType(404, "There are no such uploaded regions or tables."),
    "operator-in-use": ProblemType(409, "Subscriptions call this operator; `subscriptions` names some."),
    "operator-fixed": ProblemType(409, "The operator belongs to the server or a plug-in and cannot be changed."),
    "too-many-operators": ProblemType(507, "The limit of remote operators is reached."),
    # keys and limits
    "key-missing": ProblemType(401, "The request needs a key: `Authorization: Bearer …`."),
    "key-wrong": ProblemType(401, "The key is not known, was revoked, or its time is over."),
    "keys-needed": ProblemType(403, "A proxy passed the request on, and the server has no keys."),
    "token-wrong": ProblemType(
        401, "The token is not the identity provider's for this server, or not for this stream; or its time is over."
    ),
    "identity-provider-unavailable": ProblemType(503, "The identity provider did not tell its keys. Send it again."),
    "not-permitted": ProblemType(403, "The role of the key does not allow this request."),
    "hidden-attribute": ProblemType(403, "The request rests on values that are hidden from the role."),
    "other-tenant": ProblemType(403, "The key belongs to another tenant."),
    "unknown-tenant": ProblemType(404, "There is no such tenant."),
    "tenant-exists": ProblemType(409, "There is a tenant of this name already."),
    "tenant-in-use": ProblemType(409, "The tenant still has keys, or is `default`, which cannot be deleted."),
    "unknown-key": ProblemType(404, "There is no such key."),
    "last-key": ProblemType(409, "Without this key nobody could administer the server."),
    "limit-reached": ProblemType(429, "The key or its tenant has reached a limit. Wait for `Retry-After` seconds."),
    # jobs and the server
    "unknown-job": ProblemType(404, "There is no such job, or it ended long ago."),
    "spark-missing": ProblemType(501, "The back-test needs Spark, which is not installed."),
    "backtest-failed": ProblemType(500, "The Spark job of a back-test failed."),
    "busy": ProblemType(503, "Too much is waiting. Send the request again after `Retry-After`."),
    "store-unavailable": ProblemType(503, "The store did not take the change, so nothing has happened. Send it again."),
    "store-damaged": ProblemType(503, "The database is damaged and must be repaired."),
    "record-damaged": ProblemType(503, "A stored event is not what was accepted, so it is not given out."),
    "not-ready": ProblemType(503, "The server is not ready to work."),
    "internal-error": ProblemType(500, "Something went wrong in the server; its log has the details."),
}  # fmt: skip


def title(code: str) -> str:
    """The short title of a problem type.

    >>> title("unknown-concept")
    'Unknown concept'
    """
    return code.replace("-", " ").capitalize()
