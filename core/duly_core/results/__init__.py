"""How attempts end: results, with the tasks and nodes that callbacks added."""
