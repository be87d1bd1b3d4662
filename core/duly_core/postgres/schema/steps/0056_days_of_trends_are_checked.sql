-- Each point of the trends is a minute, an hour or a day.
-- step: expand
-- locks: trend_point share update exclusive
-- reads: trend_point
alter table trend_point validate constraint trend_point_minutes_check;
