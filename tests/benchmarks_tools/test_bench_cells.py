"""The model of many cells: costs grow by what one more cell costs, and a call of all cells is as slow as the slowest."""

from benchmarks.cells.simulation import DEADLINE_MS, CellCost, call_cost, estimate, fan_out, slope


def test_the_cost_of_one_more_cell_is_the_slope_between_two_installations():
    one, nine = CellCost(6.0, 120.0, 7, 3.0), CellCost(38.0, 280.0, 35, 27.0)

    assert slope((1, one), (9, nine)) == CellCost(4.0, 20.0, 3.5, 3.0)


def test_the_model_gives_back_what_was_measured():
    one, nine = CellCost(6.0, 120.0, 7, 3.0), CellCost(38.0, 280.0, 35, 27.0)

    again = estimate(9, one, slope((1, one), (9, nine)), [1.0])

    assert (again.cpu_percent, again.mib, again.connections, again.statements) == (3.8, 280.0, 35, 27.0)


def test_a_call_of_all_cells_is_as_slow_as_the_slowest():
    times = [1.0] * 99 + [50.0]

    alone, _ = fan_out(1, times, away=0)
    many, partial = fan_out(100, times, away=0)

    assert alone[len(alone) // 2] == 1.0
    assert many[len(many) // 2] == 50.0
    assert partial == 0


def test_a_cell_that_is_away_costs_a_call_its_deadline_and_makes_the_answer_partial():
    taken, partial = fan_out(3, [1.0], away=1.0)

    assert partial == 1.0
    assert set(taken) == {DEADLINE_MS}


def test_what_a_call_of_all_cells_takes_beyond_its_slowest_cell_grows_with_the_cells():
    alone, sixteen = (
        CellCost(6.0, 120.0, 7, 3.0),
        CellCost(38.0, 280.0, 35, 27.0, call_cost(16, [2.0], [17.0])),
    )

    held = estimate(16, alone, slope((1, alone), (16, sixteen)), [2.0], away=0)
    between = estimate(6, alone, slope((1, alone), (16, sixteen)), [2.0], away=0)

    assert (held.list_p50_ms, between.list_p50_ms) == (17.0, 7.0)
