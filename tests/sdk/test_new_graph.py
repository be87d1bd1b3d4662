"""Graphs as callers write them, in Python and in RackHD's JSON."""

from datetime import timedelta

import pytest

import duly
from duly.callbacks.payload import decode
from duly.graphs.definition import run_of
from duly_wire.v1 import graphs_pb2, task_pb2

RACKHD = {
    "friendlyName": "Discovery",
    "injectableName": "Graph.Discovery",
    "options": {"defaults": {"node": "n1"}, "reboot": {"force": True, "_taskTimeout": 90_000}},
    "tasks": [
        {"label": "set-boot-pxe", "taskName": "Task.Obm.Node.PxeBoot", "ignoreFailure": True},
        {"label": "reboot", "taskName": "Task.Obm.Node.Reboot", "waitOn": {"set-boot-pxe": "finished"}},
        {
            "label": "inline",
            "taskDefinition": {"injectableName": "Task.Inline", "options": {"node": "?", "x": 1}},
            "waitOn": {"anyOf": {"reboot": "succeeded", "set-boot-pxe": "failed"}},
        },
    ],
}


def nodes_of(graph):
    return {node.label: node for node in graph.to_proto().nodes}


def payload_of(node):
    return decode(node.task.payload, node.task.payload_encoding)


def test_after_says_which_ends_are_waited_for():
    g = duly.NewGraph("g")
    a, b = g.task("one"), g.task("one")
    g.task("all", after=[a, b.finished])
    g.task("any", after=duly.any_of(a.failed, b))

    nodes = nodes_of(g)

    assert list(nodes) == ["one", "one-2", "all", "any"]
    edges = {label: [(edge.label, edge.condition) for edge in nodes[label].waits_for] for label in nodes}
    assert edges["all"] == [("one", 1), ("one-2", 3)]
    assert edges["any"] == [("one", 2), ("one-2", 1)]
    assert [nodes[label].any_of for label in ("all", "any")] == [False, True]


def test_after_joins_ends_of_one_node_and_none_is_no_predecessor():
    g = duly.NewGraph("g", fail_fast=True)
    a, b = g.task("one", on_timeout="fatal"), g.task("one", after=None)
    g.task("two", after=a.failed | a.timed_out | a.skipped)

    nodes = nodes_of(g)
    (edge,) = nodes["two"].waits_for

    assert (edge.condition, list(edge.or_conditions)) == (2, [4, 6])
    assert [nodes[label].timeout_is_final for label in ("one", "one-2")] == [True, False]
    assert not nodes["one-2"].waits_for
    assert g.to_proto().fail_fast
    with pytest.raises(duly.InvalidTaskError, match=r"one node, not of 'one' and 'one-2': use duly.any_of"):
        a.failed | b.failed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after": 7}, r"what `task` returned, .* not int"),
        ({"after": "one"}, "not str"),
        ({"on_timeout": "fail"}, "on_timeout must be"),
    ],
)
def test_an_argument_of_a_node_that_cannot_be_is_refused_by_its_name(options, message):
    g = duly.NewGraph("g")

    with pytest.raises(duly.InvalidTaskError, match=message):
        g.task("two", **options)


def test_a_label_that_is_taken_and_a_node_of_another_graph_are_refused():
    g, other = duly.NewGraph("g"), duly.NewGraph("h")
    g.task("one", label="a")
    with pytest.raises(duly.InvalidTaskError, match="'a' is the label of another node"):
        g.task("one", label="a")
    with pytest.raises(duly.InvalidTaskError, match="not a node of this graph"):
        g.task("two", after=other.task("one", label="a"))
    with pytest.raises(duly.InvalidTaskError, match="not str"):
        g.task("two", after=["a"])


def test_the_json_of_rackhd_becomes_a_graph():
    graph = duly.graph_from_json(RACKHD)

    nodes = nodes_of(graph)
    assert graph.name == "Graph.Discovery"
    assert getattr(nodes["reboot"].task, "lambda") == "task.obm.node.reboot"
    assert nodes["set-boot-pxe"].ignore_failure
    assert payload_of(nodes["reboot"]) == {"node": "n1", "force": True}
    assert nodes["reboot"].max_runtime.ToTimedelta() == timedelta(seconds=90)
    assert nodes["reboot"].timeout_is_final
    assert not nodes["inline"].timeout_is_final
    assert graph.fail_fast
    assert nodes["inline"].any_of
    assert payload_of(nodes["inline"]) == {"node": "n1", "x": 1}


