"""The view that places an order.

ORDERS_DSN=postgresql://... DJANGO_SETTINGS_MODULE=examples.web.django_site.settings python -m django runserver
"""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from duly import transactional
from examples.web.lambdas import Placed, confirm


@csrf_exempt  # programs call it, with JSON
def place(request: HttpRequest) -> JsonResponse:
    """Write an order and its task, in the transaction of the request."""
    item = json.loads(request.body)["item"]
    with connection.cursor() as cursor:
        cursor.execute("insert into orders (item) values (%s) returning id", [item])
        (order,) = cursor.fetchone()
    task = transactional.schedule(connection, confirm, Placed(order, item))
    if not item:
        transaction.set_rollback(True)  # neither the order nor the task is written
        return JsonResponse({"error": "an order needs an item"}, status=422)
    return JsonResponse({"order": order, "task": task}, status=201)
