-- Lambdas whose tasks take units of resources are found without the others.
-- step: index
-- locks: lambda share update exclusive
-- reads: lambda
create index concurrently lambda_with_needs on lambda (name) where needs is not null;
