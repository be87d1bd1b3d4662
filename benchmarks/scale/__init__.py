"""What the console and searches cost beside 10,000 lambdas and 10 million tasks."""
