-- What statements share about attachments.

-- fragment: namespace_of
-- The namespace of the lambda of the row that TEXT names; empty: the default one.
left({{}}.lambda, greatest(strpos({{}}.lambda, '/') - 1, 0))

-- fragment: uses_of
-- What the task that TEXT names uses, as JSON, inputs first; null: nothing. A use of another namespace was left of a task that had the
-- same id, and was removed.
(
    select json_agg(json_build_object(
        'hash', encode(used.hash, 'hex'), 'size_bytes', used.size_bytes, 'name', used.name, 'media_type', used.media_type, 'role', used.role
    ) order by used.by_run, used.position)
    from attachment_use as used
    where used.task_id = {{}}.task_id and used.namespace = {{namespace_of: {{}}}}
)

-- fragment: results_of
-- The same of what the result of the task that TEXT names uses.
(
    select json_agg(json_build_object(
        'hash', encode(used.hash, 'hex'), 'size_bytes', used.size_bytes, 'name', used.name, 'media_type', used.media_type, 'role', used.role
    ) order by used.position)
    from attachment_use as used
    where used.task_id = {{}}.task_id and used.by_run and used.role = {{role.result}} and used.namespace = {{namespace_of: {{}}}}
)
