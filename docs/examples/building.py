"""A building: readings of a day, and a subscription by kind of sensor, unit and room.

    python docs/examples/building.py

The vocabulary is the shipped one; Brick is used in the same way. The readings are computed: a room that is warm in the
afternoon.
"""

import math

from pictures import dots, folder

from kindcast import Matcher, Vocabulary

ASKED = 'point isa "Temperature sensor" and value > 77 degF and room = "office"'
KINDS = {"office": "Raumfühler", "roof": "Außenfühler", "hall": "Humidity sensor"}


def readings() -> list[dict[str, object]]:
    """A reading of each sensor every half hour."""
    found: list[dict[str, object]] = []
    for half in range(48):
        warm = 21 + 6 * max(0.0, math.sin((half - 16) / 24 * math.pi))
        for room, kind in KINDS.items():
            value = {"office": warm, "roof": warm - 8, "hall": 45 + warm}[room]
            unit = "percent" if room == "hall" else "degC"
            found.append(
                {"point": kind, "room": room, "value": {"value": round(value, 1), "unit": unit}, "hour": half / 2}
            )
    return found


def main() -> None:
    """Prints when the subscription matched, and what each predicate saw."""
    matcher = Matcher(Vocabulary.from_files("building.ttl"))
    matcher.add("too warm", ASKED)
    events = readings()
    matched = [bool(found) for found in matcher.match_batch(events)]
    hours = [event["hour"] for event, hit in zip(events, matched, strict=True) if hit]
    print(ASKED)
    print(f"{sum(matched)} of {len(events)} readings match, from {hours[0]} h to {hours[-1]} h")
    points = [
        (float(str(event["hour"])), float(event["value"]["value"]), hit)  # type: ignore[index]
        for event, hit in zip(events, matched, strict=True)
        if event["room"] != "hall"
    ]
    dots(folder() / "building.svg", "Temperatures of a day; red: more than 77 °F, in the office", points, "h", "°C")


if __name__ == "__main__":
    main()
