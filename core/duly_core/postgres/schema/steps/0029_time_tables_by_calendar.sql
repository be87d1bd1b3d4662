-- The time tables that name a calendar are found.
-- step: index
-- locks: time_table share update exclusive
-- reads: time_table
create index concurrently time_table_by_calendar on time_table (calendar) where calendar is not null;
