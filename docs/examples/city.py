"""A city on NGSI-LD: one subscription at the broker, and subscribers who ask by kind, in their language and their unit.

    python docs/examples/city.py                 with a small city of our own, in `city/`
    python docs/examples/city.py --data FOLDER   with the entities of the Smart Data Models, too

FOLDER holds entities (`AirQualityObserved.jsonld` and so on) and their context, `environment-context.jsonld`, as the
Smart Data Models publish them. A server is started for the example, and removed with its data.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import httpx
from serving import served

from kindcast import Client

OWN = Path(__file__).parent / "city"
CONTEXT = "https://city.example/context.jsonld"
ASKED = {
    "environment office": "isa Observation",
    "Umweltamt": "isa Luftbeobachtung",
    "people with asthma": 'isa Pollen or no2 > 40 "ug/m3"',
    "parks": 'refDistrict = "urn:ngsi-ld:District:park"',
    "ice cream": "temperature > 70 degF",
}
MODELS = "https://smartdatamodels.org/dataModel.Environment/"
MAPPING = f"""
@prefix sdm: <{MODELS}> . @prefix : <https://city.example/ns#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
sdm:AirQualityObserved a owl:Class ; rdfs:subClassOf :AirQualityObserved .
sdm:AeroAllergenObserved a owl:Class ; rdfs:subClassOf :PollenObserved .
sdm:NoiseLevelObserved a owl:Class ; rdfs:subClassOf :NoiseLevelObserved .
sdm:WaterObserved a owl:Class ; rdfs:subClassOf :Observation .
"""
"""How the kinds of the Smart Data Models stand to those of the city."""


def main() -> None:
    """Prints what happens."""
    parser = argparse.ArgumentParser(description="a city on NGSI-LD")
    parser.add_argument("--data", type=Path, help="a folder with entities of the Smart Data Models")
    options = parser.parse_args()
    with served() as client:
        client.put_ontology("city", (OWN / "city.ttl").read_bytes(), content_type="text/turtle")
        client.put_context(CONTEXT, json.loads((OWN / "context.jsonld").read_text("utf-8")))
        notifications = [json.loads((OWN / "notification.json").read_text("utf-8"))]
        if options.data is not None:
            client.put_ontology("models", MAPPING.encode(), content_type="text/turtle")
            notifications += [notification_of(file, client) for file in sorted(options.data.glob("[A-Z]*.jsonld"))]
        ids = {client.subscribe(expression)["id"]: name for name, expression in ASKED.items()}
        for name, expression in ASKED.items():
            print(f"{name:18} {expression}")
        print("\nEntities of the broker, and their subscribers:")
        for notification in notifications:
            answer = httpx.post(f"{client.server}/v1/ngsi-ld/notifications", json=notification, timeout=60.0)
            answer.raise_for_status()
        show(client, ids)


def notification_of(file: Path, client: Client) -> dict[str, Any]:
    """A broker's notification of one entity; its contexts are uploaded."""
    entity = json.loads(file.read_text("utf-8"))
    context = json.loads((file.parent / "environment-context.jsonld").read_text("utf-8"))
    named = entity["@context"] if isinstance(entity["@context"], list) else [entity["@context"]]
    for url in named:
        if not url.startswith("https://uri.etsi.org/ngsi-ld/"):  # NGSI-LD's own context is shipped
            client.put_context(url, context)
    head = {
        "id": f"urn:ngsi-ld:Notification:{file.stem}",
        "type": "Notification",
        "subscriptionId": "urn:ngsi-ld:Subscription:7",
    }
    return {**head, "notifiedAt": "2026-06-01T12:00:00Z", "data": [entity]}


def show(client: Client, ids: dict[str, str]) -> None:
    """Prints who got which entity."""
    got: dict[str, list[str]] = {}
    for id, subscriber in ids.items():
        after: str | int = 0
        while (page := client.pull(id, after=after))["events"]:
            after = page["cursor"]
            for message in page["events"]:
                got.setdefault(message["event"]["subject"], []).append(subscriber)
    for subject, subscribers in sorted(got.items()):
        print(f"  {subject.removeprefix('urn:ngsi-ld:'):28} {', '.join(sorted(subscribers))}")
    events = client.events(limit=1_000)["events"]
    print(f"  {len(events) - len(got)} of {len(events)} entities have no match")


if __name__ == "__main__":
    main()
