"""The alerts and the dashboard of deploy/ name metrics and runbook entries that exist.

Grafana is not at hand: its format is checked as far as it is used here. `test_alert_rules.py` has what promtool checks.
"""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.reference import metrics

ROOT = Path(__file__).parents[2]
RULES: dict[str, Any] = yaml.safe_load(
    (ROOT / "deploy/prometheus/duly.rules.yaml").read_text(encoding="utf-8")
)
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/duly.json").read_text(encoding="utf-8"))
ALL_RULES: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in ALL_RULES if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in ALL_RULES if "record" in rule}
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
PLOTS = [panel for panel in PANELS if panel["type"] != "row"]
EXPRESSIONS = {
    **{alert["alert"]: alert["expr"] for alert in ALERTS},
    **RECORDED,
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in PLOTS
        for target in panel["targets"]
    },
}
DURATION = re.compile(r"\d+[smhd]")
LABELS = re.compile(r"(?:by|without) \(([^)]*)\)|(\w+)(?:=~|!~|!=|=)\"")
FROM_PROMETHEUS = {"instance", "job", "le"}


def series_and_labels() -> dict[str, set[str]]:
    """The labels of each series that a process serves, by its name."""
    found: dict[str, set[str]] = {}
    for metric in metrics.all_metrics():
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        for ending in endings:
            found[metric.name + ending] = {*metric.labels, *FROM_PROMETHEUS}
    return found


@pytest.mark.parametrize("where", sorted(EXPRESSIONS))
def test_each_series_of_an_expression_exists_and_has_its_labels(where: str) -> None:
    expression = EXPRESSIONS[where]
    known = series_and_labels()

    named = set(re.findall(r"\bduly_\w+", expression))
    recorded = set(re.findall(r"\bduly:[\w:]+", expression))

    assert named or recorded or expression.startswith("up{"), "no metric of Duly"
    assert named <= known.keys()
    assert recorded <= RECORDED.keys()
    labels = {
        label.strip()
        for grouped, matched in LABELS.findall(expression)
        for label in (grouped or matched).split(",")
    }
    allowed = set.union(FROM_PROMETHEUS, *(known[name] for name in named))
    assert labels <= allowed


@pytest.mark.parametrize("where", sorted(EXPRESSIONS))
def test_an_expression_is_well_formed(where: str) -> None:
    bare = re.sub(r'"[^"]*"', '""', EXPRESSIONS[where])

    for opening, closing in ("()", "{}", "[]"):
        depths = [*itertools.accumulate((each == opening) - (each == closing) for each in bare)]
        assert min(depths) >= 0
        assert depths[-1] == 0
    for window in re.findall(r"\[([^]]*)\]", bare):
        assert window == "$__rate_interval" or DURATION.fullmatch(window)
    # a rate or an increase needs a counter's window, and a quantile the buckets
    for function, series in re.findall(r"\b(rate|increase)\((duly_\w+)", bare):
        assert series.endswith(("_total", "_bucket", "_sum", "_count")), function
    # and a bucket that is named by its bound is a share of all
    assert ("histogram_quantile" in bare) == ("_bucket" in bare and "_bucket{le=" not in bare)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_is_complete_and_has_its_runbook_entry(alert: dict[str, Any]) -> None:
    runbook = (ROOT / "docs/operators/runbook.md").read_text(encoding="utf-8")

    assert alert.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert DURATION.fullmatch(alert["for"])
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["runbook"] == f"docs/operators/runbook.md#{alert['alert'].lower()}"
    assert f"\n### {alert['alert']}\n" in runbook


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_the_labels_in_a_summary_are_left_by_its_expression(alert: dict[str, Any]) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))

    grouped = re.search(r"\bby \(([^)]*)\)", alert["expr"])

    if grouped:
        left = {label.strip() for label in grouped[1].split(",")} - {"le"}
        assert used <= left
    elif re.match(r"(sum|max|min|absent|time)\(", alert["expr"]):
        assert not used
    else:
        assert used <= FROM_PROMETHEUS


def test_names_of_alerts_and_groups_are_unique() -> None:
    assert RULES.keys() == {"groups"}
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    assert len({group["name"] for group in RULES["groups"]}) == len(RULES["groups"])


def test_the_page_lists_the_alerts_with_their_severities() -> None:
    page = (ROOT / "docs/operators/monitoring.md").read_text(encoding="utf-8")

    listed = re.findall(r"^\| \[(\w+)\]\(runbook\.md#(\w+)\).*\| (page|ticket) \|$", page, re.MULTILINE)

    assert listed == [(each["alert"], each["alert"].lower(), each["labels"]["severity"]) for each in ALERTS]


def test_a_plot_whose_values_may_be_negative_shows_them() -> None:
    signed = [panel for panel in PLOTS if "negative" in panel.get("description", "")]

    assert signed
    assert [panel["title"] for panel in signed if "min" in panel["fieldConfig"]["defaults"]] == []


def test_the_panels_of_the_dashboard_lie_side_by_side_within_its_width() -> None:
    taken: set[tuple[int, int]] = set()

    for panel in PANELS:
        place = panel["gridPos"]
        cells = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
            )
        )
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize("panel", PLOTS, ids=lambda panel: panel["title"])
def test_a_panel_reads_the_prometheus_that_is_chosen(panel: dict[str, Any]) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}

    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}

    assert panel["datasource"] == chosen
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["datasource"] == chosen
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | {"__rate_interval"}
        assert target["legendFormat"]
