"""Where the command line of a run is executed: on this machine, or by whoever takes commands."""
