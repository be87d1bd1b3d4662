"""The console: Duly's pages for people, as a client of the Frontend."""
