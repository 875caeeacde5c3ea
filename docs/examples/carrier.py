"""A carrier's extension of ONE Record: who subscribed to shipments gets the carrier's own kind of shipment.

    python docs/examples/carrier.py                 with a small model of our own, in `carrier/`
    python docs/examples/carrier.py --data FOLDER   with ONE Record's own models and example documents

FOLDER holds `IATA-1R-DM-2025-07.ttl.gz`, `IATA-1R-DM-2026-07.ttl.gz` (or the files unpacked) and `examples/*.json`, as
IATA publishes them. A server is started for the example, and removed with its data.
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from serving import served

from kindcast import Client

OWN = Path(__file__).parent / "carrier"
ASKED = {
    "customs": "isa LogisticsObject",
    "forwarder": "isa Shipment",
    "carrier desk": "isa SpecificShipment",
    "heavy freight": "isa Shipment and totalGrossWeight > 10 kg",
    "tracking": "isa LogisticsEvent",
}
EXTENSION = """
@prefix : <https://carrier.example/ns#> .
@prefix cargo: <https://onerecord.iata.org/ns/cargo#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:SpecificShipment a owl:Class ; rdfs:subClassOf cargo:Shipment ; rdfs:label "Specific shipment"@en .
"""
"""What `carrier/extension.ttl` says, about IATA's model."""


def main() -> None:
    """Prints what happens."""
    parser = argparse.ArgumentParser(description="a carrier's extension of ONE Record")
    parser.add_argument("--data", type=Path, help="a folder with ONE Record's own models and documents")
    options = parser.parse_args()
    old, new, extension, documents = own() if options.data is None else real(options.data)
    with served() as client:
        client.put_ontology("cargo", old, content_type="text/turtle")
        client.put_ontology("carrier", extension, content_type="text/turtle")
        ids = {client.subscribe(expression)["id"]: name for name, expression in ASKED.items()}
        for name, expression in ASKED.items():
            print(f"{name:14} {expression}")
        print("\nUnder the older model:")
        publish(client, "old", documents, ids)
        print("\nThe newer model is stored. What would it change?")
        version = client.put_ontology("cargo", new, content_type="text/turtle", activate=False)["version"]
        tell(client.activate_ontology("cargo", version, dry_run=True), ids)
        print("\nThe newer model is activated.")
        tell(client.activate_ontology("cargo", version), ids)
        print("\nUnder the newer model:")
        publish(client, "new", documents, ids)


def own() -> tuple[bytes, bytes, bytes, dict[str, Any]]:
    """Older model, newer model, extension, and documents by name."""
    models = ((OWN / f"{name}.ttl").read_bytes() for name in ("cargo-2025", "cargo-2026", "extension"))
    return *models, read_documents(OWN / "documents")  # type: ignore[return-value]


def real(folder: Path) -> tuple[bytes, bytes, bytes, dict[str, Any]]:
    """The same of the standard itself, with a document of the carrier's own kind."""
    documents = read_documents(folder / "examples")
    shipment = json.dumps(documents["Shipment_with_Piece"])
    documents["SpecificShipment"] = json.loads(
        shipment.replace("cargo:Shipment", "https://carrier.example/ns#SpecificShipment")
    )
    old, new = (unpacked(folder, f"IATA-1R-DM-{month}.ttl") for month in ("2025-07", "2026-07"))
    return old, new, EXTENSION.encode(), documents


def read_documents(folder: Path) -> dict[str, Any]:
    return {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))}


def unpacked(folder: Path, name: str) -> bytes:
    packed = folder / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()


def publish(client: Client, model: str, documents: dict[str, Any], ids: dict[str, str]) -> None:
    """Publishes each document as an event of its own, and prints who got it."""
    for name, document in documents.items():
        head = {"specversion": "1.0", "id": f"{model}-{name}", "source": "/example", "type": "document"}
        client.publish({**head, "datacontenttype": "application/ld+json", "data": document})
    got: dict[str, list[str]] = {name: [] for name in documents}
    for id, subscriber in ids.items():
        after: str | int = 0
        while (page := client.pull(id, after=after))["events"]:
            after = page["cursor"]
            for message in page["events"]:
                sent, _, name = message["event"]["id"].partition("-")
                if sent == model:
                    got[name].append(subscriber)
    for name, subscribers in got.items():
        if subscribers:
            print(f"  {name:28} {', '.join(sorted(subscribers))}")
    print(f"  {sum(not each for each in got.values())} of {len(got)} documents have no match")


def tell(told: dict[str, Any], ids: dict[str, str]) -> None:
    """Prints whom another version of a model affects."""
    impact = told["impact"]["subscriptions"]
    print(f"  {impact['changed']} of {impact['live']} subscriptions mean something else")
    for each in impact["listed"]:
        print(f"  {ids[each['id']]}: {'; '.join(each['changes'])}")


if __name__ == "__main__":
    main()
