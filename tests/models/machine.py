"""The machine: random calls of the store's functions, each answer and all rows held against the model."""

from tests.models.rules_consumer import ConsumerRules
from tests.models.rules_frontend import FrontendRules
from tests.models.rules_hsc import HscRules
from tests.models.rules_work import WorkRules


class StoreMachine(FrontendRules, ConsumerRules, HscRules, WorkRules):
    """Every rule of every side; `world` is set by the test, in a subclass."""
