"""The part of AsyncClient that watches what happens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

from duly.errors import InvalidTaskError
from duly.graphs.graph import GraphRef, graph_id_of
from duly.transport import error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT
from duly.transport.client_part import ClientPart
from duly.watches.watch import Watch
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import watches_pb2


class WatchCalls(ClientPart):
    """Tells what happens to tasks and graphs."""

    async def watch(
        self,
        *,
        lambdas: Sequence[str] = (),
        graph: GraphRef | None = None,
        session: str = "",
        namespace: str = "",
        after: str = "",
        keep_for: timedelta | None = None,
    ) -> Watch:
        """Begin to watch: return once all that happens from now on will be told.

            watch = await client.watch(lambdas=["mail.*"])
            task = await client.schedule("mail.send", {"to": "ann@example.org"})
            async for event in watch:
                print(event.kind.name, event.status, event.task_id)

        Told are the ends of runs after which the task goes on, the ends of tasks, and graphs that finished. A start is not told.

        - `lambdas`: names, prefixes that end with `*`, or `*`. `graph`: its tasks, and the graph. `session`: the key, and in `namespace`
          that of its lambdas. All that are given must fit; without any, all that the caller may read is told.
        - `after`: go on behind the `position` of a watch, or of an event, with the same lambdas, graph and session. What happened meanwhile
          is told.
        - `keep_for`: how long the watch is kept while nobody reads: at least a minute, at most `store.watch_retention`; None: 10 minutes.
          Later on there is nothing to go on with.

        Raises InvalidTaskError, PermissionDeniedError, UnavailableError; with `after` also WatchLostError.
        """
        if isinstance(lambdas, str):
            raise InvalidTaskError(f"lambdas must be a list, not a text: use [{lambdas!r}]", "lambdas")
        request = watches_pb2.WatchRequest(
            lambdas=lambdas,
            graph_id=graph_id_of(graph) if graph is not None else "",
            session=session,
            session_namespace=namespace,
            keep_for=to_duration(keep_for) if keep_for is not None else None,
        )
        if after:
            request.after = after
        else:
            request.watch_id = os.urandom(16)
        caller = self._caller
        answer = await caller.call(caller.watches.Watch, request, DEFAULT_TIMEOUT)
        error_mapping.check(answer)
        request.watch_id = b""
        watch = Watch(caller, request)
        watch.take(answer)
        return watch