@pytest.mark.parametrize(
    ("said", "conditions"),
    [
        ("succeeded", [1]),
        ("failed", [2]),
        ("timeout", [4]),
        ("cancelled", [5]),
        ("skipped", [6]),
        ("finished", [3]),
        (["failed", "timeout"], [2, 4]),
    ],
)
def test_each_state_of_rackhd_is_a_condition(said, conditions):
    tasks = [{"label": "a", "taskName": "x"}, {"label": "b", "taskName": "x", "waitOn": {"a": said}}]

    (edge,) = nodes_of(duly.graph_from_json({"injectableName": "g", "tasks": tasks}))["b"].waits_for

    assert [edge.condition, *edge.or_conditions] == conditions


@pytest.mark.parametrize("timeout", [1e18, 10**20, 10**400, float("inf"), float("-inf"), float("nan")])
def test_a_timeout_that_no_run_can_have_is_refused_with_its_task(timeout):
    task = {"label": "reboot", "taskName": "x", "options": {"_taskTimeout": timeout}}

    with pytest.raises(duly.InvalidTaskError, match="'reboot': _taskTimeout must be at most 365 days"):
        duly.graph_from_json({"injectableName": "g", "tasks": [task]})


def test_the_overrides_of_rackhd_are_kept_or_refused():
    task = {
        "label": "a",
        "taskName": "x",
        "options": {"schedulerOverrides": {"timeout": 5000}},
        "optionOverrides": {"n": 1},
    }

    (node,) = nodes_of(duly.graph_from_json({"injectableName": "g", "tasks": [task]})).values()

    assert (payload_of(node), node.max_runtime.seconds, node.timeout_is_final) == ({"n": 1}, 5, True)
    task["options"] = {"schedulerOverrides": {"defaultTimeout": 1}}
    with pytest.raises(duly.InvalidTaskError, match="only timeout is known"):
        duly.graph_from_json({"injectableName": "g", "tasks": [task]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"injectableName": "", "friendlyName": ""}, "needs a name"),
        ({"tasks": [{"taskName": "x"}]}, "object with a label"),
        ({"tasks": [{"label": "a"}]}, "'a': taskName"),
        ({"tasks": [{"label": "a", "taskName": "x", "waitsOn": {}}]}, "'a': 'waitsOn' is unknown"),
        ({"tasks": [{"label": "a", "taskName": "x", "waitOn": {"b": "done"}}]}, "'done' is no condition"),
        (
            {"tasks": [{"label": "a", "taskName": "x", "waitOn": {"b": ["failed", "pending"]}}]},
            "'pending' is no condition",
        ),
        ({"tasks": [{"label": "a", "taskName": "x", "waitOn": {"b": []}}]}, "conditions is empty"),
        (
            {"tasks": [{"label": "a", "taskDefinition": {"injectableName": "x", "properties": {"os": 1}}}]},
            "'properties' is unknown",
        ),
        ({"options": {"nobody": {}}}, "no node has the label 'nobody'"),
        ({"retries": 3}, "'retries' is unknown"),
    ],
)
def test_json_that_is_no_graph_is_refused_and_says_where(change, message):
    with pytest.raises(duly.InvalidTaskError, match=message):
        duly.graph_from_json(RACKHD | change)


def a_definition(graph):
    return graphs_pb2.GraphDefinition(name="d", version=3, nodes=graph.to_definition())


def test_a_run_has_the_payloads_of_its_definition_with_the_options_over_them():
    definition = a_definition(duly.graph_from_json(RACKHD))

    run = run_of(definition, {"*": {"node": "n7"}, "inline": {"x": 2}})

    nodes = nodes_of(run)
    assert payload_of(nodes["set-boot-pxe"]) == {"node": "n7"}
    assert payload_of(nodes["inline"]) == {"node": "n7", "x": 2}
    assert run.definition == ("d", 3)
    assert all(node.task.task_id for node in nodes.values())


def test_a_payload_that_is_no_object_keeps_no_options():
    graph = duly.NewGraph("g")
    graph.task("one", b"raw")
    assert graph.to_definition()[0].task.payload_encoding == task_pb2.ENCODING_RAW

    with pytest.raises(duly.InvalidTaskError, match="no JSON object"):
        run_of(a_definition(graph), {"*": {"node": "n7"}})


def test_a_task_that_is_no_node_is_refused_and_the_way_to_add_it_is_named():
    with pytest.raises(duly.InvalidTaskError, match=r"is no node as it is sent: use graph\.task"):
        duly.NewGraph("g").add(duly.NewTask("mail.send"))
