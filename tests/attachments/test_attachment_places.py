"""Each cell has a place of its own for attachments: what one keeps there, the sweep of another takes for nobody's."""

from duly_core.attachments.settings import AttachmentSettings


def test_the_default_cell_and_a_sole_store_have_the_place_that_is_set():
    settings = AttachmentSettings(store="folder", folder="/attachments")

    assert settings.of_cell("", "a") == settings
    assert settings.of_cell("a", "a") == settings


def test_another_cell_has_a_folder_or_a_prefix_of_its_own():
    settings = AttachmentSettings(folder="/attachments", prefix="duly")

    of_cell = settings.of_cell("b", "a")

    assert (of_cell.folder, of_cell.prefix) == ("/attachments/cells/b", "duly/cells/b/")
    assert of_cell == settings.of_cell("b", "c")
