"""Each component of the list of a release has a licence that programs can read."""

from scripts.sbom_licences import name_licences


def component(name, *licences):
    return {"name": name, "version": "1", "licenses": list(licences)}


def test_a_licence_that_no_metadata_names_is_filled_in_and_one_that_nobody_read_is_told():
    listed = {
        "components": [
            component("protobuf"),
            component("Jinja2", {"license": {"name": "License :: OSI Approved :: BSD License"}}),
            component("grpcio", {"license": {"id": "Apache-2.0"}}),
            component("psycopg", {"expression": "LGPL-3.0-only"}),
            component("odd", {"license": {"name": "mine"}}),
            component("none"),
        ]
    }

    unknown = name_licences(listed)

    assert unknown == ["odd 1", "none 1"]
    assert [each["licenses"][0].get("expression") for each in listed["components"][:2]] == [
        "BSD-3-Clause"
    ] * 2
