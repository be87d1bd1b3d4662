"""The machine: random calls of the store's functions, each answer and all rows held against the model."""

from tests.models.rules_consumer import ConsumerRules
from tests.models.rules_frontend import FrontendRules
from tests.models.rules_hsc import HscRules


class StoreMachine(FrontendRules, ConsumerRules, HscRules):
    """Every rule of every side; `world` is set by the test, in a subclass."""
