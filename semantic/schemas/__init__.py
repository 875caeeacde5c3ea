"""Event types: what their events hold, how they are extended, and what does not fit them.

Le Subscribe, section 2. README.md maps the files.
"""

from semantic.schemas.event_schemas import EventSchemas
from semantic.schemas.records import Domain, EventType, Shape, Use
from semantic.schemas.views import View, view_of

__all__ = ["Domain", "EventSchemas", "EventType", "Shape", "Use", "View", "view_of"]
