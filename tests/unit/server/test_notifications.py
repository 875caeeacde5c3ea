"""Notifications of NGSI-LD brokers and ONE Record servers, as CloudEvents: ids, contexts, forms of the same."""

from typing import Any

import pytest

from kindcast.semantic import InvalidEvent
from kindcast.server.api.notifications import CORE_CONTEXT, ngsi_ld_events, one_record_events

OTHER_CORE = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context-v1.6.jsonld"
MODEL = "https://example.com/contexts/parking.jsonld"
LINK = f'<https://example.com/next>; rel="next", <{MODEL}>; rel="http://www.w3.org/ns/json-ld#context"; type="a/b"'


def notification(*entities: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "urn:ngsi-ld:Notification:1",
        "type": "Notification",
        "subscriptionId": "urn:ngsi-ld:Subscription:7",
        "notifiedAt": "2026-03-01T12:00:00.5Z",
        "data": list(entities),
    } | more


def entity(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"urn:ngsi-ld:Spot:{number}", "type": "ParkingSpot", "free": {"type": "Property", "value": 3}} | more


def test_ngsi_ld_events_have_what_the_notification_says() -> None:
    """The whole event of a notification with one entity; of several, each id is the notification's with the place."""
    (event,) = ngsi_ld_events(notification(entity(1)))
    assert event == {
        "specversion": "1.0",
        "id": "urn:ngsi-ld:Notification:1",
        "source": "urn:ngsi-ld:Subscription:7",
        "type": "ParkingSpot",
        "subject": "urn:ngsi-ld:Spot:1",
        "time": "2026-03-01T12:00:00.5Z",
        "datacontenttype": "application/ld+json",
        "notificationid": "urn:ngsi-ld:Notification:1",
        "subscriptionid": "urn:ngsi-ld:Subscription:7",
        "data": {"@context": CORE_CONTEXT, **entity(1)},
    }
    several = ngsi_ld_events(notification(entity(1), entity(2), entity(1)), source="urn:city")
    assert len({each["id"] for each in several}) == 3
    assert {each["source"] for each in several} == {"urn:city"}


@pytest.mark.parametrize(
    ("given", "link", "expected"),
    [
        pytest.param({}, None, CORE_CONTEXT, id="none"),
        pytest.param({}, LINK, [MODEL, CORE_CONTEXT], id="in the header"),
        pytest.param({"@context": MODEL}, None, [MODEL, CORE_CONTEXT], id="in the notification"),
        pytest.param({"@context": [MODEL, OTHER_CORE]}, LINK, [MODEL, OTHER_CORE], id="with another core context"),
        pytest.param(
            {"@context": {"free": "https://e.com/free"}},
            None,
            [{"free": "https://e.com/free"}, CORE_CONTEXT],
            id="inline",
        ),
    ],
)
def test_ngsi_ld_context_is_where_brokers_put_it(given: dict[str, Any], link: str | None, expected: Any) -> None:
    """The core context is in force in any case; an entity's own context goes first."""
    (event,) = ngsi_ld_events(notification(entity(1), **given), link=link)
    assert event["data"]["@context"] == expected
    (own,) = ngsi_ld_events(notification(entity(1, **{"@context": MODEL}), **given), link=link)
    assert own["data"]["@context"] == [MODEL, CORE_CONTEXT]


def test_ngsi_ld_entities_in_other_forms() -> None:
    """One entity without a list, GeoJSON features, a type in a list, no ids at all."""
    features = {
        "type": "FeatureCollection",
        "features": [{"type": "Feature", "id": "urn:s:1", "geometry": None, "properties": {"type": "Spot", "free": 1}}],
    }
    (feature,) = ngsi_ld_events(notification(data=features))
    assert feature["data"] == {"@context": CORE_CONTEXT, "id": "urn:s:1", "type": "Spot", "free": 1}
    (alone,) = ngsi_ld_events(notification(data=entity(1, type=["Spot", "Place"])))
    assert alone["type"] == "Spot"
    nameless = ngsi_ld_events({"type": "Notification", "data": [{"type": "A"}, {"type": "B"}]}, digest="d")
    assert [each["id"] for each in nameless] == ["d#0", "d#1"]


@pytest.mark.parametrize(
    "body",
    [[], "text", None, {}, {"type": "Subscription", "data": []}, {"type": "Notification"}, notification(data=[1])],
    ids=repr,
)
def test_ngsi_ld_refuses_what_is_no_notification(body: Any) -> None:
    with pytest.raises(InvalidEvent):
        ngsi_ld_events(body)


API = {"@context": {"api": "https://onerecord.iata.org/ns/api#", "cargo": "https://onerecord.iata.org/ns/cargo#"}}
PIECE = "https://1r.example.com/logistics-objects/957e"
KIND = "https://onerecord.iata.org/ns/cargo#Piece"


def change(object: Any, **more: Any) -> dict[str, Any]:
    return {
        **API,
        "@type": "api:Notification",
        "api:hasEventType": {"@id": "api:LOGISTICS_OBJECT_UPDATED"},
        "api:hasLogisticsObject": object,
        "api:hasLogisticsObjectType": {"@type": "http://www.w3.org/2001/XMLSchema#anyURI", "@value": KIND},
        "api:hasChangedProperty": ["https://onerecord.iata.org/ns/cargo#grossWeight", {"@value": "cargo:upid"}],
        "api:isTriggeredBy": {"@id": "https://1r.example.com/action-requests/1"},
    } | more


