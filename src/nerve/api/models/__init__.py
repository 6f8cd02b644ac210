"""Request and response models of the API, by what they are about.

Annotations are not strings, except recursive ones: pydantic compiles each string at import.
"""

from nerve.api.models.base import *
from nerve.api.models.facts import *
from nerve.api.models.gates import *
from nerve.api.models.messages import *
from nerve.api.models.people import *
from nerve.api.models.resources import *
from nerve.api.models.run_commands import *
from nerve.api.models.run_records import *
from nerve.api.models.runs import *
from nerve.api.models.triggers import *
from nerve.api.models.workflows import *
