"""Callback processes: started, fed, watched, ended."""
