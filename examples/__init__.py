"""Examples of Duly's use; `duly demo` runs one of them."""
