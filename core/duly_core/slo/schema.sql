-- Objectives of lambdas (decision 0127).

-- What operators promise of the starts of some lambdas, in place of what the settings say: `share` of the runs begin at most `start_within`
-- after they could.
create table start_objective (
    -- A lambda, or a prefix that ends with an asterisk. The longest that fits a lambda holds for it.
    lambda text collate "C" primary key check (octet_length(lambda) between 1 and 255 and lambda <> '*'),
    share double precision not null check (share > 0 and share < 1),
    -- One of the bounds by which starts are counted (config/live_sections.py).
    start_within interval not null check (start_within > interval '0'),
    changed_at timestamptz not null
);
