"""The lambdas that the conformance suite of workers asks for."""
