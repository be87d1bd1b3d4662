-- What statements share about graphs.

-- fragment: edges
-- What a node waits for, and the conditions: its part of the arrays of all edges, which are in the order of the nodes.
(%(edges_from)b::uuid[])[first_edge : first_edge + waits_for - 1],
    (%(conditions)b::int2[])[first_edge : first_edge + waits_for - 1]
