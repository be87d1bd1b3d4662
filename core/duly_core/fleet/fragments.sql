-- What statements share about hosts and services.

-- fragment: host_state
-- The HostState of the row `host`.
case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - {{hosts.missed_reports}} * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end

-- fragment: instance_state
-- As `host_state`, of the row `each` of service_instance.
case when each.stopped then 'stopped'
    when each.reported_at <= duly_now() - {{hosts.missed_reports}} * each.report_interval then 'silent'
    when each.draining then 'draining'
    else 'alive' end
