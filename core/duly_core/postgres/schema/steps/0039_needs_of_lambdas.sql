-- A lambda says of which resources each of its tasks takes units.
-- step: expand
-- locks: lambda access exclusive, lambda_declaration access exclusive
alter table lambda add column needs text;
alter table lambda_declaration add column needs text;
