"""The Executor: pulls work, keeps its claims alive, and has callback processes run it.

User code runs in the callback processes only (`duly_executor.callback`), never beside gRPC.
"""
