"""The column CELL of lists, which an installation without cells does not have."""

from collections.abc import Sequence


def with_cells(
    heads: Sequence[str], rows: Sequence[Sequence[str]], cells: Sequence[str], before: str
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return heads and rows with the cell of each row; `cells` has one for each, and is empty where there are none.

    >>> with_cells(("LAMBDA", "OWNER"), [("mail", "us")], ["b"], before="OWNER")
    (['LAMBDA', 'CELL', 'OWNER'], [['mail', 'b', 'us']])
    """
    if not any(cells):
        return heads, rows
    place = heads.index(before)
    with_column = [[*row[:place], cell, *row[place:]] for row, cell in zip(rows, cells, strict=True)]
    return [*heads[:place], "CELL", *heads[place:]], with_column
