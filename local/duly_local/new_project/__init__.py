"""`duly init`: the files of a new project, from the templates beside this module."""
