"""The schema as one whole: what makes it, which one a store has, and how an older one becomes this release's."""
