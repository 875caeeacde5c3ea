"""Earthquakes: a subscription with geography, and what it would have caught among stored events.

    python docs/examples/earthquakes.py

A server is started for the example. The quakes are computed, with a fixed seed, around the Mediterranean.
"""

import random
import time
from typing import Any

from pictures import dots, folder
from serving import served

REGION = "POLYGON((19 34, 29 34, 29 42, 19 42, 19 34))"
ASKED = f'kind isa Earthquake and magnitude >= 4.5 and inRegion("{REGION}", @place)'
KINDS = """
@prefix : <https://quakes.example/ns#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Earthquake rdfs:subClassOf :SeismicEvent . :Aftershock rdfs:subClassOf :Earthquake .
:QuarryBlast rdfs:subClassOf :SeismicEvent .
"""


def quakes() -> list[dict[str, Any]]:
    """300 seismic events: kind, magnitude and place."""
    draw = random.Random(7)
    return [
        {
            "kind": draw.choice(["Earthquake", "Earthquake", "Aftershock", "QuarryBlast"]),
            "magnitude": round(min(2 + draw.expovariate(0.9), 8), 1),
            "place": f"geo:{draw.uniform(30, 46):.3f},{draw.uniform(0, 40):.3f}",
        }
        for _ in range(300)
    ]


def main() -> None:
    """Publishes the quakes, asks what the subscription would have caught, then draws it."""
    events = quakes()
    with served() as client:
        client.put_ontology("quakes", KINDS.encode(), content_type="text/turtle")
        client.publish(events)
        job = client.start_backtest({"expression": ASKED})["id"]
        while (told := client.backtest(job))["status"] not in ("done", "failed"):
            time.sleep(0.1)
        result = told["result"]
        print(ASKED)
        print(f"{result['matched']} of {result['events']} stored events would have matched")
        for clause in result["clauses"]:
            for predicate in clause["predicates"]:
                print(f"  {predicate['text']}: holds for {predicate['holds']}")
        asked = client.subscribe(ASKED)["id"]
        matched = [
            asked in [match["subscription"] for match in each["matches"]] for each in client.match(events)["results"]
        ]
    points = [
        (float(place[1]), float(place[0]), hit)
        for event, hit in zip(events, matched, strict=True)
        for place in [event["place"].removeprefix("geo:").split(",")]
    ]
    dots(folder() / "earthquakes.svg", "Seismic events; red: what the subscription catches", points, "°E", "°N")


if __name__ == "__main__":
    main()
