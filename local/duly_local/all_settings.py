"""Every section of settings that a process of Duly reads."""

import importlib

from duly_core.config.settings import Section

_SECTIONS = (
    ("duly_frontend.settings", "FrontendSettings"),
    ("duly_store_consumer.settings", "StoreConsumerSettings"),
    ("duly_hsc.settings", "HscSettings"),
    ("duly_controller.settings", "ControllerSettings"),
    ("duly_executor.settings", "ExecutorSettings"),
    ("duly_console.settings", "ConsoleSettings"),
    ("duly_autoscaler.settings", "AutoscalerSettings"),
    ("duly_core.config.timing", "Timing"),
    ("duly_core.queues.settings", "QueueSettings"),
    ("duly_core.postgres.settings", "StoreSettings"),
    ("duly_core.cells.settings", "CellSettings"),
    ("duly_core.attachments.settings", "AttachmentSettings"),
    ("duly_core.rpc.settings", "RpcSettings"),
    ("duly_core.access.settings", "AuthSettings"),
    ("duly_core.process.telemetry", "TelemetrySettings"),
    ("duly_core.notifications.settings", "NotificationSettings"),
    ("duly_core.config.live_sections", "LiveSloSettings"),
)


def sections() -> list[type[Section]]:
    """Return all sections, in the order in which they are shown."""
    return [getattr(importlib.import_module(module), name) for module, name in _SECTIONS]
