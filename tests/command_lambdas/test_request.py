"""Payloads of command lambdas: what is run, and what is refused, without a word of the payload in the message."""

import pytest

import duly
from duly.command_lambdas.definition import CommandLambda
from duly.command_lambdas.request import LONGEST_WORD, Pattern, read_request
from tests.command_lambdas.allowed import command_lambda

SECRET = "s3cret"
A_FILE = duly.Attachment(b"content", name="a.txt")


@pytest.fixture
def allowed() -> CommandLambda:
    return command_lambda(
        programs={"ps": "/usr/bin/ps"},
        settable=frozenset({"LANG"}),
        environment={"PATH": "/bin"},
        folder_limit=100,
    )


def test_a_payload_says_what_is_run(allowed: CommandLambda) -> None:
    payload = {
        "argv": ["ps", "-aux"],
        "environment": {"LANG": "C"},
        "stdin": A_FILE,
        "inputs": A_FILE,
        "outputs": ["*.txt"],
        "stdout": "output.txt",
    }

    request = read_request(allowed, payload)

    assert (request.program, request.argv) == ("/usr/bin/ps", ("ps", "-aux"))
    assert request.environment == {"PATH": "/bin", "LANG": "C"}
    assert (request.stdin, request.inputs, request.outputs) == (A_FILE, (A_FILE,), (Pattern("*.txt"),))
    assert (request.stdout_name, request.stderr_name) == ("output.txt", "stderr.txt")


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ({}, "argv: must be a list"),
        ({"argv": []}, "argv: must be a list"),
        ({"argv": "ps"}, "argv: must be a list"),
        ({"argv": ["ps", 1]}, "argv: must be text"),
        ({"argv": [SECRET]}, "argv: the program is not allowed here: ps"),
        ({"argv": ["/usr/bin/ps"]}, "not allowed here"),
        ({"argv": ["./ps"]}, "not allowed here"),
        ({"argv": ["ps", "\0"]}, "argv: has a NUL"),
        ({"argv": ["ps", "\ud800"]}, "argv: is no text"),
        ({"argv": ["ps", "x" * (LONGEST_WORD + 1)]}, "put it into a file"),
        ({"argv": ["ps", *(["x"] * 10_000)]}, "more than 10,000 words"),
        ({"argv": ["ps", *(["x" * 100_000] * 11)]}, "more than 1,048,576 bytes"),
        ({"script": SECRET}, "script: this lambda runs no shell"),
        ({"argv": ["ps"], SECRET: 1}, "has a field that no command has"),
        ({"argv": ["ps"], "environment": {"PATH": SECRET}}, "payloads of this lambda may set LANG"),
        ({"argv": ["ps"], "environment": {"LANG=x": SECRET}}, "no variable can have"),
        ({"argv": ["ps"], "environment": {"LANG": 1}}, "environment: must be text"),
        ({"argv": ["ps"], "environment": SECRET}, "environment: must be an object"),
        ({"argv": ["ps"], "inputs": [SECRET]}, "inputs: must be an attachment"),
        ({"argv": ["ps"], "inputs": [A_FILE, duly.Attachment(b"", name="a.txt")]}, "two have the same name"),
        ({"argv": ["ps"], "inputs": [duly.Attachment(bytes(101))]}, "the folder's limit is 100"),
        (
            {"argv": ["ps"], "inputs": A_FILE, "stdin": duly.Attachment(bytes(99))},
            "the folder's limit is 100",
        ),
        ({"argv": ["ps"], "stdin": SECRET}, "stdin: must be an attachment"),
        ({"argv": ["ps"], "outputs": SECRET}, "outputs: must be a list"),
        ({"argv": ["ps"], "outputs": ["../" + SECRET]}, "outputs: each is a path within the folder"),
        ({"argv": ["ps"], "outputs": ["/etc/passwd"]}, "within the folder"),
        ({"argv": ["ps"], "outputs": ["a/../../b"]}, "within the folder"),
        ({"argv": ["ps"], "outputs": [""]}, "within the folder"),
        ({"argv": ["ps"], "outputs": ["x"] * 101}, "more than 100 patterns"),
        ({"argv": ["ps"], "stdout": "../x"}, 'stdout: the name under which it is kept has a "/"'),
        ({"argv": ["ps"], "stdout": "x", "stderr": "x"}, "they need different names"),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_field(
    allowed: CommandLambda, payload: object, problem: str
) -> None:
    with pytest.raises(duly.PayloadError) as refused:
        read_request(allowed, payload)

    assert problem in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_script_runs_only_where_a_shell_is_allowed() -> None:
    request = read_request(command_lambda(shell="/bin/bash"), {"script": "ps -aux"})  # noqa: S604 (it is no subprocess)

    assert (request.program, request.argv) == ("/bin/bash", ("/bin/bash", "-c", "ps -aux"))


@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("a.txt", "a.txt", True),
        ("*.txt", "b/a.txt", False),
        ("**/*.txt", "a.txt", True),
        ("**/*.txt", "b/c/a.txt", True),
        ("b/**", "b/c/a.txt", True),
        ("b/**", "c/a.txt", False),
        ("b/?/[ab].txt", "b/c/a.txt", True),
        ("/".join(["**"] * 60), "/".join(["x"] * 60), True),
        ("/".join(["**", "x"] * 30) + "/y", "/".join(["x"] * 60), False),
    ],
)
def test_a_pattern_means_files_by_their_paths(pattern: str, path: str, is_meant: bool) -> None:
    assert Pattern(pattern).matches(path) is is_meant


def test_a_path_of_many_folders_is_compared_in_time() -> None:
    path = "/".join(["a"] * 2000)

    assert Pattern("/".join(["**", "a"] * 50)).matches(path)
    assert not Pattern("/".join(["**", "a"] * 50 + ["b"])).matches(path)