def test_one_record_event_of_a_reference_and_of_an_embedded_object() -> None:
    """The data is the object, in the context of the notification, with the type that the notification gives."""
    (event,) = one_record_events(change({"@id": PIECE}), digest="d")
    assert event == {
        "specversion": "1.0",
        "id": "d",
        "source": "https://1r.example.com",
        "type": KIND,
        "subject": PIECE,
        "datacontenttype": "application/ld+json",
        "notificationtype": "LOGISTICS_OBJECT_UPDATED",
        "triggeredby": "https://1r.example.com/action-requests/1",
        "changedproperties": "https://onerecord.iata.org/ns/cargo#grossWeight cargo:upid",
        "data": {**API, "@type": KIND, "@id": PIECE},
    }
    embedded = {"@id": PIECE, "@type": "cargo:Piece", "cargo:goodsDescription": "Adverts"}
    (full,) = one_record_events(change(embedded, **{"@id": "urn:n:1"}), source="urn:carrier")
    assert (full["id"], full["source"], full["data"]) == ("urn:n:1", "urn:carrier", {**API, **embedded})


def test_one_record_forms_are_one_event() -> None:
    """Compacted, expanded, in a graph, in a list, with a bare IRI: the same identifiers and facts."""
    ns = "https://onerecord.iata.org/ns/api#"
    expanded = {
        "@type": [f"{ns}Notification"],
        f"{ns}hasEventType": [{"@id": f"{ns}LOGISTICS_OBJECT_UPDATED"}],
        f"{ns}hasLogisticsObject": [{"@id": PIECE}],
        f"{ns}hasLogisticsObjectType": [{"@type": "http://www.w3.org/2001/XMLSchema#anyURI", "@value": KIND}],
    }
    bare = {**API, "@type": "Notification", "hasEventType": "LOGISTICS_OBJECT_UPDATED", "hasLogisticsObject": PIECE}
    bodies = [change({"@id": PIECE}), [expanded], {"@graph": [expanded]}, bare | {"hasLogisticsObjectType": KIND}]
    said = [one_record_events(body, digest="d")[0] for body in bodies]
    assert (
        len({tuple(each[name] for name in ("id", "source", "type", "subject", "notificationtype")) for each in said})
        == 1
    )


def test_one_record_object_without_a_type_is_a_logistics_object() -> None:
    """A notification need not say the type of its object. Without a statement the object could not be an event."""
    untyped = {name: value for name, value in change({"@id": PIECE}).items() if name != "api:hasLogisticsObjectType"}
    (event,) = one_record_events(untyped, digest="d")
    kind = "https://onerecord.iata.org/ns/cargo#LogisticsObject"
    assert (event["type"], event["data"]) == (kind, {**API, "@type": kind, "@id": PIECE})


def test_one_record_notification_without_an_object_is_itself_the_event() -> None:
    """The status of a request for a subscription concerns no object."""
    request = "https://1r.example.com/action-requests/1"
    sent = {
        **API,
        "@type": "api:Notification",
        "api:hasEventType": {"@id": "api:SUBSCRIPTION_REQUEST_ACCEPTED"},
        "api:isTriggeredBy": {"@id": request},
    }
    (event,) = one_record_events(sent, digest="d")
    assert event == {
        "specversion": "1.0",
        "id": "d",
        "source": "https://1r.example.com",
        "type": "https://onerecord.iata.org/ns/api#Notification",
        "datacontenttype": "application/ld+json",
        "notificationtype": "SUBSCRIPTION_REQUEST_ACCEPTED",
        "triggeredby": request,
        "data": sent,
    }
    described = {"@id": request, "@type": "api:SubscriptionRequest", "api:isRequestedBy": {"@id": "urn:o:1"}}
    node = {name: value for name, value in sent.items() if name != "@context"} | {"@id": "urn:n:1"}
    (flat,) = one_record_events({**API, "@graph": [described, node]})
    assert (flat["id"], flat["data"]) == ("urn:n:1", {**API, **node, "@included": [described]})


def test_one_record_flattened_notification_has_what_other_nodes_say_of_its_object() -> None:
    """Some servers send all nodes side by side. The object has its members and the nodes that it needs, no others."""
    weight, shipment = {"@id": "_:b1", "cargo:numericalValue": 5}, {"@id": "urn:s:1", "cargo:pieces": {"@id": PIECE}}
    described = {
        "@id": PIECE,
        "@type": "cargo:Piece",
        "cargo:grossWeight": {"@id": "_:b1"},
        "cargo:of": [{"@id": "urn:s:1"}],
    }
    sent = change({"@id": PIECE}, **{"@id": "urn:n:1"})
    context = {"@context": sent.pop("@context")}
    for nodes in (
        [sent, described, weight, shipment, {"@id": "urn:x"}],
        [{"@id": "urn:x"}, shipment, described, weight, sent],
    ):
        (event,) = one_record_events({**context, "@graph": nodes})
        data = event["data"]
        included = {each["@id"]: each for each in data.pop("@included")}
        assert (event["id"], event["subject"], data) == ("urn:n:1", PIECE, {**context, **described})
        assert included == {"_:b1": weight, "urn:s:1": shipment}
    with pytest.raises(InvalidEvent):
        one_record_events({**context, "@graph": [sent, sent]})
    many = [{"@id": f"urn:o:{number}", "cargo:next": {"@id": f"urn:o:{number + 1}"}} for number in range(200)]
    objects = [{"@id": each["@id"]} for each in many]
    with pytest.raises(InvalidEvent, match="one by one"):
        one_record_events({**context, "@graph": [change(objects), *many]})
    (event,) = one_record_events({**context, "@graph": [change(objects[0]), *many]}, digest="d")
    assert len(event["data"]["@included"]) == 199


@pytest.mark.parametrize("body", [[], {}, {"@type": "api:Subscription"}, {"@type": "api:Notification"}], ids=repr)
def test_one_record_refuses_what_is_no_notification(body: Any) -> None:
    with pytest.raises(InvalidEvent):
        one_record_events(body)
