"""Examples of Duly's use; `duly demo` is beside the one that it runs."""
